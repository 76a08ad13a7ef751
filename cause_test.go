package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// Lock.Release: "with a context that has ended already, everything is done in the background". The
// context of another lock that was lost has a *LostError for its cause. Taken for the backend's
// answer, that would leave the key unreleased, and Close would not tell.
func TestReleaseWithTheContextOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		outer := b.acquire(l, "outer")
		ctx := outer.Context(background)
		inner, err := l.Acquire(ctx, "inner")
		if err != nil {
			t.Fatal(err)
		}
		faults.Lose("outer")
		<-ctx.Done() // at the next renewal
		t.Logf("release of inner: %v", inner.Release(ctx))
		time.Sleep(time.Second)
		if lock, err := other.TryAcquire(background, "inner"); err != nil {
			t.Errorf("the key is not free a second after the release: %v", err)
		} else {
			lock.Release(background)
		}
	})
}

// The same if the context ends during the request.
func TestReleaseDuringWhichAnotherLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		ctx, cancel := context.WithCancelCause(background)
		inner := b.acquire(l, "inner")
		faults.Freeze()
		time.AfterFunc(100*time.Millisecond, faults.ThawDropping)
		time.AfterFunc(50*time.Millisecond, func() {
			cancel(&holdfast.LostError{Key: "outer", Reason: errors.New("x")})
		})
		t.Logf("release of inner: %v", inner.Release(ctx))
		time.Sleep(time.Second)
		if lock, err := other.TryAcquire(background, "inner"); err != nil {
			t.Errorf("the key is not free a second after the release: %v", err)
		} else {
			lock.Release(background)
		}
	})
}

// A set that is released with such a context was not lost.
func TestReleaseOfASetWithTheContextOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		ctx := b.acquire(l, "outer").Context(background)
		set := b.acquireAll(l, []string{"a", "b"})
		faults.Lose("outer")
		<-ctx.Done() // at the next renewal
		mustBe(t, set.Release(ctx), context.Canceled)
		if err := set.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("got error %v, want that of the release", err)
		}
	})
}

// A call whose context ends with the loss of another lock, while it extends what it has, has lost
// nothing and fails.
func TestAllCancelledByALossWhileItExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithoutRenewal())
		other, _ := b.locker()
		ctx, cancel := context.WithCancelCause(background)
		lock := b.acquire(other, "b")
		time.AfterFunc(time.Second, func() {
			faults.Inject(memhold.Fault{Calls: memhold.Renewals, ReplyDelay: time.Second})
			b.release(lock)
		})
		time.AfterFunc(1500*time.Millisecond, func() {
			cancel(&holdfast.LostError{Key: "outer", Reason: errors.New("x")})
		})
		set, err := l.AcquireAll(ctx, []string{"a", "b"})
		if err == nil {
			t.Errorf("the call has succeeded; its context ended with %v", context.Cause(ctx))
			b.releaseAll(set)
			return
		}
		mustBe(t, err, context.Canceled)
	})
}

// doc.go: "What was cancelled, failed or timed out leaves no key that blocks others beyond one
// round trip". A cause that wraps ErrUnavailable, as errgroup.WithContext gives when another
// acquisition of the group failed, must not be taken for the backend's word that the request had no
// effect.
func TestAcquireCancelledBecauseAnotherWasUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		defer faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1,
			ReplyDelay: 200 * time.Millisecond})()
		ctx, cancel := context.WithCancelCause(background)
		time.AfterFunc(100*time.Millisecond, func() {
			cancel(fmt.Errorf("the other lock of the group: %w", holdfast.ErrUnavailable))
		})
		_, err := l.Acquire(ctx, "key")
		t.Logf("acquire: %v", err)
		time.Sleep(time.Second)
		if lock, err := other.TryAcquire(background, "key"); err != nil {
			t.Errorf("the key is not free a second after the cancelled acquisition: %v", err)
		} else {
			lock.Release(background)
		}
	})
}

// A lock may be released with its own context. That ends with the lock, but the backend is still
// asked.
func TestReleaseWithTheLocksOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		ctx, cancel := context.WithCancel(lock.Context(background))
		defer cancel()
		if err := lock.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		b.mustBeFree(other, "key")

		lock = b.acquire(l, "key")
		faults.Freeze()
		mustBe(t, lock.Release(lock.Context(background)), holdfast.ErrUnknown)
		faults.Thaw()
	})
}
