package quorum

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Release ends the claim at once, as driver.Backend describes, on all nodes that may have it,
// whether they are known to hold it or not. These are the nodes that were asked for the claim, or
// all nodes if the Quorum knows nothing of the claim. Release returns Held if a majority held the
// claim until now. If too many nodes did not hold it for a majority, it returns Busy if the claim
// was queued on one of them, and else Lost. If too few nodes answer to tell, it fails with
// ErrUnknown. An answer does not tell if a release of an earlier attempt may have ended the claim
// at that node. A repetition that a majority answers does not fail: the claim is gone.
//
// In every case, nodes that did not answer get the release again when they are back. A node that
// has confirmed a release is not asked again while others have not. Nor is a node that is down, if
// the release is repeated: so a repetition fails at once while a majority is down. ctx ends only
// the wait. If ctx has ended before the call, nothing is done, and Release fails with
// ErrUnavailable.
func (q *Quorum) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := q.ready(ctx); err != nil {
		return driver.Result{}, err
	}
	r := q.release(claim)
	if err := r.wait(ctx); err != nil {
		return driver.Result{}, unanswered(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch t := r.tally(); {
	case t.held >= q.need:
		return driver.Result{State: driver.Held}, nil
	case t.lost+t.busy <= len(q.nodes)-q.need && !(r.repeated && t.answered >= q.need):
		err := r.failure(&t, nil)
		err.Maybe = true
		return driver.Result{}, err
	case t.busy > 0:
		return driver.Result{State: driver.Busy}, nil
	default:
		return driver.Result{State: driver.Lost}, nil
	}
}

func (q *Quorum) release(claim driver.Claim) *round {
	return q.begin(node.Releasing, claim, clock.Now())
}
