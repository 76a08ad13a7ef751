package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// Random permits of a few semaphores, over several processes, with other terms, cancelled waits,
// attempts that do not wait, requests that are late or whose answers are lost, and processes that
// are cut off. It checks:
//   - no two valid permits of a semaphore have the same slot, so never more than n hold it;
//   - the tokens of each slot rise;
//   - a permit that is free while somebody waits is taken within a bound;
//   - who waits without a time limit gets a permit;
//   - nothing is left: see bench.check.
func TestRandomPermits(t *testing.T) {
	for round := range 4 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			unruly := round%2 == 1
			w := newPermitWorld(b, unruly)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("round %d, seed %d", round, seed)
				}
			})
			long, cancel := context.WithTimeout(background, 24*time.Hour)
			defer cancel()
			var wait sync.WaitGroup
			for process := range 4 {
				var options []holdfast.Option
				if process == 3 {
					options = append(options, holdfast.WithCohort(1, 0))
				}
				l, faults := b.locker(options...)
				for goroutine := range 8 {
					random := rand.New(rand.NewPCG(seed, uint64(process*100+goroutine)))
					wait.Go(func() {
						for range 40 {
							w.once(long, l, faults, random, goroutine == 0)
						}
					})
				}
			}
			wait.Wait()
			if w.got.Load() < 300 || w.refused.Load() < 10 || w.cancelled.Load() < 10 {
				t.Errorf("%d permits, %d refused, %d cancelled; want at least 300, 10 and 10",
					w.got.Load(), w.refused.Load(), w.cancelled.Load())
			}
		})
	}
}

type permitWorld struct {
	b                       *bench
	unruly                  bool
	bound                   time.Duration
	semaphores              map[string]*seenSemaphore
	got, refused, cancelled atomic.Int64
}

// seenSemaphore is what the test knows of a semaphore.
type seenSemaphore struct {
	mu      sync.Mutex
	slots   []*holdfast.Lock // the latest of each
	held    int
	waiting int
	since   time.Time // since when somebody has waited for what is free, without an event
}

func newPermitWorld(b *bench, unruly bool) *permitWorld {
	w := &permitWorld{b: b, unruly: unruly, semaphores: make(map[string]*seenSemaphore),
		bound: holdfast.DefaultCohortSpan}
	if unruly {
		// A claim whose process is cut off lasts for its TTL, and its place for the presence; and
		// the scout may be the one, once for the gate and once for a slot.
		w.bound = 2 * time.Minute
	}
	for key, n := range map[string]int{"two": 2, "five": 5, "nine": 9} {
		w.semaphores[key] = &seenSemaphore{slots: make([]*holdfast.Lock, n)}
	}
	return w
}

// change notes that somebody begins or ends to wait or hold.
func (w *permitWorld) change(s *seenSemaphore, waiting, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if idle := now.Sub(s.since); !s.since.IsZero() && idle > w.bound {
		w.b.t.Errorf("for %[4]v %[1]d waited while only %[2]d of %[3]d permits were held",
			s.waiting, s.held, len(s.slots), idle)
	}
	s.waiting += waiting
	s.held += held
	s.since = time.Time{}
	if s.waiting > 0 && s.held < len(s.slots) {
		s.since = now
	}
}

// hold notes a permit.
func (w *permitWorld) hold(s *seenSemaphore, lock *holdfast.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.slots[lock.Slot()]
	s.slots[lock.Slot()] = lock
	switch {
	case before == nil:
	case before.Err() == nil && lock.Err() == nil:
		w.b.t.Errorf("two hold slot %d of %q at once", lock.Slot(), lock.Key())
	case before.Token() >= lock.Token():
		w.b.t.Errorf("slot %d of %q: token %d after %d, want a larger one",
			lock.Slot(), lock.Key(), lock.Token(), before.Token())
	}
}

// once has one goroutine acquire and release a random permit. One of each process, which cuts, also
// has the process cut off at times.
func (w *permitWorld) once(long context.Context, l *holdfast.Locker, faults memhold.Faults,
	random *rand.Rand, cuts bool) {
	t := w.b.t
	key := []string{"two", "five", "nine"}[random.IntN(3)]
	s := w.semaphores[key]
	if w.unruly {
		switch random.IntN(40) {
		case 0, 1:
			faults.Inject(memhold.Fault{Times: 1 + random.IntN(3), CutReply: true})
		case 2:
			faults.Inject(memhold.Fault{Times: 1 + random.IntN(3),
				Delay: time.Duration(random.IntN(100)) * time.Millisecond})
		case 3:
			if !cuts {
				break
			}
			faults.Freeze()
			time.Sleep(time.Duration(1+random.IntN(10)) * time.Second)
			faults.Thaw()
			time.Sleep(5 * time.Second) // for the releases that are due
		}
	}
	options := []holdfast.AcquireOption{holdfast.WithPermits(len(s.slots))}
	if random.IntN(4) == 0 {
		options = append(options, holdfast.WithTTL(20*time.Second))
	}
	if random.IntN(8) == 0 {
		options = append(options, holdfast.WithoutRenewal())
	}
	var lock *holdfast.Lock
	var err error
	waits := 1
	switch random.IntN(4) {
	case 0:
		waits = 0
		lock, err = l.TryAcquire(background, key, options...)
		if errors.Is(err, holdfast.ErrHeld) {
			w.refused.Add(1)
		} else if err != nil && !w.unruly {
			t.Errorf("TryAcquire of %q: %v", key, err)
		}
	case 1:
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(time.Duration(1+random.IntN(60_000))*time.Microsecond, cancel)
		w.change(s, 1, 0)
		lock, err = l.Acquire(ctx, key, options...)
		if errors.Is(err, context.Canceled) {
			w.cancelled.Add(1)
		}
	default:
		w.change(s, 1, 0)
		lock, err = l.Acquire(long, key, options...)
		if err != nil && (!w.unruly || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("Acquire of %q: %v", key, err)
		}
	}
	if err != nil {
		w.change(s, -waits, 0)
		return
	}
	w.change(s, -waits, 1)
	w.hold(s, lock)
	w.got.Add(1)
	time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
	if err := lock.Err(); err != nil && !w.unruly {
		t.Errorf("permit of %q: %v", key, err)
	}
	w.change(s, 0, -1)
	if err := lock.Release(background); err != nil && !w.unruly {
		t.Errorf("release of %q: %v", key, err)
	}
}
