package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// renewing is a backend that calls after when it has made a renewal.
type renewing struct {
	*memhold.Backend
	after func(driver.Claim)
}

func (r *renewing) Renew(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
	results, err := r.Backend.Renew(ctx, c)
	if r.after != nil {
		r.after(c[0])
	}
	return results, err
}

// next has a goroutine acquire the key behind a lock that is held, and says when it waits.
func next(l *holdfast.Locker, ctx context.Context,
	options ...holdfast.AcquireOption) chan *holdfast.Lock {
	got := make(chan *holdfast.Lock, 1)
	go func() {
		lock, _ := l.Acquire(ctx, "key", options...)
		got <- lock
	}()
	synctest.Wait()
	return got
}

// Fails if the code is broken like this: freshRun without h.settle().
func TestLockOfAFreshRunIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		first := b.acquire(l, "key")
		got := next(l, background)
		time.Sleep(time.Second)
		b.release(first)
		second := <-got
		time.Sleep(time.Hour)
		b.release(second)
	})
}

// Fails if the code is broken like this: freshRun without c.serveOrRetire() when the context has
// ended.
func TestFreshRunForNobodyGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := &renewing{Backend: b.memory.Client()}
		b.clients = append(b.clients, client.Backend)
		l := b.lockerOn(client)
		first := b.acquire(l, "key")
		ctx, cancel := context.WithCancel(background)
		gone := next(l, ctx)
		got := next(l, background)
		time.Sleep(time.Second)
		client.after = func(driver.Claim) { cancel() }
		b.release(first)
		if <-gone != nil {
			t.Error("a cancelled acquisition succeeded")
		}
		time.Sleep(time.Hour)
		select {
		case lock := <-got:
			b.release(lock)
		default:
			t.Error("the next waiter does not have the key")
		}
	})
}

// Fails if the code is broken like this: freshRun without now < h.deadline.
func TestPauseDuringFreshRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := &renewing{Backend: b.memory.Client()}
		b.clients = append(b.clients, client.Backend)
		l := b.lockerOn(client)
		first := b.acquire(l, "key")
		got := next(l, background)
		time.Sleep(time.Second)
		asked := clock.Now()
		client.after = func(c driver.Claim) {
			if c.Block > 0 {
				client.after = nil
				clock.SimulateSuspend(40 * time.Second)
			}
		}
		b.release(first)
		second := <-got
		if second == nil {
			return
		}
		// One that was asked for after the pause: its validity does not end before it began.
		if !second.Deadline().After(time.Now()) || clock.Now().Sub(asked) < 40*time.Second {
			t.Errorf("a turn that ends at %v began at %v, want one asked for after the pause",
				second.Deadline(), time.Now())
		}
		second.Release(background)
	})
}

// Fails if the code is broken like this: handOver without watchdog.schedule after a maximum hold.
func TestLockAfterAMaximumHoldIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithCohort(64, 24*time.Hour))
		first := b.acquire(l, "key", holdfast.WithMaxHold(time.Minute))
		got := next(l, background)
		<-first.Done()
		first.Release(background)
		second := <-got
		time.Sleep(time.Hour)
		b.release(second)
	})
}

// Fails if the code is broken like this: loseLease without c.drop: a key that the backend lost is
// handed on in memory.
func TestLostKeyIsNotHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithCohort(64, 24*time.Hour))
		first := b.acquire(l, "key")
		got := next(l, background)
		faults.Give("key", "somebody else", 24*time.Hour)
		<-first.Done()
		time.Sleep(time.Second)
		select {
		case <-got:
			t.Error("the next waiter got a key that the backend had given to another")
		default:
		}
		faults.Lose("key")
		b.release(<-got)
	})
}

// Fails if the code is broken like this: nextEvent without the maximum hold: it is told at the next
// renewal.
func TestMaximumHoldBetweenRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		start := time.Now()
		lock := b.acquire(l, "key", holdfast.WithMaxHold(44*time.Second))
		<-lock.Done()
		if took := time.Since(start); took != 44*time.Second {
			t.Errorf("the loss was told after %v, want 44s", took)
		}
		lock.Release(background)
	})
}

// Fails if the code is broken like this: handOver without tell(): the contexts of a lock that was
// released and handed over go on.
func TestHandedOverLockIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		first := b.acquire(l, "key")
		ctx, done := first.Context(background), first.Done()
		got := next(l, background)
		b.release(first)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Done is not closed")
		}
		if ctx.Err() == nil {
			t.Error("the context has not ended")
		}
		b.release(<-got)
	})
}
