package node

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A release that a node has not confirmed is pending: the node may still hold the claim. While the
// node's connection lives, the request is on its way, in order. If the connection breaks, the
// release may be lost although the acquisition arrived. So pending releases are made again when the
// node is back. If the node answers but does not take them, they are made one at a time, after
// growing pauses.

const (
	// maxReleases bounds how many pending releases are remembered for a node that does not take
	// them.
	maxReleases = 16384

	// atOnce is how many of them are made at a time.
	atOnce = 8
)

// releases are a node's pending ones. Guarded by the node's mutex.
type releases struct {
	list     []release
	retrying bool          // a job makes them, or the timer is set
	timer    *time.Timer   // until the next attempt; nil if none is set
	pause    time.Duration // after attempts that failed; 0 after one that succeeded
}

// release is an entry of the list. When its time comes, it is made again if its claim's history
// still has it pending.
type release struct {
	history    *History
	key, owner string
}

// Pend remembers a release of a claim. The history already knows that the release is pending. The
// caller holds no mutex.
func (n *Node) Pend(history *History, key, owner string) {
	forgotten, start := n.pend(release{history, key, owner})
	if h := forgotten.history; h != nil {
		// At this node the claim now ends with its TTL.
		n.forgotten.Add(1)
		h.mu.Lock()
		h.pending &^= Only(n.Index)
		h.listed &^= Only(n.Index)
		h.recount()
		h.keeper.Tidy()
		h.mu.Unlock()
	}
	if start {
		n.retryLater()
	}
}

// pend adds a release to the list. It returns the release that it had to forget for that, if any,
// and whether the caller has to start a retry.
func (n *Node) pend(r release) (forgotten release, start bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.releases
	if len(p.list) >= maxReleases {
		// The oldest one: its lease ends first.
		forgotten, p.list = p.list[0], p.list[1:]
	}
	p.list = append(p.list, r)
	start, p.retrying = !p.retrying, true
	n.settleLocked()
	return forgotten, start
}

// due takes pending releases off the list, to be made: one if the node is down or took none, to see
// whether it takes one now; otherwise up to most. If the list is empty, the retrying ends.
func (n *Node) due(most int) []release {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.releases
	if n.breaker.down || p.pause > 0 {
		most = 1
	}
	most = min(most, len(p.list))
	due := p.list[:most:most]
	if p.list = p.list[most:]; len(p.list) == 0 {
		p.list = nil
	}
	if most == 0 {
		p.retrying = false
		n.settleLocked()
	}
	return due
}

// retryLater sets the timer for the next attempt at the pending releases.
func (n *Node) retryLater() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.group.base.Err() != nil {
		return
	}
	pause := max(n.breaker.pause(), n.releases.pause)
	n.releases.timer = time.AfterFunc(pause, func() {
		if n.stopRetryTimer() {
			n.group.workers.start(&retry{n})
		}
	})
}

// tried notes whether an attempt to make pending releases went badly.
func (n *Node) tried(bad bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.releases
	if !bad {
		p.pause = 0
		return
	}
	p.pause = min(max(2*p.pause, minBackoff), maxBackoff)
}

// stopRetryTimer stops the timer. It reports true to one caller only, which then makes the pending
// releases.
func (n *Node) stopRetryTimer() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.releases
	if p.timer == nil {
		return false
	}
	p.timer.Stop()
	p.timer = nil
	return true
}

// retry makes a node's pending releases.
type retry struct{ n *Node }

// Run implements Job.
func (r *retry) Run() {
	done := make(Answers, atOnce)
	for {
		due := r.n.due(atOnce)
		if len(due) == 0 {
			r.n.report()
			return
		}
		sent, bad := 0, false
		for _, release := range due {
			if r.n.releaseAgain(release, done) {
				sent++
			}
		}
		for range sent {
			// A release that fails is pending again.
			bad = <-done != nil || bad
		}
		if sent > 0 {
			r.n.tried(bad)
		}
		if bad {
			r.n.retryLater()
			return
		}
	}
}

// releaseAgain makes a pending release, unless it was made meanwhile or the claim was asked for
// again. It reports whether it made a call.
func (n *Node) releaseAgain(r release, to Receiver) bool {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	r.history.listed &^= Only(n.Index)
	if !r.history.pending.Has(n.Index) {
		return false
	}
	c := &Call{
		Node: n, Op: Releasing, Claim: &driver.Claim{Key: r.key, Owner: r.owner},
		History: r.history,
		Bound:   n.group.config.ReleaseBound, To: to,
	}
	c.Make()
	return true
}
