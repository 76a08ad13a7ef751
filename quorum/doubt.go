package quorum

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// A waiter gives back what it holds on a few nodes. If one of these nodes is slow, the waiter may
// get a majority before the release takes effect there. Acquisitions wait for that release, but
// renewals do not. So as long as a node has answered neither the release nor a later call, its
// renewals of the claim do not count as votes. Other nodes may still make a majority. If they do,
// the claim is set again on the node, which votes again when it has answered that.

var errStillReleasing = &driver.Error{Maybe: true,
	Err: errors.New("held, but may still be released: an earlier request is unanswered")}

// doubt notes, for each claim, the nodes on which an earlier release may still take effect. Called
// before any node is asked, with b.mu held.
//
// Usually there is no such release, and a look at one counter is enough. The counter misses
// nothing: it is raised together with the note of the release, under the same mutex, and before the
// release is sent. So if it is 0, a look under all mutexes would have found nothing either. A
// release that is requested after that is not an earlier one.
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

// vote returns the state that a node's answer about a claim counts as. Waiting is true of the node
// in any case.
func (b *batch) vote(i, k int, result driver.Result) driver.Result {
	if result.State == driver.Held && b.late != nil && b.late[k].Has(i) {
		return driver.Result{Waiting: result.Waiting, Err: errStillReleasing}
	}
	return result
}
