package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// brittle is a context whose Err panics from the nth call on.
type brittle struct {
	context.Context
	left atomic.Int64
}

func (c *brittle) Err() error {
	if c.left.Add(-1) < 0 {
		panic("a context's fault")
	}
	return c.Context.Err()
}

// If a context panics when it is asked, at whatever step, others get the key.
func TestPanicOfTheContextHangsTheKey(t *testing.T) {
	for n := int64(0); n < 8; n++ {
		for _, fails := range []bool{false, true} {
			t.Run(strconv.Itoa(int(n))+strconv.FormatBool(fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory := memhold.New()
					defer memory.Close()
					l, err := holdfast.New(memory, holdfast.WithTTL(time.Second))
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					remove := func() {}
					if fails {
						remove = memory.Faults().Inject(memhold.Fault{Err: errors.New("down")})
					}
					func() {
						defer func() { recover() }()
						ctx := &brittle{Context: background}
						ctx.left.Store(n)
						if lock, err := l.Acquire(ctx, "key"); err == nil {
							lock.Release(background)
						}
					}()
					remove()
					time.Sleep(time.Minute) // far beyond the TTL
					ctx, cancel := context.WithTimeout(background, time.Hour)
					defer cancel()
					lock, err := l.Acquire(ctx, "key")
					if err != nil {
						t.Errorf("Err panicked in its call %d; an hour later: %v", n+1, err)
						return
					}
					lock.Release(background)
				})
			})
		}
	}
}

// If a context panics when its waiter gives up, with or without an outcome on its way, its turn
// goes to the next waiter.
func TestPanicOfAWaitersContextLeavesNothing(t *testing.T) {
	for _, turns := range []int{2, 64} { // the waiter is to lead, or gets a turn
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(turns, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					l, _ := b.locker(holdfast.WithCohort(turns, time.Hour))
					other, _ := b.locker()
					lock := b.acquire(l, "key")
					if turns == 2 {
						b.release(lock)
						lock = b.acquire(l, "key")
					}
					parent, cancel := context.WithCancel(background)
					ctx := &brittle{Context: parent}
					ctx.left.Store(1)
					gone := make(chan struct{})
					go func() {
						defer close(gone)
						defer func() { recover() }()
						if next, err := l.Acquire(ctx, "key"); err == nil {
							b.release(next)
						}
					}()
					synctest.Wait()
					if late {
						go b.release(lock)
						cancel()
					} else {
						cancel()
						<-gone
						b.release(lock)
					}
					<-gone
					synctest.Wait()
					if n := l.Stats().Waiting; n != 0 {
						t.Errorf("%d wait, want none", n)
					}
					b.mustBeFree(other, "key")
					b.mustBeFree(l, "key")
				})
			})
		}
	}
}

// guarded is a context that ends with a lock, as a program may write one.
type guarded struct {
	context.Context
	lock *holdfast.Lock
}

func (g guarded) Err() error {
	if err := g.lock.Err(); err != nil {
		return context.Canceled
	}
	return g.Context.Err()
}

// A caller's context may ask a Lock: it is not asked under a mutex.
func TestContextThatAsksALock(t *testing.T) {
	memory := memhold.New()
	defer memory.Close()
	l, err := holdfast.New(memory)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first, err := l.Acquire(background, "first")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	go func() {
		for i := range 500 { // one of 32 keys is in the shard of the first
			lock, err := l.Acquire(guarded{background, first}, "key "+strconv.Itoa(i))
			if err != nil {
				t.Error(err)
				break
			}
			lock.Release(background)
		}
		close(done)
	}()
	<-done // if an Acquire hangs on a mutex, only the test's time-out shows it
}

// It is not asked under a mutex when an Extend gets no answer either. If it panics then, the lock
// stays held.
func TestContextOfAnExtendThatAsksTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		lock := b.acquire(l, "key")
		remove := faults.Inject(memhold.Fault{Calls: memhold.Renewals,
			Err: holdfast.ErrUnavailable})
		mustBe(t, lock.Extend(guarded{background, lock}), holdfast.ErrUnavailable)
		for n := range int64(8) {
			ctx := &brittle{Context: background}
			ctx.left.Store(n)
			func() {
				defer func() { recover() }()
				mustBe(t, lock.Extend(ctx), holdfast.ErrUnavailable)
			}()
		}
		remove()
		time.Sleep(time.Minute)
		if err := lock.Err(); err != nil {
			t.Errorf("the lock is not renewed any more: %v", err)
		}
		b.release(lock)
	})
}
