package holdfast

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memhold"
)

// onePermit returns the only permit of a semaphore, for a test in a bubble.
func onePermit(t *testing.T) (*memhold.Backend, *Locker, *Lock) {
	t.Helper()
	memory, l := newLocker(t, WithPermits(1))
	lock, err := l.Acquire(context.Background(), "key")
	if err != nil {
		t.Fatal(err)
	}
	return memory, l, lock
}

// If the scout gets a permit when nobody waits any more, the permit is free again.
func TestPermitsThatNobodyWaitsForAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, lock := onePermit(t)
		if lock.cohort.semaphore.give(lock, false) {
			t.Error("the permit was given away, though nobody waits")
		}
		synctest.Wait()
		if held := l.Stats().Held; held != 0 {
			t.Errorf("%d held, want none", held)
		}
		if _, err := l.TryAcquire(context.Background(), "key"); err != nil {
			t.Error(err)
		}
	})
}

// Nothing is kept of a semaphore that is not in use, except, for a few names, the slot that was
// held last.
func TestPermitsLeaveNoSemaphoreBehind(t *testing.T) {
	for _, turns := range []int{1, DefaultCohortTurns} {
		synctest.Test(t, func(t *testing.T) {
			_, l := newLocker(t, WithPermits(5), WithCohort(turns, DefaultCohortSpan))
			slots := make(map[int]bool)
			for i := range 4 * maxLastSlots * shardCount {
				key := "key"
				if i >= 10 {
					key = string(rune('a' + i))
				}
				lock, err := l.Acquire(context.Background(), key)
				if err != nil {
					t.Fatal(err)
				}
				if i < 10 {
					slots[lock.Slot()] = true
				}
				if err := lock.Release(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if turns > 1 && len(slots) != 1 {
				t.Errorf("one process used %d slots one after the other, want the same one",
					len(slots))
			}
			for i := range l.shards {
				s := &l.shards[i]
				if len(s.semaphores) > 0 || len(s.lastSlots) > maxLastSlots {
					t.Fatalf("%d semaphores, %d last slots; want none, and 64 at most",
						len(s.semaphores), len(s.lastSlots))
				}
			}
		})
	}
}

// A waiter that gives up just as a permit comes gives the permit back.
func TestPermitsThatComeTooLateAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, lock := onePermit(t)
		w := l.pool.get(&call{})
		w.cohort = lock.cohort
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m := lock.cohort.semaphore
		go func() {
			if o, _ := m.await(ctx, ctx.Done(), w); o.err == nil {
				t.Error("a wait whose context has ended returned no error")
			}
		}()
		synctest.Wait()
		w.ready <- outcome{lock: lock}
		synctest.Wait()
		if held := l.Stats().Held; held != 0 {
			t.Errorf("%d held, want none", held)
		}
	})
}

// A permit that is lost before the scout can pass it on goes to nobody.
func TestLostPermitGoesToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, l, lock := onePermit(t)
		m := lock.cohort.semaphore
		memory.Faults().Lose(slotKey("key", 0))
		<-lock.Done()
		w := l.pool.get(&call{})
		l.shard("key").mu.Lock()
		m.waiters.push(w)
		l.shard("key").mu.Unlock()
		if m.give(lock, false) || len(w.ready) > 0 {
			t.Error("a permit that was lost was given to a waiter")
		}
	})
}

// A permit that its waiter gives back goes to the next waiter, in memory and at once.
func TestPermitsThatAreGivenBackGoToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t, WithPermits(2))
		var lock *Lock
		for range 2 { // with another one, the scout would wait for the span
			var err error
			if lock, err = l.Acquire(context.Background(), "key"); err != nil {
				t.Fatal(err)
			}
		}
		next := make(chan *Lock, 1)
		go func() {
			lock, _ := l.Acquire(context.Background(), "key")
			next <- lock
		}()
		synctest.Wait()
		w := l.pool.get(&call{})
		w.cohort = lock.cohort
		w.ready <- outcome{lock: lock}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		// A select takes any of what has come, so it may take the end of ctx.
		for o, _ := lock.cohort.semaphore.await(ctx, ctx.Done(), w); o.err == nil; {
			w = l.pool.get(&call{})
			w.cohort = lock.cohort
			w.ready <- o
			o, _ = lock.cohort.semaphore.await(ctx, ctx.Done(), w)
		}
		synctest.Wait()
		if len(next) == 0 {
			t.Error("the next waiter did not get the permit")
		} else if got := <-next; got.token <= lock.token {
			t.Errorf("token %d after %d, want a larger one", got.token, lock.token)
		}
	})
}

// If a permit is handed over to the scout just as the last waiter has given up, the hook is told
// that nobody waits, and not of fewer than none.
//
// Fails if the code is broken like this: handOver without waiting > 0.
func TestHandoffToAScoutForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		_, l := newLocker(t, WithPermits(1), WithHooks(Hooks{
			HandedOver: func(e HandedOverEvent) { told = append(told, e.Waiting) }}))
		ctx, cancel := context.WithCancel(context.Background())
		lock, err := l.Acquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *Lock, 1)
		go func() {
			lock, _ := l.Acquire(context.Background(), "key")
			next <- lock
		}()
		synctest.Wait()
		go l.Acquire(ctx, "key")
		time.Sleep(time.Second) // the scout waits for the slot
		if err := lock.Release(context.Background()); err != nil {
			t.Error(err)
		}
		lock = <-next // of a new run
		synctest.Wait()
		m, s := lock.cohort.semaphore, lock.cohort.shard
		s.mu.Lock()
		if w := lock.cohort.waiters.first; w == nil || w.call.watch == nil {
			t.Error("the scout does not wait for the slot")
		}
		leave := m.leave
		m.leave = func() {} // it has not heard yet that nobody waits
		s.mu.Unlock()
		cancel()
		synctest.Wait()
		if err := lock.Release(context.Background()); err != nil {
			t.Error(err)
		}
		leave()
		synctest.Wait()
		if len(told) != 1 || told[0] != 0 {
			t.Errorf("told of handoffs while %v waited, want [0]", told)
		}
	})
}
