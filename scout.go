package holdfast

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// The scout is a goroutine that waits at the backend on behalf of all waiters of a semaphore in one
// Locker. First it queues for the gate, an exclusive key of the semaphore. So the scouts of all
// processes take turns, in the order in which they came. When the scout has the gate, it queues for
// all slots at once. It gets a free slot immediately, and a slot that is released goes to the scout
// rather than to a newcomer. The scout passes each slot on to the first waiter. When nobody waits
// any more, or its turn is over, it leaves the queues of the slots and releases the gate.
//
// There is one gate for each number of permits. With a single gate, a process that uses three
// permits could wait behind one that uses two, while slot 2 is free. The gate only keeps an order,
// so if requests for it get no answer, the scout goes on without it.
//
// If this Locker itself has a slot, the scout waits for the slot in memory, in the slot's cohort,
// and gets the next turn there. So the scout's turn ends and the next scout gets the gate, even if
// this Locker keeps its permits busy.

const (
	// gateTTL is the TTL of the gate, unless that of the permits is shorter. If a scout dies while
	// it has the gate, other scouts wait for that long.
	gateTTL = 5 * time.Second

	// scoutTimePerSlot is how long a scout may go on after its first permit, for each slot of the
	// semaphore. The more queues a scout has entered, the more permits it should bring.
	scoutTimePerSlot = time.Millisecond

	// gateLabel begins the label of the holder of the gate. The number of permits follows.
	gateLabel = "permits="
)

// scouted reports whether only scouts wait at the backend on these terms, on behalf of others. Such
// a wait is not counted and not reported to hooks.
func (t *terms) scouted() bool { return t.gate || t.permits > 0 }

// countHeld adds n to the number of locks that users hold.
func (c *cohort) countHeld(n int64) {
	if !c.terms.gate {
		c.locker.counters.held.Add(n)
	}
}

// countWaiting adds n to the number of calls that wait. Calls that wait for a permit are counted in
// await.
func (c *cohort) countWaiting(n int64) {
	if !c.terms.scouted() {
		c.locker.counters.waiting.Add(n)
	}
}

// scout is one scout at work.
type scout struct {
	*semaphore
	call call // for each slot

	// Guarded by shard.mu:
	silent map[int]clock.Instant // the slots that give no answer, and since when
	err    error                 // why the turn has failed
	timer  *time.Timer
}

// sendScout starts the scout if it is not at work. a is the call of the waiter. The caller holds
// shard.mu; the shard is not closed.
func (m *semaphore) sendScout(a *call) {
	if m.scouting {
		return
	}
	m.scouting = true
	if m.wake == nil {
		m.wake = make(chan struct{}, 1)
	}
	s := &scout{semaphore: m, call: *a}
	s.call.wait, s.call.maxHold = true, 0 // the maximum hold is the waiter's
	m.locker.tasks.Go(s.run)
}

// rouse ends the scout's pause. The caller holds shard.mu.
func (m *semaphore) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run has the scout take turns for as long as anybody waits. A turn that fails ends all waits.
func (s *scout) run() {
	for {
		ctx, cancel := context.WithCancel(s.locker.life)
		if !s.setOut(cancel) {
			cancel()
			return
		}
		err := s.turn(ctx)
		s.shard.mu.Lock()
		s.leave = nil
		s.shard.mu.Unlock()
		cancel()
		if err != nil && !s.locker.closed.Load() {
			s.fail(err)
		}
	}
}

// setOut waits until it is time for a turn of the scout. It reports false if nobody waits any more.
// If this Locker has a permit, the turn begins when the first waiter has waited for a span, because
// until then it may get that permit in memory.
func (s *scout) setOut(leave func()) bool {
	for {
		s.shard.mu.Lock()
		w := s.waiters.first
		if w == nil {
			s.scouting = false
			s.retire()
			s.shard.mu.Unlock()
			return false
		}
		var pause time.Duration
		if s.cohorts > 0 {
			pause = w.call.since.Add(s.locker.config.span).Sub(clock.Now())
		}
		if pause <= 0 {
			s.semaphore.leave = leave
			s.shard.mu.Unlock()
			return true
		}
		s.shard.mu.Unlock()
		s.pause(pause)
	}
}

// pause waits for d, or until the scout is roused or the Locker closed.
func (s *scout) pause(d time.Duration) {
	// Not a timer channel, see cohort.sleep.
	timer := time.AfterFunc(d, func() {
		s.shard.mu.Lock()
		defer s.shard.mu.Unlock()
		s.rouse()
	})
	defer timer.Stop()
	select {
	case <-s.wake:
	case <-s.locker.closing:
	}
}

// turn gets the gate, and then waits for all slots until the turn is over or ctx ends. It fails if
// there was no answer.
func (s *scout) turn(ctx context.Context) error {
	gate, err := s.gate(ctx)
	switch {
	case err == nil:
		// Not with ctx, which has usually ended by then.
		defer gate.cohort.putBack(context.Background(), gate)
	case ctx.Err() != nil:
		return nil // nobody waits any more
	case !goesOn(ctx, err):
		return err
	}
	s.silent, s.err = make(map[int]clock.Instant), nil
	var queues, comparison sync.WaitGroup
	during, end := context.WithCancel(ctx)
	if gate != nil {
		comparison.Go(func() { s.compare(during) })
	}
	for slot := range s.key.terms.permits {
		queues.Go(func() { s.queue(ctx, slot) })
	}
	queues.Wait()
	end()
	comparison.Wait()
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	return s.err
}

// order returns a call for the gate or for the scouts' key. Their holders are scouts and not users,
// and the TTL is short.
func (s *scout) order() call {
	ttl := min(s.call.terms.ttl, gateTTL)
	if b, ok := s.locker.backend.(driver.Limited); ok && b.CheckTTL(ttl) != nil {
		ttl = s.call.terms.ttl
	}
	return call{
		key:    s.call.key,
		terms:  terms{ttl: ttl, renew: true, gate: true},
		suffix: driver.OwnerSuffix(gateLabel + strconv.Itoa(s.key.terms.permits)),
		since:  clock.Now(),
	}
}

// gate waits for the gate.
func (s *scout) gate(ctx context.Context) (*Lock, error) {
	a := s.order()
	a.wait = true
	lock, _, err := s.locker.enter(ctx, gateKey(s.key.name, s.key.terms.permits), &a)
	return lock, err
}

// compare logs a warning if a scout with another number of permits is at work at the same time.
// While a scout has its gate, it also holds the scouts' key, or finds out who holds it.
func (s *scout) compare(ctx context.Context) {
	a := s.order()
	lock, _, err := s.locker.enter(ctx, scoutKey(s.key.name), &a)
	if err == nil {
		<-ctx.Done()
		lock.cohort.putBack(context.Background(), lock)
	}
	held, ok := err.(*HeldError)
	if !ok {
		return
	}
	theirs, ok := strings.CutPrefix(held.Holder.Label, gateLabel)
	if ours := strconv.Itoa(s.key.terms.permits); ok && theirs != ours {
		s.locker.warn("holdfast: a semaphore is used with different numbers of permits; at most the "+
			"larger number hold one", "key", s.call.key, "permits", ours, "others", theirs,
			"holder", held.Holder.String())
	}
}

// queue waits for one slot and passes it on. Then it waits for the same slot again, since the slot
// may become free before the scout's turn is over. It asks with one claim, however often it asks:
// each claim that is given up has to be released, and in an outage that is tried for a TTL.
func (s *scout) queue(ctx context.Context, slot int) {
	for failures := 0; ctx.Err() == nil; failures++ {
		a := s.call
		a.since = clock.Now()
		a.watch = func(err error) { s.heard(slot, err) }
		lock, local, err := s.locker.enter(ctx, slotKey(s.key.name, slot), &a)
		switch {
		case err == nil && s.give(lock, local):
			s.got()
			failures = -1
			continue
		case err == nil: // the lock was lost, or nobody waits
		case ctx.Err() != nil || s.locker.closed.Load():
			return
		default: // this goroutine, or the one that leads its cohort, has failed
			s.heard(slot, err)
		}
		pause, cancel := context.WithTimeout(ctx, backoff(failures))
		<-pause.Done()
		cancel()
	}
}

// got notes that the scout got a permit. The scout's turn ends a while after its first one.
func (s *scout) got() {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if leave := s.leave; s.timer == nil && leave != nil {
		length := max(s.locker.config.span, scoutTimePerSlot*time.Duration(s.key.terms.permits))
		s.timer = time.AfterFunc(length, leave)
	}
}

// heard notes the result of a request for a slot. If no slot has answered for a TTL, or one request
// has failed with a permanent error, the turn has failed. A slot that this Locker itself has does
// not count as silent.
func (s *scout) heard(slot int, err error) {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if err == nil {
		delete(s.silent, slot)
		return
	}
	now := clock.Now()
	if _, known := s.silent[slot]; !known {
		s.silent[slot] = now
	}
	if driver.Permanent(err) || s.allSilent(now) {
		s.err = err
		if s.leave != nil {
			s.leave()
		}
	}
}

// allSilent reports whether no slot has answered for a TTL. The caller holds shard.mu.
func (s *scout) allSilent(now clock.Instant) bool {
	if len(s.silent) < s.key.terms.permits {
		return false
	}
	for _, since := range s.silent {
		if now.Sub(since) < s.call.terms.ttl {
			return false
		}
	}
	return true
}
