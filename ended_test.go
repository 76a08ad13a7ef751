package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// slowness is how long it takes to end one context of an ending.
const slowness = 100 * time.Millisecond

// ending is several contexts of a lock or a set that take their time to end, one after the other.
type ending struct {
	context.Context              // the parent of all, of which Done is called as one of them ends
	slow            atomic.Int64 // nanoseconds
	contexts        []context.Context
}

func (e *ending) Done() <-chan struct{} {
	time.Sleep(time.Duration(e.slow.Load()))
	return e.Context.Done()
}

// newEnding makes the contexts, with the Context method of a lock or a set. Each takes that long to
// end.
func newEnding(t *testing.T, from func(context.Context) context.Context,
	slow time.Duration) *ending {
	t.Helper()
	parent, cancel := context.WithCancel(background)
	t.Cleanup(cancel)
	e := &ending{Context: parent}
	for range 5 {
		e.contexts = append(e.contexts, from(e))
	}
	e.slow.Store(int64(slow))
	t.Cleanup(func() {
		e.slow.Store(0)
		time.Sleep(slow) // the one that is ending
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
			e := newEnding(b.t, lock.Context, slowness)
			time.Sleep(hold)
			soon(func() { mustBe(b.t, lock.Release(background), holdfast.ErrMaxHold) })
			return e
		},
		"closed after the maximum hold": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			lock := b.acquire(l, "key", holdfast.WithMaxHold(hold))
			e := newEnding(b.t, lock.Context, slowness)
			time.Sleep(hold)
			closed := make(chan struct{})
			b.t.Cleanup(func() { <-closed })
			soon(func() {
				defer close(closed)
				l.Close()
			})
			return e
		},
		"released by the last reader": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			first, last := b.read(l), b.read(l)
			e := newEnding(b.t, first.Context, slowness)
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
			e := newEnding(b.t, inner.Context, slowness)
			go b.release(inner)
			soon(func() { b.release(outer) })
			return e
		},
		"released in a set that is lost": func(b *bench, l *holdfast.Locker,
			faults memhold.Faults) *ending {
			set := b.acquireAll(l, []string{"another", "key"})
			e := newEnding(b.t, set.Context, slowness)
			faults.Lose("another")
			time.Sleep(loss)
			soon(func() { mustBe(b.t, set.Release(background), holdfast.ErrLost) })
			return e
		},
		"released in a set that is released": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) *ending {
			set := b.acquireAll(l, []string{"another", "key"})
			e := newEnding(b.t, set.Context, slowness)
			go b.release(set.Lock("another"))
			soon(func() { b.release(set.Lock("key")) })
			return e
		},
		"released": func(b *bench, l *holdfast.Locker, _ memhold.Faults) *ending {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context, slowness)
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
				e := newEnding(t, lock.Context, slowness)
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
	want := map[string]error{"released": holdfast.ErrReleased, "handed over": holdfast.ErrReleased,
		"nested": holdfast.ErrReleased, "lost": holdfast.ErrLost, "set": holdfast.ErrReleased,
		"reader, after its deadline": holdfast.ErrLost}
	for name, begin := range map[string]func(b *bench, l *holdfast.Locker,
		faults memhold.Faults) (*ending, func(context.Context) error){
		"released": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context, slowness)
			go b.release(lock)
			return e, lock.Release
		},
		"handed over": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context, slowness)
			got := next(l, background)
			go func() {
				b.release(lock)
				b.release(<-got)
			}()
			return e, lock.Release
		},
		"nested": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			inner, err := l.Acquire(lock.Context(background), "key")
			if err != nil {
				b.t.Fatal(err)
			}
			e := newEnding(b.t, inner.Context, slowness)
			go b.release(lock)
			return e, inner.Release
		},
		"lost": func(b *bench, l *holdfast.Locker,
			faults memhold.Faults) (*ending, func(context.Context) error) {
			lock := b.acquire(l, "key")
			e := newEnding(b.t, lock.Context, slowness)
			faults.Lose("key")
			time.Sleep(holdfast.DefaultTTL / 3)
			return e, lock.Release
		},
		"reader, after its deadline": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			b.read(l)
			lock := b.read(l)
			e := newEnding(b.t, lock.Context, slowness)
			time.Sleep(time.Millisecond) // the watchdog has looked, and looks again in 250 ms
			clock.SimulateSuspend(holdfast.DefaultTTL)
			return e, lock.Release
		},
		"set": func(b *bench, l *holdfast.Locker,
			_ memhold.Faults) (*ending, func(context.Context) error) {
			set := b.acquireAll(l, []string{"a", "b"})
			e := newEnding(b.t, set.Context, slowness)
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
				if err := release(background); !errors.Is(err, want[name]) {
					t.Errorf("got error %v, want %v", err, want[name])
				}
				e.mustBeOver(t, "Release has returned")
				time.Sleep(10 * slowness)
			})
		})
	}
}

// Contexts that take long to end harm no other lock: it is renewed, and if it is lost, it is told
// in time.
//
// Fails if the code is broken like this: the watchdog itself ends contexts, results of renewals
// wait for the contexts of a lost lock, or the locks on a lease are told one after the other.
func TestSlowContextsHarmNoOtherLock(t *testing.T) {
	const length = 10 * holdfast.DefaultTTL
	t.Run("lost by the clock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			e := newEnding(t, b.acquire(l, "slow").Context, length)
			other := b.acquire(l, "other")
			start := time.Now()
			faults.Freeze()
			b.endsAfter(other, start, validity(holdfast.DefaultTTL))
			faults.Thaw()
			e.slow.Store(0)
		})
	})
	t.Run("maximum hold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			slow := b.acquire(l, "slow", holdfast.WithMaxHold(holdfast.DefaultTTL))
			newEnding(t, slow.Context, length)
			other := b.acquire(l, "other")
			time.Sleep(length)
			b.release(other)
		})
	})
	t.Run("lost by an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			var others []*holdfast.Lock
			for i := range 5 {
				others = append(others, b.acquire(l, string(rune('a'+i))))
			}
			newEnding(t, b.acquire(l, "slow").Context, length)
			for i := range 5 {
				others = append(others, b.acquire(l, string(rune('m'+i))))
			}
			faults.Lose("slow")
			time.Sleep(length)
			for _, other := range others {
				b.release(other)
			}
		})
	})
	readers := map[string]func(b *bench, l *holdfast.Locker, faults memhold.Faults,
		other *holdfast.Lock){
		"reader, lost by the clock": func(b *bench, _ *holdfast.Locker, faults memhold.Faults,
			other *holdfast.Lock) {
			start := time.Now()
			faults.Freeze()
			b.endsAfter(other, start, validity(holdfast.DefaultTTL))
			faults.Thaw()
		},
		"reader, lost by an answer": func(b *bench, _ *holdfast.Locker, faults memhold.Faults,
			other *holdfast.Lock) {
			start := time.Now()
			faults.Lose("key")
			b.endsAfter(other, start, holdfast.DefaultTTL/3)
		},
		"reader, maximum hold": func(b *bench, _ *holdfast.Locker, _ memhold.Faults,
			other *holdfast.Lock) {
			b.endsAfter(other, time.Now(), holdfast.DefaultTTL)
			mustBe(b.t, other.Release(background), holdfast.ErrMaxHold)
		},
		"reader asks": func(b *bench, _ *holdfast.Locker, _ memhold.Faults,
			other *holdfast.Lock) {
			time.Sleep(time.Millisecond) // the watchdog has looked, and looks again in 250 ms
			clock.SimulateSuspend(holdfast.DefaultTTL)
			start := time.Now()
			mustBe(b.t, other.Err(), holdfast.ErrLost)
			b.endsAfter(other, start, 0)
		},
		"reader releases": func(b *bench, _ *holdfast.Locker, _ memhold.Faults,
			other *holdfast.Lock) {
			time.Sleep(time.Millisecond)
			clock.SimulateSuspend(holdfast.DefaultTTL)
			start := time.Now()
			mustBe(b.t, other.Release(background), holdfast.ErrLost)
			b.endsAfter(other, start, 0)
		},
		"reader extends": func(b *bench, _ *holdfast.Locker, faults memhold.Faults,
			other *holdfast.Lock) {
			faults.Lose("key")
			start := time.Now()
			mustBe(b.t, other.Extend(background), holdfast.ErrLost)
			b.endsAfter(other, start, 0)
		},
		"reader comes": func(b *bench, l *holdfast.Locker, faults memhold.Faults,
			_ *holdfast.Lock) {
			time.Sleep(holdfast.DefaultCohortSpan) // so that the reader asks the backend
			faults.Lose("key")
			start := time.Now()
			b.release(b.acquire(l, "key", holdfast.WithShared()))
			if took := time.Since(start); took != 0 {
				b.t.Errorf("a reader got the key after %v, want at once", took)
			}
		},
	}
	for name, end := range readers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker()
				options := []holdfast.AcquireOption{holdfast.WithShared(),
					holdfast.WithMaxHold(holdfast.DefaultTTL)}
				other := b.acquire(l, "key", options...)
				e := newEnding(t, b.acquire(l, "key", options...).Context, length)
				end(b, l, faults, other)
				e.slow.Store(0)
			})
		})
	}
}

// A context that is derived from one of a lock or a set has ended, too, when Release returns, even
// if another goroutine is ending many of them. The callback runs while that goes on.
func TestDerivedContextsHaveEnded(t *testing.T) {
	type held interface {
		Context(context.Context) context.Context
		Release(context.Context) error
	}
	hold := holdfast.WithMaxHold(holdfast.DefaultTTL)
	for name, acquire := range map[string]func(b *bench, l *holdfast.Locker) held{
		"lock": func(b *bench, l *holdfast.Locker) held { return b.acquire(l, "key", hold) },
		"set": func(b *bench, l *holdfast.Locker) held {
			return b.acquireAll(l, []string{"key", "other"}, hold)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, _ := b.locker()
				const rounds = 40
				alive := 0
				for range rounds {
					lock := acquire(b, l)
					parent, cancel := context.WithCancel(background)
					ctx := lock.Context(parent)
					derived := make([]context.Context, 1000)
					for i := range derived {
						var stop context.CancelFunc
						derived[i], stop = context.WithCancel(ctx)
						_ = stop // each ends with ctx
					}
					released := make(chan struct{})
					context.AfterFunc(ctx, func() {
						defer close(released)
						mustBe(t, lock.Release(background), holdfast.ErrMaxHold)
						if slices.ContainsFunc(derived, func(ctx context.Context) bool {
							return ctx.Err() == nil
						}) {
							alive++
						}
					})
					<-released
					cancel()
				}
				if alive > 0 {
					t.Errorf("in %d of %d rounds, Release has returned, and a context has not ended",
						alive, rounds)
				}
			})
		})
	}
}

// Done is closed when contexts have ended, even if it is first asked for while they end.
func TestDoneIsClosedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		lock := b.acquire(l, "key")
		e := newEnding(t, lock.Context, slowness)
		go b.release(lock)
		time.Sleep(slowness / 2)
		<-lock.Done()
		e.mustBeOver(t, "Done of a lock is closed")
		set := b.acquireAll(l, []string{"key", "other"})
		e = newEnding(t, set.Context, slowness)
		go b.releaseAll(set)
		time.Sleep(slowness / 2)
		<-set.Done()
		e.mustBeOver(t, "Done of a set is closed")
		<-lock.Done() // first asked for while they ended, and again
		b.releaseAll(b.acquireAll(l, []string{"key", "other"}))
	})
}

// Functions of context.AfterFunc delay nothing, and may call the lock. A parent of a caller's own
// kind delays the contexts after its own, Done and Release, but its own context has ended.
func TestWhatDelaysTheContextsOfALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		first := b.acquire(l, "key")
		blocked := make(chan struct{})
		for range 5 {
			context.AfterFunc(first.Context(background), func() {
				mustBe(t, first.Release(background), holdfast.ErrReleased)
				<-blocked
			})
		}
		start := time.Now()
		b.release(first)
		b.endsAfter(first, start, 0)
		close(blocked)

		lock := b.acquire(l, "key")
		e := newEnding(t, lock.Context, slowness)
		go b.release(lock)
		for i := range e.contexts {
			synctest.Wait()
			ended := 0
			for _, ctx := range e.contexts {
				if ctx.Err() != nil {
					ended++
				}
			}
			if ended != i+1 {
				t.Errorf("%d contexts have ended after %v, want %d", ended, time.Since(start), i+1)
			}
			select {
			case <-lock.Done():
				t.Errorf("Done is closed after %v", time.Since(start))
			default:
			}
			time.Sleep(slowness)
		}
		synctest.Wait()
		b.endsAfter(lock, start, time.Duration(len(e.contexts))*slowness)
	})
}

// A release that is ending contexts when the Locker is closed has released the lock, which is not
// lost.
func TestCloseDuringASlowRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		lock := b.acquire(l, "key")
		newEnding(t, lock.Context, slowness)
		got := next(l, background)
		released := make(chan error, 1)
		go func() { released <- lock.Release(background) }()
		time.Sleep(slowness / 2)
		mustBe(t, l.Close(), nil)
		mustBe(t, <-released, nil)
		if <-got != nil {
			t.Error("a waiter has the lock of a Locker that is closed")
		}
		if n := l.Stats().Lost; n > 0 {
			t.Errorf("%d locks count as lost; want none", n)
		}
	})
}

// Close is bounded even if a context hangs as it ends, and keeps only the key of its lock.
func TestCloseWhileAContextHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		const length = time.Hour
		e := newEnding(t, b.acquire(l, "slow").Context, length)
		var locks []*holdfast.Lock
		for i := range 100 { // in all shards
			locks = append(locks, b.acquire(l, string(rune('a'+i))))
		}
		start := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		for _, lock := range locks {
			b.endsAfter(lock, start, 0)
			mustBe(t, lock.Err(), holdfast.ErrClosed)
			b.release(b.acquire(other, lock.Key()))
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the other keys were free after %v, want at once", took)
		}
		mustBe(t, <-closed, holdfast.ErrUnknown)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Close took %v, want 6s at most", took)
		}
		e.slow.Store(0)
		time.Sleep(length) // the one that is ending
		b.mustBeFree(other, "slow")
	})
}

// Whether the next turn may begin in memory is decided after contexts have ended. If the lease is
// over by then, the lock is lost, which is told once, and the next holder has a lease of its own.
func TestHandoverAfterASlowEnd(t *testing.T) {
	for name, test := range map[string]struct {
		slow time.Duration
		want error
	}{
		"span is over":  {slowness, nil},
		"lease is over": {holdfast.DefaultTTL / 2, holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var lost, released []error
				l, _ := b.locker(holdfast.WithHooks(holdfast.Hooks{
					Lost:     func(e holdfast.LostEvent) { lost = append(lost, e.Err) },
					Released: func(e holdfast.ReleasedEvent) { released = append(released, e.Err) },
				}))
				lock := b.acquire(l, "key")
				e := newEnding(t, lock.Context, test.slow)
				got := make(chan *holdfast.Lock)
				go func() { got <- b.acquire(l, "key") }()
				synctest.Wait()
				answer := make(chan error, 1)
				go func() { answer <- lock.Release(background) }()
				handed := <-got
				e.mustBeOver(t, "another has the key")
				if left := time.Until(handed.Deadline()); left < validity(holdfast.DefaultTTL) ||
					handed.Token() <= lock.Token()+1 {
					t.Errorf("the next holder has token %d after %d, and %v left; want a new lease",
						handed.Token(), lock.Token(), left)
				}
				err := <-answer
				if mustBe(t, err, test.want); test.want == nil && err != nil {
					t.Error(err)
				}
				if test.want != nil && !strings.Contains(err.Error(), "its validity ended") {
					t.Errorf("got error %v, want one that says that the clock ended it", err)
				}
				synctest.Wait()
				n := 0
				if test.want != nil {
					n = 1
				}
				stats := l.Stats()
				if len(lost) != n || len(released) != 1 || released[0] != err ||
					stats.Lost != uint64(n) || stats.Released != uint64(1-n) ||
					stats.HandedOver != 0 || stats.Held != 1 {
					t.Errorf("%d losses and releases %v told, %+v; want %d losses and one release",
						len(lost), released, stats, n)
				}
				b.release(handed)
			})
		})
	}
}

// A nested lock that was released stays released, even if the outermost one is lost while its
// contexts end.
func TestNestedLockEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		lock := b.acquire(l, "key")
		inner, err := l.Acquire(lock.Context(background), "key")
		if err != nil {
			t.Fatal(err)
		}
		newEnding(t, inner.Context, slowness)
		go b.release(inner)
		synctest.Wait()
		faults.Lose("key")
		mustBe(t, lock.Extend(background), holdfast.ErrLost)
		<-lock.Done()
		if err := inner.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("got error %v, want that of its release", err)
		}
	})
}

// quitting is a context that ends the goroutine that ends it.
type quitting struct {
	context.Context
	quits atomic.Bool
}

func (q *quitting) Done() <-chan struct{} {
	if q.quits.Swap(false) {
		runtime.Goexit()
	}
	return q.Context.Done()
}

// A context that ends a goroutine of the Locker keeps no key.
func TestContextThatEndsTheGoroutine(t *testing.T) {
	for name, end := range map[string]func(l *holdfast.Locker, faults memhold.Faults){
		"lost":   func(_ *holdfast.Locker, faults memhold.Faults) { faults.Lose("key") },
		"closed": func(l *holdfast.Locker, _ memhold.Faults) { l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker()
				lock := b.acquire(l, "key")
				parent, cancel := context.WithCancel(background)
				defer cancel()
				q := &quitting{Context: parent}
				lock.Context(q)
				q.quits.Store(true)
				got := next(l, background)
				end(l, faults)
				<-lock.Done()
				if next := <-got; next != nil {
					b.release(next)
				} else if name == "lost" {
					t.Error("the waiter did not get the key")
				}
			})
		})
	}
}

// A lock that was handed over after contexts had taken long to end is renewed like any other.
func TestLockIsRenewedAfterASlowEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithCohort(16, time.Hour))
		lock := b.acquire(l, "key")
		newEnding(t, lock.Context, holdfast.DefaultTTL/10)
		got := next(l, background)
		b.release(lock)
		handed := <-got
		time.Sleep(2 * holdfast.DefaultTTL)
		b.release(handed)
		<-lock.Done()
		mustBe(t, lock.Release(background), holdfast.ErrReleased)
	})
}
