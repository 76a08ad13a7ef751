package holdfast

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// A reader that gave up before it saw its turn may be the last one on a lease on which no more
// turns begin. Then the lease is released. Otherwise it stays for the others.
func TestReturnedTurnOnALeaseThatWasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, l := newLocker(t)
		var locks [2]*Lock
		for i := range locks {
			var err error
			if locks[i], err = l.Acquire(context.Background(), "key", WithShared()); err != nil {
				t.Fatal(err)
			}
		}
		c := locks[0].cohort
		for i, want := range []int{1, 0} {
			c.shard.mu.Lock()
			c.letGo()
			c.returnTurn(locks[i])
			c.shard.mu.Unlock()
			synctest.Wait()
			e, err := backend.Inspect(context.Background(), "key")
			if err != nil || len(e.Sharers) != want {
				t.Errorf("%d claims are left, want %d: %v", len(e.Sharers), want, err)
			}
		}
		if s := l.Stats(); s.Held != 0 {
			t.Errorf("%d held, want none", s.Held)
		}
	})
}

// While a reader asks for the next span, others give up turns that they have not seen yet. The
// lease stays, because the reader that asks goes on with it.
func TestTurnsReturnedBetweenSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, l := newLocker(t)
		ctx := context.Background()
		for name, giveUp := range map[string]func(lock *Lock){
			"alone": func(lock *Lock) {
				s := lock.cohort.shard
				s.mu.Lock()
				lock.cohort.returnTurn(lock)
				s.mu.Unlock()
			},
			"in a set": func(lock *Lock) { lock.cohort.putBack(ctx, lock) },
		} {
			lock, err := l.Acquire(ctx, "key", WithShared())
			if err != nil {
				t.Fatal(err)
			}
			c, s := lock.cohort, lock.cohort.shard
			s.mu.Lock()
			c.startLead()
			s.mu.Unlock()
			giveUp(lock)
			synctest.Wait()
			e, err := backend.Inspect(ctx, "key")
			if err != nil || len(e.Sharers) != 1 {
				t.Errorf("%s: %d claims, want the one that is extended: %v", name, len(e.Sharers),
					err)
			}
			next, err := c.lead(ctx, &call{key: "key", terms: c.terms}, clock.Now())
			if err != nil {
				t.Fatal(err)
			}
			if next.Token() != lock.Token() {
				t.Errorf("%s: token %d of another claim, want %d", name, next.Token(), lock.Token())
			}
			if err := next.Release(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A reader that is to ask for the next span may give up at the same moment. Those inside keep their
// lease, and the next reader asks.
func TestReaderThatWasToAskGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, l := newLocker(t)
		ctx := context.Background()
		lock, err := l.Acquire(ctx, "key", WithShared())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultCohortSpan)
		c, s := lock.cohort, lock.cohort.shard
		s.mu.Lock()
		w := l.pool.get(&call{key: "key", terms: c.terms})
		c.waiters.push(w)
		c.serve(0)
		s.mu.Unlock()
		c.withdraw(w)
		synctest.Wait()
		e, err := backend.Inspect(ctx, "key")
		if err != nil || len(e.Sharers) != 1 || lock.Err() != nil {
			t.Errorf("%d claims, want the reader's; it has %v, %v", len(e.Sharers), lock.Err(), err)
		}
		next, err := l.Acquire(ctx, "key", WithShared())
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() != lock.Token() {
			t.Error("the next reader has a lease of its own, want the first reader's")
		}
		for _, lock := range []*Lock{next, lock} {
			if err := lock.Release(ctx); err != nil {
				t.Error(err)
			}
		}
		if len(s.keys) != 0 || s.leases.first != nil {
			t.Error("the cohort or its lease is kept after the last release")
		}
	})
}

// The question for the next span draws a token. The Locker proposes none below it later.
func TestTokenDrawnBetweenSpansIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		ctx := context.Background()
		l.highest.token.Store(clock.Microseconds() + uint64(time.Hour/time.Microsecond))
		var locks []*Lock
		for i := range uint64(3) {
			lock, err := l.Acquire(ctx, "key", WithShared())
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, lock)
			if got, want := l.highest.token.Load(), uint64(locks[0].Token())+i; got != want {
				t.Errorf("after %d questions the largest token is %d, want %d", i, got, want)
			}
			time.Sleep(DefaultCohortSpan)
		}
		for _, lock := range locks {
			lock.Release(ctx)
		}
	})
}

// If a lease that was just renewed lets no reader join in memory, the cohort lets it go, so that
// somebody releases it. Here the answer takes so long that little of the lease is left.
func TestNextSpanOnAShortLease(t *testing.T) {
	for _, stays := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			memory := memhold.New()
			defer memory.Close()
			backend := &slowRenewals{Backend: memory}
			l, err := New(backend)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ctx := context.Background()
			first, err := l.Acquire(ctx, "key", WithShared())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(DefaultCohortSpan)
			if !stays {
				time.AfterFunc(time.Second, func() { first.Release(ctx) })
			}
			backend.by.Store(int64(2*DefaultTTL/3 + time.Second))
			second, err := l.Acquire(ctx, "key", WithShared())
			if err != nil {
				t.Fatal(err)
			}
			if second.Token() == first.Token() {
				t.Error("the second reader joined a lease that ends soon")
			}
			backend.by.Store(0)
			for _, lock := range []*Lock{first, second} {
				if err := lock.Release(ctx); err != nil && stays {
					t.Error(err)
				}
			}
			// A renewal may begin as late as the release, and Close does not wait that long for it.
			time.Sleep(DefaultTTL)
			synctest.Wait()
			if e, err := memory.Inspect(ctx, "key"); err != nil || len(e.Sharers) != 0 {
				t.Errorf("stays %v: %d claims are left, want none: %v", stays, len(e.Sharers), err)
			}
		})
	}
}

// slowRenewals is a backend whose answers to renewals come late, whatever their contexts say.
type slowRenewals struct {
	*memhold.Backend
	by atomic.Int64 // nanoseconds
}

func (b *slowRenewals) Renew(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
	results, err := b.Backend.Renew(ctx, c)
	time.Sleep(time.Duration(b.by.Load()))
	return results, err
}

// A lease on which no lock rests when the cohort lets it go is released at once: nobody else would.
func TestLetGoWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, l := newLocker(t)
		lock, err := l.Acquire(context.Background(), "key", WithShared())
		if err != nil {
			t.Fatal(err)
		}
		c := lock.cohort
		c.shard.mu.Lock()
		lock.err = (*releasedError)(lock)
		lock.leave()
		c.letGo()
		c.shard.mu.Unlock()
		synctest.Wait()
		e, err := backend.Inspect(context.Background(), "key")
		if err != nil || len(e.Sharers) != 0 {
			t.Errorf("%d claims are left, want none: %v", len(e.Sharers), err)
		}
	})
}

// However readers end, the Locker forgets the key.
func TestNothingIsKeptOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, l := newLocker(t)
		ctx := context.Background()
		for name, end := range map[string]func(lock *Lock){
			"released": func(lock *Lock) { lock.Release(ctx) },
			"lost": func(lock *Lock) {
				if _, err := backend.Release(ctx, lock.lease.claim()); err != nil {
					t.Error(err)
				}
				lock.Extend(ctx)
			},
			"tried": func(lock *Lock) {
				lock.Release(ctx)
				if lock, err := l.TryAcquire(ctx, "key", WithShared()); err == nil {
					lock.Release(ctx)
				}
			},
			"gave up between spans": func(lock *Lock) {
				time.Sleep(DefaultCohortSpan)
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				backend.Faults().Freeze()
				if _, err := l.Acquire(short, "key", WithShared()); err == nil {
					t.Error("got an answer from a frozen backend")
				}
				backend.Faults().Thaw()
				lock.Release(ctx)
				synctest.Wait()
			},
			"downgraded": func(lock *Lock) {
				lock.Release(ctx)
				lock, err := l.Acquire(ctx, "key")
				if err != nil {
					t.Fatal(err)
				}
				if err := lock.Downgrade(ctx); err != nil {
					t.Error(err)
				}
				if n := len(lock.cohort.shard.keys); n != 0 {
					t.Errorf("downgraded: %d cohorts are kept, want none", n)
				}
				lock.Release(ctx)
			},
		} {
			lock, err := l.Acquire(ctx, "key", WithShared())
			if err != nil {
				t.Fatal(err)
			}
			end(lock)
			if s := lock.cohort.shard; len(s.keys) != 0 || s.leases.first != nil {
				t.Errorf("%s: %d cohorts are kept, want none; a lease: %v", name, len(s.keys),
					s.leases.first != nil)
			}
		}
	})
}

// A Downgrade may come too late, when the lease has passed to the next turn. The watchdog may have
// left out the lease in between, because a request was reserved. It must be told again.
func TestDowngradeThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		ctx := context.Background()
		first, err := l.Acquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan *Lock, 1)
		go func() {
			lock, err := l.Acquire(ctx, "key")
			if err != nil {
				t.Error(err)
			}
			second <- lock
		}()
		synctest.Wait()
		h, c := first.lease, first.cohort
		if ok, err := h.reserve(ctx); !ok {
			t.Fatal(err)
		}
		refused := make(chan error, 1)
		go func() { refused <- first.Downgrade(ctx) }()
		synctest.Wait()
		if err := first.Release(ctx); err != nil {
			t.Fatal(err)
		}
		lock := <-second
		if lock.lease != h {
			t.Fatal("the next turn is on another lease than the first")
		}
		time.Sleep(DefaultTTL / 2) // the renewal is due, and left out
		c.shard.mu.Lock()
		h.settle()
		c.shard.mu.Unlock()
		if err := <-refused; !errors.Is(err, ErrReleased) {
			t.Errorf("a Downgrade after the release: %v, want ErrReleased", err)
		}
		time.Sleep(time.Hour)
		if err := lock.Err(); err != nil {
			t.Errorf("the lease is not renewed any more: %v", err)
		}
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}
