package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// An outage shorter than the TTL does not end a wait in memory, even if a lease of this Locker ends
// in it. Time in which nothing was asked, because no lease was due for renewal, does not count.
func TestShortOutageWhileALeaseEnds(t *testing.T) {
	const ttl = time.Minute
	for _, c := range []struct {
		name    string
		options []holdfast.AcquireOption
		begins  time.Duration // the outage, after the acquisition
		lasts   time.Duration
	}{
		{"renewed", nil, 604 * time.Second, 45 * time.Second},
		{"not renewed", []holdfast.AcquireOption{holdfast.WithoutRenewal()}, 59 * time.Second,
			3 * time.Second},
		{"maximum hold", []holdfast.AcquireOption{holdfast.WithMaxHold(5 * time.Minute)},
			339 * time.Second, 10 * time.Second},
	} {
		for _, permits := range []int{0, 1, 2} { // 0: a lock
			t.Run(fmt.Sprintf("%s/%d", c.name, permits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					l, faults := b.locker(holdfast.WithTTL(ttl))
					options := c.options
					if permits > 0 {
						options = append(options, holdfast.WithPermits(permits))
					}
					var locks []*holdfast.Lock
					for range max(permits, 1) {
						locks = append(locks, b.acquire(l, "key", options...))
					}
					got := next(l, background, options...)
					time.Sleep(c.begins)
					mend := faults.Inject(memhold.Fault{Err: driver.ErrUnavailable})
					time.Sleep(c.lasts)
					mend()
					time.Sleep(2 * ttl)
					for _, lock := range locks {
						lock.Release(background) // it may be lost
					}
					if lock := <-got; lock != nil {
						lock.Release(background)
					} else {
						t.Errorf("an outage of %v with a TTL of %v ended a wait", c.lasts, ttl)
					}
					time.Sleep(2 * ttl)
				})
			})
		}
	}
}

// An outage longer than the TTL ends a wait in memory, a TTL after it has begun.
func TestLongOutageWhileALeaseEnds(t *testing.T) {
	for _, permits := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = time.Minute
			b := newBench(t)
			l, faults := b.locker(holdfast.WithTTL(ttl))
			var options []holdfast.AcquireOption
			if permits > 0 {
				options = append(options, holdfast.WithPermits(permits))
			}
			for range max(permits, 1) {
				b.acquire(l, "key", options...)
			}
			time.Sleep(ttl)
			got := next(l, background, options...)
			mend := faults.Inject(memhold.Fault{Err: driver.ErrUnavailable})
			start := time.Now()
			if lock := <-got; lock != nil {
				t.Error("a waiter got a lock in an outage")
			}
			// Renewals begin to fail within a third of the TTL. A slot is asked for when the lease
			// has ended, and has a TTL from then.
			most := ttl*4/3 + 2*time.Second
			if permits > 0 {
				most = 2*ttl + 2*time.Second
			}
			if took := time.Since(start); took < ttl || took > most {
				t.Errorf("%d permits: told of the outage after %v; want %v to %v", permits, took, ttl,
					most)
			}
			mend()
			time.Sleep(3 * ttl)
		})
	}
}

// A permanent error ends the wait for a permit at once.
func TestPermanentRefusalEndsTheWaitForAPermit(t *testing.T) {
	for _, key := range []string{"", "deploy@permit/gate2", "deploy@permit/1"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			holder, _ := b.locker()
			l, faults := b.locker()
			permits := b.acquirePermits(holder, "deploy", 2)
			errs := make(chan error, 1)
			ask := func() {
				_, err := l.Acquire(background, "deploy", holdfast.WithPermits(2))
				errs <- err
			}
			refused := memhold.Fault{Key: key, Calls: memhold.Acquires,
				Err: &driver.Error{Permanent: true, Err: errors.New("wrong password")}}
			if key == "deploy@permit/gate2" {
				mend := faults.Inject(refused)
				defer mend()
				go ask()
			} else {
				go ask()
				time.Sleep(time.Minute)
				defer faults.Inject(refused)()
			}
			start := time.Now()
			if err := <-errs; !driver.Permanent(err) {
				t.Errorf("%q: error %v, want the refusal", key, err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%q: told after %v, want 5s at most", key, took)
			}
			b.releasePermits(permits)
			time.Sleep(time.Minute)
		})
	}
}

// A slot that was silent does not count as silent any more once it is granted.
func TestGrantedSlotIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		b := newBench(t)
		holder, _ := b.locker()
		l, faults := b.locker(holdfast.WithTTL(ttl), holdfast.WithCohort(64, 10*time.Second))
		permits := b.acquirePermits(holder, "deploy", 2)
		if permits[0].Slot() != 0 {
			permits[0], permits[1] = permits[1], permits[0]
		}
		got := b.waitFor(l, "deploy", 2, 2)
		time.Sleep(ttl)
		mend := []func(){
			faults.Inject(memhold.Fault{Key: "deploy@permit/0", Err: driver.ErrUnavailable})}
		time.Sleep(5 * time.Minute)
		mend = append(mend,
			faults.Inject(memhold.Fault{Key: "deploy@permit/1", Err: driver.ErrUnavailable}))
		time.Sleep(ttl - 5*time.Second)
		mend[0]()
		b.release(permits[0])
		first := <-got
		time.Sleep(8 * time.Second) // slot 1 is silent for more than a TTL, within the same turn
		mend[1]()
		time.Sleep(time.Second)
		if len(got) > 0 {
			t.Fatal("the second wait has ended before all slots were silent for a TTL")
		}
		b.release(permits[1])
		if second := <-got; second != nil {
			b.release(second)
		}
		b.release(first)
		time.Sleep(2 * ttl)
	})
}

// When answers are lost, a waiter has one claim for each slot, as it has for a lock. Each claim
// that is given up would have to be released, for a TTL.
func TestOneClaimForEachSlotInAnOutage(t *testing.T) {
	const ttl = 5 * time.Minute
	for name, fault := range map[string]memhold.Fault{
		"all":  {CutReply: true},
		"slot": {CutReply: true, Key: "deploy@permit/0"},
	} {
		lasts := ttl - 20*time.Second
		if fault.Key != "" {
			lasts = 3 * ttl
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				holder, _ := b.locker()
				var requests atomic.Int64
				backend := newPushing(b)
				backend.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
					requests.Add(1)
					return backend.Backend.Acquire(ctx, c)
				}
				backend.release = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
					requests.Add(1)
					return backend.Backend.Release(ctx, c)
				}
				l := b.lockerOn(backend, holdfast.WithTTL(ttl))
				permits := b.acquirePermits(holder, "deploy", 2)
				got := b.waitFor(l, "deploy", 2, 1)
				time.Sleep(time.Second)
				mend := backend.memory.Faults().Inject(fault)
				time.Sleep(10 * time.Second)
				before := requests.Load()
				time.Sleep(lasts)
				// One for each slot, the gate and the scouts' key in a second, or two.
				if n := requests.Load() - before; n > 4*2*int64(lasts/time.Second) {
					t.Errorf("%d requests in %v, want 8 a second at most", n, lasts)
				}
				mend()
				b.releasePermits(permits)
				b.release(<-got)
				time.Sleep(2 * ttl)
			})
		})
	}
}

// If Close comes while several slots are asked for, the call fails with ErrClosed.
func TestCloseWhileSlotsAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		taken := b.takeFirst(l, other)
		faults.Inject(memhold.Fault{Calls: memhold.Acquires, ReplyDelay: 2 * time.Second,
			Key: fmt.Sprintf("deploy@permit/%d", (taken.Slot()+1)%4)})
		errs := make(chan error)
		go func() {
			_, err := l.Acquire(background, "deploy", holdfast.WithPermits(4))
			errs <- err
		}()
		time.Sleep(time.Second)
		go l.Close()
		mustBe(t, <-errs, holdfast.ErrClosed)
		faults.Clear()
		time.Sleep(time.Minute)
		b.release(taken)
	})
}

// The gate is no lock of a user: neither hooks nor Stats know it.
func TestStatsDoNotCountTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		var events atomic.Int64
		l, faults := b.locker(holdfast.WithHooks(holdfast.Hooks{
			Renewed: func(holdfast.RenewedEvent) { events.Add(1) }}))
		permits := b.acquirePermits(holder, "deploy", 2)
		got := b.waitFor(l, "deploy", 2, 1)
		time.Sleep(time.Minute)
		faults.Freeze()
		time.Sleep(10 * time.Second)
		faults.Thaw()
		if s := l.Stats(); s.Renewed != 0 || s.RenewalsMissed != 0 || events.Load() != 0 {
			t.Errorf("%d renewals, %d missed, %d events of a Locker that holds nothing; want none",
				s.Renewed, s.RenewalsMissed, events.Load())
		}
		b.releasePermits(permits)
		b.release(<-got)
		time.Sleep(time.Minute)
	})
}

// A permit that passes from one goroutine of a Locker to another is handed over locally, whether
// the scout was in between or not.
func TestPermitFromTheSameLockerIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		local := make(chan bool, 3)
		l, _ := b.locker(holdfast.WithHooks(holdfast.Hooks{
			Acquired: func(e holdfast.AcquiredEvent) { local <- e.Local }}))
		first := b.acquire(l, "deploy", holdfast.WithPermits(1))
		got := b.waitFor(l, "deploy", 1, 2)
		time.Sleep(time.Second) // the scout waits for the slot, after the first waiter
		b.release(first)
		second := <-got
		time.Sleep(5 * time.Millisecond)
		b.release(second)
		third := <-got
		synctest.Wait()
		<-local
		<-local
		if !<-local {
			t.Error("the hook was not told that the permit was handed over in memory")
		}
		b.release(third)
	})
}
