package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// perClaim is what each claim of a batch adds to the time that a node has to answer.
const perClaim = 20 * time.Microsecond

// batch renews claims: each node gets one call for all of them. It collects the answers until every claim is decided.
//
// It does not take its place in the keys' tracks. A renewal creates nothing, so it does not matter whether a
// release overtakes it; and it must not wait behind a node's slow key.
type batch struct {
	q      *Quorum
	claims []driver.Claim // not changed any more: calls may outlive the caller
	start  clock.Instant  // before the first request
	bound  time.Duration
	heals  bool // to see to nodes that have lost a claim

	mu      sync.Mutex
	verdict               // decided when every claim is
	tallies []batchTally  // by claim
	parts   []batchPart   // by node
	running int           // calls that have not returned
	until   clock.Instant // when the calls made last are given up
}

// batchTally counts the answers about one claim.
type batchTally struct {
	need                        int8 // how many renewals it takes
	held, lost, yielded, failed int8
	left                        int8 // no answer yet
}

// batchPart is one node's part in a batch.
type batchPart struct {
	status  status
	err     error           // if failed or left out
	answers []driver.Result // if answered
	index   []int32         // which claims it was asked for, in order; nil for all
}

// newBatch prepares a batch of at least one claim.
func (q *Quorum) newBatch(claims []driver.Claim, start clock.Instant) *batch {
	bound := q.config.bound(claims[0].TTL)
	for i := range claims {
		bound = min(bound, q.config.bound(claims[i].TTL))
	}
	b := &batch{
		q: q, claims: claims, start: start,
		bound:   bound + time.Duration(len(claims))*perClaim,
		tallies: make([]batchTally, len(claims)),
		parts:   make([]batchPart, len(q.nodes)),
	}
	for k := range b.tallies {
		b.tallies[k].need = int8(q.need)
	}
	return b
}

// ask has nodes renew. lists says which claims, by node, or is nil for all claims on all nodes. It is called once.
func (b *batch) ask(lists [][]int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.parts {
		p := &b.parts[i]
		if lists != nil {
			if p.index = lists[i]; len(p.index) == 0 {
				p.status = failed // it has no part
				continue
			}
		}
		p.each(len(b.claims), func(_, k int) { b.tallies[k].left++ })
	}
	b.launch(false)
	b.settle()
}

// each calls f with every claim the node was asked for: its place in the node's list, and in the batch.
func (p *batchPart) each(all int, f func(at, k int)) {
	if p.index == nil {
		for k := range all {
			f(k, k)
		}
		return
	}
	for at, k := range p.index {
		f(at, int(k))
	}
}

// launch asks the nodes that were left out so far. Called with b.mu held.
func (b *batch) launch(force bool) {
	deadline := clock.In(b.bound) // of the calls made now; those made before keep theirs
	b.until = clock.Now().Add(b.bound + grace(b.bound))
	for i := range b.parts {
		p := &b.parts[i]
		if p.status != leftOut {
			continue
		}
		n := b.q.nodes[i]
		probe, err := n.admit(force)
		if err != nil {
			p.err = err
			if force || driver.Permanent(err) {
				b.fail(p, err)
			}
			continue
		}
		p.status, p.err = asked, nil
		b.running++
		b.q.flight.add(1)
		n.pending.Add(1)
		b.q.crew.start(&renewal{
			b: b, node: n, probe: probe, claims: b.claimsOf(p),
			ctx: bounded{base: b.q.base, deadline: deadline},
		})
	}
}

func (b *batch) claimsOf(p *batchPart) []driver.Claim {
	if p.index == nil {
		return b.claims
	}
	claims := make([]driver.Claim, len(p.index))
	for at, k := range p.index {
		claims[at] = b.claims[k]
	}
	return claims
}

// renewal is one node's call of a batch.
type renewal struct {
	b      *batch
	node   *node
	probe  bool
	claims []driver.Claim
	ctx    bounded
}

// run implements job.
func (r *renewal) run() {
	b, q := r.b, r.b.q
	results, err := r.node.backend.Renew(&r.ctx, r.claims)
	err = explain(&r.ctx, err, b.bound)
	r.ctx.end()
	if err == nil && len(results) != len(r.claims) {
		err = &driver.Error{Maybe: true, Err: errResults}
	}
	q.note(r.node, err, true, r.probe)
	r.node.pending.Add(-1)
	b.answer(r.node.index, results, err)
	q.flight.end()
}

func (b *batch) answer(i int, results []driver.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if p := &b.parts[i]; p.status != asked {
		// It was given up, and that is counted already.
	} else if err != nil {
		b.fail(p, err)
	} else {
		p.status, p.answers = answered, results
		p.each(len(b.claims), func(at, k int) { b.tallies[k].count(results[at].State) })
	}
	b.settle()
}

// fail counts a node out.
func (b *batch) fail(p *batchPart, err error) {
	p.status, p.err = failed, err
	p.each(len(b.claims), func(_, k int) { b.tallies[k].count(driver.Unknown) })
}

func (t *batchTally) count(s driver.State) {
	t.left--
	switch s {
	case driver.Held:
		t.held++
	case driver.Lost:
		t.lost++
	case driver.Yielded:
		t.yielded++
	default:
		t.failed++
	}
}

// decided: enough have renewed, or not enough can have.
func (t *batchTally) decided() bool {
	return t.held >= t.need || t.left == 0 || t.held+t.failed+t.left < t.need
}

// settle decides the batch if every claim is decided, and asks the nodes that were left out if that is what
// it takes. Called with b.mu held.
func (b *batch) settle() {
	if b.judge() {
		b.launch(true)
		b.judge()
	}
	if b.running == 0 && b.decided && b.heals {
		b.heals = false
		b.heal()
	}
}

// judge decides, and reports whether the nodes that were left out have to be asked.
func (b *batch) judge() (more bool) {
	if b.decided {
		return false
	}
	var left int8 // nodes left out
	for i := range b.parts {
		if b.parts[i].status == leftOut {
			left++
		}
	}
	undecided, short := false, false
	for k := range b.tallies {
		if t := &b.tallies[k]; !t.decided() {
			undecided = true
			short = short || t.held+t.left-left < t.need
		}
	}
	if !undecided {
		b.decide()
	}
	return short && left > 0
}

// attend implements awaited.
func (b *batch) attend(p *parker) (decided bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = p
	return b.decided
}

// expire implements awaited.
func (b *batch) expire() (decided bool, rest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.decided {
		return true, 0
	}
	if rest := b.until.Sub(clock.Now()); rest > 0 {
		return false, rest
	}
	for i := range b.parts {
		if p := &b.parts[i]; p.status == asked {
			b.fail(p, &driver.Error{Maybe: true, Err: slowError(b.bound)})
		}
	}
	b.settle()
	return b.decided, b.until.Sub(clock.Now())
}

// wait returns nil when every claim is decided, and the error of ctx if that ends first.
func (b *batch) wait(ctx context.Context) error {
	return b.q.await(ctx, b, b.bound+grace(b.bound))
}
