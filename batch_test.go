package holdfast_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// The renewal of a long lease has the time bound of a long lease, even if short ones are renewed at
// the same time.
func TestLongLeaseBesideShortOnes(t *testing.T) {
	for _, short := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			defer faults.Inject(memhold.Fault{Calls: memhold.Renewals,
				ReplyDelay: 60 * time.Millisecond})()
			lock := b.acquire(l, "long")
			ctx, cancel := context.WithCancel(background)
			var wait sync.WaitGroup
			if short {
				wait.Go(func() {
					for ctx.Err() == nil {
						s, err := l.Acquire(ctx, "short", holdfast.WithTTL(300*time.Millisecond))
						if err == nil {
							<-s.Done() // it is lost each time, which is its own fault
							s.Release(background)
						}
					}
				})
			}
			time.Sleep(10 * time.Minute)
			if err := lock.Err(); err != nil {
				t.Errorf("with short leases %v the long lock was lost: %v", short, err)
			}
			cancel()
			wait.Wait()
			lock.Release(background)
		})
	}
}

type mute struct{ context.Context }

func (mute) Done() <-chan struct{} { panic("a context's fault") }

// A lease that came by a handoff is short. Its renewal is given up early, so that there is time for
// another one.
func TestShortLeaseIsRenewedAgainInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(3*time.Second))
		l1, _ := b.locker()
		slow := newPushing(b)
		asked := 0
		slow.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			if asked++; asked == 1 {
				<-ctx.Done()
				return nil, &driver.Error{Err: ctx.Err()}
			}
			return slow.memory.Renew(ctx, c)
		}
		l2 := b.lockerOn(slow)
		lock := b.acquire(l1, "key")
		time.AfterFunc(1500*time.Millisecond, func() { b.release(lock) })
		next := b.acquire(l2, "key")
		time.Sleep(time.Minute)
		if err := next.Err(); err != nil {
			t.Error(err)
		}
		b.release(next)
	})
}

// A waiter whose context panics does not get the key. It would never be released.
func TestPanicOfAWaitersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithCohort(64, time.Hour))
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		func() {
			defer func() { recover() }()
			l.Acquire(mute{background}, "key")
		}()
		b.release(lock)
		time.Sleep(time.Hour)
		if _, err := other.TryAcquire(background, "key"); err != nil {
			t.Errorf("an hour after the only lock was released the key is not free: %v; %+v",
				err, l.Stats())
		}
	})
}
