package node

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// Calls for one key go to each node one after the other, in the order in which they were asked for.
// Each starts when the one before has returned. A call returns after the node timeout at the
// latest, and by then it has its place in the node's own order. So a release is sound even if the
// acquisition before it was never answered. Different nodes do not wait for each other, and neither
// do different keys.

// Key is the order of the calls for one key at each node. The zero Key has no calls. Guarded by the
// mutex of the claims' histories.
//
// One Key serves all nodes, and so does one History. One for each node would multiply the memory by
// the number of nodes.
type Key struct {
	busy    Set     // nodes with a call for the key under way
	waiting []*Call // calls that wait behind those, in the order in which they were made
}

// Busy reports whether a call for the key is under way.
func (k *Key) Busy() bool { return k.busy != 0 }

// next takes the first waiting call for node i, whose turn it is, or nil.
func (k *Key) next(i int) *Call {
	for at, c := range k.waiting {
		if c.Node.Index == i {
			k.waiting = slices.Delete(k.waiting, at, at+1)
			c.History.started(c)
			return c
		}
	}
	k.busy &^= Only(i)
	return nil
}

// Keeper keeps what is known of a claim. It is called with the mutex of the claim's history held,
// and calls no node.
type Keeper interface {
	// Answered is told how a call for the claim has ended, before the next call for its key is
	// made. latest says that no later call of the claim was asked for at the node. If after is not
	// nil, it is called when the mutex is free.
	Answered(c *Call, result driver.Result, err error, latest bool) (after func())

	// Tidy forgets what is not needed any more.
	Tidy()
}

// History is what was sent of one claim to each node. Make one with [NewHistory]. The caller holds
// its mutex, which is one for all claims of a key.
type History struct {
	mu     *sync.Mutex
	keeper Keeper

	// Key is where the claim's calls have their order. It does not change while there are calls.
	Key *Key

	over bool   // the claim was released or given up, and not asked for since
	ends uint32 // how often it was

	touched  Set // nodes that an acquisition was sent to, and that may have it
	again    Set // of these, nodes that a second acquisition was sent to
	released Set // nodes whose last call was a release
	freed    Set // nodes where a release has ended a grant since the claim was over
	unheard  Set // nodes where a release may have ended the claim, nobody knows when
	pending  Set // nodes with a pending release
	listed   Set // nodes that have the release in their list, even if it is no longer pending
	ending   Set // nodes that were sent a release, and have not answered it or a later call
	calls    int // under way or waiting

	doubts  *atomic.Int64 // of all histories, those that have a node Ending
	doubted bool          // this one is counted there

	// made counts calls, and last is the number of the last call on each node. Only the answer to
	// the last call is true of the node. Only the last call may be made again, if it is a release:
	// an earlier release would undo what came after it. A release that repeats the call before it
	// has that one's number: what is true of one is true of both.
	made uint32
	last [Max]uint32
}

// NewHistory returns the history of a claim of which nothing was sent. doubts counts the histories
// that have a node [History.Ending]. It rises in the step in which a release is noted, before the
// release is sent. It falls when no release may take effect any more, or when the history is
// forgotten.
func NewHistory(mu *sync.Mutex, keeper Keeper, doubts *atomic.Int64) History {
	return History{mu: mu, keeper: keeper, doubts: doubts}
}

// Begin notes that the claim is asked for.
func (h *History) Begin() { h.over = false }

// End notes that the claim is released or given up. To end a claim again changes nothing.
//
// A release that is under way then is of an earlier hold: what it finds may not have lasted until
// now. It is under way at a node that the acquisition after it has left out, or that has not got
// that acquisition yet. A release that had no answer has had its effect if a later call was
// answered by now. If one is answered only after the end, the effect may have come after the end.
func (h *History) End() {
	if h.over {
		return
	}
	h.over = true
	h.ends++
	h.freed = 0
	h.unheard &= h.ending
}

// Over reports whether the claim was released or given up, and not asked for since.
func (h *History) Over() bool { return h.over }

// Touch notes that the claim may be on any of these nodes.
func (h *History) Touch(nodes Set) { h.touched |= nodes }

// Touched returns the nodes that the claim may be on.
func (h *History) Touched() Set { return h.touched }

// Released returns the nodes whose last call was a release.
func (h *History) Released() Set { return h.released }

// Gone returns what a release says of node i, which does not have the claim: Held if a release has
// ended its hold there since the claim ended, Unknown if one may have ended it before or since, and
// else Lost.
func (h *History) Gone(i int) driver.State { return h.found(i, driver.Lost) }

// found returns what a release says of node i if it has found the claim in that state.
func (h *History) found(i int, state driver.State) driver.State {
	switch {
	case h.freed.Has(i):
		return driver.Held
	case h.unheard.Has(i):
		return driver.Unknown
	default:
		return state
	}
}

// Ending returns the nodes on which a release of the claim that was asked for before may still take
// effect.
func (h *History) Ending() Set { return h.ending | h.pending }

// Forget takes the history out of the count of doubts. The keeper calls it when it forgets the
// claim, whose history is then [History.Idle]. If more is sent of the claim, the history counts
// again.
func (h *History) Forget() { h.doubt(false) }

// recount keeps the history in the count of doubts for as long as it has a node Ending. It is
// called in one step with whatever changes that.
func (h *History) recount() { h.doubt(h.Ending() != 0) }

func (h *History) doubt(doubted bool) {
	switch {
	case doubted && !h.doubted:
		h.doubts.Add(1)
	case !doubted && h.doubted:
		h.doubts.Add(-1)
	}
	h.doubted = doubted
}

// Pend notes that a release is pending at node i. It reports true if the node does not list the
// release yet. Then the caller calls [Node.Pend] when the mutex is free.
func (h *History) Pend(i int) bool {
	defer h.recount()
	h.pending |= Only(i)
	if h.listed.Has(i) {
		return false
	}
	h.listed |= Only(i)
	return true
}

// Busy reports whether a call for the claim is under way.
func (h *History) Busy() bool { return h.calls > 0 }

// Idle reports whether no call is under way, and no release pending.
func (h *History) Idle() bool { return !h.Busy() && h.pending == 0 }

// push notes a new call. The call ends a pending release of the claim: if it is a release, it takes
// that one's place; if it is an acquisition, a pending release must not undo it.
func (h *History) push(c *Call) {
	defer h.recount()
	i := c.Node.Index
	h.calls++
	if c.Op != Releasing || !h.released.Has(i) {
		h.made++
		h.last[i] = h.made
	}
	c.number = h.last[i]
	h.pending &^= Only(i)
	switch c.Op {
	case Acquiring:
		h.again |= h.touched & Only(i)
		h.touched |= Only(i)
		h.released &^= Only(i)
	case Releasing:
		h.released |= Only(i)
		h.ending |= Only(i)
	}
}

// started notes that the turn of a call has come.
func (h *History) started(c *Call) { c.ends = h.ends }

// latest reports whether no call for the claim was made after c at its node.
func (h *History) latest(c *Call) bool { return h.last[c.Node.Index] == c.number }

// confirmed notes that node i does not have the claim any more.
func (h *History) confirmed(i int) {
	h.touched &^= Only(i)
	h.again &^= Only(i)
	h.pending &^= Only(i)
}

// returned notes how a call has ended. It returns what the end says of the claim, and whether the
// release must be made again.
func (h *History) returned(c *Call, r driver.Result,
	err error) (_ driver.Result, _ error, pend bool) {
	defer h.recount()
	i := c.Node.Index
	h.calls--
	if err == nil && h.latest(c) {
		h.ending &^= Only(i) // calls take effect in the order in which they were made
	}
	if c.Op == Releasing {
		return h.releaseReturned(c, r, err)
	}
	if err != nil && !h.again.Has(i) && !Maybe(err) {
		h.touched &^= Only(i)
	}
	return r, err, false
}

// releaseReturned is returned for a release.
func (h *History) releaseReturned(c *Call, r driver.Result,
	err error) (_ driver.Result, _ error, pend bool) {
	i := c.Node.Index
	latest, earlier := h.latest(c), h.over && c.ends != h.ends
	switch {
	case err == nil && earlier: // if it has ended no grant, it has done nothing
		if r.State == driver.Held {
			h.unheard |= Only(i)
		}
	case err == nil:
		if latest {
			h.confirmed(i)
		}
		if r.State == driver.Held {
			h.freed |= Only(i)
		}
		r.State = h.found(i, r.State)
	case !h.touched.Has(i):
		// The node never had the claim, so the release need not have arrived.
		return driver.Result{State: h.Gone(i)}, nil, false
	default:
		if Maybe(err) {
			h.unheard |= Only(i)
		}
		if latest && !driver.Permanent(err) { // else it was of a hold that is over
			pend = h.Pend(i)
		}
	}
	return r, err, pend
}
