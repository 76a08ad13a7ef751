package quorum

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Sharing over N nodes. A claim that shares a key holds a majority like any other, each node in its
// own mode. A shared and an exclusive claim with a majority each have a node in common, and there
// they exclude each other, and one gets a larger token than the other. Two shared ones do not: both
// may have the same token.
//
// After a Downgrade some nodes may have the claim shared, and others alone. It keeps writers out by
// both. Others that would share have a majority only if it is shared on some node that they have in
// common, so its Downgrade was asked for, and its holder counts on being alone no more. Each later
// renewal with Shared tells nodes that have not heard of it yet.

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

// sharesAlready reports whether a claim holds a majority shared, as far as is known here. If it was
// asked for alone, nodes would say that it is busy, and as one that has no majority it would be
// given back.
func (q *Quorum) sharesAlready(claim *driver.Claim) bool {
	s := q.shardOf(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(claim.Key, claim.Owner)
	return r != nil && r.held && r.shared
}

// sharing notes which of the batch's claims nodes may share from now on.
func (b *batch) sharing() {
	for k := range b.claims {
		claim := &b.claims[k]
		if !claim.Shared {
			continue
		}
		s := b.q.shardOf(claim.Key)
		s.mu.Lock()
		if r := s.findLocked(claim.Key, claim.Owner); r != nil {
			r.shared = true
		}
		s.mu.Unlock()
	}
}
