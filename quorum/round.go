package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// round is one operation on one claim on all nodes: it collects the answers until the outcome is decided. What
// arrives later is still taken note of, but decides nothing any more.
type round struct {
	q     *Quorum
	op    operation
	claim driver.Claim
	bound time.Duration
	start clock.Instant // before the first request (R11)

	// Guarded by mu, which is taken before a shard's mutex where both are needed:
	mu sync.Mutex
	verdict
	record  *record
	gen     uint64 // of the record, as this round means it
	cleaned bool   // everything was given back
	parts   []part
	open    int           // calls that have not returned
	quiet   *parker       // woken when that is 0, if somebody waits for it
	until   clock.Instant // when the calls made last are given up
	last    clock.Instant // when all is given up, however late some node was asked
}

// part is one node's part in a round.
type part struct {
	outcome
	call call
}

// outcome is what is known of one node.
type outcome struct {
	status status
	result driver.Result // if answered
	err    error         // if failed or left out
}

type status uint8

const (
	leftOut  status = iota // not asked as long as the others will do
	asked                  // no answer yet
	failed                 // no answer to be expected
	answered               // result holds
)

// tally counts outcomes.
type tally struct {
	asked, failed, leftOut, answered int

	held, busy, lost int // of those that answered, by state
	maybe, permanent int // of those that failed: the call may have taken effect; asking again will not help
}

// begin starts a round on all nodes. The order in which the rounds of a key begin is the order of their effects.
func (q *Quorum) begin(op operation, claim driver.Claim, start clock.Instant) *round {
	r := &round{
		q: q, op: op, claim: claim, start: start,
		bound: q.config.bound(claim.TTL),
		parts: make([]part, len(q.nodes)),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.launch(false)
	r.settle()
	return r
}

// launch asks the nodes that were left out so far. Without force those that are down stay left out.
func (r *round) launch(force bool) {
	q := r.q
	full := r.bound + grace(r.bound)
	now := r.start
	if r.last == 0 {
		r.last = now.Add(2 * full)
	} else {
		now = clock.Now()
	}
	// Nodes may turn out to be needed one after the other. That must not add up.
	r.until = min(now.Add(full), r.last)
	deadline := clock.In(r.bound) // of the calls made now; those made before keep theirs
	var turn, debts nodeSet
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	t, current := r.enterLocked(s)
	for i := range r.parts {
		p := &r.parts[i]
		if p.status != leftOut {
			continue
		}
		if !current {
			p.outcome = outcome{status: failed, err: refused(errOvertaken, false)}
			continue
		}
		probe, err := q.nodes[i].admit(force)
		if err != nil {
			if p.outcome = r.without(i, err, force); p.status != answered && r.op == releasing && !driver.Permanent(err) {
				debts |= only(i) &^ r.record.owed
				r.record.owed |= only(i)
			}
			continue
		}
		p.status = asked
		p.call = call{
			q: q, op: r.op, node: i, probe: probe, forced: force, claim: &r.claim, record: r.record,
			start: r.start, bound: r.bound, ctx: bounded{deadline: deadline}, to: r,
		}
		r.open++
		q.flight.add(1)
		if t.push(&p.call) {
			turn |= only(i)
		}
	}
	s.tidyLocked(t, r.record)
	s.mu.Unlock()

	for i := range r.parts {
		if turn.has(i) {
			q.crew.start(&r.parts[i].call)
		}
		if debts.has(i) {
			q.owe(q.nodes[i], debt{r.claim.Key, r.claim.Owner})
		}
	}
}

// without is the outcome for a node that is not asked.
func (r *round) without(i int, err error, force bool) outcome {
	switch {
	case r.op == releasing && !r.record.touched.has(i):
		// The claim was never sent there, so there is nothing to release. It matters while a
		// node is down: else each acquisition would leave a debt.
		o := outcome{status: answered}
		o.result.State = driver.Lost
		return o
	case force || driver.Permanent(err):
		return outcome{status: failed, err: err}
	default:
		return outcome{status: leftOut, err: err}
	}
}

// enterLocked finds or makes the claim's record, and says whether the round is still the latest
// word on the claim. The first time it is.
func (r *round) enterLocked(s *shard) (t *track, current bool) {
	t = s.trackLocked(r.claim.Key)
	if r.record == nil {
		r.record, current = t.find(r.claim.Owner), true
		if r.record == nil {
			r.record = &record{owner: r.claim.Owner}
			if r.op == releasing {
				r.record.touched = everyOf(len(r.parts)) // for all that is known
			}
			t.records = append(t.records, r.record)
		}
		if r.op == acquiring {
			r.record.begin(&r.claim, r.start, r.q)
		} else {
			r.record.end()
		}
		r.gen = r.record.gen
		return t, true
	}
	known := t.find(r.claim.Owner)
	if known == nil && r.op == releasing {
		known = r.record
		t.records = append(t.records, known)
	}
	return t, known == r.record && known.gen == r.gen && !(r.op == acquiring && known.over)
}

// begin takes note of an acquisition. Called with the shard's mutex held.
func (r *record) begin(claim *driver.Claim, start clock.Instant, q *Quorum) {
	until := start.Add(2*claim.TTL + q.config.bound(claim.TTL))
	if r.gen == 0 || until > r.expires {
		r.expires = until
	}
	r.gen = q.generation.Add(1)
	r.over = false
	if claim.Queue {
		r.wait(claim, start, q)
	}
}

// end takes note of a release. Called with the shard's mutex held.
func (r *record) end() {
	r.over, r.held = true, false
	r.stopWaiting()
}

// answer implements receiver.
func (r *round) answer(c *call, result driver.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	p := &r.parts[c.node]
	if c.unmade {
		if p.status == asked { // and not given up yet
			p.outcome = outcome{status: leftOut, err: err}
		}
	} else if err != nil {
		p.outcome = outcome{status: failed, err: err}
	} else {
		p.outcome = outcome{status: answered, result: result}
	}
	r.settle()
}

// attend implements awaited.
func (r *round) attend(p *parker) (decided bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = p
	return r.decided
}

// expire implements awaited.
func (r *round) expire() (decided bool, rest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided {
		return true, 0
	}
	if rest := r.until.Sub(clock.Now()); rest > 0 {
		return false, rest
	}
	late := r.until < r.last
	r.until = r.last
	for i := range r.parts {
		// A call that had to wait for its turn has not had its time yet.
		if p := &r.parts[i]; p.status == asked && !(late && p.call.queued) {
			p.outcome = outcome{status: failed, err: &driver.Error{Maybe: true, Err: slowError(r.bound)}}
		}
	}
	r.settle()
	return r.decided, r.until.Sub(clock.Now())
}

// settle decides the round if it can be decided, and asks more nodes if that is what it takes. Called with
// r.mu held.
func (r *round) settle() {
	for !r.decided {
		t := r.tally()
		judge := r.judgeRelease
		if r.op == acquiring {
			judge = r.judgeAcquire
		}
		decided, more := judge(&t)
		if decided {
			r.decide()
		} else if more {
			r.launch(true)
		} else {
			break
		}
	}
	if r.open == 0 && r.quiet != nil {
		r.quiet.wake()
	}
}

func (r *round) tally() tally {
	var t tally
	for i := range r.parts {
		t.count(&r.parts[i].outcome)
	}
	return t
}

func (t *tally) count(o *outcome) {
	switch o.status {
	case asked:
		t.asked++
	case leftOut:
		t.leftOut++
	case failed:
		t.failed++
		if maybe(o.err) {
			t.maybe++
		}
		if driver.Permanent(o.err) {
			t.permanent++
		}
	case answered:
		t.answered++
		switch o.result.State {
		case driver.Held:
			t.held++
		case driver.Busy:
			t.busy++
		case driver.Lost:
			t.lost++
		}
	}
}

// judgeAcquire decides an acquisition: a majority of grants, or none possible any more. Then it still has to be told
// apart why, and for that a majority of answers of any kind, or of failures, is enough.
func (r *round) judgeAcquire(t *tally) (decided, more bool) {
	n, need := len(r.parts), r.q.need
	possible := t.held+t.asked+t.leftOut >= need
	switch {
	case t.held >= need:
		return true, false
	case t.held+t.asked >= need:
		return false, false
	case possible && t.answered+t.asked < need:
		// The failures are in the way, not other holders: the nodes that are down may be back.
		return false, true
	}
	decided = t.answered >= need || t.failed+t.leftOut > n-need || t.asked == 0
	if (decided || !possible) && !r.cleaned && !r.claim.Queue {
		r.cleaned = true
		r.q.giveBack(r.claim)
	}
	return decided, false
}

// judgeRelease decides a release: a majority held the claim until now, or too many did not.
func (r *round) judgeRelease(t *tally) (decided, more bool) {
	n, need := len(r.parts), r.q.need
	switch {
	case t.held >= need || t.lost+t.busy > n-need:
		return true, false
	case t.answered+t.asked < need && t.leftOut > 0:
		return false, true
	default:
		return t.asked == 0, false
	}
}

// wait returns nil when the round is decided, and the error of ctx if that ends first. It takes
// no longer than the bound, or twice that if nodes that are down had to be asked after all.
func (r *round) wait(ctx context.Context) error {
	return r.q.await(ctx, r, r.bound+grace(r.bound))
}

// linger waits a moment for the nodes that have not answered, though it is decided that there is no majority: the
// error is to say of every node what is wrong with it, and nobody is in a hurry to fail.
func (r *round) linger(ctx context.Context) {
	p := r.q.parking.get(r.bound / 5)
	defer r.q.parking.put(p)
	until := clock.Now().Add(r.bound / 5)
	for r.noisy(p) && clock.Now() < until {
		select {
		case <-p.woken:
		case <-ctx.Done():
			r.noisy(nil)
			return
		}
	}
	r.noisy(nil)
}

// noisy reports whether calls have not returned, and has p woken when they have.
func (r *round) noisy(p *parker) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet = p
	return r.open > 0
}

// failure is the error of a round without a majority. Called with r.mu held.
func (r *round) failure(t *tally, cause error) *driver.Error {
	e := &Error{Need: r.q.need, Got: t.held, Nodes: make([]NodeError, len(r.parts)), cause: cause}
	for i := range r.parts {
		p := &r.parts[i]
		ne := NodeError{Node: r.q.nodes[i].name, State: p.result.State, Holder: p.result.Holder, Err: p.err}
		if p.status == asked {
			ne.Err = &driver.Error{Maybe: true, Err: errNotYet}
		}
		e.Nodes[i] = ne
	}
	return &driver.Error{Permanent: t.permanent > len(r.parts)-r.q.need, Err: e}
}
