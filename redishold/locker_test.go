package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

func newLocker(t *testing.T, backend driver.Backend, options ...holdfast.Option) *holdfast.Locker {
	t.Helper()
	locker, err := holdfast.New(backend, append([]holdfast.Option{holdfast.WithPrefix("lock:")},
		options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

// Several Lockers, as in several processes, with goroutines each and now and then a caller that
// gives up. Invariants:
//
//   - nobody is inside while another is;
//   - each turn has a larger token than the one before;
//   - in the end nothing is left on the server but fences.
func TestLockersContend(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	inside, turns := false, 0
	var last holdfast.Token
	var all sync.WaitGroup
	for i := range 3 {
		locker := newLocker(t, open(t, server.URL()))
		for j := range 6 {
			all.Go(func() {
				for round := range 40 {
					impatient, cancel := context.WithCancel(ctx)
					if round%7 == j {
						impatient, cancel = context.WithTimeout(ctx,
							time.Duration(i+1)*time.Millisecond)
					}
					lock, err := locker.Acquire(impatient, "k")
					cancel()
					if err != nil {
						if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Acquire: %v", err)
							return
						}
						continue
					}
					mu.Lock()
					if inside || lock.Token() <= last {
						t.Errorf("inside %v, token %d after %d", inside, lock.Token(), last)
					}
					inside, last = true, lock.Token()
					turns++
					mu.Unlock()

					mu.Lock()
					inside = false
					mu.Unlock()
					if err := lock.Release(ctx); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
	}
	all.Wait()
	if turns < 500 {
		t.Errorf("only %d turns", turns)
	}
	testserver.Eventually(t, "only fences are left", func() error {
		keys := server.Do(t, "KEYS", "*").([]any)
		return testserver.Not(len(keys) == 1, "%v", keys)
	})
}

// acquired returns a lock with a short lease. A request then has less time than a busy machine may
// take to answer it.
func acquired(t *testing.T, locker *holdfast.Locker, key string) (lock *holdfast.Lock) {
	t.Helper()
	testserver.Eventually(t, "the lock is acquired", func() (err error) {
		lock, err = locker.Acquire(t.Context(), key)
		return err
	})
	return lock
}

func TestR37_LossIsToldAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, open(t, server.URL()), holdfast.WithTTL(600*time.Millisecond))
	lock := acquired(t, locker, "k")
	server.Do(t, "FLUSHALL")
	<-lock.Done()
	if !errors.Is(lock.Err(), holdfast.ErrLost) {
		t.Errorf("after FLUSHALL: %v", lock.Err())
	}
}

func TestFrozenServerEndsTheLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := newLocker(t, open(t, server.URL()), holdfast.WithTTL(3*time.Second))
	var locks []*holdfast.Lock
	for i := range 10 {
		locks = append(locks, acquired(t, locker, fmt.Sprint("k", i)))
	}
	server.Freeze()
	defer server.Thaw()
	for _, lock := range locks {
		<-lock.Done() // while the server is still frozen
		if !errors.Is(lock.Err(), holdfast.ErrLost) {
			t.Errorf("at a frozen server: %v", lock.Err())
		}
	}
	server.Thaw() // for the clean-up to get through
}

func TestWaiterOutlastsARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("always"))
	long := holdfast.WithTTL(10 * time.Minute) // the server may take its time to start
	holder := newLocker(t, open(t, server.URL()), long)
	waiter := newLocker(t, open(t, server.URL()), long)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := holder.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := waiter.Acquire(ctx, "k")
		if err == nil {
			err = second.Release(ctx)
		}
		got <- err
	}()
	testserver.Eventually(t, "the waiter is queued", func() error {
		return testserver.Not(waiter.Stats().Waiting == 1, "not yet")
	})
	server.Kill()
	server.Run(t)
	testserver.Eventually(t, "released", func() error { return lock.Release(ctx) })
	if err := <-got; err != nil {
		t.Errorf("Acquire over a restart of the server: %v", err)
	}
}

// counting counts the acquisitions that fail.
type counting struct {
	*redishold.Backend
	failed atomic.Int32
}

func (c *counting) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := c.Backend.Acquire(ctx, claim)
	if err != nil {
		c.failed.Add(1)
	}
	return r, err
}

// A primary behind one name, as those who run Redis for others have it, takes no writes for a
// moment while another one takes over.
func TestWaiterOutlastsAReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	backend := &counting{Backend: open(t, server.URL())}
	long := holdfast.WithTTL(10 * time.Minute)
	holder, waiter := newLocker(t, open(t, server.URL()), long), newLocker(t, backend, long)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := holder.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := waiter.Acquire(ctx, "k")
		if err == nil {
			err = second.Release(ctx)
		}
		got <- err
	}()
	testserver.Eventually(t, "the waiter is queued", func() error {
		entry, err := backend.Inspect(ctx, "lock:k")
		return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%+v", entry))
	})
	server.Do(t, "REPLICAOF", "127.0.0.1", "1")
	testserver.Eventually(t, "the waiter was refused, over more than one connection", func() error {
		select {
		case err := <-got:
			t.Fatalf("the wait ended: %v", err)
		default:
		}
		return testserver.Not(backend.failed.Load() >= 3, "%d times", backend.failed.Load())
	})
	server.Do(t, "REPLICAOF", "NO", "ONE")
	testserver.Eventually(t, "released", func() error { return lock.Release(ctx) })
	if err := <-got; err != nil {
		t.Errorf("Acquire while the server was read-only: %v", err)
	}
}
