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

// healing is a job that sets claims again on nodes that have lost them, and tells nodes the last
// tokens.
type healing struct {
	q      *Quorum
	start  clock.Instant // of the renewal that found it
	list   []lostClaim
	silent node.Set // nodes that did not answer in time when they were asked for tokens
}

// lostClaim is a claim that was set again on some nodes, or has to be.
type lostClaim struct {
	claim  *driver.Claim
	lost   node.Set     // nodes that have lost the claim, or may still release it
	unsure node.Set     // nodes that have it again, and are unsure of the last token
	above  driver.Token // these have to go on above this; 0 if the claim's own tokens are enough
	sure   bool         // above is the last token, because enough nodes have told what they know
}

// heal looks for lost claims when all nodes have answered. It waits even for the slowest node,
// because that may be the one that was restarted. Called with b.mu held.
func (b *batch) heal() {
	var list []lostClaim
	for k := range b.tallies {
		t := &b.tallies[k]
		if t.held < t.need || t.lost == 0 && b.unsure == nil && b.late == nil {
			continue
		}
		p := lostClaim{claim: &b.claims[k], lost: b.having(k, driver.Lost) | b.doubtful(k)}
		// While nodes are missing that could tell more, this asks none of them.
		if b.unsure != nil && t.held >= b.q.most(b.unsure[k], p.lost) {
			p.unsure = b.unsure[k] & b.having(k, driver.Held)
		}
		if p.lost|p.unsure != 0 {
			list = append(list, p)
		}
	}
	split(list, func(part []lostClaim) {
		b.q.group.Start(&healing{q: b.q, start: b.start, list: part})
	})
}

// having returns the nodes that have answered with that state of a claim. Called with b.mu held.
func (b *batch) having(k int, state driver.State) (nodes node.Set) {
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == answered && p.answers[k].State == state {
			nodes |= node.Only(i)
		}
	}
	return nodes
}

// doubtful returns the nodes that have a claim and have no vote, because they may still release it.
// They vote again when they have answered a later call. If the one that asked for the claim again
// had no answer, there would be no other. So the claim is set again there, too. Called with b.mu
// held.
func (b *batch) doubtful(k int) (nodes node.Set) {
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == answered && p.answers[k].Err == errStillReleasing {
			nodes |= node.Only(i)
		}
	}
	return nodes
}

// most returns how many nodes that have a claim are asked for tokens, at most: a majority without
// those that are unsure, or all that have not lost the claim.
func (q *Quorum) most(unsure, lost node.Set) int8 {
	return int8(min(q.need+(unsure&^lost).Count(), len(q.nodes)-lost.Count()))
}

// knowing reports whether one of these nodes knows the last token, if any node does: without those
// that are unsure they are a majority, or they are all nodes. All but those that have lost the
// claim are not enough: the lease may have ended there, and such a node has not lost the token.
func (q *Quorum) knowing(nodes, unsure node.Set) bool {
	return (nodes&^unsure).Count() >= q.need || nodes.Count() == len(q.nodes)
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
		if h.q.group.Context().Err() != nil {
			return // Close waits for this for a moment only
		}
		h.draw(part)
		for i := range part {
			for n := range h.q.nodes {
				if p := &part[i]; p.lost.Has(n) && h.set(p, n, done) {
					<-done
				}
			}
		}
		h.tell(part)
	}
}

// draw finds out what tokens others have with whom the claims share their keys. A claim that is
// alone has the largest token of its key. But one that shares it knows nothing of the tokens of
// those that came later, and a node would be healed without them. So a majority is asked for a
// token, which is larger than all that it knows. Nobody uses that one, the claim itself neither.
//
// A node that has not answered is not asked again, because each step would wait for it. Nor is one
// that has lost the claim: it may have been healed meanwhile, without the last token.
func (h *healing) draw(list []lostClaim) {
	q := h.q
	var claims []driver.Claim
	var drawing []*lostClaim // by claim
	var unsure []node.Set    // by claim
	var but []node.Set       // which nodes are not asked, by claim
	for i := range list {
		p := &list[i]
		s := q.shardOf(p.claim.Key)
		s.mu.Lock()
		switch r := h.heldLocked(s, p.claim); {
		case r == nil: // nobody is asked, so nobody becomes sure
		case p.claim.Shared || r.shared:
			claim := *p.claim
			claim.Shared, claim.Token, claim.Block = true, r.top, 1
			claims, drawing = append(claims, claim), append(drawing, p)
			unsure, but = append(unsure, r.unsure|p.lost), append(but, h.silent|p.lost)
		default:
			p.sure = true
		}
		s.mu.Unlock()
	}
	if len(claims) == 0 {
		return
	}
	b := q.newBatch(claims, clock.Now())
	for k, p := range drawing {
		b.tallies[k].need = q.most(unsure[k], p.lost)
	}
	b.askBut(but)
	// The error is that the Quorum is closed. Then no call for healing is answered either.
	_ = b.wait(q.group.Context())
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, p := range drawing {
		p.above, _ = b.drawn(k)
		p.sure = q.knowing(b.having(k, driver.Held), unsure[k])
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

// set sets a claim again on a node that has lost it. It does so by an acquisition, which never
// takes a key from another claim. It reports whether it has made a call.
//
// The node is unsure of the last token from now on, even if all have told theirs: others may get
// tokens before the call takes effect, and the node may lose them. So a renewal has to find first
// that the claim is there.
func (h *healing) set(p *lostClaim, n int, to node.Receiver) bool {
	q := h.q
	s := q.shardOf(p.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := h.heldLocked(s, p.claim)
	if r == nil {
		return false
	}
	r.notSure(r.unsure | node.Only(n))
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
		Node: q.nodes[n], Op: node.Acquiring, Claim: &claim, History: &r.history,
		Bound: q.config.bound(claim.TTL), To: to,
	}
	q.counters.healed.Add(1)
	c.Make()
	return true
}

// tell has the nodes that are unsure acknowledge what others have told, be it the last token or
// not. It does so by a renewal, so a node that has lost the claim once more does not.
func (h *healing) tell(list []lostClaim) {
	var claims []driver.Claim
	var telling []*lostClaim // by claim
	var but []node.Set       // which nodes are not told, by claim
	for i := range list {
		p := &list[i]
		switch {
		case p.unsure == 0:
			continue
		case p.above == 0:
			h.told(p, p.unsure)
			continue
		}
		claim := *p.claim
		claim.Shared, claim.Token, claim.Block = true, p.above, 1
		claims, telling = append(claims, claim), append(telling, p)
		but = append(but, node.Every(len(h.q.nodes))&^p.unsure|h.silent)
	}
	if len(claims) == 0 {
		return
	}
	b := h.q.newBatch(claims, clock.Now())
	for k, p := range telling {
		b.tallies[k].need = int8(p.unsure.Count())
	}
	b.askBut(but)
	_ = b.wait(h.q.group.Context())
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, p := range telling {
		h.told(p, b.having(k, driver.Held))
	}
}

// told notes that nodes know the last token of a claim, if enough have told theirs. Those nodes had
// the claim at the renewal, others told their tokens after that, and the nodes had the claim still
// when they acknowledged the last one. If the claim may have been set again since the renewal
// began, one of them may have been without it meanwhile, so that is left to a later renewal. It may
// be set at any time while a call is under way: calls for one key wait for each other, and renewals
// for none.
//
// A claim that was alone after the renewal had found it there has the last token itself.
func (h *healing) told(p *lostClaim, nodes node.Set) {
	s := h.q.shardOf(p.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(p.claim.Key, p.claim.Owner)
	if p.sure && r != nil && !r.history.Busy() && r.setAt < h.start {
		r.notSure(r.unsure &^ nodes)
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
