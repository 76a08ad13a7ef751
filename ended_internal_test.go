package holdfast

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/memhold"
)

// slowEnd is a context, or what else ends with a lock, that takes its time.
type slowEnd struct {
	ended time.Time
	then  func() // called at the end, if not nil
}

const slowness = 100 * time.Millisecond

func (e *slowEnd) end(error) {
	time.Sleep(slowness)
	e.ended = time.Now()
	if e.then != nil {
		e.then()
	}
}

// What ends with a lock has ended before anybody else gets the key: neither another process, when
// the lease is over and is released, nor the next goroutine, when the lock is handed over.
func TestContextsEndBeforeAnotherHasTheKey(t *testing.T) {
	t.Run("lease is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			backend, l := newLocker(t)
			other, err := New(backend)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			lock, end := acquireSlowlyEnding(t, l)
			defer backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals,
				Err: errors.New("refused")})()
			next, err := other.Acquire(context.Background(), "key")
			mustHaveEnded(t, lock, end, next, err)
		})
	})
	t.Run("handed over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, l := newLocker(t)
			lock, end := acquireSlowlyEnding(t, l)
			go func() {
				time.Sleep(time.Second)
				if err := lock.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			next, err := l.Acquire(context.Background(), "key")
			mustHaveEnded(t, lock, end, next, err)
		})
	})
}

func acquireSlowlyEnding(t *testing.T, l *Locker,
	options ...AcquireOption) (*Lock, *slowEnd) {
	t.Helper()
	lock, err := l.Acquire(context.Background(), "key", options...)
	if err != nil {
		t.Fatal(err)
	}
	lock.Done() // asked for while the lock is held, it is closed when all else has ended
	end := &slowEnd{}
	s := lock.cohort.shard
	s.mu.Lock()
	lock.attach(end)
	s.mu.Unlock()
	return lock, end
}

func mustHaveEnded(t *testing.T, lock *Lock, end *slowEnd, next *Lock, err error) {
	t.Helper()
	got := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	<-lock.Done()
	if got.Before(end.ended) {
		t.Errorf("another has the key %v before what ends with the lock has ended; want no overlap",
			end.ended.Sub(got))
	}
	if err := next.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// A waiter may give up while what ends with the lock that it waits for is ended. Ending that may
// need the mutex of the shard, as a nested lock does.
//
// Fails if the code is broken like this: the next waiter is chosen before everything has ended, and
// withdraw, or await of a semaphore, waits for its outcome under the mutex.
func TestWaiterGivesUpWhileContextsEnd(t *testing.T) {
	for name, options := range map[string][]AcquireOption{
		"lock":   nil,
		"permit": {WithPermits(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := newLocker(t)
				lock, end := acquireSlowlyEnding(t, l, options...)
				s := lock.cohort.shard
				end.then = func() {
					if s.mu.TryLock() {
						s.mu.Unlock()
						return
					}
					t.Error("the mutex is taken while a lock ends: a nested lock would wait for it")
				}
				time.AfterFunc(time.Second, func() {
					if err := lock.Release(context.Background()); err != nil {
						t.Error(err)
					}
				})
				ctx, cancel := context.WithTimeout(context.Background(), time.Second+slowness/2)
				defer cancel()
				if _, err := l.Acquire(ctx, "key", options...); !errors.Is(err, ctx.Err()) {
					t.Errorf("got error %v, want that of the context", err)
				}
				<-lock.Done()
				next, err := l.Acquire(context.Background(), "key", options...)
				mustHaveEnded(t, lock, end, next, err)
			})
		})
	}
}

// Err may find the deadline over, and the lock renewed when it looks again. Then nothing ends. Here
// the lock alone has reached a maximum hold, and its lease knows of none.
func TestNothingEndsWithALockThatWasRenewedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(context.Background(), "key")
		if err != nil {
			t.Fatal(err)
		}
		ctx := lock.Context(context.Background())
		inner, err := l.Acquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		setHold := func(d time.Duration) {
			s := lock.cohort.shard
			s.mu.Lock()
			defer s.mu.Unlock()
			lock.maxHold = d
		}
		setHold(time.Nanosecond)
		time.Sleep(time.Nanosecond)
		if lock.Err() != nil || inner.Err() != nil || ctx.Err() != nil {
			t.Errorf("lock: %v, nested lock: %v, context: %v; want none to have ended", lock.Err(),
				inner.Err(), ctx.Err())
		}
		setHold(0)
		if err := lock.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
