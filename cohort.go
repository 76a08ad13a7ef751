package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// A cohort is the goroutines of one Locker that want one key on the same terms. One of them talks
// to the backend: it leads. The others wait in memory. They get the key in turns, each from the one
// before, or all together if they share it (see share.go). With local handoff switched off, every
// acquisition is a cohort of its own.
//
// A cohort is always in one of four states:
//
//	held       lease != nil && !leading: a goroutine has its turn, or several share the key
//	leading    leading && lease == nil: a goroutine acquires or releases the key at the backend,
//	           or tells that it is lost
//	fresh run  leading && lease != nil: a goroutine asks for a fresh run, or a fresh span if the
//	           key is shared; then others may hold the key meanwhile
//	retired    removed from its shard
//
// A retired cohort has no waiters, nor has one in which several share the key. Code that ends a
// state serves the next waiter.
//
// A run is turns on one lease, one after the other or shared, without a question to the backend.
// The span of WithCohort and the lease's tokens bound it. A fresh run is the next one on the same
// lease; for it one goroutine leads, and asks whether another process waits.
//
// A turn that has reached its maximum hold is in limbo: its holder has been told that the lock is
// lost, but the key stays taken until the holder releases it or the lease ends. So is a turn that
// passes on in memory, until everything that ends with its lock has ended.
//
// An acquisition joins its cohort in call.go. The leader talks to the backend in lead.go. A holder
// ends its turn in release.go. The lease that turns rest on is in lease.go. If the key is a slot of
// a semaphore, the goroutines that want a permit wait in the semaphore, and come to the cohort of
// the slot that becomes free first (see semaphore.go).
type cohort struct {
	locker *Locker
	shard  *shard
	key    string // the full key
	terms  terms

	// Guarded by shard.mu:
	other   *cohort // the next one of the same key in shard.keys, on other terms
	lease   *lease  // on which turns may begin; nil if there is none
	leading bool    // a goroutine talks to the backend for all
	waiters waiterList
	pending *pendingClaim // under way, or left by its leader to the next one
	// the semaphore whose slot the key is, while the cohort is in shard.keys; else nil
	semaphore *semaphore
	runBegan  clock.Instant // when the run of turns began
	turns     int           // of the run, so far
	answered  bool          // the backend has answered an acquisition
	silent    clock.Instant // as lease.silent, of the last lease

	// Most cohorts need one lease and one Lock, so these are allocated with the cohort.
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
func (c *cohort) startRun(now clock.Instant) { c.runBegan, c.turns = now, 0 }

// giveTurn gives the next turn to a call. The caller holds shard.mu.
func (c *cohort) giveTurn(a *call, now clock.Instant) *Lock {
	h := c.lease
	l := &c.firstLock
	if l.cohort != nil {
		l = new(Lock)
	}
	l.cohort, l.token, l.maxHold, l.granted, l.lease = c, h.nextToken, a.maxHold, now, h
	l.gathered = a.ofSet
	if !c.terms.shared { // those who share the lease share its token
		h.nextToken++
	}
	c.turns++
	c.countHeld(1)
	due := c.turns == 1 || !h.renewable() // the watchdog may not know yet that it is to renew
	h.locks.add(l)
	if h.limitBy(l) || due {
		c.locker.watchdog.schedule(h)
	}
	return l
}

// mayGiveTurn reports whether the next turn of the run may begin without a question to the backend.
// The caller holds shard.mu.
func (c *cohort) mayGiveTurn(now clock.Instant) bool {
	h := c.lease
	switch {
	case h == nil || now.Sub(c.runBegan) >= c.span(h):
		return false
	case h.nextToken > h.lastToken:
		return false // the run has used up its block of tokens
	case !c.terms.renew:
		return false // nobody renews the lease, so each turn needs a full one
	default:
		// Normally the watchdog keeps more than half of the lease ahead. If less than a third is
		// left, renewals fail, so ask.
		return h.deadline.Sub(now) > h.length/3
	}
}

// outageFrom returns the time from which an outage counts, for a goroutine that leads from start
// on. The goroutine gives up if it has no answer within a TTL from that time. Time in which nothing
// was asked is not part of an outage. outageFrom returns 0 if the backend has never answered this
// cohort: then the first failure ends the wait. The caller holds shard.mu.
func (c *cohort) outageFrom(start clock.Instant) clock.Instant {
	switch {
	case !c.answered:
		return 0
	case c.silent != 0:
		return c.silent
	}
	return start
}

// span returns how long after the first turn of a run others may begin. For readers that had to
// queue it is half as long, because a writer that waits behind them also has to wait for the
// question to the backend and for the last reader.
func (c *cohort) span(h *lease) time.Duration {
	span := c.locker.config.span
	if c.terms.shared && h.queued {
		span /= 2
	}
	return span
}

// serve gives the next waiter a turn, or all waiters if they share the key. If the backend must be
// asked first, the next waiter leads. serve reports false if nobody waits. now is the time if the
// caller has just read the clock, or 0. The caller holds shard.mu; nobody leads, and no exclusive
// turn is in progress.
func (c *cohort) serve(now clock.Instant) bool {
	w := c.waiters.pop()
	if w == nil {
		return false
	}
	for ; w != nil; w, now = c.waiters.pop(), 0 {
		// The clock decides whether the next turn may begin, so it is read for each turn.
		if now == 0 {
			now = clock.Now()
		}
		o := c.next(w, now)
		w.ready <- o
		if o.lead || !c.terms.shared {
			break
		}
	}
	return true
}

// next returns the outcome of a waiter whose turn it is: a lock, or the order to lead if the
// backend must be asked first. The caller holds shard.mu; nobody leads, and no exclusive turn is in
// progress.
func (c *cohort) next(w *waiter, now clock.Instant) outcome {
	if c.mayGiveTurn(now) {
		return outcome{lock: c.giveTurn(&w.call, now)}
	}
	c.startLead()
	return outcome{lead: true}
}

// startLead notes that a goroutine leads from now on, as a counted task. The caller holds shard.mu
// and may raise tasks (see Locker); nobody leads.
func (c *cohort) startLead() {
	if c.terms.shared && !c.terms.renew {
		c.letGo() // without renewal each reader needs a lease of its own
	}
	c.leading = true
	c.locker.tasks.Add(1) // until the goroutine has ended its lead
}

// These end a lease:
//
//	drop       in memory only. The caller sees to the key. All that follow call it
//	giveBack   nobody is left for it: the key is released in the background
//	vacate     the last lock on it was released: the caller releases the key, within its context
//	loseLease  it is lost, and so are the turns on it. The key is not released
//	expire     it is lost because its validity is over: the key is also released in the background
//
// And letGo ends no lease, but has no more turns begin on it: the last lock on it vacates it.
//
// These end a turn:
//
//	release      at its holder's wish
//	returnTurn   its caller gave up before it learned of the turn
//	loseTurn     it is lost, with its lease or at its maximum hold (loseOverdue)

// drop ends a lease of the cohort in memory. The caller holds shard.mu, and releases the key at the
// backend if need be.
func (c *cohort) drop(h *lease) {
	h.gone = true
	c.silent = h.silent
	h.settle() // a goroutine that waits to change the lease finds it gone
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

// serveOrRetire serves the next waiter. If nobody waits and nobody shares the key, it gives up the
// lease and the pending claim, and removes the cohort. The caller holds shard.mu and may raise
// tasks; nobody leads, and no exclusive turn is in progress.
func (c *cohort) serveOrRetire() {
	if c.lease != nil {
		c.fetchWaiter() // of the semaphore, if the key is a slot
	}
	if c.serve(0) {
		return
	}
	if c.lease != nil {
		if c.lease.locks.first != nil {
			return // a reader that was to lead has given up; other readers keep the lease
		}
		c.giveBack(c.lease)
	}
	if p := c.pending; p != nil {
		c.abandon(p)
	}
	c.shard.remove(c)
}

// resume has the watchdog renew the lease again after a turn in limbo, during which it was not
// renewed. The caller holds shard.mu.
func (c *cohort) resume(h *lease, limbo bool) {
	if limbo && c.lease == h {
		c.locker.watchdog.schedule(h)
	}
}

// returnTurn takes back a turn whose caller gave up before it learned of the turn. The turn's token
// stays unused. The caller holds shard.mu.
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

// loseTurn ends a turn as lost. The caller holds shard.mu, and calls tell after unlocking it. tell
// first closes Done and ends contexts, and then queues the event for the observers, if a caller may
// have the lock.
func (c *cohort) loseTurn(l *Lock, reason error) (tell func()) {
	locker := c.locker
	err := l.lostError(reason)
	l.err = err
	end := l.rest()
	c.countHeld(-1)
	if c.terms.gate || l.gathered {
		return end // no caller has got the lock
	}
	locker.counters.lost.Add(1)
	held := clock.Now().Sub(l.granted)
	return func() {
		defer locker.tellLost(l, err, held) // even if a context panics
		end()
	}
}

// loseLease ends a lease of the cohort, and the turns on it, as lost. It does not release the key.
// The caller holds shard.mu, and calls tell after unlocking it.
func (c *cohort) loseLease(h *lease, reason error) (tell func()) {
	current := c.lease == h
	c.drop(h)
	h.err = reason
	unfinished := false
	var tells []func()
	for l := h.locks.first; l != nil; l = h.locks.first {
		l.leave()
		unfinished = unfinished || l.unfinished()
		if l.err == nil {
			tells = append(tells, c.loseTurn(l, reason))
		} else {
			tells = append(tells, l.rest())
		}
	}
	then := func() {}
	switch {
	case !current || c.leading: // a leader finds out by itself
	case unfinished && !c.shard.closed:
		// The key may be free already, so nobody of the cohort asks for it before all have been
		// told.
		c.startLead()
		then = func() {
			c.shard.mu.Lock()
			defer c.shard.mu.Unlock()
			c.leading = false
			c.serveOrRetire()
			c.locker.tasks.Done()
		}
	default:
		c.serveOrRetire()
	}
	return func() {
		defer then()
		c.locker.tellAll(tells)
	}
}

// loseOverdue ends the turns that have reached their maximum hold at now. The caller holds
// shard.mu, and calls tell after unlocking it.
func (c *cohort) loseOverdue(h *lease, now clock.Instant) (tell func()) {
	var tells []func()
	h.limit = 0
	for l := h.locks.first; l != nil; l = l.next {
		limit, ok := l.limit()
		switch {
		case !ok || l.err != nil:
		case now >= limit:
			// Limbo: the holder is told, and has what is left of the lease to stop and to
			// release the key. Nobody else gets the key before that.
			tells = append(tells, c.loseTurn(l, ErrMaxHold))
		case h.limit == 0 || limit < h.limit:
			h.limit = limit
		}
	}
	return func() { c.locker.tellAll(tells) }
}

// expire is loseLease for a lease whose validity is over. It also has the key released in the
// background, because the backend may still count it as held.
func (c *cohort) expire(h *lease) (tell func()) {
	claim, locker := h.claim(), c.locker
	lost := c.loseLease(h, h.expired())
	if c.shard.closed {
		return lost
	}
	locker.tasks.Add(1)
	return func() {
		// Only now, because the backend may then give the key to another at once. Deferred, because
		// a context may end the goroutine.
		defer func() {
			locker.cleanUp(claim)
			locker.tasks.Done()
		}()
		lost()
	}
}

func (l *Locker) tellLost(lock *Lock, err *LostError, held time.Duration) {
	if err.Reason != ErrClosed {
		l.warn("holdfast: lock lost", "key", lock.Key(), "token", uint64(lock.token), "held", held,
			"reason", err.Reason)
	}
	if hook := l.config.hooks.Lost; hook != nil {
		event := LostEvent{Key: lock.Key(), Held: held, Err: err, Slot: lock.Slot()}
		hook(event)
	}
}
