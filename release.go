package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// release ends a turn at its holder's wish. It hands the key to the next waiter in memory, leaves
// it to others that share it, or releases it at the backend. Before that, everything ends that ends
// with the lock.
func (c *cohort) release(ctx context.Context, l *Lock) (err error) {
	s := c.shard
	s.mu.Lock()
	ended := l.err // set, with a lease, if the lock has reached its maximum hold
	if ended != nil && (l.lease == nil || l.releasing) {
		tell := l.rest() // another goroutine may not have ended everything yet
		s.mu.Unlock()
		tell()
		return ended
	}
	h := l.lease
	// If the release stays in memory, the clock tells whether the lock was held until now.
	// Otherwise the backend does.
	local := c.passes(l)
	var now clock.Instant
	if local {
		now = clock.Now()
	}
	if ended == nil && local && now >= h.deadline {
		c.locker.tellApart(c.expire(h)) // there may be other locks on the lease
		err, tell := l.err, l.rest()
		s.mu.Unlock()
		tell()
		return err
	}
	l.releasing = true
	limbo := ended != nil
	if !limbo {
		l.err = (*releasedError)(l)
		c.countHeld(-1)
	}
	if local && l.unfinished() {
		// Until everything has ended, the lock stays on its lease, as after its maximum hold.
		s.mu.Unlock()
		defer func() { // even if a context panics
			s.mu.Lock()
			err = c.pass(ctx, l, h, 0, ended, true)
		}()
		l.endAll()
		return nil
	}
	return c.pass(ctx, l, h, now, ended, limbo)
}

// passes reports whether the lease passes on in memory when the lock leaves it: others share it, or
// somebody waits for it. The caller holds shard.mu; the lock is on its lease.
func (c *cohort) passes(l *Lock) bool {
	h := l.lease
	return !l.last() || c.asksForSpan(h) || c.lease == h &&
		(c.waiters.first != nil || c.semaphore != nil && c.semaphore.waiters.first != nil)
}

// pass takes the lock off its lease h and passes that on, at now, or at a time that is still to be
// read if now is 0. limbo says that the lease was not renewed for a while. The caller holds
// shard.mu, which pass unlocks.
func (c *cohort) pass(ctx context.Context, l *Lock, h *lease, now clock.Instant, ended error,
	limbo bool) error {
	s := c.shard
	if l.lease == nil { // lost while everything was ended, or Close releases it
		closed, reason := s.closed, h.err
		s.mu.Unlock()
		if ended == nil && !closed {
			ended = c.foundLost(l, reason)
			c.locker.tellReleased(l, true, ended)
			return ended
		}
		c.releasedLocally(l, ended)
		return ended
	}
	if c.lease == h {
		c.fetchWaiter() // of the semaphore, if the key is a slot
	}
	stays := !l.last() || c.asksForSpan(h) // others need the lease
	handsOver := !stays && c.lease == h && c.waiters.first != nil
	tell := l.rest()
	l.leave()
	switch {
	case handsOver:
		c.handOver(l, h, now, ended, limbo)
		return ended
	case stays:
		s.mu.Unlock()
		c.releasedLocally(l, ended)
		return ended
	}
	claim, leads := c.vacate(h)
	s.mu.Unlock()
	return c.releaseAtBackend(ctx, l, claim, leads, ended, tell)
}

// vacate drops a lease on which no lock rests any more, and makes the caller a counted task. The
// caller releases the claim. If leads is true, it leads the cohort until then. The caller holds
// shard.mu.
func (c *cohort) vacate(h *lease) (claim driver.Claim, leads bool) {
	claim, leads = h.claim(), c.exclusive(h) // else it may be shared, and others need not wait
	current := c.lease == h
	c.drop(h)
	if leads {
		c.leading = true // so that the next acquisition asks the backend after the release
	} else if current {
		c.serveOrRetire()
	}
	c.locker.tasks.Add(1)
	return claim, leads
}

// handOver passes the lease to the first waiter, at now. The caller holds shard.mu, which handOver
// unlocks.
func (c *cohort) handOver(l *Lock, h *lease, now clock.Instant, ended error, limbo bool) {
	locker := c.locker
	w := c.waiters.pop()
	toScout := w.call.watch != nil
	if now == 0 {
		now = clock.Now()
	}
	o := c.next(w, now)
	c.resume(h, limbo)
	turns, waiting := c.turns, c.waiters.length
	if c.semaphore != nil {
		waiting = c.semaphore.waiters.length
		if toScout && waiting > 0 {
			waiting-- // the scout passes the permit on to the first of them
		}
	}
	c.shard.mu.Unlock()
	w.ready <- o // after unlocking, because it takes long to wake a goroutine
	if o.lock != nil {
		locker.counters.handedOver.Add(1)
		if hook := locker.config.hooks.HandedOver; hook != nil {
			event := HandedOverEvent{Key: l.Key(), Token: l.token, Turns: turns - 1,
				Waiting: waiting, Slot: l.Slot()}
			hook(event)
		}
	}
	c.releasedLocally(l, ended)
}

// releasedLocally counts and reports a release for which the backend was not asked.
func (c *cohort) releasedLocally(l *Lock, ended error) {
	if ended == nil {
		c.locker.counters.released.Add(1)
	}
	c.locker.tellReleased(l, true, ended)
}

// releaseAtBackend calls tell, and then asks the backend once, within ctx, to release the claim. A
// release that is not confirmed goes on in the background. On entry the caller is a counted task,
// and leads the cohort if leads is true; releaseAtBackend ends both.
func (c *cohort) releaseAtBackend(ctx context.Context, l *Lock, claim driver.Claim, leads bool,
	ended error, tell func()) error {
	locker := c.locker
	c.askRelease(ctx, l, claim, leads, tell, func(lost bool, err error) {
		switch {
		case ended != nil:
		case lost:
			ended = c.foundLost(l, errKeyGone)
		default:
			locker.counters.released.Add(1)
			if err != nil {
				ended = keyError("release", l.Key(), err)
			}
		}
		locker.tellReleased(l, false, ended)
	})
	return ended
}

// errCutOff is the error of a release that a panic has cut off, for hooks.
var errCutOff = &driver.Error{Maybe: true, Err: errors.New("the release was cut off by a panic")}

// askRelease is releaseAtBackend without counters and hooks. It calls then with the backend's
// answer, before another goroutine can lead.
func (c *cohort) askRelease(ctx context.Context, l *Lock, claim driver.Claim, leads bool,
	tell func(), then func(lost bool, err error)) {
	locker, s := c.locker, c.shard
	// Deferred, so that a panic of the backend, of ctx, or of a context that ends with the lock has
	// the same effect as a missing answer.
	lost, answer := false, error(errCutOff)
	defer func() {
		then(lost, answer)
		s.mu.Lock()
		if answer != nil {
			locker.cleanUp(claim)
		}
		if leads {
			c.leading = false
			c.fetchWaiter() // the slot is free now
			c.serveOrRetire()
		}
		s.mu.Unlock()
		locker.tasks.Done()
	}()

	tell()
	err := ending(ctx)
	if errors.Is(err, (*releasedError)(l)) {
		ctx, err = context.WithoutCancel(ctx), nil // ctx has just ended with this lock
	}
	if err == nil {
		r := locker.request(ctx, requestTime(claim.TTL))
		var result driver.Result
		result, err = r.release(claim)
		err = r.explain(err)
		// Busy, too: this claim held the key, and if it is only queued now, it has lost it.
		lost = err == nil && result.State != driver.Held
	}
	answer = err
}

// foundLost reports a loss during the release, which its answer may have shown. Until now the lock
// counted as released.
func (c *cohort) foundLost(l *Lock, reason error) error {
	err := l.lostError(reason)
	c.shard.mu.Lock()
	l.err = err
	c.shard.mu.Unlock()
	c.locker.counters.lost.Add(1)
	c.locker.tellLost(l, err, clock.Now().Sub(l.granted))
	return err
}

func (l *Locker) tellReleased(lock *Lock, local bool, err error) {
	if hook := l.config.hooks.Released; hook != nil {
		event := ReleasedEvent{Key: lock.Key(), Token: lock.token,
			Held: clock.Now().Sub(lock.granted), Local: local, Err: err,
			Slot: lock.Slot()}
		hook(event)
	}
}
