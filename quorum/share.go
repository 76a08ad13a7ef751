package quorum

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Sharing over N nodes. A shared claim holds a majority of nodes, like any other claim. The
// majorities of a shared claim and an exclusive one have a node in common. There they exclude each
// other, and the later one gets the larger token. Two shared claims do not exclude each other, and
// may have the same token.
//
// After a Downgrade some nodes may have the claim as shared, and others as exclusive. Both keep
// writers out. Another shared claim can get a majority only if the downgraded claim is shared on a
// node that both majorities have. So the Downgrade was requested, and the holder no longer relies
// on being alone. Each later renewal with Shared tells the nodes that have not heard of it yet.

// Shares implements driver.Sharer: it reports whether all nodes grant shared claims. If one does
// not, shared claims fail with driver.ErrInvalid, and the error names it.
func (q *Quorum) Shares() bool { return q.unsharing == "" }

// unsharing returns the name of the first node that does not grant shared claims; empty if all do.
func unsharing(nodes []*node.Node) string {
	for _, n := range nodes {
		if s, ok := n.Backend.(driver.Sharer); !ok || !s.Shares() {
			return n.Name
		}
	}
	return ""
}

// admitsMode returns an error for a claim that a node cannot grant in its mode.
func (q *Quorum) admitsMode(claim *driver.Claim) error {
	if !claim.Shared || q.Shares() {
		return nil
	}
	return forbidden(fmt.Errorf(
		"shared claim on %q: %s cannot share keys (driver.Sharer): only exclusive claims are allowed",
		claim.Key, q.unsharing))
}

// sharesAlready reports whether the claim is known to hold a majority as a shared claim. If such a
// claim were sent to the nodes as an exclusive one, they would answer that the key is busy, and the
// claim would be given back because it has no majority.
func (q *Quorum) sharesAlready(claim *driver.Claim) bool {
	s := q.shardOf(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(claim.Key, claim.Owner)
	return r != nil && r.held && r.shared
}

// sharing notes which of the batch's claims nodes may share from now on, and which nodes are unsure
// of their last tokens.
func (b *batch) sharing() {
	for k := range b.claims {
		claim := &b.claims[k]
		if !claim.Shared && b.q.unsure.Load() == 0 {
			continue
		}
		s := b.q.shardOf(claim.Key)
		s.mu.Lock()
		if r := s.findLocked(claim.Key, claim.Owner); r != nil {
			r.shared = r.shared || claim.Shared
			if r.unsure != 0 && b.unsure == nil {
				b.unsure = make([]node.Set, len(b.claims))
			}
			if r.unsure != 0 {
				b.unsure[k] = r.unsure
			}
		}
		s.mu.Unlock()
	}
}
