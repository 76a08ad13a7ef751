package quorum

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

const (
	// maxFailures is how many calls in a row have to fail for a node to count as down.
	maxFailures = 2

	// minBackoff and maxBackoff bound how long a node that is down is left alone before the next probe.
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second

	// maxPending bounds how many calls wait for one node's answer, or for their turn at it.
	maxPending = 4096

	// maxDebts bounds how many releases are remembered for a node that does not take them.
	maxDebts = 16384
)

// node is one backend and what is known of its health: the breaker, and the releases it still owes us.
//
// The breaker decides only whether a node is asked at first. Where the others do not make a majority,
// those that were left out are asked as well (round.decide), so it never costs an operation its success.
type node struct {
	index   int
	name    string
	backend driver.Backend
	jitter  float64

	pending atomic.Int64 // calls under way or waiting for their turn

	// settled is true while all is well: the node is up, has nothing to make good and is known not to be
	// another one under a second name. It spares the healthy case the mutex.
	settled atomic.Bool

	mu          sync.Mutex
	asked       bool // it has answered or failed to answer once
	failures    int  // calls that failed in a row
	since       clock.Instant
	down        bool
	probing     bool // the one call that a node that is down gets is under way
	nextProbe   clock.Instant
	backoff     time.Duration
	lastErr     error // of the last call that failed
	refusing    bool  // for good, since it last granted something
	quarantine  bool  // what it answered last; until
	quarantined clock.Instant
	debts       []debt
	flushing    bool        // a job or the timer sees to the debts
	timer       *time.Timer // until the next attempt to; nil if none is set
	reported    NodeState   // what the observer knows

	identity     string // what it said last
	version      string // of the server that said it; empty if not known
	identified   bool   // it was compared with the others, or cannot be
	identifying  bool
	nextIdentify clock.Instant
	sameAs       string // the name of the node that is the same server
}

// debt is a release that a node has not confirmed, of a claim that it may still hold.
type debt struct{ key, owner string }

// admit says whether a call may go to the node now, and whether it is the probe of a node that is down. With
// force, being down is no reason. err says why not.
func (n *node) admit(force bool) (probe bool, err error) {
	if n.pending.Load() >= maxPending {
		return false, refused(errBacklog, false)
	}
	if n.settled.Load() {
		return false, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sameAs != "" {
		return false, refused(fmt.Errorf("%w: it is also %s", ErrSameServer, n.sameAs), true)
	}
	if !n.down || force {
		return false, nil
	}
	now := clock.Now()
	if n.probing || now < n.nextProbe {
		return false, refused(n.excuseLocked(now), false)
	}
	n.probing = true
	return true, nil
}

// excuse says why the node is left out.
func (n *node) excuse() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.excuseLocked(clock.Now())
}

func (n *node) excuseLocked(now clock.Instant) error {
	return fmt.Errorf("not asked: down for %v: %w", now.Sub(n.since).Round(time.Millisecond), n.lastErr)
}

// isDown reports whether the node counts as down.
func (n *node) isDown() bool {
	if n.settled.Load() {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// note takes note of how a call ended, and whether it was one that is refused in quarantine. It reports whether the
// node's state has changed, and whether something can be seen to now: debts, or who the node is.
func (n *node) note(err error, vote, probe bool) (changed, work bool) {
	if err == nil && !probe && n.settled.Load() {
		return false, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if probe {
		n.probing = false
	}
	n.asked = true
	now := clock.Now()
	wait := quarantineOf(err)
	if driver.Permanent(err) {
		n.refusing = true
	} else if err == nil && vote {
		n.refusing = false // a node may release and yet not grant
	}
	switch {
	case err == nil || wait > 0 || driver.Permanent(err):
		// A node that refuses for a good reason is not down: it answers, and there is nothing to spare.
		n.down, n.failures, n.backoff = false, 0, 0
		if wait > 0 {
			n.quarantine, n.quarantined = true, now.Add(wait)
		} else if vote {
			n.quarantine = false
		}
	default:
		n.failures++
		if !n.down && n.failures >= maxFailures {
			n.down, n.since, n.backoff = true, now, minBackoff
			n.nextProbe = now.Add(n.pause())
		} else if n.down && now >= n.nextProbe {
			n.backoff = min(2*n.backoff, maxBackoff)
			n.nextProbe = now.Add(n.pause())
		}
	}
	if err != nil {
		n.lastErr = err
	}
	n.settleLocked()
	changed = n.stateLocked(now) != n.reported
	work = !n.down && (n.timer != nil || !n.identified && !n.identifying && now >= n.nextIdentify)
	return changed, work
}

// pause is how long the node is left alone. It differs a little from node to node, so that
// what happened to several at once does not happen to them at once again.
func (n *node) pause() time.Duration {
	return time.Duration(n.jitter * float64(max(n.backoff, minBackoff)))
}

// settleLocked finds out whether all is well.
func (n *node) settleLocked() {
	n.settled.Store(n.reported == Up && !n.down && n.failures == 0 && !n.refusing && !n.quarantine &&
		n.identified && n.sameAs == "" && len(n.debts) == 0 && !n.flushing)
}

// owe remembers a release. It returns the debt that had to be forgotten for it, if any, and whether
// somebody has to be found who sees to the debts.
func (n *node) owe(d debt) (forgotten debt, start bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts) >= maxDebts {
		// The oldest one: its key is the closest to its end.
		forgotten, n.debts = n.debts[0], n.debts[1:]
	}
	n.debts = append(n.debts, d)
	start, n.flushing = !n.flushing, true
	n.settleLocked()
	return forgotten, start
}

// pay hands out debts to be paid: one to a node that is down, to see whether it is there, and else up to most.
// When there are none, that ends the flushing.
func (n *node) pay(most int) []debt {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		most = 1
	}
	most = min(most, len(n.debts))
	due := n.debts[:most:most]
	if n.debts = n.debts[most:]; len(n.debts) == 0 {
		n.debts = nil
	}
	if most == 0 {
		n.flushing = false
		n.settleLocked()
	}
	return due
}
