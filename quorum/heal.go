package quorum

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

const (
	// healers is how many goroutines share the healing after a renewal.
	healers = 8

	// drawsAtOnce is how many claims a healer draws tokens for with one call. To draw takes a node
	// longer than to renew, and other calls have to be answered meanwhile.
	drawsAtOnce = 10
)

// healing is a job that sets claims again on nodes that have lost them.
type healing struct {
	q      *Quorum
	start  clock.Instant // of the renewal that found it
	list   []lostClaim
	silent node.Set // nodes that did not answer in time when they were asked for tokens
}

// lostClaim is a claim and a node that has lost it, or that is unsure of the last token.
type lostClaim struct {
	claim *driver.Claim
	node  int
	lost  node.Set     // all nodes that have lost the claim
	above driver.Token // the node has to go on above this; 0 if the claim's own tokens are enough

	// For a claim that shares its key: how many nodes have told what tokens they know, and which
	// ones were unsure when they were asked.
	shares bool
	told   int8
	doubts node.Set

	// unsure: too few nodes have told what tokens they know, so above may be too small.
	unsure bool
}

// heal looks for lost claims when all nodes have answered. It waits even for the slowest node,
// because that may be the one that was restarted. Called with b.mu held.
func (b *batch) heal() {
	var list []lostClaim
	for k := range b.tallies {
		t := &b.tallies[k]
		if t.held < t.need || t.lost == 0 && b.unsure == nil {
			continue
		}
		lost := b.lostOn(k)
		nodes := lost
		// While too few nodes are there to make sure, this asks none of them for more.
		if b.unsure != nil && t.held >= b.q.most(b.unsure[k], lost) {
			nodes |= b.unsure[k]
		}
		for i := range b.parts {
			if nodes.Has(i) {
				list = append(list, lostClaim{claim: &b.claims[k], node: i, lost: lost})
			}
		}
	}
	split(list, func(part []lostClaim) {
		b.q.group.Start(&healing{q: b.q, start: b.start, list: part})
	})
}

// lostOn returns the nodes that have lost a claim. Called with b.mu held.
func (b *batch) lostOn(k int) (nodes node.Set) {
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == answered && p.answers[k].State == driver.Lost {
			nodes |= node.Only(i)
		}
	}
	return nodes
}

// sure returns how many nodes that hold a claim have to answer so that one of them knows the last
// token: a majority without those that are unsure, or all nodes. One that has lost the claim may
// know it, too, because the lease may have ended there.
func (q *Quorum) sure(unsure node.Set) int8 {
	return int8(min(q.need+unsure.Count(), len(q.nodes)))
}

// most returns how many nodes that hold a claim have to answer so that no more can be found out
// now.
func (q *Quorum) most(unsure, lost node.Set) int8 {
	return min(q.sure(unsure&^lost), int8(len(q.nodes)-lost.Count()))
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
	for part := range slices.Chunk(h.list, drawsAtOnce) {
		h.learn(part)
		for i := range part {
			if p := &part[i]; h.heal(p, done) && <-done == nil && !p.unsure {
				h.done(p)
			}
		}
	}
}

// learn finds out what tokens others have with whom the claims share their keys. A claim that is
// alone has the largest token of its key. But one that shares it knows nothing of the tokens of
// those that came later, and a node would be healed without them. So a majority is asked for a
// token, which is larger than all that it knows. Nobody uses that one, the claim itself neither.
//
// If too few nodes answer for that, the claims are healed with what the others know: otherwise they
// might be lost. That node is then unsure of the last token: its answer does not count when a
// majority is asked, and later renewals heal it again, until such a majority has answered. A node
// that has not answered is not asked again, because each step would wait for it. Nor is one that
// has lost the claim: it may have been healed meanwhile, without the last token.
func (h *healing) learn(list []lostClaim) {
	q := h.q
	var claims []driver.Claim
	var need []int8    // how many nodes have to answer, by claim
	var but []node.Set // which nodes are not asked, by claim
	var doubts []node.Set
	// where a lost claim is in claims; -1: it is alone, or over
	of := make([]int, len(list))
	for i, p := range list {
		if i > 0 && list[i-1].claim == p.claim { // lost on another node, too
			of[i] = of[i-1]
			continue
		}
		of[i] = -1
		s := q.shardOf(p.claim.Key)
		s.mu.Lock()
		if r := h.heldLocked(s, p.claim); r != nil && (p.claim.Shared || r.shared) {
			of[i] = len(claims)
			claim := *p.claim
			claim.Shared, claim.Token, claim.Block = true, r.top, 1
			claims = append(claims, claim)
			need = append(need, q.most(r.unsure, p.lost))
			but = append(but, h.silent|p.lost)
			doubts = append(doubts, r.unsure)
		}
		s.mu.Unlock()
	}
	if len(claims) == 0 {
		return
	}
	b := q.newBatch(claims, clock.Now())
	for k := range need {
		b.tallies[k].need = need[k]
	}
	b.askBut(but)
	// The error is that the Quorum is closed. Then no call for healing is answered either.
	_ = b.wait(q.group.Context())
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range of {
		if k >= 0 {
			list[i].above, _ = b.drawn(k)
			list[i].shares, list[i].told, list[i].doubts = true, b.tallies[k].held, doubts[k]
		}
	}
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == failed && p.err != nil { // it was asked
			h.silent |= node.Only(i)
		}
	}
}

// heldLocked returns what is known of a claim if it is to be healed: it is held, and some validity
// is left. A release that has already begun shows in the record. Called with the mutex of s held.
func (h *healing) heldLocked(s *shard, claim *driver.Claim) *record {
	r := s.findLocked(claim.Key, claim.Owner)
	if r == nil || !r.held ||
		clock.Now().Sub(h.start) >= claim.TTL-h.q.config.allowance(claim.TTL) {
		return nil
	}
	return r
}

// heal sets a claim again on a node that has lost it. It does so by an acquisition, which never
// takes a key from another claim. It reports whether it has made a call.
func (h *healing) heal(p *lostClaim, to node.Receiver) bool {
	q := h.q
	s := q.shardOf(p.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := h.heldLocked(s, p.claim)
	if r == nil {
		return false
	}
	// A node that has become unsure meanwhile may have told its tokens after that.
	p.unsure = p.shares && p.told < q.sure((p.doubts|r.unsure)&^p.lost)
	if p.unsure {
		r.notSure(r.unsure | node.Only(p.node))
	}
	// A release that begins from now on comes after this call in the key's order.
	claim := *p.claim
	claim.Queue, claim.Block = false, 1
	if claim.Shared = claim.Shared || r.shared; claim.Shared {
		// It holds a majority, so it comes before all waiters. Else a waiter that finds the first
		// of several sharers there would keep out the rest of them.
		claim.Queue, claim.Ticket = true, 1
	}
	claim.Token = max(r.top, p.above) // so that a node without its counter goes on above them
	c := &node.Call{
		Node: q.nodes[p.node], Op: node.Acquiring, Claim: &claim, History: &r.history,
		Bound: q.config.bound(claim.TTL), To: to,
	}
	if p.lost.Has(p.node) {
		q.counters.healed.Add(1)
	}
	c.Make()
	return true
}

// done notes that a node has been healed with all tokens.
func (h *healing) done(p *lostClaim) {
	s := h.q.shardOf(p.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.findLocked(p.claim.Key, p.claim.Owner); r != nil {
		r.notSure(r.unsure &^ node.Only(p.node))
	}
}

// notSure notes which nodes are unsure of the last token. The Quorum counts the claims that have
// such nodes.
func (r *record) notSure(nodes node.Set) {
	switch {
	case r.unsure == 0 && nodes != 0:
		r.q.unsure.Add(1)
	case r.unsure != 0 && nodes == 0:
		r.q.unsure.Add(-1)
	}
	r.unsure = nodes
}
