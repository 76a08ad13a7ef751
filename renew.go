package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

const (
	// maxBatch is how many leases one call of the backend renews.
	maxBatch = 1000

	// readingsShared is for how many leases in a row one reading of the clock does: a reading costs as much as the rest,
	// and they are done in microseconds.
	readingsShared = 32

	// suspendCheck is how often a Locker that holds something looks whether the host was suspended: timers do not
	// count that time, so a deadline may have passed before its timer fires (K6).
	suspendCheck = 250 * time.Millisecond
)

// watchdog renews the leases of a Locker and tells of those that end. It is one goroutine for all of them, which exists only
// while there is a lease, and a heap by the time at which each next needs attention.
type watchdog struct {
	locker *Locker
	wake   chan struct{} // has room for one

	mu      sync.Mutex
	heap    holdHeap
	next    clock.Instant // when the goroutine looks again
	stopped chan struct{} // closed when it has ended; nil if there is none
}

// schedule puts the hold where its next event is. The caller holds the hold's shard.mu, which comes before watchdog.mu.
func (w *watchdog) schedule(h *hold) {
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

// remove takes the hold out. The caller holds its shard.mu.
func (w *watchdog) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.index >= 0 {
		w.heap.remove(h)
	}
}

// stop ends the goroutine, if there is one, and waits for it. Nothing is held any more.
func (w *watchdog) stop() {
	w.mu.Lock()
	stopped := w.stopped
	w.rouse()
	w.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// nextEvent is when the hold next needs attention, and how much earlier will do: renewals that are due at about the same time go
// out together. The caller holds shard.mu.
func (h *hold) nextEvent() (next clock.Instant, early time.Duration) {
	next = h.deadline
	if h.renew && !h.renewing && h.renewAt < next {
		next, early = h.renewAt, h.slack()
	}
	if l := h.cohort.lock; l != nil && l.err == nil && l.hold == h {
		if limit, ok := l.limit(); ok && limit < next {
			next, early = limit, 0
		}
	}
	return next, early
}

// slack is how much earlier than due a lease may be renewed.
func (h *hold) slack() time.Duration { return h.ttl / 30 }

func (w *watchdog) run(stopped chan struct{}) {
	defer close(stopped)
	timer := time.AfterFunc(0, w.rouse)
	defer timer.Stop()
	idle := 0
	for {
		<-w.wake
		w.renew(w.attend())

		w.mu.Lock()
		if len(w.heap) > 0 {
			idle = 0
		} else if idle++; idle > 1 || w.locker.closed.Load() {
			// It stays for a moment: the next lock may be just about to come.
			w.stopped = nil
			w.mu.Unlock()
			return
		}
		now := clock.Now()
		w.next = now.Add(suspendCheck)
		if len(w.heap) > 0 {
			w.next = min(w.next, w.heap[0].due)
		}
		wait := w.next.Sub(now)
		w.mu.Unlock()
		timer.Reset(wait)
	}
}

// attend looks after every hold that is due, and returns those to renew.
func (w *watchdog) attend() (renew []*hold) {
	var now clock.Instant
	for i := 0; ; i++ {
		if i%readingsShared == 0 {
			now = clock.Now()
		}
		w.mu.Lock()
		var h *hold
		if len(w.heap) > 0 {
			first := w.heap[0]
			ahead := first.due.Sub(now)
			if ahead <= 0 || len(renew) > 0 && ahead <= first.hold.early {
				h = first.hold // it is put elsewhere, or taken out, before its shard.mu is free again
			}
		}
		w.mu.Unlock()
		if h == nil {
			return renew
		}
		if w.inspect(h, now, len(renew) > 0) {
			renew = append(renew, h)
		}
	}
}

// inspect does what the clock says, which was read before, is to be done with the hold, and reports whether it is to be
// renewed now: if it is due, or with early if it is nearly due.
func (w *watchdog) inspect(h *hold, now clock.Instant, early bool) (renew bool) {
	c := h.cohort
	s := c.shard
	tell := func() {}
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		tell()
	}()
	if h.gone {
		return false
	}
	if now >= h.deadline {
		tell = c.expire(h)
		return false
	}
	if l := c.lock; l != nil && l.err == nil {
		if limit, ok := l.limit(); ok && now >= limit {
			// Limbo: the holder has been told, and has what is left of the lease to stop and release. Nobody else gets the key before.
			h.renew = false
			tell = c.lost(l, ErrMaxHold)
		}
	}
	if h.renew && !h.renewing {
		ahead := h.renewAt.Sub(now)
		renew = ahead <= 0 || early && ahead <= h.slack()
		h.renewing = renew
	}
	w.schedule(h)
	return renew
}

// expired is the reason of a loss by the clock.
func (h *hold) expired() error {
	switch {
	case h.err != nil:
		return fmt.Errorf("its validity ended before a renewal was confirmed: %w", h.err)
	case h.renew:
		return errors.New("its validity ended before a renewal was confirmed")
	default:
		return errors.New("its lease ended")
	}
}

// renew sends renewals in batches, side by side, so that a slow one holds up no other.
func (w *watchdog) renew(holds []*hold) {
	for len(holds) > 0 {
		n := min(len(holds), maxBatch)
		batch := holds[:n:n]
		holds = holds[n:]
		s := batch[0].cohort.shard
		s.mu.Lock()
		if !s.closed {
			w.locker.tasks.Go(func() { w.renewBatch(batch) })
		}
		s.mu.Unlock()
	}
}

func (w *watchdog) renewBatch(batch []*hold) {
	claims := make([]driver.Claim, 0, len(batch))
	bound := maxRequestTime
	for _, h := range batch {
		s := h.cohort.shard
		s.mu.Lock()
		claim := h.claim()
		s.mu.Unlock()
		claims = append(claims, claim)
		bound = min(bound, requestTime(claim.TTL))
	}
	// Read once for all, before the request leaves (R11).
	start := clock.Now()
	r := w.locker.request(context.Background(), bound)
	results, err := w.locker.backend.Renew(r, claims)
	now := clock.Now()
	r.end()
	if err == nil && len(results) != len(claims) {
		err = fmt.Errorf("backend gave %d results for %d claims", len(results), len(claims))
	}
	for i, h := range batch {
		result := driver.Result{Err: err}
		if err == nil {
			result = results[i]
		}
		w.renewed(h, claims[i].TTL, start, now, result, r, true)
	}
}

// renewed takes in the outcome of a renewal, the watchdog's own or an Extend, that left at start and was answered
// at now. ttl is what it asked for. It returns nil, the reason of a loss, or why the outcome is not known.
func (w *watchdog) renewed(h *hold, ttl time.Duration, start, now clock.Instant, result driver.Result, r *request, own bool) error {
	l, c := w.locker, h.cohort
	s := c.shard
	s.mu.Lock()
	if own {
		h.renewing = false
	}
	if h.gone {
		s.mu.Unlock()
		return nil // whoever ended it has released it
	}
	margin := h.deadline.Sub(now)
	event := RenewedEvent{Key: l.userKey(c.key), Took: now.Sub(start), Margin: margin}
	if c.lock != nil {
		event.Token = c.lock.token
	}
	tell := func() {}
	var err error
	// A turn with a longer lease has begun meanwhile. Which of the two requests took effect last is not known, so the shorter
	// lease counts until it is renewed, which is then due at once.
	overtaken := ttl < h.ttl
	switch {
	case margin <= 0:
		// The old deadline bounds the renewal: an answer after it is too late, whatever it says.
		err = h.expired()
		tell = c.expire(h)
	case overtaken && result.State != driver.Lost && result.State != driver.Yielded:
		h.deadline = min(h.deadline, start.Add(l.config.validity(ttl)))
		h.renewAt = now
		w.schedule(h)
	case result.State == driver.Held:
		h.deadline = max(h.deadline, start.Add(l.config.validity(h.ttl)))
		h.renewAt = start.Add(h.ttl / 3)
		h.lease, h.missed, h.err = h.ttl, 0, nil
		l.counters.renewed.Add(1)
		w.schedule(h)
	case result.State == driver.Lost, result.State == driver.Yielded:
		err = errGone
		tell = c.lose(h, err)
	default:
		if err = r.explain(result.Err); err == nil {
			err = &driver.Error{Maybe: true, Err: fmt.Errorf("backend answered a renewal with %v", result.State)}
		}
		h.err = err
		h.renewAt = now.Add(h.ttl/60 + rand.N(h.ttl/30))
		h.missed++
		l.counters.renewalsMissed.Add(1)
		w.schedule(h)
	}
	s.mu.Unlock()
	tell()
	if err != nil {
		l.config.logger.Warn("holdfast: renewal missed", "key", event.Key, "margin", margin, "error", err)
	}
	if hook := l.config.hooks.Renewed; hook != nil {
		event.Err = err
		hook(event)
	}
	return err
}

// holdHeap orders holds by when they are due. With all leases renewed at about the same time, the heap is a good part of what
// a renewal costs the processor, and cache misses are a good part of the heap: so the times are in it, and four children share
// a cache line. Guarded by watchdog.mu.
type holdHeap []scheduled

type scheduled struct {
	due  clock.Instant
	hold *hold
}

const heapArity = 4

// put adds the hold, or moves it if it is there.
func (q *holdHeap) put(h *hold, due clock.Instant) {
	if h.index < 0 {
		h.index = len(*q)
		*q = append(*q, scheduled{})
	}
	q.settle(h.index, scheduled{due, h})
}

// remove takes out a hold that is there.
func (q *holdHeap) remove(h *hold) {
	last := len(*q) - 1
	moved := (*q)[last]
	(*q)[last] = scheduled{}
	*q = (*q)[:last]
	if moved.hold != h {
		q.settle(h.index, moved)
	}
	h.index = -1
}

// settle fills the place i, whose content does not count, moving others out of the way.
func (q holdHeap) settle(i int, s scheduled) {
	for i > 0 {
		parent := (i - 1) / heapArity
		if q[parent].due <= s.due {
			break
		}
		q.set(i, q[parent])
		i = parent
	}
	for {
		first := i*heapArity + 1
		if first >= len(q) {
			break
		}
		least := first
		for child := first + 1; child < min(first+heapArity, len(q)); child++ {
			if q[child].due < q[least].due {
				least = child
			}
		}
		if s.due <= q[least].due {
			break
		}
		q.set(i, q[least])
		i = least
	}
	q.set(i, s)
}

func (q holdHeap) set(i int, s scheduled) {
	q[i] = s
	s.hold.index = i
}
