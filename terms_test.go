package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// pushing is a spy that passes notices on.
type pushing struct {
	spy
	memory *memhold.Backend
}

func newPushing(b *bench) *pushing {
	client := b.memory.Client()
	b.clients = append(b.clients, client)
	return &pushing{spy{Backend: client}, client}
}

func (p *pushing) Notify(f func(driver.Notice)) (stop func()) { return p.memory.Notify(f) }

// A waiter that is cancelled while it asks for a fresh run gives up the lease, even if a renewal
// from before is answered after it: nobody can say whether another process waits.
func TestR1CancelledFreshRunGivesTheLeaseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		start := time.Now()
		at := func(after time.Duration) { time.Sleep(time.Until(start.Add(after))) }
		slow := newPushing(b)
		slow.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			if c[0].Block == 0 && time.Since(start) < 5500*time.Millisecond {
				return nil, &driver.Error{Err: errors.New("connection refused")}
			}
			r, err := slow.memory.Renew(ctx, c)
			if c[0].Block == 0 {
				at(6250 * time.Millisecond)
				return r, err
			}
			<-ctx.Done() // the answer is on its way
			return nil, &driver.Error{Maybe: true, Err: ctx.Err()}
		}
		l := b.lockerOn(slow, holdfast.WithTTL(9*time.Second), holdfast.WithCohort(64, time.Hour))
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		ctx, cancel := context.WithCancel(background)
		var wait sync.WaitGroup
		wait.Go(func() {
			_, err := l.Acquire(ctx, "key")
			mustBe(t, err, context.Canceled)
		})
		synctest.Wait()
		elsewhere := make(chan *holdfast.Lock, 1)
		go func() { elsewhere <- b.acquire(other, "key") }()
		synctest.Wait()
		here := make(chan *holdfast.Lock, 1)
		go func() { here <- b.acquire(l, "key") }()
		// less than a third of the lease is left, so the first waiter asks the backend
		at(6200 * time.Millisecond)
		b.release(lock)
		at(6300 * time.Millisecond)
		cancel()
		wait.Wait()
		synctest.Wait()
		var theirs *holdfast.Lock
		select {
		case <-here:
			t.Fatal("the next run began before the backend said that nobody else waits")
		case theirs = <-elsewhere:
		default:
			t.Fatal("the other process does not have the key")
		}
		b.release(theirs)
		ours := <-here
		if ours.Token() <= theirs.Token() {
			t.Errorf("token %d after %d, want a larger one", ours.Token(), theirs.Token())
		}
		b.release(ours)
	})
}

// At most one request that changes a lease is under way: of two, nobody knows which took effect
// last.
func TestOneRequestAtATimeChangesALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		slow := newPushing(b)
		var mu sync.Mutex
		underWay := make(map[string]int)
		renewals, runs := 0, 0
		slow.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			mu.Lock()
			for _, claim := range c {
				underWay[claim.Owner]++
				if underWay[claim.Owner] > 1 {
					t.Error("two requests that change one lease are under way")
				}
				if claim.Block > 0 {
					runs++
				} else {
					renewals++
				}
			}
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				for _, claim := range c {
					underWay[claim.Owner]--
				}
			}()
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			r, err := slow.memory.Renew(ctx, c)
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			return r, err
		}
		l := b.lockerOn(slow, holdfast.WithTTL(6*time.Second))
		together(20, func(i int) {
			for range 20 {
				lock := b.acquire(l, "key")
				var wait sync.WaitGroup
				for range rand.IntN(3) {
					wait.Go(func() {
						ctx, cancel := context.WithTimeout(background,
							time.Duration(rand.IntN(1000))*time.Millisecond)
						defer cancel()
						lock.Extend(ctx)
					})
				}
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
				b.release(lock)
				wait.Wait()
			}
		})
		mu.Lock() // the watchdog's last renewal may still be under way
		defer mu.Unlock()
		if renewals == 0 || runs == 0 {
			t.Errorf("%d renewals and %d fresh runs were asked for, want some of both",
				renewals, runs)
		}
	})
}

// A caller that waits for the answer to another renewal, to extend the lease or for a fresh run,
// waits no longer than its context.
func TestWaitForARenewalEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		lock := b.acquire(l, "key")
		faults.Freeze()
		// a renewal is under way, for up to five seconds
		time.Sleep(holdfast.DefaultTTL/3 + time.Second)
		check := func(what string, f func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			start := time.Now()
			mustBe(t, f(ctx), context.DeadlineExceeded)
			if took := time.Since(start); took != time.Second {
				t.Errorf("%s took %v; want no longer than its context, a second", what, took)
			}
		}
		check("Extend", lock.Extend)
		got := next(l, background)
		check("a fresh run", func(ctx context.Context) error {
			go lock.Release(background)
			_, err := l.Acquire(ctx, "key")
			return err
		})
		faults.Thaw()
		b.release(<-got)
	})
}

// Acquisitions on other terms queue at the backend, and a lease never changes its length.
func TestR1OtherTermsAreAnotherCohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		slow := newPushing(b)
		var mu sync.Mutex
		length := make(map[string]time.Duration)
		check := func(c driver.Claim) {
			mu.Lock()
			defer mu.Unlock()
			if known, ok := length[c.Owner]; ok && known != c.TTL {
				t.Errorf("one owner value with TTLs of %v and %v, want one TTL", known, c.TTL)
			}
			length[c.Owner] = c.TTL
		}
		var asked atomic.Int64
		slow.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			asked.Add(1)
			check(c)
			return slow.memory.Acquire(ctx, c)
		}
		slow.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			for _, claim := range c {
				check(claim)
			}
			return slow.memory.Renew(ctx, c)
		}
		slow.release = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			check(c)
			return slow.memory.Release(ctx, c)
		}
		l := b.lockerOn(slow, holdfast.WithLabel("first"))
		lock := b.acquire(l, "key")
		before := asked.Load()
		for _, o := range []holdfast.AcquireOption{holdfast.WithTTL(time.Second),
			holdfast.WithoutRenewal()} {
			_, err := l.TryAcquire(background, "key", o)
			var held *holdfast.HeldError
			if !errors.As(err, &held) || held.Holder.Label != "first" {
				t.Errorf("TryAcquire on other terms: %v, want that \"first\" holds the key", err)
			}
		}
		if n := asked.Load() - before; n != 2 {
			t.Errorf("the backend was asked %d times by TryAcquire on other terms, want 2", n)
		}
		// The key is held and waited for on all terms at once, by many, some of whom give up.
		var inside atomic.Int64
		var last atomic.Uint64
		time.AfterFunc(time.Second, func() { b.release(lock) })
		together(60, func(i int) {
			ctx, cancel := context.WithTimeout(background,
				time.Duration(500+rand.IntN(60_000))*time.Millisecond)
			defer cancel()
			options := []holdfast.AcquireOption{holdfast.WithTTL(time.Duration(1+
				i%3) * time.Second)}
			if i%4 == 0 {
				options = append(options, holdfast.WithoutRenewal())
			}
			lock, err := l.Acquire(ctx, "key", options...)
			if err != nil {
				mustBe(t, err, context.DeadlineExceeded)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold the key at once, want 1", n)
			}
			if before := last.Swap(uint64(lock.Token())); uint64(lock.Token()) <= before {
				t.Errorf("token %d after %d, want a larger one", lock.Token(), before)
			}
			time.Sleep(time.Duration(rand.IntN(900)) * time.Millisecond)
			inside.Add(-1)
			b.release(lock)
		})
		mu.Lock() // a renewal or a clean-up may still be under way
		defer mu.Unlock()
		if len(length) < 6 {
			t.Errorf("%d owner values for 6 sets of terms, want at least as many", len(length))
		}
	})
}

// A notice is not enough while a heartbeat is without an answer: the backend may count another
// presence since.
func TestR1NoticeAfterUnansweredHeartbeatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(9*time.Second))
		cut := newPushing(b)
		var asked atomic.Int64
		var silent atomic.Bool
		cut.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			asked.Add(1)
			r, err := cut.memory.Acquire(ctx, c)
			if silent.Load() {
				return driver.Result{}, &driver.Error{Maybe: true,
					Err: errors.New("connection lost")}
			}
			return r, err
		}
		l := b.lockerOn(cut)
		other, _ := b.locker()
		lock := b.acquire(other, "key")
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- b.acquire(l, "key") }()
		synctest.Wait()
		silent.Store(true)
		time.Sleep(1500 * time.Millisecond) // a heartbeat a second
		before := asked.Load()
		b.release(lock)
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a notice after a request without an answer was believed")
		default:
		}
		silent.Store(false)
		ours := <-got
		if asked.Load() == before {
			t.Error("the waiter did not ask before it had the key")
		}
		b.release(ours)
	})
}

// If the backend has not heard of a waiter for longer than its presence, the waiter comes back to
// its place.
func TestWaiterComesBackToItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(3*time.Second))
		cut := newPushing(b)
		var silent atomic.Bool
		cut.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			if silent.Load() {
				return driver.Result{}, &driver.Error{Err: errors.New("no connection")}
			}
			return cut.memory.Acquire(ctx, c)
		}
		cutOff := b.lockerOn(cut)
		holder, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(holder, "key")
		order := make(chan string, 2)
		var all sync.WaitGroup
		wait := func(name string, l *holdfast.Locker) {
			all.Go(func() {
				lock := b.acquire(l, "key")
				order <- name
				b.release(lock)
			})
			time.Sleep(10 * time.Millisecond)
		}
		wait("first", cutOff)
		wait("second", other)
		silent.Store(true)
		time.Sleep(5 * time.Second)
		silent.Store(false)
		time.Sleep(5 * time.Second)
		b.release(lock)
		all.Wait()
		if got := <-order; got != "first" {
			t.Errorf("%q was served first, want \"first\"", got)
		}
	})
}

// An outage delays a key only by its own length, even if those who wait have much shorter leases
// than the one that ended.
func TestCleanUpLastsAsLongAsTheLease(t *testing.T) {
	for _, waiting := range []time.Duration{time.Second, 30 * time.Second} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker(holdfast.WithTTL(30 * time.Second))
				other, _ := b.locker()
				lock := b.acquire(l, "key")
				var wait sync.WaitGroup
				wait.Go(func() {
					if lock, err := l.Acquire(background, "key",
						holdfast.WithTTL(waiting)); err == nil {
						b.release(lock)
					}
				})
				time.Sleep(time.Second)
				remove := faults.Inject(memhold.Fault{Err: driver.ErrUnavailable})
				lock.Release(background)
				time.Sleep(2500 * time.Millisecond)
				remove()
				wait.Wait()
				start := time.Now()
				b.release(b.acquire(other, "key"))
				if waited := time.Since(start); waited > 2*time.Second {
					t.Errorf("the key came free %v after the outage, want 2s at most", waited)
				}
			})
		})
	}
}
