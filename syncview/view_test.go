package syncview_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/oddcontext"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/syncview"
)

var _ sync.Locker = (*syncview.View)(nil)

const (
	key = "key"
	ttl = 3 * time.Second
)

// process is one of several that exclude each other.
type process struct {
	*testing.T
	memory *memhold.Backend
	locker *holdfast.Locker
	told   atomic.Int32 // losses
}

func newProcess(t *testing.T, memory *memhold.Backend) *process {
	locker, err := holdfast.New(memory, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		memory.Faults().Clear()
		locker.Close()
		memory.Close()
	})
	return &process{T: t, memory: memory, locker: locker}
}

func (p *process) other() *process { return newProcess(p.T, p.memory.Client()) }

func (p *process) view(ctx context.Context) *syncview.View {
	p.Helper()
	view, err := syncview.New(ctx, p.locker, key, syncview.WithOnError(
		func(k string, err error) {
			if k != key || !errors.Is(err, holdfast.ErrLost) {
				p.Errorf("told of %q: %v", k, err)
			}
			p.told.Add(1)
		}))
	if err != nil {
		p.Fatal(err)
	}
	return view
}

func bubble(t *testing.T, f func(*process)) {
	synctest.Test(t, func(t *testing.T) { f(newProcess(t, memhold.New())) })
}

// panicOf returns what f panics with, or nil.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// wantPanic wants f to panic with an error that wraps all of the errors.
func wantPanic(t *testing.T, f func(), errs ...error) {
	t.Helper()
	value := panicOf(f)
	err, _ := value.(error)
	for _, want := range errs {
		if !errors.Is(err, want) {
			t.Errorf("panics with %v, want %v", value, want)
		}
	}
}

func TestViewsExcludeEachOther(t *testing.T) {
	bubble(t, func(p *process) {
		views := []*syncview.View{p.view(p.Context()), p.other().view(p.Context())}
		var inside, overlaps atomic.Int32
		var group sync.WaitGroup
		count := 0 // the race detector looks at it
		for i := range 50 {
			group.Go(func() {
				for range 4 {
					view := views[i%2]
					view.Lock()
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					count++
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					view.Unlock()
				}
			})
		}
		group.Wait()
		if count != 200 || overlaps.Load() != 0 {
			p.Errorf("%d turns, %d overlaps, want 200 and none", count, overlaps.Load())
		}
	})
}

func TestViewOfALockContextIsNotNested(t *testing.T) {
	bubble(t, func(p *process) {
		outer, err := p.locker.Acquire(p.Context(), key)
		if err != nil {
			p.Fatal(err)
		}
		view := p.view(outer.Context(p.Context()))
		if view.TryLock() {
			p.Error("locked beside its own context's lock")
		}
		outer.Release(p.Context())
	})
}

func TestViewServesACond(t *testing.T) {
	bubble(t, func(p *process) {
		view := p.view(p.Context())
		cond := sync.NewCond(view)
		var queue []int
		sum := 0
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				view.Lock()
				defer view.Unlock()
				for len(queue) == 0 {
					cond.Wait()
				}
				sum += queue[0]
				queue = queue[1:]
			})
		}
		synctest.Wait()
		for i := range 10 {
			view.Lock()
			queue = append(queue, i)
			view.Unlock()
			cond.Signal()
		}
		group.Wait()
		if sum != 45 {
			p.Errorf("sum %d, want 45", sum)
		}
	})
}

func TestViewTellsALossBeforeAnotherHasTheLock(t *testing.T) {
	bubble(t, func(p *process) {
		view, other := p.view(p.Context()), p.other().view(p.Context())
		view.Lock()
		held := view.Held()
		p.memory.Faults().Freeze()
		other.Lock() // when the lease is over
		if p.told.Load() != 1 {
			p.Errorf("told %d times when another has the lock, want once", p.told.Load())
		}
		if ctx := held.Context(p.Context()); !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
			p.Errorf("context of Held: %v, want the loss", context.Cause(ctx))
		}
		p.memory.Faults().Clear()
		view.Unlock()
		synctest.Wait()
		if p.told.Load() != 1 {
			p.Errorf("told %d times after Unlock, want once", p.told.Load())
		}
		if view.TryLock() {
			p.Error("Unlock after the loss has released what another has")
		}
		other.Unlock()
		passes(view)
	})
}

func TestViewTellsNobodyOfAnUnlock(t *testing.T) {
	bubble(t, func(p *process) {
		view := p.view(p.Context())
		view.Lock()
		if view.Held().Token() == 0 {
			p.Error("no token")
		}
		time.Sleep(10 * ttl)
		view.Unlock()
		synctest.Wait()
		if p.told.Load() != 0 || view.Held() != nil {
			p.Errorf("told %d times, held %v, want neither", p.told.Load(), view.Held())
		}
	})
}

func TestViewKeepsItsGoroutinesApartAfterALoss(t *testing.T) {
	bubble(t, func(p *process) {
		view := p.view(p.Context())
		view.Lock()
		first := view.Held().Token()
		p.memory.Faults().Lose(key)
		var second atomic.Uint64
		go func() {
			view.Lock()
			second.Store(uint64(view.Held().Token()))
		}()
		time.Sleep(10 * ttl)
		if p.told.Load() != 1 || second.Load() != 0 {
			p.Errorf("told %d times, token %d: want one loss and nobody else",
				p.told.Load(), second.Load())
		}
		if view.TryLock() {
			p.Error("TryLock has a lock that was not unlocked")
		}
		view.Unlock()
		time.Sleep(ttl)
		if second.Load() <= uint64(first) {
			p.Errorf("token %d after %d", second.Load(), first)
		}
		view.Unlock()
	})
}

func TestViewWaitsThroughAnOutage(t *testing.T) {
	for _, err := range []error{holdfast.ErrUnavailable, holdfast.ErrUnknown} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			bubble(t, func(p *process) {
				view := p.view(p.Context())
				p.memory.Faults().Inject(memhold.Fault{Err: err})
				if view.TryLock() {
					p.Fatal("TryLock has a lock that nobody has given")
				}
				var locked atomic.Bool
				go func() {
					view.Lock()
					locked.Store(true)
				}()
				time.Sleep(time.Hour)
				if locked.Load() {
					p.Fatal("locked during the outage")
				}
				refused := p.locker.Stats().Refused
				if refused < 3600/8 || refused > 3600 {
					p.Errorf("%d attempts in an hour: want pauses of up to 5 s", refused)
				}
				p.memory.Faults().Clear()
				time.Sleep(6 * time.Second)
				if !locked.Load() {
					p.Fatal("not locked 6 s after the outage")
				}
				view.Unlock()
			})
		})
	}
}

func TestLockPanicsWhenItCannotHaveTheLock(t *testing.T) {
	cause := errors.New("shutdown")
	bubble(t, func(p *process) {
		ctx, cancel := context.WithCancelCause(p.Context())
		view, other := p.view(ctx), p.other().view(p.Context())
		other.Lock()
		var group sync.WaitGroup
		for range 2 { // one waits for the backend, one for the first
			group.Go(func() { wantPanic(p.T, view.Lock, context.Canceled, cause) })
		}
		synctest.Wait()
		cancel(cause)
		group.Wait()
		other.Unlock()
		for range 10 { // also when the lock is free
			wantPanic(p.T, view.Lock, context.Canceled, cause)
			wantPanic(p.T, func() { view.TryLock() }, context.Canceled, cause)
		}
	})
	bubble(t, func(p *process) { // behind a goroutine of the View
		ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
		defer cancel()
		view := p.view(ctx)
		view.Lock()
		wantPanic(p.T, view.Lock, context.DeadlineExceeded)
		view.Unlock()
	})
	bubble(t, func(p *process) { // in a pause of an outage
		ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
		defer cancel()
		view := p.view(ctx)
		p.memory.Faults().Inject(memhold.Fault{Err: holdfast.ErrUnavailable})
		wantPanic(p.T, view.Lock, context.DeadlineExceeded)
	})
	bubble(t, func(p *process) {
		view := p.view(p.Context())
		view.Lock()
		p.locker.Close()
		synctest.Wait()
		if p.told.Load() != 1 {
			p.Errorf("told %d times of Close, want once", p.told.Load())
		}
		view.Unlock()
		for range 2 { // a panic leaves the View to others
			wantPanic(p.T, view.Lock, holdfast.ErrClosed)
			wantPanic(p.T, func() { view.TryLock() }, holdfast.ErrClosed)
		}
	})
}

// panics is a backend with a fault of its own.
type panics struct {
	driver.Backend
	now atomic.Bool
}

func (b *panics) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if b.now.Load() {
		panic(errBackend)
	}
	return b.Backend.Acquire(ctx, claim)
}

var errBackend = errors.New("the backend has a fault")

func TestPanicOfABackendLeavesTheViewToOthers(t *testing.T) {
	bubble(t, func(p *process) {
		backend := &panics{Backend: p.memory.Client()}
		locker, err := holdfast.New(backend)
		if err != nil {
			p.Fatal(err)
		}
		defer locker.Close()
		view, err := syncview.New(p.Context(), locker, key)
		if err != nil {
			p.Fatal(err)
		}
		backend.now.Store(true)
		wantPanic(p.T, view.Lock, errBackend)
		wantPanic(p.T, func() { view.TryLock() }, errBackend)
		backend.now.Store(false)
		passes(view)
	})
}

// If the context of a View panics, whenever that is, nobody has the lock.
func TestContextThatPanics(t *testing.T) {
	for name, lock := range map[string]func(*syncview.View){"Lock": (*syncview.View).Lock,
		"TryLock": func(v *syncview.View) { v.TryLock() }} {
		panics := 0
		for at := 1; at <= 20; at++ {
			bubble(t, func(p *process) {
				ctx, cancel := context.WithCancel(p.Context())
				defer cancel()
				odd := oddcontext.New(ctx, 0, func() { panic("a fault of the caller's") })
				view := p.view(odd)
				odd.Arm(at)
				if panicOf(func() { lock(view) }) == nil {
					view.Unlock()
				} else {
					panics++
				}
				odd.Arm(0)
				for _, v := range []*syncview.View{view, p.other().view(p.Context())} {
					if !v.TryLock() {
						p.Fatalf("%s, at call %d of the context: the lock is held", name, at)
					}
					v.Unlock()
				}
			})
		}
		if panics < 3 {
			t.Errorf("%s panicked %d times; want that it does before and after the request", name,
				panics)
		}
	}
}

func TestContextOfAViewLeavesAHeldLockAlone(t *testing.T) {
	bubble(t, func(p *process) {
		ctx, cancel := context.WithCancel(p.Context())
		view := p.view(ctx)
		view.Lock()
		cancel()
		time.Sleep(10 * ttl)
		if err := view.Held().Err(); err != nil {
			p.Error(err)
		}
		view.Unlock()
		if p.other().view(p.Context()).TryLock() == false {
			p.Error("Unlock has not released the lock")
		}
	})
}

func TestUnlockPanicsIfNotLocked(t *testing.T) {
	bubble(t, func(p *process) {
		view := p.view(p.Context())
		if panicOf(view.Unlock) == nil {
			p.Error("Unlock before Lock does not panic")
		}
		passes(view)
		if panicOf(view.Unlock) == nil {
			p.Error("the second Unlock does not panic")
		}
		if !view.TryLock() {
			p.Error("cannot be locked after the panics")
		}
		view.Unlock()
	})
}

func TestNewRefusesWhatIsNotAllowed(t *testing.T) {
	p := newProcess(t, memhold.New())
	var none context.Context
	ctx := t.Context()
	short := syncview.WithLockOptions(holdfast.WithTTL(time.Nanosecond))
	for name, f := range map[string]func() (*syncview.View, error){
		"nil context": func() (*syncview.View, error) { return syncview.New(none, p.locker, key) },
		"nil locker":  func() (*syncview.View, error) { return syncview.New(ctx, nil, key) },
		"no key":      func() (*syncview.View, error) { return syncview.New(ctx, p.locker, "") },
		"long key": func() (*syncview.View, error) {
			return syncview.New(ctx, p.locker, strings.Repeat("k", 1025))
		},
		"nil option": func() (*syncview.View, error) {
			return syncview.New(ctx, p.locker, key, nil)
		},
		"nil lock option": func() (*syncview.View, error) {
			return syncview.New(ctx, p.locker, key, syncview.WithLockOptions(nil))
		},
		"keys that are shared": func() (*syncview.View, error) {
			return syncview.New(ctx, p.locker, key,
				syncview.WithLockOptions(holdfast.WithSharedKeys(key)))
		},
		"short TTL": func() (*syncview.View, error) {
			return syncview.New(ctx, p.locker, key, short)
		},
	} {
		if _, err := f(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	shared := syncview.WithLockOptions(holdfast.WithShared())
	view, err := syncview.New(ctx, p.locker, key, shared)
	if err != nil {
		t.Fatal(err)
	}
	view.Lock()
	defer view.Unlock()
	reader, err := syncview.New(ctx, p.other().locker, key, shared)
	if err != nil {
		t.Fatal(err)
	}
	if reader.TryLock() {
		t.Error("WithShared makes a View that excludes nobody")
	}
}

// passes locks and unlocks.
func passes(view *syncview.View) {
	view.Lock()
	defer view.Unlock()
}
