package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// R9, R15, R16, R20, R37: if the backend stops answering, the lock ends exactly at the deadline
// that was confirmed last.
func TestR20FrozenBackendEndsLockAtOldDeadline(t *testing.T) {
	const ttl = 9 * time.Second
	for _, c := range []struct {
		name   string
		freeze time.Duration // after the acquisition
		want   time.Duration
	}{
		{"before the first renewal", 0, validity(ttl)},
		{"after the first renewal", 4 * time.Second, 3*time.Second + validity(ttl)},
		{"after the second renewal", 7 * time.Second, 6*time.Second + validity(ttl)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				start := time.Now()
				l, faults := b.locker(holdfast.WithTTL(ttl))
				other, _ := b.locker()
				lock := b.acquire(l, "key")
				ctx := lock.Context(background)
				time.Sleep(c.freeze)
				faults.Freeze()
				b.endsAfter(lock, start, c.want)
				mustBe(t, context.Cause(ctx), holdfast.ErrLost)
				// Told before anybody else can hold it.
				b.mustBeHeld(other, "key")
				faults.Thaw()
				b.release(b.acquire(other, "key"))
			})
		})
	}
}

// The error of a loss wraps no other error, whatever the errors of the renewals before it were.
func TestLossIsOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(9 * time.Second))
		ctx, cancel := context.WithCancel(background)
		for _, err := range []error{driver.ErrUnavailable, driver.ErrUnknown, context.Canceled,
			context.DeadlineExceeded} {
			lock := b.acquire(l, "key")
			remove := faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: err})
			time.AfterFunc(8*time.Second, func() { lock.Extend(ctx) })
			<-lock.Done()
			lost := lock.Err()
			mustBe(t, lost, holdfast.ErrLost)
			for _, kind := range []error{
				holdfast.ErrUnavailable, holdfast.ErrUnknown, holdfast.ErrReleased,
				holdfast.ErrHeld, holdfast.ErrClosed,
				context.Canceled, context.DeadlineExceeded,
			} {
				if errors.Is(lost, kind) {
					t.Errorf("the loss %v wraps %q as well", lost, kind)
				}
			}
			remove()
		}
		cancel()
	})
}

func TestRenewalIsRetriedWithinValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(9 * time.Second))
		start := time.Now()
		lock := b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 2, Err: driver.ErrUnavailable})
		for l.Stats().Renewed == 0 {
			time.Sleep(time.Millisecond)
		}
		if s := l.Stats(); s.RenewalsMissed != 2 || lock.Err() != nil {
			t.Errorf("%d renewals missed, lock %v; want 2, held", s.RenewalsMissed, lock.Err())
		}
		if at := time.Since(start); at < 3*time.Second || at > validity(9*time.Second) {
			t.Errorf("renewed after %v: not between a third of the TTL and the deadline", at)
		}
		b.release(lock)
	})
}

// An answer after the old deadline is too late, even if the backend did renew: the holder has been
// told of the loss, and the key is released at once.
func TestRenewalAnsweredTooLateIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(9 * time.Second))
		other, _ := b.locker()
		start := time.Now()
		lock := b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Delay: 5 * time.Second,
			ReplyDelay: 20 * time.Second})
		b.endsAfter(lock, start, validity(9*time.Second))
		mustBe(t, lock.Err(), holdfast.ErrLost)
		faults.Clear()
		b.release(b.acquire(other, "key"))
		if waited := time.Since(start); waited > 20*time.Second {
			t.Errorf("the key came free after %v, want 20s at most", waited)
		}
	})
}

func TestLossReportedByBackendEndsLockAtNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(9 * time.Second))
		start := time.Now()
		lock := b.acquire(l, "key")
		faults.Give("key", "foreign", 20*time.Second)
		b.endsAfter(lock, start, 3*time.Second)
		mustBe(t, lock.Err(), holdfast.ErrLost)
		mustBe(t, lock.Release(background), holdfast.ErrLost)
		time.Sleep(20 * time.Second)
	})
}

func TestLocksOutliveTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(time.Second))
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		for range 100 {
			time.Sleep(time.Second)
			if lock.Err() != nil || time.Until(lock.Deadline()) <= 0 {
				t.Fatalf("error %v, deadline in %v; want a lock that is renewed",
					lock.Err(), time.Until(lock.Deadline()))
			}
			b.mustBeHeld(other, "key")
		}
		b.release(lock)
	})
}

// R36: extensions are limited if asked for.
func TestR36MaxHoldEndsLockWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(3*time.Second), holdfast.WithMaxHold(10*time.Second))
		other, _ := b.locker()
		start := time.Now()
		lock := b.acquire(l, "key")
		ctx := lock.Context(background)
		if time.Sleep(9 * time.Second); lock.Deadline().Sub(start) != 10*time.Second {
			t.Errorf("deadline %v after the start, want the maximum hold",
				lock.Deadline().Sub(start))
		}
		b.endsAfter(lock, start, 10*time.Second)
		mustBe(t, context.Cause(ctx), holdfast.ErrLost, holdfast.ErrMaxHold)
		mustBe(t, lock.Extend(background), holdfast.ErrMaxHold)

		// What is left of the lease is the holder's, to stop and release; then the key is free.
		b.mustBeHeld(other, "key")
		mustBe(t, lock.Release(background), holdfast.ErrMaxHold)
		b.mustBeFree(other, "key")

		// Without a release, it is free when the lease has run out, and not renewed again.
		lock = b.acquire(l, "key")
		<-lock.Done()
		at := time.Now()
		b.release(b.acquire(other, "key"))
		if waited := time.Since(at); waited > 3*time.Second {
			t.Errorf("free %v after the maximum hold, want the TTL at most", waited)
		}
		mustBe(t, lock.Release(background), holdfast.ErrMaxHold)
	})
}

func TestMaxHoldLetsLocalWaiterIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(3 * time.Second))
		stuck := b.acquire(l, "key", holdfast.WithMaxHold(5*time.Second))
		next := b.acquire(l, "key")
		if stuck.Err() == nil || next.Token() <= stuck.Token() {
			t.Errorf("token %d of the next lock; %v ended with %v, want its maximum hold",
				next.Token(), stuck, stuck.Err())
		}
		b.release(next)
	})
}

func TestWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(3*time.Second), holdfast.WithoutRenewal())
		start := time.Now()
		lock := b.acquire(l, "key")
		time.Sleep(2 * time.Second)
		if err := lock.Extend(background); err != nil {
			t.Error(err)
		}
		b.endsAfter(lock, start, 2*time.Second+validity(3*time.Second))
		mustBe(t, lock.Extend(background), holdfast.ErrLost)
		if s := l.Stats(); s.Renewed != 1 {
			t.Errorf("renewed %d times, want once, by Extend", s.Renewed)
		}

		lock = b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, Err: driver.ErrUnavailable})
		mustBe(t, lock.Extend(background), holdfast.ErrUnavailable)
		if lock.Err() != nil {
			t.Error("an Extend without an answer ended the lock")
		}
		faults.Lose("key")
		mustBe(t, lock.Extend(background), holdfast.ErrLost)
		ctx, cancel := context.WithCancel(background)
		cancel()
		lock = b.acquire(l, "key")
		mustBe(t, lock.Extend(ctx), context.Canceled)
		b.release(lock)
	})
}

// K6: the watchdog notices a suspend even if somebody has set the wall clock back by just as much
// in the meantime.
func TestK6HiddenSuspendEndsLock(t *testing.T) {
	b := newBench(t)
	l, _ := b.locker(holdfast.WithTTL(time.Hour))
	lock := b.acquire(l, "key")
	clock.SimulateHiddenSuspend(2 * time.Hour)
	select {
	case <-lock.Done():
		mustBe(t, lock.Err(), holdfast.ErrLost)
	case <-time.After(time.Minute): // it takes 250 ms
		t.Error("the end of the lease was not noticed in a minute")
		b.release(lock)
	}
}

// K6: time in which the host is suspended counts, although no timer ran.
func TestK6SuspendEndsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(30 * time.Second))
		lock := b.acquire(l, "key")
		asked := b.acquire(l, "asked")
		start := time.Now()
		clock.SimulateSuspend(time.Minute)
		if asked.Err() == nil {
			t.Error(
				"a lock that is asked right after the host wakes up does not know that it is lost")
		}
		<-lock.Done()
		if took := time.Since(start); took > 250*time.Millisecond {
			t.Errorf("told %v after the host woke up, want 250ms at most", took)
		}
		mustBe(t, lock.Err(), holdfast.ErrLost)

		// A suspend that is shorter than the validity does no harm.
		lock = b.acquire(l, "key")
		clock.SimulateSuspend(20 * time.Second)
		time.Sleep(time.Minute)
		if lock.Err() != nil {
			t.Errorf("a suspend shorter than the lease ended the lock: %v", lock.Err())
		}
		b.release(lock)
	})
}

// A lease may have ended in a suspend, when its holder was not told yet. Then HeldError.ExpiresIn
// is not negative.
func TestHeldErrorAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		lock := b.acquire(l, "key")
		synctest.Wait() // the watchdog has looked, and looks again in 250 ms
		clock.SimulateSuspend(time.Minute)
		_, err := l.TryAcquire(background, "key")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.ExpiresIn != 0 {
			t.Errorf("TryAcquire: %+v; want that the key is held, for 0s", err)
		}
		<-lock.Done()
	})
}

// K2, R18: a pause between request and answer that uses up the lease is not an acquisition.
func TestK2PauseDuringAcquisitionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		pausing := &spy{Backend: client}
		pausing.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			r, err := client.Acquire(ctx, c)
			clock.SimulateSuspend(30 * time.Second)
			return r, err
		}
		l := b.lockerOn(pausing)
		other, _ := b.locker()
		_, err := l.TryAcquire(background, "key")
		mustBe(t, err, holdfast.ErrUnavailable)
		synctest.Wait()
		b.mustBeFree(other, "key")
	})
}

// A nested lock that ended while the host was suspended says so when it is released, even before
// the watchdog wakes up.
func TestK6NestedReleaseAfterSuspendTellsOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		outer := b.acquire(l, "key")
		inner, err := l.Acquire(outer.Context(background), "key")
		if err != nil {
			t.Fatal(err)
		}
		clock.SimulateSuspend(time.Minute)
		mustBe(t, inner.Release(background), holdfast.ErrLost)
		mustBe(t, outer.Err(), holdfast.ErrLost)
	})
}

// R18, R24: a grant that comes too late to count is given back at once, not left to its TTL.
func TestR18LateGrantIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		pausing := &spy{Backend: client}
		pausing.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			r, err := client.Acquire(ctx, c)
			clock.SimulateSuspend(validity(30*time.Second) + time.Millisecond)
			return r, err
		}
		l := b.lockerOn(pausing)
		other, _ := b.locker()
		_, err := l.TryAcquire(background, "key")
		mustBe(t, err, holdfast.ErrUnavailable)
		synctest.Wait()
		b.mustBeFree(other, "key")
	})
}

// R11, R15: a lease counts from before the request was sent, whether the request or its answer was
// slow. What is left is the TTL less the time that passed, and less the drift allowance (R16).
func TestR11R15LeaseCountsFromBeforeItsRequest(t *testing.T) {
	for name, slow := range map[string]memhold.Fault{
		"request": {Calls: memhold.Acquires, Times: 1, Delay: 1500 * time.Millisecond},
		"reply":   {Calls: memhold.Acquires, Times: 1, ReplyDelay: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker(holdfast.WithTTL(12 * time.Second))
				faults.Inject(slow)
				lock := b.acquire(l, "key")
				if got := time.Until(lock.Deadline()); got != validity(
					12*time.Second)-1500*time.Millisecond {
					t.Errorf("%v left, want the validity without the 1.5s that the %s took",
						got, name)
				}
				b.release(lock)
			})
		})
	}
}

// R16: a renewed lease counts from before the renewal was sent, however long the answer took.
func TestR16RenewedLeaseCountsFromItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(12 * time.Second))
		start := time.Now()
		lock := b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1,
			ReplyDelay: 1500 * time.Millisecond})
		time.Sleep(4*time.Second + 1600*time.Millisecond)
		if got := lock.Deadline().Sub(start); got != 4*time.Second+validity(12*time.Second) {
			t.Errorf("deadline %v after the start, want 4s and the validity", got)
		}
		b.release(lock)
	})
}

// A process that was paused between a renewal and its answer for longer than the old lease does not
// accept the answer.
func TestK2PauseDuringRenewalIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		pausing := &spy{Backend: client}
		pausing.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			r, err := client.Renew(ctx, c)
			clock.SimulateSuspend(25 * time.Second)
			return r, err
		}
		l := b.lockerOn(pausing)
		start := time.Now()
		lock := b.acquire(l, "key")
		b.endsAfter(lock, start, 10*time.Second)
		mustBe(t, lock.Err(), holdfast.ErrLost)
	})
}

// kernelGoroutines returns how many goroutines there are that the package has started. Not
// runtime.NumGoroutine: goroutines of timers and of the garbage collector come and go, and count
// for a moment after they have ended.
func kernelGoroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("\ncreated by github.com/holdfast-go/holdfast.("))
}

// Renewals that are due together go out as one batch, and one without an answer delays no other.
func TestRenewalsAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 2500
		memory := memhold.New()
		defer memory.Close()
		backend := &spy{Backend: memory}
		var mu sync.Mutex
		var sizes []int
		backend.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			mu.Lock()
			sizes = append(sizes, len(c))
			mu.Unlock()
			return memory.Renew(ctx, c)
		}
		l, err := holdfast.New(backend, holdfast.WithTTL(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		before := kernelGoroutines()
		for i := range locks {
			if _, err := l.TryAcquire(background, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			if i%500 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		synctest.Wait()
		if n := kernelGoroutines() - before; n > 1 {
			t.Errorf("%d goroutines for %d locks, want 1", n, locks)
		}
		time.Sleep(11 * time.Second)
		total := 0
		mu.Lock()
		defer mu.Unlock()
		for _, n := range sizes {
			if n > 1000 {
				t.Errorf("%d leases in one call, want 1,000 at most", n)
			}
			total += n
		}
		if total != locks || len(sizes) > 4 {
			t.Errorf("renewed in batches of %v: want %d locks in at most 4", sizes, locks)
		}
		if s := l.Stats(); s.Renewed != locks || s.Held != locks {
			t.Errorf("renewed %d, held %d; want %d", s.Renewed, s.Held, locks)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// If one claim of a batch has no outcome, or is lost, the others are renewed as usual.
func TestBatchWithMixedOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(9 * time.Second))
		start := time.Now()
		good, bad, gone := b.acquire(l, "good"), b.acquire(l, "bad"), b.acquire(l, "gone")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Key: "bad",
			Err: errors.New("shard down")})
		faults.Lose("gone")
		b.endsAfter(gone, start, 3*time.Second)
		b.endsAfter(bad, start, validity(9*time.Second))
		time.Sleep(time.Minute)
		if good.Err() != nil {
			t.Errorf("a lock that the backend renews was lost: %v", good.Err())
		}
		b.release(good)
	})
}

// A batch that hangs delays the renewals of other locks by at most its own time bound, and those
// that are due at another time not at all.
func TestHangingBatchDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		defer memory.Close()
		backend := &spy{Backend: memory}
		backend.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			for _, claim := range c {
				if claim.Key == "hung" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			}
			return memory.Renew(ctx, c)
		}
		b := &bench{t: t}
		l := b.lockerOn(backend, holdfast.WithTTL(9*time.Second))
		start := time.Now()
		hung := b.acquire(l, "hung")
		time.Sleep(2 * time.Second)
		fine := b.acquire(l, "fine")
		b.endsAfter(hung, start, validity(9*time.Second))
		time.Sleep(time.Minute)
		if fine.Err() != nil {
			t.Errorf("a lock whose renewals are answered was lost: %v", fine.Err())
		}
		b.release(fine)
		l.Close()
	})
}

// Lockers begin and end in parallel, so their watchdogs start in the same moment. With a timer that
// is due when it is set, the race detector crashes here (see "No timer channels" in DESIGN.md).
func TestWatchdogsStartAtTheSameTime(t *testing.T) {
	use := func(backend driver.Backend, key string) error {
		l, err := holdfast.New(backend)
		if err != nil {
			return err
		}
		defer l.Close()
		lock, err := l.TryAcquire(background, key)
		if err != nil {
			return err
		}
		return lock.Release(background)
	}
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			b := memhold.New()
			var hands sync.WaitGroup
			for hand := range 8 {
				hands.Go(func() {
					for n := range 100 {
						err := use(b, fmt.Sprintf("key-%d-%d", hand, n))
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			hands.Wait()
		})
	}
}
