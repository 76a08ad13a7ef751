package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// A cohort is all that one Locker has to do with one key on the same terms. Of its goroutines only
// one talks to the backend (it leads); the others wait in memory, and get the key handed over in
// turns, or together if they share it (see share.go). With local handoff switched off, every
// acquisition is a cohort of its own.
//
// A cohort is always in one of four states:
//
//	held       lease != nil && !leading: a goroutine has its turn, or several share the key
//	leading    leading && lease == nil: a goroutine acquires, or releases, at the backend
//	fresh run  leading && lease != nil: a goroutine asks for a fresh run, or a fresh span. If the key
//	           is shared, others may hold it meanwhile
//	gone       removed from its shard
//
// There are waiters in the first three states only, and in the first only if the key is not shared.
// Whoever ends a state serves the next waiter.
//
// A turn that is past its maximum hold is in limbo: its holder has been told of the loss, but the
// key stays until the holder releases it or the lease ends.
//
// What joins a cohort is in call.go, the talk with the backend in lead.go, the end of a turn at its
// holder's wish in release.go. The lease that turns rest on is in lease.go.
type cohort struct {
	locker *Locker
	shard  *shard
	key    string // the full key
	terms  terms

	// Guarded by shard.mu:
	other   *cohort // the next one of the same key in shard.keys, on other terms
	lease   *lease  // the hold at the backend that may begin turns; nil if there is none
	leading bool    // a goroutine talks to the backend for all
	waiters waiterList
	pending *pendingClaim // under way, or left by its leader to the next one
	// of which the key is a slot, as long as the cohort is in shard.keys; else nil
	semaphore *semaphore
	since     clock.Instant // when the run of turns began
	turns     int           // of the run, so far
	// the backend has answered an acquisition. silent is that of the last lease
	answered bool
	silent   clock.Instant

	// Most cohorts need one of each, so they are allocated with the cohort.
	firstLease lease
	firstLock  Lock
}

// find returns the cohort of the key and the terms, or nil. The caller holds s.mu.
func (s *shard) find(key string, t terms) *cohort {
	c := s.keys[key]
	for c != nil && c.terms != t {
		c = c.other
	}
	return c
}

// add puts the cohort where find finds it. The caller holds s.mu.
func (s *shard) add(c *cohort) {
	c.other = s.keys[c.key]
	s.keys[c.key] = c
	if c.terms.permits > 0 {
		s.enlist(c)
	}
}

// remove takes the cohort out if it is there. The caller holds s.mu.
func (s *shard) remove(c *cohort) {
	first := s.keys[c.key]
	switch {
	case first == c && c.other == nil:
		delete(s.keys, c.key)
	case first == c:
		s.keys[c.key] = c.other
	default:
		for b := first; b != nil; b = b.other {
			if b.other == c {
				b.other = c.other
				break
			}
		}
	}
	c.other = nil
	if c.semaphore != nil {
		c.delist()
	}
}

// startRun begins a new run of turns.
func (c *cohort) startRun(now clock.Instant) { c.since, c.turns = now, 0 }

// giveTurn gives the next turn to a call. The caller holds shard.mu.
func (c *cohort) giveTurn(a *call, now clock.Instant) *Lock {
	h := c.lease
	l := &c.firstLock
	if l.cohort != nil {
		l = new(Lock)
	}
	l.cohort, l.token, l.maxHold, l.granted, l.lease = c, h.next, a.maxHold, now, h
	if !c.terms.shared { // those who share the lease share its token
		h.next++
	}
	c.turns++
	c.countHeld(1)
	due := c.turns == 1 || !h.renewable() // it is from now on, for this lock
	h.locks.add(l)
	if h.limitBy(l) || due {
		c.locker.watchdog.schedule(h)
	}
	return l
}

// mayPass reports whether the next turn of the run can begin without asking the backend. The caller
// holds shard.mu.
func (c *cohort) mayPass(now clock.Instant) bool {
	h := c.lease
	switch {
	case h == nil || now.Sub(c.since) >= c.span(h):
		return false
	case h.next > h.last:
		return false // the block of tokens bounds a run of turns
	case !c.terms.renew:
		return false // nobody renews the lease, so each turn needs a full one
	default:
		// In good times the watchdog keeps well over half of the lease ahead. With less than a
		// third left, ask.
		return h.deadline.Sub(now) > h.granted/3
	}
}

// outage returns from when an outage counts, for a goroutine that leads from start on: without an
// answer for a TTL from then it gives up. It returns 0 if the backend has never answered: then the
// first failure ends the wait. Time in which nothing was asked is no outage. The caller holds
// shard.mu.
func (c *cohort) outage(start clock.Instant) clock.Instant {
	switch {
	case !c.answered:
		return 0
	case c.silent != 0:
		return c.silent
	}
	return start
}

// span is how long a run of turns may last. For readers that had to queue it is half: a writer that
// waits as well has a request, and the last of them to wait for after it.
func (c *cohort) span(h *lease) time.Duration {
	span := c.locker.config.span
	if c.terms.shared && h.queued {
		span /= 2
	}
	return span
}

// serve lets the next waiter have a turn, or all if they share the key. If that takes the backend,
// the next one leads. It reports false if nobody waits. The caller holds shard.mu; nobody leads,
// and no exclusive turn is in progress.
func (c *cohort) serve() bool {
	w := c.waiters.pop()
	if w == nil {
		return false
	}
	for ; w != nil; w = c.waiters.pop() {
		// The clock decides whether the next turn is valid, so it is read here, not before.
		now := clock.Now()
		if !c.mayPass(now) {
			c.startLead()
			w.ready <- outcome{lead: true}
			break
		}
		w.ready <- outcome{lock: c.giveTurn(&w.call, now)}
		if !c.terms.shared {
			break
		}
	}
	return true
}

// startLead has a goroutine lead, as a counted task. The caller holds shard.mu and may raise tasks
// (see Locker); nobody leads.
func (c *cohort) startLead() {
	if c.terms.shared && !c.terms.renew {
		c.letGo() // each needs a lease of its own
	}
	c.leading = true
	c.locker.tasks.Add(1) // done when the leading ends
}

// drop ends a lease of the cohort. The caller holds shard.mu, and sees to the key at the backend.
func (c *cohort) drop(h *lease) {
	h.gone = true
	c.silent = h.silent
	h.settle() // whoever waits to change it finds it gone
	if c.lease == h {
		c.lease = nil
	}
	c.shard.leases.remove(h)
	c.locker.watchdog.remove(h)
}

// giveBack drops the lease and has the key released in the background. The caller holds shard.mu
// and may raise tasks (see Locker).
func (c *cohort) giveBack(h *lease) {
	claim := h.claim()
	c.drop(h)
	c.locker.cleanUp(claim)
}

// serveOrRetire serves the next waiter. If there is none, and nobody shares the key, it gives up
// lease and pending claim, and removes the cohort. The caller holds shard.mu and may raise tasks;
// nobody leads, and no exclusive turn is in progress.
func (c *cohort) serveOrRetire() {
	if c.lease != nil {
		c.bring()
	}
	if c.serve() {
		return
	}
	if c.lease != nil {
		if c.lease.locks.first != nil {
			return // a reader that was to lead gave up; those inside keep the lease
		}
		c.giveBack(c.lease)
	}
	if p := c.pending; p != nil {
		c.abandon(p)
	}
	c.shard.remove(c)
}

// resume has the watchdog renew a lease again that passed to the next turn after a maximum hold.
// The caller holds shard.mu.
func (c *cohort) resume(h *lease, limbo bool) {
	if limbo && c.lease == h {
		c.locker.watchdog.schedule(h)
	}
}

// returnTurn takes back a turn whose caller gave up before it saw it. Its token stays unused. The
// caller holds shard.mu.
func (c *cohort) returnTurn(l *Lock) {
	if l.lease == nil {
		return // lost in the meantime
	}
	h, limbo := l.lease, l.err != nil
	if !limbo {
		l.err = (*releasedError)(l)
		c.countHeld(-1)
	}
	l.leave()
	switch {
	case h.locks.first != nil || c.asksForSpan(h):
	case c.lease != h:
		c.giveBack(h)
	default:
		c.serveOrRetire()
		c.resume(h, limbo)
	}
}

// loseTurn ends a turn. The caller holds shard.mu, and calls tell after unlocking it. tell ends
// channels and contexts first, and then queues the event for the observers.
func (c *cohort) loseTurn(l *Lock, reason error) (tell func()) {
	locker := c.locker
	err := l.lostError(reason)
	end := l.finish(err)
	c.countHeld(-1)
	if !c.terms.gate {
		locker.counters.lost.Add(1)
	}
	held := clock.Now().Sub(l.granted)
	return func() {
		defer locker.tellLost(l, err, held) // also if a context panics
		end()
	}
}

// loseLease ends a lease of the cohort without a release, and the turns that rest on it. The caller
// holds shard.mu, and calls tell after unlocking it.
func (c *cohort) loseLease(h *lease, reason error) (tell func()) {
	current := c.lease == h
	c.drop(h)
	tells := many{}
	for l := h.locks.first; l != nil; l = h.locks.first {
		l.leave()
		if l.err == nil {
			tells = append(tells, c.loseTurn(l, reason))
		}
	}
	if current && !c.leading { // whoever leads finds out by itself
		c.serveOrRetire()
	}
	return tells.call
}

// loseOverdue ends the turns that have reached their maximum hold at now. The caller holds
// shard.mu, and calls tell after unlocking it.
func (c *cohort) loseOverdue(h *lease, now clock.Instant) (tell func()) {
	tells := many{}
	h.limit = 0
	for l := h.locks.first; l != nil; l = l.next {
		limit, ok := l.limit()
		switch {
		case !ok || l.err != nil:
		case now >= limit:
			// Limbo: the holder has been told, and has what is left of the lease to stop and
			// release. Nobody else gets the key before.
			tells = append(tells, c.loseTurn(l, ErrMaxHold))
		case h.limit == 0 || limit < h.limit:
			h.limit = limit
		}
	}
	return tells.call
}

// many is functions to call one after the other.
type many []func()

// call calls all. A panic goes on, but keeps none from being called.
func (m many) call() {
	next := 0
	defer func() {
		if next < len(m) {
			m[next:].call()
		}
	}()
	for next < len(m) {
		next++
		m[next-1]()
	}
}

// expire is loseLease for a lease whose validity is over. It has the key released in the
// background, as it may still be in the way at the backend.
func (c *cohort) expire(h *lease) (tell func()) {
	if !c.shard.closed {
		c.locker.cleanUp(h.claim())
	}
	return c.loseLease(h, h.expired())
}

func (l *Locker) tellLost(lock *Lock, err *LostError, held time.Duration) {
	if lock.cohort.terms.gate {
		return // it only keeps an order
	}
	if err.Reason != ErrClosed {
		l.warn("holdfast: lock lost", "key", lock.Key(), "token", uint64(lock.token), "held", held,
			"reason", err.Reason)
	}
	if hook := l.config.hooks.Lost; hook != nil {
		event := LostEvent{Key: lock.Key(), Held: held, Err: err, Slot: lock.Slot()}
		hook(event)
	}
}
