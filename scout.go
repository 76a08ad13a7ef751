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

// The scout is a goroutine that waits at the backend for all who wait for a permit in one Locker.
// It queues for the gate, an exclusive key of the semaphore: so of all processes one at a time
// waits for slots, in the order in which they came. With the gate it queues at all slots at once:
// those that are free it has at once, and one that is released goes to it rather than to somebody
// who comes by. What it gets it hands to the first who waits. When nobody waits any more, or its
// turn is over, it leaves the queues, and then the gate.
//
// There is a gate for each number of permits: one for all would have those who know more permits
// wait behind those who know fewer, while a slot is free that only the former know. If the gate
// gives no answer, the scout goes on without it: it only keeps an order.
//
// Where this Locker has the slot itself, the scout waits in memory, in the slot's cohort, and has
// the next turn there. So the turn of a scout ends, and the gate goes on, however busy this Locker
// keeps its permits.

const (
	// gateTTL is the TTL of the gate, if that of the permits is not shorter: a scout that died with
	// the gate keeps others from waiting for as long.
	gateTTL = 5 * time.Second

	// scoutTimePerSlot is for how long a scout may go on after its first permit, for each slot: the
	// more queues it has entered, the more permits it should bring.
	scoutTimePerSlot = time.Millisecond

	// gateLabel begins the label of who has the gate. What follows is the number of permits.
	gateLabel = "permits="
)

// scouted reports whether the scout asks on these terms, for others: nobody counts it as waiting.
func (t *terms) scouted() bool { return t.gate || t.permits > 0 }

// countHeld counts locks that users hold.
func (c *cohort) countHeld(n int64) {
	if !c.terms.gate {
		c.locker.counters.held.Add(n)
	}
}

// countWaiting counts calls that wait. Those that wait for a permit count in their list.
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
	silent map[int]clock.Instant // slots that give no answer, and since when
	err    error                 // why the turn came to nothing
	timer  *time.Timer
}

// sendScout sends the scout if it is not at work. a is of the one that waits. The caller holds
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

// setOut waits until the scout has to set out, and reports false if nobody waits any more. While
// this Locker has a permit, the first who waits has a span for getting that in memory.
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

// turn has the gate, and waits for all slots until the turn is over, or ctx ends. It fails if there
// was no answer.
func (s *scout) turn(ctx context.Context) error {
	gate, err := s.gate(ctx)
	switch {
	case err == nil:
		// Not within ctx, which has often ended.
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

// order is a call for the gate or for the scouts' key, whose holders are scouts, no users. Its TTL
// is short.
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

// compare logs if somebody who counts with another number of permits waits at the same time. Each
// scout that has a gate holds the scouts' key meanwhile, or finds who holds it.
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

// queue waits for one slot, hands it on, and then waits for the slot's next turn: it may come free
// long before this turn of the scout is over. It asks with one claim, however often in vain: each
// claim that is given up has to be released, which in an outage is tried for a TTL.
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
		case err == nil: // it was lost, or nobody waits
		case ctx.Err() != nil || s.locker.closed.Load():
			return
		default: // what failed for another goroutine of the cohort has failed for this one
			s.heard(slot, err)
		}
		pause, cancel := context.WithTimeout(ctx, backoff(failures))
		<-pause.Done()
		cancel()
	}
}

// got has the turn end a while after its first permit.
func (s *scout) got() {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if leave := s.leave; s.timer == nil && leave != nil {
		length := max(s.locker.config.span, scoutTimePerSlot*time.Duration(s.key.terms.permits))
		s.timer = time.AfterFunc(length, leave)
	}
}

// heard notes what came of a request for a slot. When none of the slots has answered for a TTL, or
// one fails for good, the turn has failed. A slot that somebody of this Locker has is not silent.
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
