package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// gathering is one call of AcquireAll or TryAcquireAll, until it has a LockSet.
//
// While it waits for a key, it holds only keys that come before that key, in the order of the keys'
// bytes. So gatherings cannot wait for each other in a circle: in such a circle, the gathering that
// holds the last of the keys would have to wait for a later one. Single attempts do not wait, so
// they need no order, and take all free keys at once. If a key is taken, the gathering puts back
// the keys that come after it, and then waits for it.
type gathering struct {
	locker  *Locker
	call    call          // for each key, except the key's name and terms
	maxHold time.Duration // counted from when all keys are held
	members []member      // in the order of their keys
	waited  clock.Instant // when the last wait got its key; 0: no wait since the last extension
}

// member is one key of a gathering.
type member struct {
	key   string
	full  string
	place int   // in the caller's list
	terms terms // on which the key is asked for
	lock  *Lock // nil while the key is missing
	local bool  // the key was handed over in memory
	err   error // of the last attempt
}

// windowAfterWait is how many keys are tried together after a wait. The number doubles with each
// success. So if many keys are taken, few attempts are in vain.
const windowAfterWait = 2

// run gathers all keys. If it fails or panics, it has put back the keys that it got.
func (g *gathering) run(ctx context.Context) (err error) {
	complete := false
	defer func() {
		if !complete {
			defer g.putBack(ctx, 0) // even if a context panics as a nested lock ends
			g.endNested()
		}
	}()
	window := len(g.members)
	for {
		missing, err := g.missing(ctx)
		switch {
		case err != nil:
			return err
		case len(missing) == 0 && g.waited != 0 && !g.call.terms.renew:
			if err := g.extend(ctx); err != nil {
				return err
			}
			continue
		case len(missing) == 0:
			complete = true
			return nil
		}
		missing = missing[:min(window, len(missing))]
		first := missing[0]
		// If only one key is missing, and no key after it is held, no attempt is needed: if the key
		// is free, a wait takes no longer.
		if !g.call.wait || len(missing) > 1 || g.holdsAfter(first) {
			taken, err := g.try(ctx, missing)
			if err != nil {
				return err
			}
			if taken < 0 {
				window = min(2*window, len(g.members))
				continue
			}
			first = taken
			g.putBack(ctx, first+1)
		}
		if err := g.waitFor(ctx, first); err != nil {
			return err
		}
		window = windowAfterWait
	}
}

// missing returns the indices of the members without a valid lock. If ctx carries a lock on a key,
// the member gets a nested lock. missing fails with ErrInvalid if that lock cannot be nested.
func (g *gathering) missing(ctx context.Context) (missing []int, err error) {
	for i := range g.members {
		m := &g.members[i]
		if m.lock != nil && m.lock.Err() != nil {
			m.lock = nil
		}
		if m.lock == nil {
			a := g.call
			a.key, a.terms = m.key, m.terms
			if m.lock, err = g.locker.nested(ctx, m.full, &a); err != nil {
				g.call.key = m.key
				return nil, err
			}
		}
		if m.lock == nil {
			missing = append(missing, i)
		}
	}
	return missing, nil
}

// own reports whether the gathering itself holds the key. It must not put back the key of a nested
// lock.
func (m *member) own() bool { return m.lock != nil && m.lock.root == nil }

func (g *gathering) holdsAfter(i int) bool {
	for j := i + 1; j < len(g.members); j++ {
		if g.members[j].own() {
			return true
		}
	}
	return false
}

// try makes one attempt for each of the members, all at the same time. It returns the first member
// to wait for, or -1 if it got all keys. It fails if an attempt failed in a way that would end a
// call of Acquire too, or if any attempt failed and the caller does not wait.
func (g *gathering) try(ctx context.Context, members []int) (taken int, err error) {
	sideBySide(len(members), func(i int) {
		m := &g.members[members[i]]
		m.err = errEnded // if it panics
		m.lock, m.local, m.err = g.enter(ctx, m, false)
	})
	taken = -1
	var held, failed *member
	for _, i := range members {
		m := &g.members[i]
		if m.lock != nil {
			continue
		}
		if taken < 0 {
			taken = i
		}
		if _, ok := m.err.(*HeldError); ok {
			if held == nil {
				held = m
			}
		} else if failed == nil && (!g.call.wait || !isUnknown(m.err)) {
			failed = m
		}
	}
	if taken < 0 {
		return taken, nil
	}
	if !g.call.wait && held != nil {
		failed = held // an answer comes before the error of another attempt
	}
	if failed != nil {
		g.call.key = failed.key
		return taken, failed.err
	}
	return taken, nil
}

// errEnded is never returned: the panic of the attempt goes on.
var errEnded = errors.New("the attempt did not return")

// waitFor waits for one member.
func (g *gathering) waitFor(ctx context.Context, i int) error {
	m := &g.members[i]
	m.lock, m.local, m.err = g.enter(ctx, m, true)
	g.call.key = m.key
	if m.lock != nil {
		g.waited = m.lock.granted
	}
	return m.err
}

// enter acquires the key of a member, with the errors of Acquire.
func (g *gathering) enter(ctx context.Context, m *member, wait bool) (*Lock, bool, error) {
	a := g.call
	a.key, a.wait, a.terms = m.key, wait, m.terms
	a.since = clock.Now() // the lease counts from here
	lock, local, err := g.locker.enter(ctx, m.full, &a)
	// Not errors.As: the cause of a context may be another lock's HeldError.
	if _, held := err.(*HeldError); err != nil && !held {
		if isUnknown(m.err) { // of the attempt before
			err = afterUnknown(err)
		}
		err = keyError("acquire", m.key, err)
	}
	return lock, local, err
}

// extend extends the leases that are older than that of the last wait, because nothing has renewed
// them. A key whose lock turns out to be lost is missing again.
func (g *gathering) extend(ctx context.Context) error {
	var old []*Lock
	for i := range g.members {
		if m := &g.members[i]; m.own() && m.lock.granted < g.waited {
			old = append(old, m.lock)
		}
	}
	g.waited = 0
	errs := make([]error, len(old))
	sideBySide(len(old), func(i int) { errs[i] = old[i].Extend(ctx) })
	for i, err := range errs {
		// Not errors.Is: the cause of ctx may be the loss of another lock.
		if _, lost := err.(*LostError); err != nil && !lost {
			g.call.key = old[i].Key()
			return err
		}
	}
	return nil
}

// endNested ends the nested locks, which would otherwise last as long as the outermost ones.
func (g *gathering) endNested() {
	for i := range g.members {
		if m := &g.members[i]; m.lock != nil && m.lock.root != nil {
			defer m.lock.releaseNested() // each, even if a context panics
		}
	}
}

// putBack releases the members from index i on.
func (g *gathering) putBack(ctx context.Context, i int) {
	var locks []*Lock
	for ; i < len(g.members); i++ {
		if m := &g.members[i]; m.own() {
			locks = append(locks, m.lock)
			m.lock = nil
		}
	}
	sideBySide(len(locks), func(i int) { locks[i].cohort.putBack(ctx, locks[i]) })
}

// putBack ends a turn that no caller has got. Unlike returnTurn it waits until the key is released
// or ctx ends, so that the next attempt does not find the key taken by this turn. The caller holds
// no mutex.
func (c *cohort) putBack(ctx context.Context, l *Lock) {
	s := c.shard
	s.mu.Lock()
	h := l.lease
	if h == nil || c.lease == h && c.waiters.first != nil || !l.last() || c.asksForSpan(h) {
		c.returnTurn(l)
		s.mu.Unlock()
		return
	}
	l.err = (*releasedError)(l)
	l.leave()
	c.countHeld(-1)
	claim, leads := c.vacate(h)
	s.mu.Unlock()
	c.askRelease(ctx, l, claim, leads, func() {}, func(bool, error) {})
}

// complete returns the LockSet, and counts and reports the acquisitions.
func (g *gathering) complete(ctx context.Context) *LockSet {
	l := g.locker
	set := newHeldSet(l, g.members)
	now := clock.Now()
	for i := range g.members {
		g.members[i].join(set, g.maxHold, now)
	}
	for i := range g.members {
		m := &g.members[i]
		if !m.own() {
			continue
		}
		l.counters.acquired.Add(1)
		if hook := l.config.hooks.Acquired; hook != nil {
			hook(AcquiredEvent{Key: m.key, Token: m.lock.token,
				Granted: clock.Time(m.lock.granted), Waited: m.lock.granted.Sub(g.call.since),
				Local: m.local, Shared: m.terms.shared, Slot: -1, Context: ctx})
		}
	}
	return set.handle()
}

// join has the set end with the member's lock, and has the loss of that lock told, also if it is
// lost already. The maximum hold counts from now.
func (m *member) join(set *heldSet, maxHold time.Duration, now clock.Instant) {
	lock := m.lock
	s := lock.cohort.shard
	s.mu.Lock()
	lock.gathered = false
	err := lock.ended()
	if err == nil {
		if m.own() && maxHold > 0 {
			lock.maxHold = now.Sub(lock.granted) + maxHold
			lock.lease.limitBy(lock)
			set.locker.watchdog.schedule(lock.lease)
		}
		lock.attach(set)
	}
	s.mu.Unlock()
	if err != nil {
		set.end(err)
	}
	if lost, ok := err.(*LostError); ok && m.own() {
		set.locker.counters.lost.Add(1)
		set.locker.tellLost(lock, lost, now.Sub(lock.granted))
	}
}
