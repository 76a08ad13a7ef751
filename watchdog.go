package holdfast

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

const (
	// readingsShared is how many leases in a row share one reading of the clock. A reading costs as
	// much as the rest of the work for a lease, which takes microseconds.
	readingsShared = 32

	// suspendCheck is how often a Locker that has a lease checks whether the host was suspended.
	// Timers do not count the time of a suspend, so a deadline may pass before its timer fires.
	suspendCheck = 250 * time.Millisecond
)

// watchdog renews the leases of a Locker and ends those whose time is over. It has one goroutine
// for all leases, which exists only while there is a lease, and a heap of the leases, ordered by
// when each next needs attention.
type watchdog struct {
	locker *Locker
	wake   chan struct{} // has room for one

	mu      sync.Mutex
	heap    leaseHeap
	next    clock.Instant // when the goroutine next looks at the heap
	stopped chan struct{} // closed when the goroutine has ended; nil if there is none
}

// schedule puts the lease into the heap by its next event. The caller holds the lease's shard.mu,
// which comes before watchdog.mu.
func (w *watchdog) schedule(h *lease) {
	due, early := h.nextEvent()
	w.mu.Lock()
	defer w.mu.Unlock()
	h.early = early
	w.heap.put(h, due)
	switch {
	case w.stopped == nil:
		w.stopped = make(chan struct{})
		w.next = due
		go w.run(w.stopped)
	case due < w.next:
		w.next = due
		w.rouse()
	}
}

// rouse makes the goroutine look now.
func (w *watchdog) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// remove takes the lease out of the heap, if it is there. The caller holds the lease's shard.mu.
func (w *watchdog) remove(h *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.index >= 0 {
		w.heap.remove(h)
	}
}

// stop ends the goroutine, if there is one, and waits for it. All leases have ended.
func (w *watchdog) stop() {
	w.mu.Lock()
	stopped := w.stopped
	w.rouse()
	w.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// nextEvent returns when the lease next needs attention, and how long before that it may get it.
// The second value lets renewals that are due at about the same time go out together. The caller
// holds shard.mu.
func (h *lease) nextEvent() (next clock.Instant, early time.Duration) {
	next = h.deadline
	if h.renewable() && !h.asking && h.renewAt < next {
		next, early = h.renewAt, h.slack()
	}
	if h.limit != 0 && h.limit < next {
		next, early = h.limit, 0
	}
	return next, early
}

func (w *watchdog) run(stopped chan struct{}) {
	defer close(stopped)
	timer := time.AfterFunc(suspendCheck, w.rouse)
	defer timer.Stop()
	w.rouse()
	idle := 0
	for {
		<-w.wake
		w.renew(w.attend())

		w.mu.Lock()
		if len(w.heap) > 0 {
			idle = 0
		} else if idle++; idle > 1 || w.locker.closed.Load() {
			// Stay for one more round, because the next lease may come soon.
			w.stopped = nil
			w.mu.Unlock()
			return
		}
		now := clock.Look()
		w.next = now.Add(suspendCheck)
		if len(w.heap) > 0 {
			w.next = min(w.next, w.heap[0].due)
		}
		wait := w.next.Sub(now)
		w.mu.Unlock()
		if wait > 0 {
			timer.Reset(wait)
		} else {
			w.rouse() // no timer that is due: see "No timer channels" in DESIGN.md
		}
	}
}

// attend handles every lease that is due, and returns the leases to renew.
func (w *watchdog) attend() (renew []*lease) {
	var now clock.Instant
	for i := 0; ; i++ {
		if i%readingsShared == 0 {
			now = clock.Now()
		}
		w.mu.Lock()
		var h *lease
		if len(w.heap) > 0 {
			first := w.heap[0]
			ahead := first.due.Sub(now)
			if ahead <= 0 || len(renew) > 0 && ahead <= first.lease.early {
				// The lease stays in the heap until examine moves it or somebody ends it.
				h = first.lease
			}
		}
		w.mu.Unlock()
		if h == nil {
			return renew
		}
		if w.examine(h, now, len(renew) > 0) {
			renew = append(renew, h)
		}
	}
}

// examine ends what is over at now, and reports whether the lease is to be renewed. It is if its
// renewal is due, or nearly due if other renewals go out now.
func (w *watchdog) examine(h *lease, now clock.Instant, others bool) (renew bool) {
	s := h.cohort.shard
	s.mu.Lock()
	tell, over := w.judge(h, now)
	if !over {
		if h.renewable() && !h.asking {
			ahead := h.renewAt.Sub(now)
			renew = ahead <= 0 || others && ahead <= h.slack()
			h.asking, h.bound = renew, h.renewalTime()
		}
		w.schedule(h)
	}
	if tell != nil {
		w.locker.tellApart(tell) // other leases must not wait; there is one, so s is not closed
	}
	s.mu.Unlock()
	return renew
}

// check ends what is over at now: the lease, or turns on it. It does not renew the lease.
func (w *watchdog) check(h *lease, now clock.Instant) {
	s := h.cohort.shard
	s.mu.Lock()
	tell, over := w.judge(h, now)
	if !over {
		w.schedule(h)
	}
	if tell != nil {
		w.locker.tellApart(tell) // the caller may have another lock on the lease
	}
	s.mu.Unlock()
}

// judge ends what is over at now: the lease, or turns that have reached their maximum hold. It
// reports whether the lease is over. The caller holds shard.mu, and calls tell after unlocking it,
// if it is not nil.
func (w *watchdog) judge(h *lease, now clock.Instant) (tell func(), over bool) {
	c := h.cohort
	switch {
	case h.gone:
		return nil, true
	case now >= h.deadline:
		return c.expire(h), true
	case h.limit != 0 && now >= h.limit: // without a limit, it would look at all locks in vain
		return c.loseOverdue(h, now), false
	}
	return nil, false
}
