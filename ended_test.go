package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// slowness is how long it takes to end one context of an ending.
const slowness = 100 * time.Millisecond

// ending is several contexts of a lock or a set that take their time to end, one after the other.
type ending struct {
	context.Context // the parent of all, of which Done is called as one of them ends
	slow            atomic.Bool
	contexts        []context.Context
}

func (e *ending) Done() <-chan struct{} {
	if e.slow.Load() {
		time.Sleep(slowness)
	}
	return e.Context.Done()
}

// newEnding makes the contexts, with the Context method of a lock or a set.
func newEnding(t *testing.T, from func(context.Context) context.Context) *ending {
	t.Helper()
	parent, cancel := context.WithCancel(background)
	t.Cleanup(cancel)
	e := &ending{Context: parent}
	for range 4 {
		e.contexts = append(e.contexts, from(e))
	}
	e.slow.Store(true)
	t.Cleanup(func() {
		e.slow.Store(false)
		time.Sleep(slowness) // the one that is ending
	})
	return e
}

// mustBeOver fails if one of the contexts has not ended. when says why it should have.
func (e *ending) mustBeOver(t *testing.T, when string) {
	t.Helper()
	for _, ctx := range e.contexts {
		if ctx.Err() == nil {
			t.Errorf("%s, and a context has not ended", when)
			return
		}
	}
}

// Contexts have ended before anybody else has the key, even if another goroutine is still ending
// them when the key is released, or becomes free.
func TestNobodyHasTheKeyWhileContextsEnd(t *testing.T) {
	soon := func(f func()) { time.AfterFunc(slowness/2, f) }
	const hold = holdfast.DefaultTTL
	const loss = holdfast.DefaultTTL / 3 // the first renewal tells of it
	cases := map[string]func(b *bench, l *holdfast.Locker, faults memhold.Faults) *ending{
		"released after the maximum hold": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			lock := b.acquire(l, "key", holdfast.WithMaxHold(hold))
			e := newEnding(b.t, lock.Context)
			time.Sleep(hold)
			soon(func() { mustBe(b.t, lock.Release(background), holdfast.ErrMaxHold) })
			return e
		},
		"closed after the maximum hold": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			// Close waits for the watchdog, which is busy: another goroutine ends the contexts.
			newEnding(b.t, b.acquire(l, "another", holdfast.WithMaxHold(hold)).Context)
			time.Sleep(slowness)
			lock := b.acquire(l, "key", holdfast.WithMaxHold(hold))
			e := newEnding(b.t, lock.Context)
			time.Sleep(hold + slowness)
			go lock.Err()
			soon(func() { l.Close() })
			return e
		},
		"released by the last reader": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			first, last := b.read(l), b.read(l)
			e := newEnding(b.t, first.Context)
			go b.release(first)
			soon(func() { b.release(last) })
			return e
		},
		"released as a nested lock": func(b *bench, l *holdfast.Locker, _ memhold.Faults) *ending {
			outer := b.acquire(l, "key")
			inner, err := l.Acquire(outer.Context(background), "key")
			if err != nil {
				b.t.Fatal(err)
			}
			e := newEnding(b.t, inner.Context)
			go b.release(inner)
			soon(func() { b.release(outer) })
			return e
		},
		"released in a set that is lost": func(b *bench, l *holdfast.Locker,
			faults memhold.Faults) *ending {
			set := b.acquireAll(l, []string{"another", "key"})
			e := newEnding(b.t, set.Context)
			faults.Lose("another")
			time.Sleep(loss)
			soon(func() { mustBe(b.t, set.Release(background), holdfast.ErrLost) })
			return e
		},
		"released in a set that is released": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			set := b.acquireAll(l, []string{"another", "key"})
			e := newEnding(b.t, set.Context)
			go b.release(set.Lock("another"))
			soon(func() { b.release(set.Lock("key")) })
			return e
		},
		"released": func(b *bench, l *holdfast.Locker, _ memhold.Faults) *ending {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context)
			soon(func() { b.release(lock) })
			return e
		},
	}
	waiters := map[string]func(l, other *holdfast.Locker) *holdfast.Locker{
		"of the Locker": func(l, _ *holdfast.Locker) *holdfast.Locker { return l },
		"of another":    func(_, other *holdfast.Locker) *holdfast.Locker { return other },
	}
	for name, end := range cases {
		for whose, choose := range waiters {
			t.Run(name+", waiter "+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					l, faults := b.locker()
					other, _ := b.locker()
					e := end(b, l, faults)
					lock, err := choose(l, other).Acquire(background, "key")
					if err != nil {
						mustBe(t, err, holdfast.ErrClosed)
						return
					}
					e.mustBeOver(t, "another has the key")
					b.release(lock)
				})
			})
		}
	}
}

// A goroutine of the Locker does not get a lost key before the contexts of the lock have ended.
func TestWaiterGetsALostKeyAfterContextsEnded(t *testing.T) {
	for name, options := range map[string][]holdfast.AcquireOption{
		"lock":   nil,
		"permit": {holdfast.WithPermits(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker()
				lock := b.acquire(l, "key", options...)
				e := newEnding(t, lock.Context)
				key := "key"
				if lock.Slot() >= 0 {
					key = "key@permit/0"
				}
				if !faults.Lose(key) {
					t.Fatal("nobody had the key")
				}
				next := b.acquire(l, "key", options...)
				e.mustBeOver(t, "another has the key")
				b.release(next)
			})
		})
	}
}

// Whatever Release returns, contexts have ended, even if another goroutine ends them.
func TestReleaseReturnsWhenContextsHaveEnded(t *testing.T) {
	for name, begin := range map[string]func(b *bench, l *holdfast.Locker,
		faults memhold.Faults) (*ending, func(context.Context) error){
		"released": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context)
			go b.release(lock)
			return e, lock.Release
		},
		"nested": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			inner, err := l.Acquire(lock.Context(background), "key")
			if err != nil {
				b.t.Fatal(err)
			}
			e := newEnding(b.t, inner.Context)
			go b.release(lock)
			return e, inner.Release
		},
		"lost": func(b *bench, l *holdfast.Locker,
			faults memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context)
			faults.Lose("key")
			time.Sleep(holdfast.DefaultTTL / 3)
			return e, lock.Release
		},
		"set": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			set := b.acquireAll(l, []string{"a", "b"})
			e := newEnding(b.t, set.Context)
			go b.releaseAll(set)
			return e, set.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker()
				e, release := begin(b, l, faults)
				time.Sleep(slowness / 2)
				if release(background) == nil {
					t.Error("released twice without an error")
				}
				e.mustBeOver(t, "Release has returned")
				time.Sleep(10 * slowness)
			})
		})
	}
}
