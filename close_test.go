package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

func TestCloseReleasesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		var locks []*holdfast.Lock
		for _, key := range []string{"a", "b", "c"} {
			locks = append(locks, b.acquire(l, key))
		}
		ctx := locks[0].Context(background)
		elsewhere := b.acquire(other, "elsewhere")
		ended := make(chan error, 3)
		for _, key := range []string{"a", "a", "elsewhere"} {
			go func() {
				_, err := l.Acquire(background, key)
				ended <- err
			}()
		}
		synctest.Wait()
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			mustBe(t, <-ended, holdfast.ErrClosed)
		}
		if time.Since(start) != 0 {
			t.Errorf("took %v", time.Since(start))
		}
		for _, lock := range locks {
			<-lock.Done()
			mustBe(t, lock.Err(), holdfast.ErrLost, holdfast.ErrClosed)
			b.mustBeFree(other, lock.Key())
		}
		mustBe(t, context.Cause(ctx), holdfast.ErrClosed)
		_, err := l.Acquire(background, "d")
		mustBe(t, err, holdfast.ErrClosed)
		_, err = l.TryAcquire(background, "d")
		mustBe(t, err, holdfast.ErrClosed)
		mustBe(t, locks[0].Release(background), holdfast.ErrClosed)
		if err := l.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		b.release(elsewhere)
	})
}

// Close does not wait for ever for a backend that hangs, and says what it could not do.
func TestCloseAtFrozenBackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		b.acquire(l, "key")
		faults.Freeze()
		go l.Acquire(background, "other")
		synctest.Wait()
		start := time.Now()
		mustBe(t, l.Close(), holdfast.ErrUnknown)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("took %v", took)
		}
		faults.Thaw()
		time.Sleep(time.Minute)
	})
}

// Close waits for clean-ups that a caller did not want to wait for.
func TestCloseWaitsForCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		faults.Freeze()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		lock.Release(ctx)
		time.AfterFunc(2*time.Second, faults.Thaw)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		b.mustBeFree(other, "key")
	})
}
