package holdfast_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

func TestReentrancyFollowsTheContext(t *testing.T) { testReentrancy(t) }

// With a log the caller has a handle on the lock, which must count as the lock itself.
func TestReentrancyWithHandles(t *testing.T) {
	testReentrancy(t, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
}

func testReentrancy(t *testing.T, options ...holdfast.Option) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(options...)
		other, _ := b.locker()
		outer := b.acquire(l, "key")
		ctx := outer.Context(background)
		between := b.acquire(l, "between")
		ctx = between.Context(ctx) // another key's lock in between does not hide it

		inner, err := l.Acquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		innermost, err := l.TryAcquire(inner.Context(ctx), "key")
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != outer.Token() || innermost.Token() != outer.Token() ||
			!inner.Deadline().Equal(outer.Deadline()) {
			t.Error("nested locks have another token or deadline than the outermost")
		}
		if err := inner.Extend(background); err != nil {
			t.Error(err)
		}

		// A context from elsewhere is another holder.
		if _, err := l.TryAcquire(background, "key"); err == nil {
			t.Error("a context of no lock got a lock that is held")
		}
		_, err = other.TryAcquire(ctx, "key")
		mustBe(t, err, holdfast.ErrHeld)

		innerCtx := inner.Context(background)
		b.release(inner)
		mustBe(t, inner.Err(), holdfast.ErrReleased)
		mustBe(t, inner.Release(background), holdfast.ErrReleased)
		mustBe(t, context.Cause(innerCtx), holdfast.ErrReleased)
		if outer.Err() != nil || innermost.Err() != nil {
			t.Error("the release of a nested lock ended another lock")
		}
		b.mustBeHeld(other, "key")

		done := innermost.Done()
		b.release(outer)
		<-done
		mustBe(t, innermost.Err(), holdfast.ErrReleased)
		mustBe(t, innermost.Release(background), holdfast.ErrReleased)
		b.mustBeFree(other, "key")

		// The lock that the context came from has ended, so this is an acquisition like any other.
		again, err := l.Acquire(context.WithoutCancel(ctx), "key")
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= outer.Token() {
			t.Errorf("token %d after %d, want a larger one", again.Token(), outer.Token())
		}
		b.release(again)
		b.release(between)
	})
}

func TestNestedLockIsLostWithTheOutermost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(3 * time.Second))
		outer := b.acquire(l, "key")
		inner, err := l.Acquire(outer.Context(background), "key")
		if err != nil {
			t.Fatal(err)
		}
		ctx := inner.Context(background)
		faults.Lose("key")
		<-inner.Done()
		mustBe(t, inner.Err(), holdfast.ErrLost)
		mustBe(t, inner.Release(background), holdfast.ErrLost)
		<-ctx.Done()
		mustBe(t, context.Cause(ctx), holdfast.ErrLost)
		if s := l.Stats(); s.Lost != 1 {
			t.Errorf("counted %d losses, want 1", s.Lost)
		}
	})
}
