package holdfast

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// A semaphore is the goroutines of one Locker that want permits of one name on the same terms. Each
// slot is a key with a cohort of its own (see cohort.go). The semaphore lets goroutines wait for
// whichever slot becomes free first:
//
//   - If nobody waits, a call of Acquire tries a slot and then a few others. A call of TryAcquire
//     tries all of them.
//   - All waiters are in one list. When a turn ends, its cohort takes the first waiter of the list,
//     as if it had waited for that slot (see fetchWaiter). So permits are handed over in memory.
//   - While somebody waits, a scout waits at the backend for all slots (see scout.go).
//
// All keys of a semaphore are in the shard of its name. With local handoff switched off, every
// acquisition is a semaphore of its own, and no other acquisition finds its cohorts.
type semaphore struct {
	locker *Locker
	shard  *shard
	key    semaphoreKey

	// Guarded by shard.mu:
	used     slotSet // the slots that have a cohort
	cohorts  int     // the number of these slots
	last     int     // the slot that was held last, where a search begins
	waiters  waiterList
	kept     bool          // the semaphore is in shard.semaphores
	scouting bool          // the scout is at work
	leave    func()        // ends the scout's wait at the backend; nil if the scout does not wait
	wake     chan struct{} // ends the scout's pause; has room for one; nil before the first pause
}

// semaphoreKey finds a semaphore in its shard.
type semaphoreKey struct {
	name  string // the full key without a suffix
	terms terms
	alone *semaphore // with local handoff switched off, the semaphore itself; else nil
}

// few is how many slots Acquire tries together after the first one was taken.
const few = 3

// maxLastSlots is the largest number of names in shard.lastSlots.
const maxLastSlots = 64

// semaphore returns the semaphore with the name and the terms of key, or a new one. The caller
// holds s.mu, and adds a cohort or a waiter to a new semaphore.
func (s *shard) semaphore(l *Locker, key semaphoreKey) *semaphore {
	if key.alone != nil {
		return key.alone
	}
	if m := s.semaphores[key]; m != nil {
		return m
	}
	last, ok := s.lastSlots[key.name]
	switch {
	case l.config.turns == 1: // so that not all goroutines begin with the same slot
		last = rand.N(key.terms.permits)
	case !ok || last >= key.terms.permits:
		last = int(maphash.String(l.seed, key.name) / shardCount % uint64(key.terms.permits))
	}
	m := &semaphore{locker: l, shard: s, key: key, last: last}
	if l.config.turns == 1 {
		m.key.alone = m
	} else {
		s.keep(m)
	}
	return m
}

// keep puts the semaphore into the shard, if it is not there. The caller holds s.mu.
func (s *shard) keep(m *semaphore) {
	if m.kept {
		return
	}
	m.kept = true
	if s.semaphores == nil {
		s.semaphores = make(map[semaphoreKey]*semaphore)
	}
	s.semaphores[m.key] = m
}

// retire takes the semaphore out of the shard if it has no cohort, no waiter and no scout. The
// caller holds shard.mu.
func (m *semaphore) retire() {
	s := m.shard
	if m.cohorts > 0 || m.waiters.first != nil || m.scouting || !m.kept {
		return
	}
	m.kept = false
	delete(s.semaphores, m.key)
	if s.lastSlots == nil || len(s.lastSlots) >= maxLastSlots {
		s.lastSlots = make(map[string]int)
	}
	s.lastSlots[m.key.name] = m.last
}

// enlist adds the cohort of a slot to its semaphore. The caller holds s.mu.
func (s *shard) enlist(c *cohort) {
	m := s.semaphore(c.locker, semaphoreKey{name: c.name(), terms: c.terms})
	c.semaphore = m
	m.used.add(c.slot())
	m.cohorts++
}

// delist removes the cohort of a slot from its semaphore. The caller holds shard.mu.
func (c *cohort) delist() {
	m := c.semaphore
	c.semaphore = nil
	m.used.remove(c.slot())
	m.cohorts--
	if c.firstLease.cohort != nil {
		m.last = c.slot()
	}
	if m.cohorts == 0 {
		m.rouse()
	}
	m.retire()
}

// fetchWaiter moves the first waiter of the semaphore to this cohort, unless the cohort already has
// a waiter. The caller holds shard.mu, and serves the cohort in the same step.
func (c *cohort) fetchWaiter() {
	if c.semaphore == nil || c.waiters.first != nil {
		return
	}
	if w := c.semaphore.pop(); w != nil {
		w.cohort = c
		c.waiters.push(w)
	}
}

// pop takes the first waiter off the list. The caller holds shard.mu.
func (m *semaphore) pop() *waiter {
	w := m.waiters.pop()
	m.drained()
	return w
}

// drained ends the scout's wait if nobody waits any more. The caller holds shard.mu.
func (m *semaphore) drained() {
	if m.waiters.first == nil && m.leave != nil {
		m.leave()
	}
}

// search is one call's search for a free slot.
type search struct {
	tried   slotSet
	step    int   // 1, 4, 16 and so on: the next requests are for 1 slot, 3, 15 and so on
	again   bool  // this is the second search through all slots
	refusal error // the HeldError of a slot that was taken
	failure error // the error of a slot that gave no answer
}

// permit acquires any slot, as enter acquires one key.
func (l *Locker) permit(ctx context.Context, full string, a *call) (*Lock, bool, error) {
	s, key, f := l.shard(full), semaphoreKey{name: full, terms: a.terms}, search{step: 1}
	done := ctx.Done() // before any cohort leads: it may panic
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, false, ErrClosed
		}
		m := s.semaphore(l, key)
		key = m.key
		cohorts := m.next(&f, a.wait)
		if len(cohorts) == 0 {
			if err := m.notFound(a, &f); err != nil {
				m.retire()
				s.mu.Unlock()
				return nil, false, err
			}
			a.wait = false // if this call is ordered to lead, it asks once
			w := m.join(a, false)
			s.mu.Unlock()
			l.tellFull(ctx, a, f.refusal)
			return m.wait(ctx, done, a, w)
		}
		s.mu.Unlock()
		lock, held, err := m.attempt(ctx, done, a, cohorts)
		if lock != nil {
			return lock, false, nil
		}
		a.maybe = a.maybe || isUnknown(err)
		if err != nil && (!goesOn(ctx, err) || l.closed.Load()) {
			return nil, false, err
		}
		if held != nil {
			f.refusal = held
		}
		if f.failure == nil {
			f.failure = err
		}
	}
}

// next returns cohorts for the slots to ask for next, or none. Acquire asks for a few slots and
// then waits. But if no slot has answered, and a request may have taken effect, Acquire searches
// once more, as it does for a lock, because it may already have a permit. The caller holds
// shard.mu.
func (m *semaphore) next(f *search, wait bool) (cohorts []*cohort) {
	if m.waiters.first != nil {
		return nil
	}
	if wait && f.step > 1+few || m.allTried(f) {
		if !wait || f.again || f.refusal != nil || !isUnknown(f.failure) {
			return nil
		}
		*f = search{step: 1, again: true}
	}
	cohorts = m.newCohorts(&f.tried, min(max(f.step-1, 1), maxSideBySide))
	f.step *= 1 + few
	return cohorts
}

// allTried reports whether no slot is left to ask for. The caller holds shard.mu.
func (m *semaphore) allTried(f *search) bool {
	for slot := range m.key.terms.permits {
		if !f.tried.has(slot) && !m.used.has(slot) {
			return false
		}
	}
	return true
}

// notFound returns the error of a call that found no free slot, or nil if the call is to wait. The
// caller holds shard.mu.
func (m *semaphore) notFound(a *call, f *search) error {
	switch {
	case !a.wait:
		return m.heldError(a, f.refusal, f.failure)
	case f.failure != nil && f.refusal == nil:
		return f.failure
	}
	return nil
}

// newCohorts makes cohorts for up to n slots that have no cohort and were not tried yet. The
// caller, who holds shard.mu, leads all of them.
func (m *semaphore) newCohorts(tried *slotSet, n int) (cohorts []*cohort) {
	permits := m.key.terms.permits
	for i := 0; i < permits && len(cohorts) < n; i++ {
		slot := (m.last + i) % permits
		if tried.has(slot) || m.used.has(slot) {
			continue
		}
		tried.add(slot)
		c := &cohort{locker: m.locker, shard: m.shard, key: slotKey(m.key.name, slot),
			terms: m.key.terms}
		if m.key.alone == nil {
			m.shard.add(c)
		}
		c.startLead()
		cohorts = append(cohorts, c)
	}
	return cohorts
}

// attempt asks once for each of the slots. It returns a lock if it got one, and otherwise a
// refusal, the first error of another kind, or both.
func (m *semaphore) attempt(ctx context.Context, done <-chan struct{}, a *call,
	cohorts []*cohort) (lock *Lock, refusal, failure error) {
	if len(cohorts) > 1 {
		return m.attemptAll(ctx, done, *a, cohorts)
	}
	wait := a.wait
	a.wait = false
	lock, err := cohorts[0].lead(ctx, a, clock.Now())
	a.wait = wait
	if _, held := err.(*HeldError); held {
		return nil, err, nil
	}
	return lock, nil, err
}

// attemptAll is attempt for several slots in parallel. It keeps the first lock and gives the others
// back.
func (m *semaphore) attemptAll(ctx context.Context, done <-chan struct{}, a call,
	cohorts []*cohort) (lock *Lock, refusal, failure error) {
	a.wait = false
	start := clock.Now()
	locks, errs := make([]*Lock, len(cohorts)), make([]error, len(cohorts))
	granted := false
	defer func() { // even if the backend or ctx panics
		if !granted {
			m.returnTurns(locks)
		}
	}()
	sideBySide(len(cohorts), func(i int) {
		own := a
		locks[i], errs[i] = cohorts[i].lead(ctx, &own, start)
	})
	var spare []*Lock
	for i, l := range locks {
		_, held := errs[i].(*HeldError)
		switch {
		case l != nil && lock == nil:
			lock = l
		case l != nil:
			spare = append(spare, l)
		case held:
			refusal = errs[i]
		case failure == nil:
			failure = errs[i]
		}
	}
	if slices.ContainsFunc(errs, isUnknown) {
		failure = afterUnknown(failure)
	}
	m.putBack(done, spare)
	if lock == nil {
		return nil, refusal, failure
	}
	// The slowest answer may have come long after the first lock.
	if err := ending(ctx); err != nil {
		return nil, nil, err
	}
	m.shard.mu.Lock()
	granted = lock.valid()
	m.shard.mu.Unlock()
	if !granted {
		if m.locker.closed.Load() {
			return nil, nil, ErrClosed
		}
		err := fmt.Errorf("granted, but the answers for other slots took %v", clock.Now().Sub(start))
		return nil, nil, &driver.Error{Err: err}
	}
	return lock, refusal, failure
}

// valid reports whether the lock is held and its deadline has not passed. The caller holds
// shard.mu.
func (l *Lock) valid() bool { return l.err == nil && clock.Now() < l.lease.deadline }

// putBack releases permits that are not needed. It waits until they are released or done is closed,
// so that the next call does not find them taken.
func (m *semaphore) putBack(done <-chan struct{}, spare []*Lock) {
	if len(spare) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	sideBySide(len(spare), func(i int) { spare[i].cohort.putBack(ctx, spare[i]) })
}

// returnTurns gives back the locks that are still held, in the background.
func (m *semaphore) returnTurns(locks []*Lock) {
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	for _, l := range locks {
		if l != nil {
			l.cohort.returnTurn(l)
		}
	}
}

// goesOn reports whether a waiter goes on after a single attempt that failed with err.
func goesOn(ctx context.Context, err error) bool {
	if _, held := err.(*HeldError); held {
		return true
	}
	return ctx.Err() == nil && (errors.Is(err, ErrUnavailable) || isUnknown(err)) &&
		!driver.Permanent(err)
}

// heldError returns the error of a TryAcquire that got no slot. The error of a slot that gave no
// answer comes first, because that slot may be free. The caller holds shard.mu.
func (m *semaphore) heldError(a *call, refusal, failure error) error {
	switch {
	case failure != nil:
		return failure
	case refusal != nil:
		return refusal
	}
	if c := m.shard.find(slotKey(m.key.name, m.last), a.terms); c != nil {
		return c.heldError(a)
	}
	return &HeldError{Key: a.key}
}

// tellFull reports a call that waits because the backend has answered that slots are taken.
func (l *Locker) tellFull(ctx context.Context, a *call, refusal error) {
	held, ok := refusal.(*HeldError)
	if hook := l.config.hooks.Waiting; ok && hook != nil {
		hook(WaitingEvent{Key: a.key, Holder: held.Holder, ExpiresIn: held.ExpiresIn,
			Waited: clock.Now().Sub(a.since), Context: ctx})
	}
}

// join puts a call into the list of waiters: at its front if the call comes back to its place
// (again), and else at its end. The caller holds shard.mu; the shard is not closed.
func (m *semaphore) join(a *call, again bool) *waiter {
	w := m.locker.pool.get(a)
	m.shard.keep(m)
	if again {
		m.waiters.pushFront(w)
	} else {
		m.waiters.push(w)
	}
	m.sendScout(a)
	return w
}

// wait waits until a slot comes to w, which is in the list, or ctx ends. If w is ordered to lead,
// it asks once, and goes back to its place if that fails. done is the channel of ctx.
func (m *semaphore) wait(ctx context.Context, done <-chan struct{}, a *call,
	w *waiter) (lock *Lock, local bool, err error) {
	l, s := m.locker, m.shard
	for {
		o, c := m.await(ctx, done, w)
		if !o.lead {
			return o.lock, !o.asked, o.err
		}
		lock, err = c.lead(ctx, a, clock.Now())
		if err == nil || !goesOn(ctx, err) {
			return lock, false, err
		}
		a.maybe = a.maybe || isUnknown(err)
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, false, ErrClosed
		}
		m = s.semaphore(l, m.key) // m may have been retired meanwhile
		w = m.join(a, true)
		s.mu.Unlock()
	}
}

// await returns the waiter's outcome and the cohort of the slot, or the error of ctx when ctx ends.
// done is the channel of ctx.
func (m *semaphore) await(ctx context.Context, done <-chan struct{},
	w *waiter) (outcome, *cohort) {
	l, s := m.locker, m.shard
	l.counters.waiting.Add(1)
	defer l.counters.waiting.Add(-1)
	select {
	case o := <-w.ready:
		c := w.cohort
		l.pool.put(w)
		return o, c
	case <-done:
	}
	s.mu.Lock()
	waits := m.waiters.remove(w)
	if waits {
		m.drained()
		m.retire()
	}
	s.mu.Unlock()
	if !waits {
		o := <-w.ready // not under the mutex, see withdraw
		s.mu.Lock()
		o.refuse(w.cohort)
		s.mu.Unlock()
	}
	l.pool.put(w)
	// Last, and not under the mutex: a caller's own kind of context may call a Lock, or panic.
	return outcome{err: contextError(ctx)}, nil
}

// give passes a lock that the scout got on to the first waiter. local says that the scout got it in
// memory. If nobody waits, give gives the lock back and reports false.
func (m *semaphore) give(lock *Lock, local bool) bool {
	s := m.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	var w *waiter
	if lock.valid() {
		w = m.pop()
	}
	if w == nil { // nobody waits, or the lock was lost meanwhile
		lock.cohort.returnTurn(lock)
		return false
	}
	lock.maxHold, lock.granted = w.call.maxHold, clock.Now()
	if lock.lease.limitBy(lock) {
		m.locker.watchdog.schedule(lock.lease)
	}
	w.cohort = lock.cohort
	w.ready <- outcome{lock: lock, asked: !local}
	return true
}

// fail ends all waits with err.
func (m *semaphore) fail(err error) {
	s := m.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	m.endWaits(err)
}

// endWaits ends all waits with err. The caller holds shard.mu.
func (m *semaphore) endWaits(err error) {
	for w := m.pop(); w != nil; w = m.pop() {
		w.ready <- outcome{err: err}
	}
}

// slotSet is a set of slots.
type slotSet [(MaxPermits + 63) / 64]uint64

func (s *slotSet) has(slot int) bool { return s[slot/64]&(1<<(slot%64)) != 0 }
func (s *slotSet) add(slot int)      { s[slot/64] |= 1 << (slot % 64) }
func (s *slotSet) remove(slot int)   { s[slot/64] &^= 1 << (slot % 64) }
