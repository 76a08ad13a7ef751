package simulate

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// asked notes which acquisitions of a process have just failed at the backend. It is for checking
// that no waiter is told of the failure of another's single attempt: a waiter asks twice.
type asked struct {
	mu     sync.Mutex
	failed map[attempt]failure
}

// attempt is what an acquisition asked for.
type attempt struct {
	key    string
	ttl    time.Duration
	shared bool
}

type failure struct {
	at    time.Duration // since the start of the history
	waits bool          // it, or another at the same moment, was of a claim that waits
}

// fails notes that a request for the claim has failed at now.
func (a *asked) fails(c driver.Claim, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := attempt{c.Key, c.TTL, c.Shared}
	f := a.failed[k]
	if f.at != now {
		f = failure{at: now}
	}
	f.waits = f.waits || c.Queue
	if a.failed == nil {
		a.failed = make(map[attempt]failure)
	}
	a.failed[k] = f
}

// single reports whether only single attempts of this kind failed at now.
func (a *asked) single(k attempt, now time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, known := a.failed[k]
	return known && f.at == now && !f.waits
}

// ofAnother checks the error of an Acquire of a lock, at the moment in which it returns. In a
// suspend, the whole TTL may pass for which a waiter sits an outage out. On a quorum or on Redis
// nobody sees which request was whose.
func (w *worker) ofAnother(k *keyState, v wish, err error) {
	if !errors.Is(err, holdfast.ErrUnknown) || v.permits > 0 || w.h.nodes > 1 || w.h.redis ||
		w.h.has(suspends) {
		return
	}
	if w.proc.attempts.single(attempt{k.name, v.ttl, v.shared}, w.h.now()) {
		w.h.violate("attempts", "%s: an Acquire that waits was told of another's attempt: %v",
			k.name, err)
	}
}
