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
//
// Most of the time there is none of any claim, which takes one look. It misses none: a history is
// counted in the step in which it notes the release, before that is sent, with the mutex held that
// is taken here otherwise. So whoever finds 0 would have found no release either, had it taken all
// the mutexes at that moment; and a release that is asked for later is not an earlier one.
func (b *batch) doubt() {
	q := b.q
	if q.doubts.Load() == 0 {
		return
	}
	for k := range b.claims {
		s := q.shardOf(b.claims[k].Key)
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
