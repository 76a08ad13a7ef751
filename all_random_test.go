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

// Random sets of a few keys, in all orders, over several processes, with other terms, cancelled
// waits, attempts that do not wait, single keys in between, and requests that are late or whose
// answers are lost. It checks:
//   - no two sets that are held have a key in common;
//   - who waits without a time limit gets the keys: there is no deadlock, and nobody starves;
//   - nothing is left: see bench.check.
func TestRandomSets(t *testing.T) {
	for round := range 4 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			w := &setWorld{b: b, owners: make([]atomic.Int64, 6)}
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
				for goroutine := range 6 {
					random := rand.New(rand.NewPCG(seed, uint64(process*100+goroutine)))
					wait.Go(func() {
						for range 40 {
							w.once(long, l, faults, random, round%2 == 1)
						}
					})
				}
			}
			wait.Wait()
			if w.sets.Load() < 100 || w.refused.Load() < 10 || w.cancelled.Load() < 10 {
				t.Errorf("%d sets, %d refused, %d cancelled; want at least 100, 10 and 10",
					w.sets.Load(), w.refused.Load(), w.cancelled.Load())
			}
		})
	}
}

type setWorld struct {
	b                        *bench
	owners                   []atomic.Int64 // of each key
	turn                     atomic.Int64
	sets, refused, cancelled atomic.Int64
}

// once has one goroutine acquire and release a random set.
func (w *setWorld) once(long context.Context, l *holdfast.Locker, faults memhold.Faults,
	random *rand.Rand, unruly bool) {
	t := w.b.t
	names := []string{"a", "b", "c", "d", "e", "f"}
	order := random.Perm(len(names))[:1+random.IntN(4)]
	keys := make([]string, len(order))
	for i, k := range order {
		keys[i] = names[k]
	}
	if unruly {
		switch random.IntN(20) {
		case 0:
			faults.Inject(memhold.Fault{Times: 1 + random.IntN(3), CutReply: true})
		case 1:
			faults.Inject(memhold.Fault{Times: 1 + random.IntN(3),
				Delay: time.Duration(random.IntN(100)) * time.Millisecond})
		}
	}
	var options []holdfast.AcquireOption
	if random.IntN(4) == 0 {
		options = append(options, holdfast.WithTTL(20*time.Second))
	}
	if random.IntN(8) == 0 {
		options = append(options, holdfast.WithoutRenewal())
	}
	var set *holdfast.LockSet
	var err error
	switch random.IntN(4) {
	case 0:
		set, err = l.TryAcquireAll(background, keys, options...)
		if errors.Is(err, holdfast.ErrHeld) {
			w.refused.Add(1)
		} else if err != nil && !unruly {
			t.Errorf("TryAcquireAll of %q: %v", keys, err)
		}
	case 1:
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(time.Duration(random.IntN(60_000))*time.Microsecond, cancel)
		set, err = l.AcquireAll(ctx, keys, options...)
		if errors.Is(err, context.Canceled) {
			w.cancelled.Add(1)
		}
	default:
		set, err = l.AcquireAll(long, keys, options...)
		if err != nil && (!unruly || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("AcquireAll of %q: %v", keys, err)
		}
	}
	if err != nil {
		return
	}
	w.sets.Add(1)
	me := w.turn.Add(1)
	for _, k := range order {
		if !w.owners[k].CompareAndSwap(0, me) {
			t.Errorf("two sets hold %q at once", names[k])
		}
	}
	time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	if err := set.Err(); err != nil && !unruly {
		t.Errorf("set of %q: %v", keys, err)
	}
	for _, k := range order {
		w.owners[k].CompareAndSwap(me, 0)
	}
	if err := set.Release(background); err != nil && !unruly {
		t.Errorf("release of %q: %v", keys, err)
	}
}
