package node

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

const (
	// maxFailures is how many calls in a row have to fail for a node to count as down.
	maxFailures = 2

	// minBackoff and maxBackoff bound how long a node that is down is left alone before the next
	// probe.
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// breaker spares a node that is down. It decides only whether a round asks the node at first. A
// round in which a majority of answers is missing without the node asks it anyway, but for a
// release that is repeated. A round with a majority of answers does not ask it: an acquisition that
// others refuse is Busy then, and the outcome of a release may be unknown, though the node has come
// back. Guarded by the node's mutex.
type breaker struct {
	jitter    float64
	failures  int // calls that failed in a row
	since     clock.Instant
	down      bool
	probing   bool // the probe is under way
	nextProbe clock.Instant
	backoff   time.Duration
}

// probe reports whether a call may be the probe now. If it may, it is from now on.
func (b *breaker) probe(now clock.Instant) bool {
	if b.probing || now < b.nextProbe {
		return false
	}
	b.probing = true
	return true
}

// close notes that the node has answered.
func (b *breaker) close() { b.down, b.failures, b.backoff = false, 0, 0 }

// fail notes that the node has not answered.
func (b *breaker) fail(now clock.Instant) {
	b.failures++
	if !b.down && b.failures >= maxFailures {
		b.down, b.since, b.backoff = true, now, minBackoff
		b.nextProbe = now.Add(b.pause())
	} else if b.down && now >= b.nextProbe {
		b.backoff = min(2*b.backoff, maxBackoff)
		b.nextProbe = now.Add(b.pause())
	}
}

// pause returns how long the node is left alone: maxBackoff at most, because releases that are
// repeated wait for that. It differs a little from node to node, so that nodes that failed together
// are not probed together.
func (b *breaker) pause() time.Duration {
	return time.Duration(b.jitter * float64(max(b.backoff, minBackoff)))
}

// excuse says why the node is not asked.
func (b *breaker) excuse(now clock.Instant, lastErr error) error {
	since := now.Sub(b.since).Round(time.Millisecond)
	return fmt.Errorf("not asked: down for %v: %w", since, lastErr)
}
