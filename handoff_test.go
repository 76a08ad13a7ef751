package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// Without renewal no turn is handed over in memory: each turn asks the backend, and has a full
// lease.
func TestTurnWithoutRenewalAsksTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var r recorder
		l, faults := b.locker(holdfast.WithoutRenewal(), holdfast.WithHooks(r.hooks()))
		first := b.acquire(l, "key")
		got := next(l, background)
		time.Sleep(20 * time.Millisecond) // a run may go on
		// Else the second might be told of its lock before the first is told of its release.
		const trip = time.Millisecond
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, ReplyDelay: trip})
		b.release(first)
		second := <-got
		if left := time.Until(second.Deadline()); left != validity(holdfast.DefaultTTL)-trip {
			t.Errorf("the second turn is valid for %v; want the full lease", left)
		}
		b.release(second)
		synctest.Wait()
		want := "acquired key after 0s, local false\n" +
			"released key after 20ms, local true: <nil>\n" +
			"acquired key after 21ms, local false\n" +
			"released key after 0s, local false: <nil>"
		if told := r.take(); told != want || l.Stats().HandedOver != 0 {
			t.Errorf("%d handed over, and hooks were told\n%s\nwant none, and\n%s",
				l.Stats().HandedOver, told, want)
		}
	})
}

// The hook for a release is told what Release returned, also if the backend freed the key.
func TestReleaseAfterTheMaximumHoldIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var told error
		l, _ := b.locker(holdfast.WithTTL(3*time.Second), holdfast.WithMaxHold(4*time.Second),
			holdfast.WithHooks(holdfast.Hooks{
				Released: func(e holdfast.ReleasedEvent) { told = e.Err },
			}))
		lock := b.acquire(l, "key")
		<-lock.Done()
		err := lock.Release(background)
		mustBe(t, err, holdfast.ErrMaxHold)
		other, _ := b.locker()
		b.mustBeFree(other, "key")
		synctest.Wait()
		if told != err {
			t.Errorf("the hook was told %v, want what Release returned: %v", told, err)
		}
	})
}

// Extend moves no deadline beyond the maximum hold.
func TestExtendEndsAtTheMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithMaxHold(40 * time.Second))
		lock := b.acquire(l, "key")
		limit := time.Now().Add(40 * time.Second)
		for range 3 {
			if err := lock.Extend(background); err != nil {
				t.Error(err)
			}
			if over := lock.Deadline().Sub(limit); over > 0 {
				t.Errorf("the deadline is %v beyond the maximum hold", over)
			}
			time.Sleep(12 * time.Second)
		}
		b.release(lock)
	})
}

// A release that gets no answer costs no more than its own time, five seconds, and one more.
func TestReleaseThatHangsIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		hanging := &spy{Backend: client}
		hanging.release = func(ctx context.Context, _ driver.Claim) (driver.Result, error) {
			hanging.release = nil // the backend answers again, but not to this
			<-ctx.Done()
			return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
		}
		l := b.lockerOn(hanging, holdfast.WithTTL(time.Minute))
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		start := time.Now()
		mustBe(t, lock.Release(background), holdfast.ErrUnknown)
		b.release(b.acquire(other, "key"))
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("the key was taken for %v more, want 6s at most", took)
		}
	})
}

// A turn that is handed over in memory has the owner value of the lease, with the label that it
// began with.
func TestLabelIsThatOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		first := b.acquire(l, "key", holdfast.WithLabel("first"))
		got := next(l, background, holdfast.WithLabel("second"))
		b.release(first)
		second := <-got
		_, err := other.TryAcquire(background, "key")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Holder.Label != "first" {
			t.Errorf("TryAcquire: %v; want that first has the key", err)
		}
		b.release(second)
	})
}

// The context of a lock means nothing to another Locker.
func TestContextOfAnotherLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		_, err := other.TryAcquire(lock.Context(background), "key")
		mustBe(t, err, holdfast.ErrHeld)
		b.release(lock)
	})
}

// Without local handoff every turn asks the backend. So its token is larger even if the key was
// lost during the lease, and another process had a turn in between.
func TestTokensRiseWithoutHandoffThoughTheKeyWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithCohort(1, 0))
		other, _ := b.locker()
		first := b.acquire(l, "key")
		faults.Lose("key")
		between := b.acquire(other, "key")
		b.release(between)
		last := b.acquire(l, "key")
		if first.Token() >= between.Token() || between.Token() >= last.Token() {
			t.Errorf("tokens %d, %d, %d, want them to rise",
				first.Token(), between.Token(), last.Token())
		}
		b.release(last)
		mustBe(t, first.Release(background), holdfast.ErrLost)
	})
}
