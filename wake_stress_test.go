package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// The next holder of a key is woken after the mutex is unlocked, so its waiter may give up, or the
// Locker be closed, between the two steps. In a bubble hardly anything runs there, so this is in
// real time: goroutines of two Lockers want a key, permits or a shared key, in contexts that end
// within microseconds, by a timer, by another goroutine, or as somebody releases. It checks:
//   - no two valid locks, unless they share the key or have different slots;
//   - tokens rise from what was complete to what begins, unless both share;
//   - whoever waits without a limit gets the key, and everybody returns;
//   - a wait fails with the error of its context, and a release does not fail, but for Close;
//   - in the end the key is free, and nothing is held or waited for.
//
// Fails if the code is broken like this: refuse that keeps the turn, or the lead; withdraw that
// refuses nothing; handOver that gives the turn after unlocking; next without startLead.
func TestWakeMeetsCancel(t *testing.T) {
	for _, processors := range []int{1, 2, 4} {
		for _, kind := range []string{"lock", "permits", "shared"} {
			for _, closes := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d processors, %s, closes %v", processors, kind, closes),
					func(t *testing.T) {
						before := runtime.GOMAXPROCS(processors)
						defer runtime.GOMAXPROCS(before)
						stressWakes(t, kind, closes)
					})
			}
		}
	}
}

const (
	wakeWorkers = 12
	wakeRounds  = 150 // of each worker
	wakePermits = 2
	wakeBound   = 10 * time.Second // a wait that takes longer counts as lost, see patience
	wakeTTL     = time.Hour        // no lock is lost, however long this process is stopped
)

// patience returns a context that ends when a wait has taken too long. It counts ticks, of which
// none are made up for: the time in which this process is stopped, or gets no processor, is not
// part of a wait.
func patience() (context.Context, context.CancelFunc) {
	const ticks = 1000
	ctx, cancel := context.WithCancel(background)
	go func() {
		defer cancel()
		tick := time.NewTicker(wakeBound / ticks)
		defer tick.Stop()
		for range ticks {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// wakeWorld is what the goroutines of one run share.
type wakeWorld struct {
	t       *testing.T
	kind    string
	closes  bool
	lockers [2]atomic.Pointer[holdfast.Locker]              // the second may be closed
	cancels [wakeWorkers]atomic.Pointer[context.CancelFunc] // of those that wait
	slots   [wakePermits]wakeSlot

	got, gaveUp, closed atomic.Int64
}

// wakeSlot is what one slot guards, or the key.
type wakeSlot struct {
	mu            sync.Mutex
	inside        map[*holdfast.Lock]bool // whether it shares
	read, written holdfast.Token          // the largest of a reader, and of a writer
}

func stressWakes(t *testing.T, kind string, closes bool) {
	b := newBench(t, memhold.WithPresence(wakeTTL))
	w := &wakeWorld{t: t, kind: kind, closes: closes}
	for i := range w.slots {
		w.slots[i].inside = make(map[*holdfast.Lock]bool)
	}
	open := func(i int) {
		l, _ := b.locker(holdfast.WithTTL(wakeTTL),
			holdfast.WithCohort(16<<(2*i), 2*time.Millisecond))
		w.lockers[i].Store(l)
	}
	open(0)
	open(1)
	done := make(chan struct{})
	var others, workers sync.WaitGroup
	others.Go(func() { // ends waits, at any moment
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				w.cancelOne()
			}
		}
	})
	for i := range wakeWorkers {
		workers.Go(func() {
			for n := 0; n < wakeRounds && !t.Failed(); n++ {
				w.once(i)
				if closes && i == 0 && n%20 == 0 {
					l := w.lockers[1].Load()
					open(1)
					if err := l.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			}
		})
	}
	workers.Wait()
	close(done)
	others.Wait()
	t.Logf("%d got it, %d gave up, %d met a Close", w.got.Load(), w.gaveUp.Load(), w.closed.Load())
	if w.got.Load() == 0 || w.gaveUp.Load() == 0 {
		t.Errorf("%d got it, %d gave up, want some of both", w.got.Load(), w.gaveUp.Load())
	}
}

// cancelOne ends the wait of some worker, if it is one that may end.
func (w *wakeWorld) cancelOne() {
	if cancel := w.cancels[rand.N(wakeWorkers)].Load(); cancel != nil {
		(*cancel)()
	}
}

// once acquires, holds and releases once.
func (w *wakeWorld) once(worker int) {
	i := rand.N(len(w.lockers))
	l := w.lockers[i].Load()
	ctx, cancel, bounded := w.context(worker)
	defer cancel()
	options, shared := []holdfast.AcquireOption(nil), false
	switch {
	case w.kind == "permits":
		options = append(options, holdfast.WithPermits(wakePermits))
	case w.kind == "shared" && rand.N(2) == 0:
		options, shared = append(options, holdfast.WithShared()), true
	}
	above := w.latest(shared)
	lock, err := l.Acquire(ctx, "key", options...)
	w.cancels[worker].Store(nil)
	if err != nil {
		switch {
		case i == 1 && w.closes && errors.Is(err, holdfast.ErrClosed):
			w.closed.Add(1)
		case bounded && errors.Is(err, ctx.Err()):
			w.gaveUp.Add(1)
		default:
			w.t.Errorf("Acquire, of a wait that may end: %v, fails: %v", bounded, err)
		}
		return
	}
	w.got.Add(1)
	slot := max(lock.Slot(), 0)
	w.enter(lock, shared, above[slot])
	for range rand.N(3) {
		runtime.Gosched()
	}
	w.leave(lock)
	if rand.N(2) == 0 { // as it is handed over
		var ends sync.WaitGroup
		ends.Go(w.cancelOne)
		defer ends.Wait()
	}
	if err := lock.Release(background); err != nil && !(i == 1 && w.closes) {
		w.t.Errorf("Release: %v", err)
	}
}

// context returns a context for one wait, and whether it may end before the bound.
func (w *wakeWorld) context(worker int) (context.Context, context.CancelFunc, bool) {
	switch rand.N(4) {
	case 0:
		ctx, cancel := patience()
		return ctx, cancel, false
	case 1:
		ctx, cancel := context.WithTimeout(background, rand.N(300*time.Microsecond))
		return ctx, cancel, true
	}
	ctx, cancel := context.WithCancel(background)
	w.cancels[worker].Store(&cancel)
	return ctx, cancel, true
}

// latest returns, for each slot, the token that what begins now must exceed.
func (w *wakeWorld) latest(shared bool) (above [wakePermits]holdfast.Token) {
	for i := range w.slots {
		s := &w.slots[i]
		s.mu.Lock()
		if above[i] = s.written; !shared {
			above[i] = max(s.written, s.read)
		}
		s.mu.Unlock()
	}
	return above
}

func (w *wakeWorld) enter(lock *holdfast.Lock, shared bool, above holdfast.Token) {
	s := &w.slots[max(lock.Slot(), 0)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock.Token() <= above {
		w.t.Errorf("token %d, after %d was complete", lock.Token(), above)
	}
	if shared {
		s.read = max(s.read, lock.Token())
	} else {
		s.written = max(s.written, lock.Token())
	}
	for other, shares := range s.inside {
		// Err tells what is valid during the call: so these three tell of one moment.
		if !(shared && shares) && other.Err() == nil && lock.Err() == nil && other.Err() == nil {
			w.t.Errorf("%v is held beside %v", lock, other)
		}
	}
	s.inside[lock] = shared
}

func (w *wakeWorld) leave(lock *holdfast.Lock) {
	s := &w.slots[max(lock.Slot(), 0)]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inside, lock)
}

// The wait of the one goroutine that waits ends at the moment of the release. Whoever gets the key,
// nothing is left of it: the next acquisition finds it free.
//
// Fails if the code is broken like this: withdraw, or await, that leaves an outcome that is not
// there yet. (On one processor the two steps are hardly ever parted.)
func TestWakeMeetsTheEndOfTheWait(t *testing.T) {
	for name, options := range map[string][]holdfast.AcquireOption{
		"lock": nil, "permit": {holdfast.WithPermits(1)}} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
			b := newBench(t, memhold.WithPresence(wakeTTL))
			l, _ := b.locker(holdfast.WithTTL(wakeTTL))
			got := 0
			const rounds = 1_000
			for range rounds {
				long, end := patience()
				lock, err := l.Acquire(long, "key", options...)
				end()
				if err != nil {
					t.Fatalf("after a wait that ended at a release: %v", err)
				}
				if wakeDuel(b, l, lock, options) {
					got++
				}
			}
			t.Logf("%d of %d waiters got it", got, rounds)
		})
	}
}

// wakeDuel has a goroutine wait for what lock holds, ends the wait, and releases the lock at the
// same time. It reports whether the goroutine got it.
func wakeDuel(b *bench, l *holdfast.Locker, lock *holdfast.Lock,
	options []holdfast.AcquireOption) (got bool) {
	ctx, cancel := context.WithCancel(background)
	var both sync.WaitGroup
	both.Go(func() {
		next, err := l.Acquire(ctx, "key", options...)
		if got = err == nil; got {
			b.release(next)
		} else {
			mustBe(b.t, err, context.Canceled)
		}
	})
	var now atomic.Bool
	both.Go(func() {
		for !now.Load() {
			runtime.Gosched()
		}
		linger()
		cancel()
	})
	for l.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	now.Store(true)
	linger()
	b.release(lock)
	both.Wait()
	return got
}

// linger takes up to some microseconds.
func linger() {
	var spins atomic.Int64
	for n := rand.Int64N(1000); spins.Load() < n; spins.Add(1) {
	}
}
