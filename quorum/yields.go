package quorum

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// A renewal may be overtaken by a later call, and one that yields passes the key on. So while a
// node has not answered such a renewal, it may pass the key on after it has renewed the claim
// again: its later renewals of this claim are no votes. If it never answers, none is until the
// claim has ended. Other nodes may still make a majority.
//
// The same with a release: a waiter gives back what it holds on a few nodes, and if one of these is
// slow the waiter may hold a majority before the release takes effect there. Renewals do not wait
// for it as acquisitions do.

var errYielding = errors.New("renewed, but may still hand it on: an earlier request is unanswered")

// doubt notes which nodes have not answered each claim's earlier requests to yield. Called before
// any node is asked, with b.mu held.
func (b *batch) doubt() {
	for k := range b.claims {
		late := b.q.late(&b.claims[k])
		if late != 0 && b.late == nil {
			b.late = make([]node.Set, len(b.claims))
		}
		if late != 0 {
			b.late[k] = late
		}
	}
}

// late returns the nodes that may end the claim's hold yet.
func (q *Quorum) late(claim *driver.Claim) (nodes node.Set) {
	s := q.shardOf(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(claim.Key, claim.Owner)
	if r == nil {
		return 0
	}
	nodes = r.history.Ending()
	for i, calls := range r.yields {
		if calls > 0 {
			nodes |= node.Only(i)
		}
	}
	return nodes
}

// yielding counts by more calls without an answer at node i, for each claim that asks it to yield.
func (b *batch) yielding(i, by int) {
	b.parts[i].each(len(b.claims), func(_, k int) {
		if claim := &b.claims[k]; claim.Yield {
			b.q.yields(claim, func(open []int) { open[i] += by })
		}
	})
}

// yielded notes that a node has answered, or surely was not reached: what it was asked for, it will
// not do any more.
func (b *batch) yielded(i int, results []driver.Result, err error) {
	if err != nil {
		if !node.Maybe(err) {
			b.yielding(i, -1)
		}
		return
	}
	b.parts[i].each(len(b.claims), func(at, k int) {
		if claim, r := &b.claims[k], results[at]; claim.Yield &&
			(r.State != driver.Unknown || r.Err != nil && !node.Maybe(r.Err)) {
			b.q.yields(claim, func(open []int) { open[i]-- })
		}
	})
}

// vote returns what a node's answer about a claim counts for.
func (b *batch) vote(i, k int, result driver.Result) driver.Result {
	if result.State == driver.Held && b.late != nil && b.late[k].Has(i) {
		return driver.Result{Err: &driver.Error{Maybe: true, Err: errYielding}}
	}
	return result
}

// yields calls f with how many calls of each node that ask a claim to yield have no answer. It does
// not if the claim is unknown, or was never asked to.
func (q *Quorum) yields(claim *driver.Claim, f func(open []int)) {
	s := q.shardOf(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(claim.Key, claim.Owner)
	if r == nil {
		return
	}
	if r.yields == nil && claim.Yield {
		r.yields = make([]int, len(q.nodes))
	}
	if r.yields != nil {
		f(r.yields)
	}
}
