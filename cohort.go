package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// A cohort is all that one Locker has to do with one key. Of its goroutines only one talks to the backend (it leads); the
// others wait in memory, and get the key handed over in turns. With local handoff switched off, every acquisition is a
// cohort of its own.
//
// A cohort is always in one of four states:
//
//	held       lock != nil: a goroutine has its turn, or had it until its maximum hold (limbo)
//	leading    leading && hold == nil: a goroutine acquires, or releases, at the backend
//	extending  leading && hold != nil: a goroutine asks for a fresh run, or has to yield
//	gone       removed from its shard
//
// Waiters exist in the first three only; whoever leaves a state serves the next one.
type cohort struct {
	locker *Locker
	shard  *shard
	key    string // the full key

	// Guarded by shard.mu:
	hold    *hold
	lock    *Lock // the turn in progress
	leading bool
	waiters waiterList
	pending *pending      // an acquisition that its leader left to the next one
	since   clock.Instant // when the run of turns began
	turns   int           // of the run, so far

	// What most cohorts need one of in their lives, made in one piece with them.
	firstHold hold
	firstLock Lock
}

// hold is a lease that a cohort has at the backend.
type hold struct {
	cohort *cohort
	owner  string

	// Guarded by cohort.shard.mu:
	ttl        time.Duration // what is asked for
	lease      time.Duration // what was granted last: less than the TTL after a handoff
	next, last Token         // the tokens that are left
	deadline   clock.Instant // the end of the validity
	renewAt    clock.Instant
	renew      bool  // the watchdog is to renew it
	renewing   bool  // and is doing so
	missed     int   // renewals in a row that brought nothing
	err        error // what the last of them brought
	gone       bool  // it is no longer cohort.hold

	// Guarded by watchdog.mu:
	early time.Duration // how much sooner than due will do as well
	index int           // in the heap, -1 if not there

	prev, later *hold // in shard.holds
}

func (h *hold) claim() driver.Claim {
	return driver.Claim{Key: h.cohort.key, Owner: h.owner, TTL: h.ttl}
}

// holdList is an intrusive list.
type holdList struct{ first *hold }

func (l *holdList) add(h *hold) {
	h.later = l.first
	if h.later != nil {
		h.later.prev = h
	}
	l.first = h
}

func (l *holdList) remove(h *hold) {
	if h.prev != nil {
		h.prev.later = h.later
	} else {
		l.first = h.later
	}
	if h.later != nil {
		h.later.prev = h.prev
	}
	h.prev, h.later = nil, nil
}

// start takes a fresh lease, or a renewed one, into use. The caller holds shard.mu.
func (c *cohort) start(h *hold) {
	c.hold = h
	c.shard.holds.add(h)
}

// drop forgets the lease. The caller holds shard.mu, and sees to the key.
func (c *cohort) drop() {
	h := c.hold
	h.gone = true
	c.hold = nil
	c.shard.holds.remove(h)
	c.locker.watchdog.remove(h)
}

// run begins a new run of turns.
func (c *cohort) run(now clock.Instant) { c.since, c.turns = now, 0 }

// block is how many tokens a lease needs.
func (c *cohort) block() uint64 { return uint64(c.locker.config.turns) }

// turn gives the next turn to an asker. The caller holds shard.mu.
func (c *cohort) turn(a *asker, now clock.Instant) *Lock {
	h := c.hold
	l := &c.firstLock
	if l.cohort != nil {
		l = new(Lock)
	}
	l.cohort, l.key, l.token, l.maxHold, l.granted, l.hold = c, a.key, h.next, a.terms.maxHold, now, h
	h.next++
	c.turns++
	c.lock = l
	c.locker.counters.held.Add(1)
	if c.turns == 1 || l.maxHold > 0 {
		c.locker.watchdog.schedule(h)
	}
	return l
}

// mayPass reports whether the asker can have the next turn of the run without asking the backend.
func (c *cohort) mayPass(a *asker, now clock.Instant) bool {
	h := c.hold
	switch {
	case h == nil || now.Sub(c.since) >= c.locker.config.span:
		return false
	case h.next > h.last:
		return false // the block of tokens is as long as a run of turns
	case !h.renew || !a.terms.renew || h.ttl != a.terms.ttl:
		// A turn that is not renewed works on the lease it gets: it needs a fresh one, of the length asked for.
		return false
	default:
		// The watchdog keeps well over half of the lease in good times. With less than a third, ask.
		return h.deadline.Sub(now) > h.lease/3
	}
}

// serve lets the next waiter have a turn or, if that takes the backend, lead. It reports false if nobody
// waits. The caller holds shard.mu; nobody has a turn or leads.
func (c *cohort) serve() bool {
	w := c.waiters.pop()
	if w == nil {
		return false
	}
	// The clock decides whether the next turn is valid, so it is read here, not before.
	now := clock.Now()
	if c.mayPass(&w.asker, now) {
		w.ready <- verdict{lock: c.turn(&w.asker, now)}
		return true
	}
	c.leading = true
	c.locker.tasks.Add(1) // done when the leading ends
	w.ready <- verdict{lead: true}
	return true
}

// retire serves the next waiter; if there is none, it gives up lease and acquisition and removes the cohort. The
// caller holds shard.mu and is allowed to raise tasks; nobody has a turn or leads.
func (c *cohort) retire() {
	if c.serve() {
		return
	}
	if h := c.hold; h != nil {
		c.drop()
		c.locker.abandon(h.claim())
	}
	if p := c.pending; p != nil {
		c.pending = nil
		p.abandon(c.locker)
	}
	c.remove()
}

// remove takes the cohort out of its shard. The caller holds shard.mu.
func (c *cohort) remove() {
	if c.shard.keys[c.key] == c {
		delete(c.shard.keys, c.key)
	}
}

// lose ends the lease without a release, and the turn with it if there is one. The caller holds shard.mu, and calls the
// function returned after it has let go of it.
func (c *cohort) lose(h *hold, reason error) (tell func()) {
	c.drop()
	l := c.lock
	if l == nil {
		return func() {} // whoever leads finds out by itself
	}
	c.lock = nil
	l.hold = nil
	tell = func() {}
	if l.err == nil {
		tell = c.lost(l, reason)
	}
	c.retire()
	return tell
}

// expire is lose for a lease whose validity is over, which may still be in the way at the backend.
func (c *cohort) expire(h *hold) (tell func()) {
	claim := h.claim()
	tell = c.lose(h, h.expired())
	if !c.shard.closed {
		c.locker.abandon(claim)
	}
	return tell
}

// lost ends a turn. The caller holds shard.mu, and calls the function returned after it has let go of it.
func (c *cohort) lost(l *Lock, reason error) (tell func()) {
	locker := c.locker
	err := l.lostError(reason)
	end := l.finish(err)
	locker.counters.held.Add(-1)
	locker.counters.lost.Add(1)
	held := clock.Now().Sub(l.granted)
	return func() {
		end()
		if reason != ErrClosed {
			locker.config.logger.Warn("holdfast: lock lost", "key", l.key, "token", uint64(l.token), "held", held, "reason", reason)
		}
		if hook := locker.config.hooks.Lost; hook != nil {
			hook(LostEvent{Key: l.key, Held: held, Err: err})
		}
	}
}

// release ends a turn at its holder's wish.
func (c *cohort) release(ctx context.Context, l *Lock) error {
	locker, s := c.locker, c.shard
	s.mu.Lock()
	ended := l.err
	if ended != nil && l.hold == nil {
		s.mu.Unlock()
		return ended
	}
	h := l.hold
	// Only a local handoff needs the clock: otherwise the backend knows whether the key was ours until now.
	if ended == nil && c.waiters.first != nil && clock.Now() >= h.deadline {
		tell := c.expire(h)
		s.mu.Unlock()
		tell()
		return l.err
	}
	l.hold = nil
	c.lock = nil
	tell := func() {}
	if ended == nil {
		tell = l.finish((*releasedError)(l))
		locker.counters.held.Add(-1)
		locker.counters.released.Add(1)
	}

	if c.waiters.first != nil {
		c.serve()
		local, turns, waiting := c.lock != nil, c.turns, c.waiters.length
		s.mu.Unlock()
		tell()
		if local {
			locker.counters.handedOver.Add(1)
			if hook := locker.config.hooks.HandedOver; hook != nil {
				hook(HandedOverEvent{Key: l.key, Token: l.token, Turns: turns - 1, Waiting: waiting})
			}
		}
		locker.tellReleased(l, true, ended)
		return ended
	}

	claim := h.claim()
	c.drop()
	c.leading = true // whoever comes now asks after the release
	counted := !s.closed
	if counted {
		locker.tasks.Add(1)
	}
	s.mu.Unlock()
	tell()

	err := ctx.Err()
	if err != nil {
		err = contextError(ctx)
	} else {
		r := locker.request(ctx, requestTime(claim.TTL))
		var result driver.Result
		result, err = locker.backend.Release(r, claim)
		r.end()
		switch {
		case err != nil:
			err = r.explain(err)
		case result.State == driver.Lost:
			locker.counters.lost.Add(1)
			err = l.lostError(errGone)
		}
	}

	s.mu.Lock()
	if ended == nil && isLost(err) {
		l.err = err
	}
	if err != nil && !isLost(err) && counted {
		locker.abandon(claim)
	}
	c.leading = false
	c.retire()
	s.mu.Unlock()
	if counted {
		locker.tasks.Done()
	}
	switch {
	case ended != nil:
		err = ended
	case err != nil && !isLost(err):
		err = keyError("release", l.key, err)
	}
	locker.tellReleased(l, false, err)
	return err
}

func (l *Locker) tellReleased(lock *Lock, local bool, err error) {
	if hook := l.config.hooks.Released; hook != nil {
		hook(ReleasedEvent{Key: lock.key, Token: lock.token, Held: clock.Now().Sub(lock.granted), Local: local, Err: err})
	}
}
