package node

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxCalls bounds how many calls wait for one node's answer, or for their turn at it.
const maxCalls = 4096

// Node is one backend and what is known of it: its state, its identity, what its clock shows, and
// the releases that it has not confirmed. It is safe for concurrent use.
type Node struct {
	Index   int
	Name    string
	Backend driver.Backend

	group *Group

	calls     atomic.Int64  // under way or waiting for their turn
	forgotten atomic.Uint64 // pending releases

	// settled is true while all is well: the node is up, it has confirmed all releases, and it is
	// known not to be another node under a second name. With settled, the healthy case needs no
	// mutex.
	settled atomic.Bool

	mu          sync.Mutex
	asked       bool // it has answered or failed to answer once
	breaker     breaker
	lastErr     error // of the last call that failed
	refusing    asks  // permanently, and it has not done these since
	quarantine  bool  // whether its last answer spoke of a quarantine; and until when
	quarantined clock.Instant
	releases    releases
	reading     reading
	identity    identity
	reported    State // what the observer knows
}

// New makes the node with that index. jitter is in [0, 1).
func New(g *Group, index int, name string, backend driver.Backend, jitter float64) *Node {
	n := &Node{Index: index, Name: name, Backend: backend, group: g}
	n.breaker.jitter = 1 - jitter/4
	return n
}

// Close stops what the node does by itself, and closes its backend.
func (n *Node) Close() error {
	n.stopRetryTimer()
	if err := n.Backend.Close(); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

// Admit decides whether a call may go to the node now. If not, err says why. probe reports that the
// call is the probe of a node that is down. If force is true, a node that is down is asked too.
func (n *Node) Admit(force bool) (probe bool, err error) {
	if n.calls.Load() >= maxCalls {
		return false, Refused(errBacklog, false)
	}
	if n.settled.Load() {
		return false, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if same := n.identity.sameAs; same != "" {
		return false, Refused(fmt.Errorf("%w: it is also %s", ErrSameServer, same), true)
	}
	if !n.breaker.down || force {
		return false, nil
	}
	now := clock.Now()
	if !n.breaker.probe(now) {
		return false, Refused(n.excuseLocked(now), false)
	}
	return true, nil
}

// unprobed lets another call be the probe, because the call that was to be the probe was not made.
func (n *Node) unprobed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breaker.probing = false
}

// excuse returns why the node is left out if it is down, else nil.
func (n *Node) excuse() error {
	if n.settled.Load() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.breaker.down {
		return nil
	}
	return n.excuseLocked(clock.Now())
}

func (n *Node) excuseLocked(now clock.Instant) error {
	return n.breaker.excuse(now, n.lastErr)
}

// TakesPart reports whether the node's votes count, as far as is known: it is not in quarantine,
// does not refuse permanently, and is not another node under a second name.
func (n *Node) TakesPart() bool {
	if n.settled.Load() {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	quarantined := n.quarantine && n.quarantined > clock.Now()
	return n.refusing == 0 && n.identity.sameAs == "" && !quarantined
}

// returned notes how a call for op ended; probe says that it was the probe. If the node answers
// now, its pending releases are made and it is identified.
func (n *Node) returned(err error, op Operation, probe bool) {
	if err == nil && !probe && n.settled.Load() {
		return
	}
	changed, answers, again := n.take(err, op, probe)
	if changed {
		n.report()
	}
	if again && n.stopRetryTimer() {
		n.group.workers.start(&retry{n})
	}
	if answers {
		n.identifyLater()
	}
}

// asks is a set of operations.
type asks uint8

func askedFor(op Operation) asks { return 1 << op }

// take notes how a call ended. It reports whether the node's state has changed, whether the node
// answers, and whether pending releases can be made again now. A node that answers but took no
// pending release keeps its pause.
func (n *Node) take(err error, op Operation, probe bool) (changed, answers, again bool) {
	vote := op != Releasing // a node in quarantine refuses it
	n.mu.Lock()
	defer n.mu.Unlock()
	if probe {
		n.breaker.probing = false
	}
	n.asked = true
	now := clock.Now()
	wait, permanent := Quarantine(err), driver.Permanent(err)
	switch {
	case errors.Is(err, driver.ErrInvalid):
		// The error is about the claim. Of the node it says only that it is there.
	case permanent:
		n.refusing |= askedFor(op)
	case err == nil && op == Acquiring:
		n.refusing = 0 // nothing less counts: it may refuse acquisitions, and release and renew
	case err == nil && op == renewing:
		n.refusing &^= askedFor(renewing)
	}
	answers = err == nil || wait > 0 || permanent
	again = answers && (n.breaker.down || n.releases.pause == 0)
	if answers {
		// A node that refuses is not down: it answers, so there is nothing to spare.
		n.breaker.close()
		n.sitOutLocked(now, wait, vote)
	} else {
		n.breaker.fail(now)
	}
	if err != nil {
		n.lastErr = err
	}
	n.settleLocked()
	return n.stateLocked(now) != n.reported, answers, again
}

// sitOutLocked notes what an answer says about the quarantine.
func (n *Node) sitOutLocked(now clock.Instant, wait time.Duration, vote bool) {
	if wait > 0 {
		n.quarantine, n.quarantined = true, now.Add(wait)
	} else if vote {
		n.quarantine = false
	}
}

// settleLocked sets settled.
func (n *Node) settleLocked() {
	up := n.reported == Up && !n.breaker.down && n.breaker.failures == 0
	known := n.identity.known && n.identity.sameAs == ""
	done := len(n.releases.list) == 0 && !n.releases.retrying
	n.settled.Store(up && known && done && n.refusing == 0 && !n.quarantine)
}
