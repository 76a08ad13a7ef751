package holdfast_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// recovered calls f as net/http calls a handler.
func recovered(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("the panic did not reach the caller")
		}
	}()
	f()
}

// fragile is a backend of which one call panics.
type fragile struct {
	*memhold.Backend
	next atomic.Pointer[string] // the call that does; nil: none
}

func (f *fragile) breakIn(call string) { f.next.Store(&call) }

func (f *fragile) pass(call string) {
	if next := f.next.Load(); next != nil && *next == call && f.next.CompareAndSwap(next, nil) {
		panic("a backend's fault")
	}
}

func (f *fragile) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	f.pass("acquire")
	r, err := f.Backend.Acquire(ctx, c)
	f.pass("acquired")
	return r, err
}

func (f *fragile) Renew(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
	f.pass("renew")
	return f.Backend.Renew(ctx, c)
}

func (f *fragile) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	f.pass("release")
	return f.Backend.Release(ctx, c)
}

// If the caller recovers from a panic of the backend, others get the key, and Close returns.
func TestPanicOfTheBackendLeavesNothing(t *testing.T) {
	calls := map[string]func(t *testing.T, l *holdfast.Locker, lock *holdfast.Lock){
		"acquire": func(t *testing.T, l *holdfast.Locker, _ *holdfast.Lock) {
			l.Acquire(background, "another")
		},
		"acquired": func(t *testing.T, l *holdfast.Locker, _ *holdfast.Lock) {
			l.TryAcquire(background, "another")
		},
		"release": func(t *testing.T, _ *holdfast.Locker, lock *holdfast.Lock) {
			lock.Release(background)
		},
		"renew": func(t *testing.T, _ *holdfast.Locker, lock *holdfast.Lock) {
			defer func() {
				p := recover()
				time.Sleep(time.Minute)
				if err := lock.Err(); err != nil {
					t.Errorf("the lock is not renewed any more: %v", err)
				}
				panic(p)
			}()
			lock.Extend(background)
		},
	}
	for call, f := range calls {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				client := &fragile{Backend: b.memory.Client()}
				b.clients = append(b.clients, client.Backend)
				l := b.lockerOn(client)
				other, _ := b.locker()
				lock := b.acquire(l, "key")
				client.breakIn(call)
				recovered(t, func() { f(t, l, lock) })
				lock.Release(background)
				synctest.Wait()
				for _, key := range []string{"key", "another"} {
					b.mustBeFree(other, key)
					b.mustBeFree(l, key)
				}
			})
		})
	}
	t.Run("fresh run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			client := &fragile{Backend: b.memory.Client()}
			b.clients = append(b.clients, client.Backend)
			l := b.lockerOn(client)
			other, _ := b.locker()
			lock := b.acquire(l, "key")
			var wait sync.WaitGroup
			wait.Go(func() { recovered(t, func() { l.Acquire(background, "key") }) })
			time.Sleep(time.Second)
			client.breakIn("renew")
			b.release(lock)
			wait.Wait()
			synctest.Wait()
			b.mustBeFree(other, "key")
			b.mustBeFree(l, "key")
		})
	})
	t.Run("release after a run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			client := &fragile{Backend: b.memory.Client()}
			b.clients = append(b.clients, client.Backend)
			l := b.lockerOn(client)
			other, _ := b.locker()
			lock := b.acquire(l, "key")
			var wait sync.WaitGroup
			wait.Go(func() { recovered(t, func() { l.Acquire(background, "key") }) })
			got := next(other, background)
			time.Sleep(time.Second)
			client.breakIn("release")
			b.release(lock)
			wait.Wait()
			start := time.Now()
			b.release(<-got)
			if took := time.Since(start); took > holdfast.DefaultTTL/3 {
				t.Errorf("the other process got the key after %v, want a third of the TTL at most",
					took)
			}
			synctest.Wait()
			b.mustBeFree(other, "key")
			b.mustBeFree(l, "key")
		})
	})
}

// touchy is a context of a caller's own kind, whose Done panics once it is broken.
type touchy struct {
	context.Context
	broken atomic.Bool
}

func (c *touchy) Done() <-chan struct{} {
	if c.broken.Load() {
		panic("a context's fault")
	}
	return c.Context.Done()
}

// If a context panics as a lock ends, all others are still told, and the key becomes free.
func TestContextThatPanicsAsItsLockEnds(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			other, _ := b.locker()
			lock := b.acquire(l, "key")
			parent, cancel := context.WithCancel(background)
			defer cancel()
			var broken []*touchy
			var contexts []context.Context
			for range 3 {
				c := &touchy{Context: parent}
				broken = append(broken, c)
				contexts = append(contexts, lock.Context(c), lock.Context(background))
			}
			done := lock.Done()
			var got chan *holdfast.Lock
			if waits {
				got = next(l, background)
			}
			for _, c := range broken {
				c.broken.Store(true)
			}
			recovered(t, func() { lock.Release(background) })
			for _, c := range broken {
				c.broken.Store(false)
			}
			synctest.Wait()
			select {
			case <-done:
			default:
				t.Error("Done is not closed")
			}
			for i, ctx := range contexts {
				mustBe(t, context.Cause(ctx), holdfast.ErrReleased)
				if ctx.Err() == nil {
					t.Errorf("context %d has not ended", i)
				}
			}
			if waits {
				b.release(<-got)
			}
			b.mustBeFree(other, "key")
			b.mustBeFree(l, "key")
		})
	}
}

// If the caller of Err finds that the lock is lost, and a context panics as it ends, the caller can
// recover from that. (It was a fatal error: the mutex was unlocked twice.)
func TestContextThatPanicsAsErrFindsTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		for range 10 { // the Locker's own goroutine may end the context first
			lock := b.acquire(l, "key")
			parent, cancel := context.WithCancel(background)
			defer cancel()
			c := &touchy{Context: parent}
			ctx := lock.Context(c)
			c.broken.Store(true)
			clock.SimulateSuspend(holdfast.DefaultTTL)
			func() {
				defer func() { recover() }()
				mustBe(t, lock.Err(), holdfast.ErrLost)
			}()
			synctest.Wait()
			c.broken.Store(false)
			mustBe(t, lock.Err(), holdfast.ErrLost)
			mustBe(t, context.Cause(ctx), holdfast.ErrLost)
		}
	})
}

// A release that a panic has cut off is counted and reported, as one without an answer. So
// whoever keeps something for each lock until an event tells of its end does not keep it for ever.
func TestReleaseThatPanicsIsReported(t *testing.T) {
	for _, fault := range []string{"backend", "context"} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var released []holdfast.ReleasedEvent
				client := &fragile{Backend: b.memory.Client()}
				b.clients = append(b.clients, client.Backend)
				l := b.lockerOn(client, holdfast.WithHooks(holdfast.Hooks{
					Released: func(e holdfast.ReleasedEvent) { released = append(released, e) }}))
				lock := b.acquire(l, "key")
				parent, cancel := context.WithCancel(background)
				defer cancel()
				c := &touchy{Context: parent}
				lock.Context(c)
				if fault == "context" {
					c.broken.Store(true)
				} else {
					client.breakIn("release")
				}
				recovered(t, func() { lock.Release(background) })
				c.broken.Store(false)
				synctest.Wait()
				if s := l.Stats(); s.Released != 1 || s.Held != 0 {
					t.Errorf("released %d, held %d; want 1 and 0", s.Released, s.Held)
				}
				if len(released) != 1 || released[0].Token != lock.Token() {
					t.Fatalf("the hook was told %+v, want one event for the lock", released)
				}
				mustBe(t, released[0].Err, holdfast.ErrUnknown)
			})
		})
	}
}

// If a context panics as a set ends, all others are still told, and its keys become free.
func TestContextThatPanicsAsItsSetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		set, err := l.AcquireAll(background, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		parent, cancel := context.WithCancel(background)
		defer cancel()
		c := &touchy{Context: parent}
		contexts := []context.Context{set.Context(background), set.Context(c),
			set.Context(background)}
		done := set.Done()
		c.broken.Store(true)
		recovered(t, func() { set.Release(background) })
		c.broken.Store(false)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Done is not closed")
		}
		for i, ctx := range contexts {
			if ctx.Err() == nil {
				t.Errorf("context %d has not ended", i)
			}
		}
		for _, key := range []string{"a", "b"} {
			b.mustBeFree(other, key)
			b.mustBeFree(l, key)
		}
	})
}

// If a context panics as its lock is lost, that is logged, because nobody could recover from a
// panic in a goroutine of the Locker. All others on the lease are still told.
//
// Fails if the code is broken like this: contain without recover, or many.run without defer.
func TestContextThatPanicsAsItsLockIsLost(t *testing.T) {
	for name, lose := range map[string]func(b *bench, l *holdfast.Locker, faults memhold.Faults){
		"by the clock": func(_ *bench, _ *holdfast.Locker, faults memhold.Faults) {
			faults.Freeze()
			time.Sleep(holdfast.DefaultTTL)
			faults.Thaw()
		},
		"by an answer": func(b *bench, _ *holdfast.Locker, faults memhold.Faults) {
			if !faults.Lose("key") {
				b.t.Error("Lose found no holder of the key")
			}
			time.Sleep(holdfast.DefaultTTL)
		},
		"by Close": func(b *bench, l *holdfast.Locker, _ memhold.Faults) {
			if err := l.Close(); err != nil {
				b.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var log bytes.Buffer // written to by one goroutine, and read when that has ended
				var told atomic.Int64
				l, faults := b.locker(
					holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
					holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) {
						told.Add(1)
					}}))
				other, _ := b.locker()
				parent, cancel := context.WithCancel(background)
				defer cancel()
				const readers = 3
				var locks []*holdfast.Lock // kept: one that is garbage would be logged
				var broken []*touchy
				var contexts []context.Context
				for range readers {
					lock := b.acquire(l, "key", holdfast.WithShared())
					locks = append(locks, lock)
					c := &touchy{Context: parent}
					broken = append(broken, c)
					contexts = append(contexts, lock.Context(c), lock.Context(background))
				}
				for _, c := range broken {
					c.broken.Store(true)
				}
				lose(b, l, faults)
				synctest.Wait()
				for _, c := range broken {
					c.broken.Store(false)
				}
				for i, ctx := range contexts {
					mustBe(t, context.Cause(ctx), holdfast.ErrLost)
					if ctx.Err() == nil {
						t.Errorf("context %d has not ended", i)
					}
				}
				for _, lock := range locks {
					mustBe(t, lock.Release(background), holdfast.ErrLost)
				}
				if n := told.Load(); n != readers {
					t.Errorf("%d losses were told, want %d", n, readers)
				}
				if !strings.Contains(log.String(), "a context's fault") {
					t.Errorf("the log says nothing of the panic:\n%s", log.String())
				}
				b.mustBeFree(other, "key")
			})
		})
	}
}

// A nil context is refused where that is safe. A release with a nil context still releases the
// lock.
func TestNilContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		var none context.Context
		_, err := l.Acquire(none, "key")
		mustBe(t, err, holdfast.ErrInvalid)
		_, err = l.TryAcquire(none, "key")
		mustBe(t, err, holdfast.ErrInvalid)
		lock := b.acquire(l, "key")
		mustBe(t, lock.Extend(none), holdfast.ErrInvalid)
		if err := lock.Release(none); err != nil {
			t.Error(err)
		}
		b.mustBeFree(other, "key")
		b.mustBeFree(l, "key")
	})
}

// If a context panics as a nested lock of a set that is not complete ends, the other keys become
// free.
func TestContextThatPanicsAsAnIncompleteSetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		missing := b.acquire(other, "missing")
		for range 10 { // the Locker's own goroutine may end the context first
			outer := b.acquire(l, "nested", holdfast.WithTTL(time.Second),
				holdfast.WithMaxHold(time.Second))
			parent, cancel := context.WithCancel(background)
			c := &touchy{Context: parent}
			outer.Context(c)
			wait, giveUp := context.WithCancel(background)
			var set sync.WaitGroup
			set.Go(func() {
				defer func() { recover() }()
				l.AcquireAll(outer.Context(wait), []string{"a", "missing", "nested"})
			})
			synctest.Wait()
			c.broken.Store(true)
			clock.SimulateSuspend(time.Second) // nobody has noticed the end of the maximum hold
			giveUp()
			set.Wait()
			synctest.Wait()
			c.broken.Store(false)
			outer.Release(background)
			b.mustBeFree(other, "a")
			cancel()
		}
		b.release(missing)
	})
}

// rude is a context of a caller's own kind, whose Value panics.
type rude struct{ context.Context }

func (rude) Value(any) any { panic("a context's fault") }

// If the context of a release panics, the locks are released.
func TestContextThatPanicsInARelease(t *testing.T) {
	for _, keys := range [][]string{{"a"}, {"a", "b"}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			other, _ := b.locker()
			set := b.acquireAll(l, keys)
			ctx := set.Context(background)
			recovered(t, func() { set.Release(rude{background}) })
			synctest.Wait()
			mustBe(t, context.Cause(ctx), holdfast.ErrReleased)
			for _, key := range keys {
				b.mustBeFree(other, key)
			}
		})
	}
}
