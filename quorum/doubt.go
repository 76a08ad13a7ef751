package quorum

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// A waiter gives back what it holds on a few nodes. If one of these is slow, the waiter may hold a
// majority before the release takes effect there, and renewals do not wait for it as acquisitions
// do. So while a node has not answered a release, nor what was asked for after it, its renewals of
// this claim are no votes. Other nodes may still make a majority.

var errStillReleasing = &driver.Error{Maybe: true,
	Err: errors.New("held, but may still be released: an earlier request is unanswered")}

// doubt notes on which nodes an earlier release of each claim may take effect yet. Called before
// any node is asked, with b.mu held.
func (b *batch) doubt() {
	for k := range b.claims {
		s := b.q.shardOf(b.claims[k].Key)
		s.mu.Lock()
		var late node.Set
		if r := s.findLocked(b.claims[k].Key, b.claims[k].Owner); r != nil {
			late = r.history.Ending()
		}
		s.mu.Unlock()
		if late != 0 && b.late == nil {
			b.late = make([]node.Set, len(b.claims))
		}
		if late != 0 {
			b.late[k] = late
		}
	}
}

// vote returns what a node's answer about a claim counts for. That somebody waits there is true all
// the same.
func (b *batch) vote(i, k int, result driver.Result) driver.Result {
	if result.State == driver.Held && b.late != nil && b.late[k].Has(i) {
		return driver.Result{Waiting: result.Waiting, Err: errStillReleasing}
	}
	return result
}
