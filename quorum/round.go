package quorum

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// round is one operation on one claim, on all nodes. It collects the answers until the outcome is
// decided. Later answers are noted but do not change the decision.
type round struct {
	q     *Quorum
	op    node.Operation
	claim driver.Claim
	bound time.Duration
	start clock.Instant // before the first request: the validity counts from here

	// Its mutex guards all that follows. It is taken before a shard's where both are needed.
	decision
	record     *record
	generation uint64 // of the record when the round began
	repeated   bool   // it is a release, and the claim was released before
	cleaned    bool   // the claim was given back
	parts      []part
	open       int           // calls that have not returned
	returned   *parker       // woken when one has, if somebody waits for that
	last       clock.Instant // when every node is given up, however late it was asked
}

// part is one node's part in a round.
type part struct {
	outcome
	call node.Call
}

// outcome is what is known of one node.
type outcome struct {
	progress progress
	result   driver.Result // if answered
	err      error         // if failed or left out
}

// progress is how far a node has come.
type progress uint8

const (
	leftOut  progress = iota // not asked while the others are enough
	asked                    // no answer yet
	failed                   // no answer to be expected
	answered                 // result holds
)

// tally counts outcomes.
type tally struct {
	asked, failed, leftOut, answered int

	held, busy, lost int // of those that answered, by state
	// of those that failed: the call may have taken effect (maybe); asking again will not help
	// (permanent)
	maybe, permanent int
}

// begin starts a round on all nodes. The rounds of a key take effect in the order in which they
// begin.
func (q *Quorum) begin(op node.Operation, claim driver.Claim, start clock.Instant) *round {
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

// launch asks the nodes that have not been asked yet. Unless force is true, it leaves out nodes
// that are down.
func (r *round) launch(force bool) {
	q := r.q
	full := r.bound + grace(r.bound)
	now, first := r.start, r.last == 0
	if first {
		r.last = now.Add(2 * full)
	} else {
		now = clock.Now()
	}
	// Nodes may turn out to be needed one after the other, and their times must not add up.
	r.until = min(now.Add(full), r.last)
	deadline := clock.In(r.bound) // of the calls made now; those made before keep theirs
	var turn, pending node.Set
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	k, current := r.enterLocked(s)
	for i := range r.parts {
		p := &r.parts[i]
		if p.progress != leftOut {
			continue
		}
		if !current {
			p.outcome = outcome{progress: failed, err: node.Refused(node.ErrOvertaken, false)}
			continue
		}
		if r.op == node.Releasing && !r.record.history.Touched().Has(i) {
			// The node does not have the claim: it was never asked for it, or it has confirmed a
			// release. Otherwise each acquisition would leave a pending release while the node is
			// down, and each repeated release would ask all nodes.
			p.outcome = r.absent(i, first)
			continue
		}
		probe, err := q.nodes[i].Admit(force)
		if err != nil {
			p.outcome = r.without(i, err, force || r.repeats(i))
			if r.owes(p, err) && r.record.history.Pend(i) {
				pending |= node.Only(i)
			}
			continue
		}
		p.progress = asked
		p.call = node.Call{
			Node: q.nodes[i], Op: r.op, Claim: &r.claim, History: &r.record.history, Began: r.start,
			Bound: r.bound, Until: deadline, Probe: probe, Forced: force, To: r,
		}
		r.open++
		if p.call.Push() {
			turn |= node.Only(i)
		}
	}
	r.record.Tidy()
	k.tidy() // it may not be the record's key, if this round is overtaken
	s.mu.Unlock()

	for i := range r.parts {
		if turn.Has(i) {
			r.parts[i].call.Start()
		}
		if pending.Has(i) {
			q.nodes[i].Pend(&r.record.history, r.claim.Key, r.claim.Owner)
		}
	}
}

// absent returns the outcome of a release for a node that does not have the claim. Unless this is
// the round's first launch, the node was left out, and may have held the claim until it confirmed
// the release that was pending since.
func (r *round) absent(i int, first bool) outcome {
	o := outcome{progress: answered, result: driver.Result{State: driver.Lost}}
	if !first {
		o.result.State = r.record.history.Gone(i)
	}
	return o
}

// repeats reports whether this is a release that was asked for at the node before. A node that is
// down is not asked again, even if it is needed: it gets the release when it is back. If callers
// that repeat theirs had it asked, a server of many clients would stay overloaded after an outage.
func (r *round) repeats(i int) bool {
	return r.op == node.Releasing && r.record.history.Released().Has(i)
}

// owes reports whether a node that is not asked must get this release when it is back.
func (r *round) owes(p *part, err error) bool {
	return r.op == node.Releasing && p.progress != answered && !driver.Permanent(err)
}

// without returns the outcome for a node that is not asked.
func (r *round) without(i int, err error, force bool) outcome {
	switch {
	case force || driver.Permanent(err):
		return outcome{progress: failed, err: err}
	default:
		return outcome{progress: leftOut, err: err}
	}
}

// enterLocked finds or makes the claim's record. It reports whether the round is still the latest
// one of the claim.
func (r *round) enterLocked(s *shard) (k *key, current bool) {
	k = s.keyLocked(r.claim.Key)
	known := k.find(r.claim.Owner)
	if r.record == nil {
		if r.record = known; known == nil {
			r.record = r.q.newRecord(k, r.claim.Owner)
			if r.op == node.Releasing {
				r.record.history.Touch(node.Every(len(r.parts))) // the claim may be anywhere
			}
			k.add(r.record)
		}
		if r.op == node.Acquiring {
			r.record.begin(&r.claim, r.start)
		} else {
			r.repeated = r.record.history.Over()
			r.record.end()
		}
		r.generation = r.record.generation
		return k, true
	}
	if known == nil && r.op == node.Releasing {
		known = r.record
		k.add(known)
	}
	return k, known == r.record && known.generation == r.generation &&
		!(r.op == node.Acquiring && known.history.Over())
}

// Answer implements node.Receiver.
func (r *round) Answer(c *node.Call, result driver.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	p := &r.parts[c.Node.Index]
	switch {
	case err == nil: // also of a release that was not made, at a node that does not have the claim
		p.outcome = outcome{progress: answered, result: result}
	case !c.Unmade():
		p.outcome = outcome{progress: failed, err: err}
	case p.progress == asked: // and not given up yet
		p.outcome = outcome{progress: leftOut, err: err}
	}
	r.settle()
}

// giveUp counts nodes that have not answered in time as failed. Called with r.mu held.
func (r *round) giveUp() {
	late := r.until < r.last
	r.until = r.last
	for i := range r.parts {
		// A call that still waits for its turn has not had its time yet.
		if p := &r.parts[i]; p.progress == asked && !(late && p.call.Queued()) {
			p.outcome = outcome{progress: failed, err: node.Slow(r.bound)}
		}
	}
	r.settle()
}

// settle decides the round if that is possible, and otherwise asks more nodes if they are needed.
// Called with r.mu held.
func (r *round) settle() {
	for !r.decided {
		t := r.tally()
		rule := r.decideRelease
		if r.op == node.Acquiring {
			rule = r.decideAcquire
		}
		decided, more := rule(&t)
		if decided {
			r.decide()
		} else if more {
			r.launch(true)
		} else {
			break
		}
	}
	if r.returned != nil {
		r.returned.wake()
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
	switch o.progress {
	case asked:
		t.asked++
	case leftOut:
		t.leftOut++
	case failed:
		t.failed++
		if node.Maybe(o.err) {
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

// decideAcquire decides an acquisition. It is decided when there is a majority of grants. If no
// such majority is possible any more, it is decided when a majority of answers of any kind, or of
// failures, tells why.
func (r *round) decideAcquire(t *tally) (decided, more bool) {
	n, need := len(r.parts), r.q.need
	possible := t.held+t.asked+t.leftOut >= need
	switch {
	case t.held >= need:
		return true, false
	case t.held+t.asked >= need:
		return false, false
	case t.leftOut > 0 && t.answered+t.asked < need:
		// Failures prevent a majority, of grants or of answers that say who has the key. Nodes that
		// were left out may be back.
		return false, true
	}
	decided = t.answered >= need || t.failed+t.leftOut > n-need || t.asked == 0
	// Before the decision, give back only if nodes have granted the claim: the release replaces
	// requests that were not sent yet, and their answers might say who holds the key.
	if (decided || !possible && t.held > 0) && !r.cleaned && !r.claim.Queue {
		r.cleaned = true
		r.q.giveBack(r.claim)
	}
	return decided, false
}

// decideRelease decides a release. It is decided when a majority held the claim until now, or too
// many nodes did not.
func (r *round) decideRelease(t *tally) (decided, more bool) {
	n, need := len(r.parts), r.q.need
	switch {
	case t.held >= need || t.lost+t.busy > n-need:
		return true, false
	case t.leftOut > 0 && t.answered+t.asked < need:
		return false, true
	default:
		return t.asked == 0, false
	}
}

// wait returns nil when the round is decided, and the error of ctx if that ends first. It takes
// no longer than the bound, or twice that if nodes that are down had to be asked after all.
func (r *round) wait(ctx context.Context) error {
	return r.q.await(ctx, &r.decision, r.bound+grace(r.bound), r.giveUp)
}

// linger waits for nodes that have not answered, although it is decided that there is no majority.
// The error should say what is wrong with every node, and a failure is not urgent: so it waits a
// moment. With queues it waits for as long as the nodes have, because which nodes answer first must
// not decide whether the claim queues.
func (r *round) linger(ctx context.Context, queues bool) {
	until := clock.Now().Add(r.bound / 5)
	if queues {
		until = r.start.Add(r.bound + grace(r.bound))
	}
	p := r.q.parking.get(r.bound / 5)
	defer r.q.parking.put(p)
	for r.watch(p, queues) {
		rest := until.Sub(clock.Now())
		if rest <= 0 {
			break
		}
		p.wakeAfter(rest) // again, because the last signal may have been meant for another wait
		select {
		case <-p.woken:
		case <-ctx.Done():
			r.watch(nil, queues)
			return
		}
	}
	r.watch(nil, queues)
}

// watch reports whether answers are missing, and has p woken when there is another.
func (r *round) watch(p *parker, queues bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned = p
	return r.missing(queues)
}

// missing reports whether calls are still open: with queues, whether the claim may be in the queues
// of a majority and it is not known yet. Called with r.mu held.
func (r *round) missing(queues bool) bool {
	if !queues {
		return r.open > 0
	}
	queued, open := 0, 0
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.progress == asked:
			open++
		case p.progress == answered && (p.result.State == driver.Held || p.result.Presence > 0):
			queued++
		}
	}
	return r.claim.Queue && queued < r.q.need && queued+open >= r.q.need
}

// failure returns the error of a round without a majority. Called with r.mu held.
func (r *round) failure(t *tally, cause error) *driver.Error {
	e := &Error{Need: r.q.need, Got: t.held, Nodes: make([]NodeError, len(r.parts)), cause: cause}
	for i := range r.parts {
		p := &r.parts[i]
		ne := NodeError{Node: r.q.nodes[i].Name, State: p.result.State, Holder: p.result.Holder,
			Err: p.err}
		if r.op == node.Releasing {
			ne.asked = toRelease
		}
		if p.progress == asked {
			ne.Err = &driver.Error{Maybe: true, Err: errNotYet}
		}
		e.Nodes[i] = ne
	}
	return &driver.Error{Permanent: t.permanent > len(r.parts)-r.q.need, Err: e}
}
