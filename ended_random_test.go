package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// Random locks, readers, permits and sets, in several processes, with contexts that take their time
// to end, and nested locks with more of them. They end by a release, by several at the same time,
// soon after a maximum hold, after refused renewals, by a loss, or by Close. It checks:
//   - whoever gets a key finds that all contexts have ended of those who had it before, if the two
//     do not share it and the memory was not made to lose it;
//   - when Release has returned, the contexts have ended;
//   - who waits without a time limit gets the key;
//   - nothing is left: see bench.check.
func TestRandomEndings(t *testing.T) {
	for range 2 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			w := &endWorld{b: b, had: make(map[string][]*endRecord),
				excused: make(map[string]time.Time)}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
			long, cancel := context.WithTimeout(background, 24*time.Hour)
			defer cancel()
			var wait sync.WaitGroup
			for process := range 3 {
				options := []holdfast.Option{holdfast.WithTTL(endTTL)}
				if process == 2 {
					options = append(options, holdfast.WithCohort(1, 0))
				}
				l, faults := b.locker(options...)
				for goroutine := range 5 {
					random := rand.New(rand.NewPCG(seed, uint64(process*100+goroutine)))
					wait.Go(func() {
						for range 40 {
							w.once(long, l, faults, random)
						}
					})
				}
			}
			wait.Wait()
			if w.had["key"] == nil || w.checked < 500 || w.alive < 100 {
				t.Errorf("%d acquisitions, %d contexts still ended as a release began; "+
					"want 500 and 100 at least", w.checked, w.alive)
			}
		})
	}
}

// endTTL is short, so that there are many losses. But it leaves more time after a deadline than
// contexts need.
const endTTL = 6 * time.Second

// endWorld is what is known of those who have had the keys.
type endWorld struct {
	b *bench

	mu             sync.Mutex
	had            map[string][]*endRecord
	excused        map[string]time.Time // until when nothing is known of a key that the memory lost
	checked, alive int
}

// endRecord is one who has had a key.
type endRecord struct {
	shared bool
	ends   []*ending
}

// enter notes that somebody has the keys, and checks those who had them before.
func (w *endWorld) enter(keys []string, r *endRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, key := range keys {
		var left []*endRecord
		for _, before := range w.had[key] {
			if before.over() {
				continue
			}
			left = append(left, before)
			excused := time.Now().Before(w.excused[key])
			if !excused && !(before.shared && r.shared) {
				w.b.t.Errorf("%q has passed on, and a context has not ended", key)
			}
		}
		if i > 0 { // the nested lock ends with the first key of a set
			r = &endRecord{shared: r.shared, ends: r.ends[:1]}
		}
		w.had[key] = append(left, r)
		w.checked++
	}
}

// over reports whether all contexts have ended.
func (r *endRecord) over() bool {
	for _, e := range r.ends {
		for _, ctx := range e.contexts {
			if ctx.Err() == nil {
				return false
			}
		}
	}
	return true
}

// lose has the memory lose a key.
func (w *endWorld) lose(faults memhold.Faults, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Whoever has it goes on until the lease is over, and may hand it on until then.
	w.excused[key] = time.Now().Add(2 * endTTL)
	faults.Lose(key)
}

// holding is what once has got.
type holding struct {
	keys    []string // as the memory has them
	locks   []*holdfast.Lock
	context func(context.Context) context.Context
	release func(context.Context) error
}

func (w *endWorld) acquire(ctx context.Context, l *holdfast.Locker, random *rand.Rand,
	options ...holdfast.AcquireOption) (h holding, shared bool, err error) {
	var lock *holdfast.Lock
	switch random.IntN(5) {
	case 0:
		shared = true
		lock, err = l.Acquire(ctx, "key", append(options, holdfast.WithShared())...)
	case 1:
		lock, err = l.Acquire(ctx, "room", append(options, holdfast.WithPermits(2))...)
	case 2:
		set, err := l.AcquireAll(ctx, []string{"key", "other"}, options...)
		if err != nil {
			return h, false, err
		}
		return holding{[]string{"key", "other"}, set.Locks(), set.Context, set.Release}, false, nil
	default:
		lock, err = l.Acquire(ctx, "key", options...)
	}
	if err != nil {
		return h, false, err
	}
	key := lock.Key()
	if slot := lock.Slot(); slot >= 0 {
		key = fmt.Sprintf("%s@permit/%d", key, slot)
	}
	return holding{[]string{key}, []*holdfast.Lock{lock}, lock.Context, lock.Release}, shared, nil
}

// once has one goroutine acquire something, and end that in a random way.
func (w *endWorld) once(long context.Context, l *holdfast.Locker, faults memhold.Faults,
	random *rand.Rand) {
	t := w.b.t
	var options []holdfast.AcquireOption
	hold := random.IntN(8) == 0
	if hold {
		options = append(options, holdfast.WithMaxHold(endTTL))
	}
	ctx, cancel := context.WithCancel(long)
	defer cancel()
	givesUp := random.IntN(4) == 0
	if givesUp {
		time.AfterFunc(time.Duration(random.IntN(60))*time.Millisecond, cancel)
	}
	h, shared, err := w.acquire(ctx, l, random, options...)
	if err != nil {
		if !givesUp {
			t.Errorf("acquire: %v", err)
		}
		return
	}
	r := &endRecord{shared: shared}
	r.ends = append(r.ends, newEnding(t, h.context, time.Millisecond))
	var nested *holdfast.Lock
	if random.IntN(2) == 0 {
		again := holdfast.AcquireOption(holdfast.WithShared()) // because the lock may be shared
		if h.locks[0].Slot() >= 0 {
			again = holdfast.WithPermits(2)
		}
		nested, err = l.Acquire(h.context(background), h.locks[0].Key(), again)
		if err == nil {
			r.ends = append(r.ends, newEnding(t, nested.Context, time.Millisecond))
		} else if h.locks[0].Err() == nil {
			t.Errorf("acquire nested: %v", err)
		}
	}
	w.enter(h.keys, r)
	some := func() { time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond / 2) }
	some()
	var wait sync.WaitGroup
	switch random.IntN(6) {
	case 0:
		if nested != nil {
			wait.Go(func() { nested.Release(background) })
			some()
		}
	case 1:
		wait.Go(func() { h.locks[len(h.locks)-1].Release(background) })
		some()
	case 2:
		wait.Go(func() { h.release(background) })
		some()
	case 3:
		if random.IntN(8) == 0 {
			w.lose(faults, h.keys[0])
			<-h.locks[0].Done()
		}
	case 4:
		if random.IntN(8) == 0 {
			stop := faults.Inject(memhold.Fault{Calls: memhold.Renewals,
				Err: errors.New("refused")})
			<-h.locks[0].Done()
			stop()
		}
	}
	if hold {
		time.Sleep(time.Until(h.locks[0].Deadline()))
		some()
	}
	if !r.over() {
		w.mu.Lock()
		w.alive++
		w.mu.Unlock()
	}
	h.release(background)
	// If another goroutine releases the set, locks that are nested in its locks end a moment later.
	if !r.over() && (len(h.locks) == 1 || !(&endRecord{ends: r.ends[:1]}).over()) {
		t.Error("Release has returned, and a context has not ended")
	}
	wait.Wait()
}
