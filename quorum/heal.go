package quorum

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// healers is how many goroutines share the healing after a renewal.
const healers = 8

// healing is a job that sets claims again on nodes that have lost them.
type healing struct {
	q     *Quorum
	start clock.Instant // of the renewal that found it
	list  []lostClaim
}

// lostClaim is a claim and a node that has lost it.
type lostClaim struct {
	claim *driver.Claim
	node  int
}

// heal looks for lost claims when all nodes have answered. It waits even for the slowest node,
// because that may be the one that was restarted. Called with b.mu held.
func (b *batch) heal() {
	var list []lostClaim
	for k := range b.tallies {
		if t := &b.tallies[k]; t.held < t.need || t.lost == 0 {
			continue
		}
		for i := range b.parts {
			if p := &b.parts[i]; p.progress == answered && p.answers[k].State == driver.Lost {
				list = append(list, lostClaim{&b.claims[k], i})
			}
		}
	}
	split(list, func(part []lostClaim) { b.q.group.Start(&healing{b.q, b.start, part}) })
}

// split cuts a list into pieces, one for each healer.
func split[T any](list []T, f func([]T)) {
	if len(list) > 0 {
		for part := range slices.Chunk(list, (len(list)+healers-1)/healers) {
			f(part)
		}
	}
}

// Run implements node.Job.
func (h *healing) Run() {
	done := make(node.Answers, 1)
	for _, p := range h.list {
		if h.q.heal(p, h.start, done) {
			<-done
		}
	}
}

// heal sets a claim again on a node that has lost it. It does so by an acquisition, which never
// takes a key from another claim. It reports whether it has made a call.
func (q *Quorum) heal(p lostClaim, start clock.Instant, to node.Receiver) bool {
	s := q.shardOf(p.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(p.claim.Key, p.claim.Owner)
	// The record shows a release that has already begun; then the claim is not healed. A release
	// that begins from now on comes after this call in the key's order. If no validity is left,
	// there is nothing to heal.
	if r == nil || !r.held ||
		clock.Now().Sub(start) >= p.claim.TTL-q.config.allowance(p.claim.TTL) {
		return false
	}
	claim := *p.claim
	claim.Queue, claim.Block = false, 1
	if claim.Shared = claim.Shared || r.shared; claim.Shared {
		// It holds a majority, so it comes before all waiters. Else a waiter that finds the first
		// of several sharers there would keep out the rest of them.
		claim.Queue, claim.Ticket = true, 1
	}
	claim.Token = r.top // so that a node that has forgotten its counter goes on above it
	c := &node.Call{
		Node: q.nodes[p.node], Op: node.Acquiring, Claim: &claim, History: &r.history,
		Bound: q.config.bound(claim.TTL), To: to,
	}
	q.counters.healed.Add(1)
	c.Make()
	return true
}
