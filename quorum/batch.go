package quorum

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// perClaim is the time that each claim of a batch adds to the time bound of a call.
const perClaim = 20 * time.Microsecond

// batch is a renewal of many claims. Each node gets one call for all of them. The batch collects
// the answers until every claim is decided.
type batch struct {
	q      *Quorum
	claims []driver.Claim // not changed any more: calls may outlive the caller
	start  clock.Instant  // before the first request
	bound  time.Duration
	heals  bool // set claims again on nodes that have lost them

	// Decided when every claim is. Its mutex guards all that follows.
	decision
	tallies []batchTally // by claim
	parts   []batchPart  // by node
	open    int          // calls that have not returned

	// late is, for each claim, the nodes that may still carry out an earlier release; nil: none
	late []node.Set

	// unsure is, for each claim, the nodes that are unsure of the last token; nil: none
	unsure []node.Set
}

// batchTally counts the answers about one claim.
type batchTally struct {
	need               int8 // how many renewals are needed
	held, lost, failed int8
	left               int8 // no answer yet
}

// batchPart is one node's part in a batch.
type batchPart struct {
	progress progress
	err      error           // if failed or left out
	answers  []driver.Result // if answered, by claim; zero for those that it was not asked for
	index    []int32         // which claims it was asked for, in order; nil for all
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

// ask asks nodes to renew. lists has, for each node, the claims to renew there; nil means all
// claims on all nodes. ask is called once.
func (b *batch) ask(lists [][]int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.parts {
		p := &b.parts[i]
		if lists != nil {
			if p.index = lists[i]; len(p.index) == 0 {
				p.progress = failed // it is not asked
				continue
			}
		}
		p.each(len(b.claims), func(_, k int) { b.tallies[k].left++ })
	}
	b.doubt()
	b.launch(false)
	b.settle()
}

// askBut asks nodes to renew the claims. but has, for each claim, the nodes that are not asked,
// which count as failed.
func (b *batch) askBut(but []node.Set) {
	lists := make([][]int32, len(b.parts))
	for k, nodes := range but {
		b.tallies[k].failed = int8(nodes.Count())
		for i := range lists {
			if !nodes.Has(i) {
				lists[i] = append(lists[i], int32(k))
			}
		}
	}
	b.ask(lists)
}

// each calls f for every claim that the node was asked for, with its place in the node's list and
// its place in the batch.
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
		if p.progress != leftOut {
			continue
		}
		n := b.q.nodes[i]
		probe, err := n.Admit(force)
		if err != nil {
			p.err = err
			if force || driver.Permanent(err) {
				b.fail(p, err)
			}
			continue
		}
		p.progress, p.err = asked, nil
		b.open++
		call := &node.Renewal{Node: n, Claims: b.claimsOf(p), Probe: probe, Bound: b.bound,
			Until: deadline, To: b}
		call.Start()
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

// Renewed implements node.Renewer.
func (b *batch) Renewed(n *node.Node, results []driver.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if p := &b.parts[n.Index]; p.progress != asked {
		// It was given up, which is counted already.
	} else if err != nil {
		b.fail(p, err)
	} else {
		p.progress, p.answers = answered, results
		if p.index != nil {
			p.answers = make([]driver.Result, len(b.claims))
		}
		p.each(len(b.claims), func(at, k int) {
			p.answers[k] = b.vote(n.Index, k, results[at])
			b.tallies[k].count(p.answers[k].State)
		})
	}
	b.settle()
}

// fail counts a node as failed.
func (b *batch) fail(p *batchPart, err error) {
	p.progress, p.err = failed, err
	p.each(len(b.claims), func(_, k int) { b.tallies[k].count(driver.Unknown) })
}

func (t *batchTally) count(s driver.State) {
	t.left--
	switch s {
	case driver.Held:
		t.held++
	case driver.Lost:
		t.lost++
	default:
		t.failed++
	}
}

// decided reports whether enough nodes have renewed the claim, or too many nodes have not.
func (t *batchTally) decided() bool {
	return t.held >= t.need || t.left == 0 || t.held+t.failed+t.left < t.need
}

// settle decides the batch if every claim is decided, and otherwise asks nodes that were left out
// if they are needed. Called with b.mu held.
func (b *batch) settle() {
	if b.judge() {
		b.launch(true)
		b.judge()
	}
	if b.open == 0 && b.decided && b.heals {
		b.heals = false
		b.heal()
	}
}

// judge decides the batch if every claim is decided. Otherwise it reports whether nodes that were
// left out have to be asked.
func (b *batch) judge() (more bool) {
	if b.decided {
		return false
	}
	var left int8 // nodes left out
	for i := range b.parts {
		if b.parts[i].progress == leftOut {
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

// giveUp counts nodes that have not answered as failed. Called with b.mu held.
func (b *batch) giveUp() {
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == asked {
			b.fail(p, node.Slow(b.bound))
		}
	}
	b.settle()
}

// wait returns nil when every claim is decided, and the error of ctx if that ends first.
func (b *batch) wait(ctx context.Context) error {
	return b.q.await(ctx, &b.decision, b.bound+grace(b.bound), b.giveUp)
}
