package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
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
			t.Errorf("the waits ended after %v, want at once", time.Since(start))
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

// Close does not wait for ever for a backend that hangs, and says which keys it could not release.
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
			t.Errorf("Close took %v, want 6s at most", took)
		}
		faults.Thaw()
		time.Sleep(time.Minute)
	})
}

// Close waits for clean-ups for which the caller did not wait.
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

// Close says so if a key is left to its TTL, even by a clean-up that was refused earlier.
func TestCloseTellsOfKeysLeftToTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		left := func(prepare func(*holdfast.Locker, memhold.Faults)) error {
			client := b.memory.Client()
			defer client.Close()
			l, err := holdfast.New(client, holdfast.WithTTL(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			prepare(l, client.Faults())
			defer func() { time.Sleep(time.Minute) }()
			return l.Close()
		}
		refusal := &driver.Error{Permanent: true, Err: errors.New("READONLY")}
		mustBe(t, left(func(l *holdfast.Locker, faults memhold.Faults) {
			lock := b.acquire(l, "key")
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
			lock.Release(background)
			synctest.Wait()
		}), holdfast.ErrUnavailable, refusal)
		mustBe(t, left(func(l *holdfast.Locker, faults memhold.Faults) {
			lock := b.acquire(l, "key")
			faults.Freeze()
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			lock.Release(ctx)
		}), holdfast.ErrUnknown)
		mustBe(t, left(func(l *holdfast.Locker, faults memhold.Faults) {
			b.acquire(l, "key")
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
		}), refusal)
		if err := left(func(l *holdfast.Locker, faults memhold.Faults) {
			lock := b.acquire(l, "key")
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
			lock.Release(background)
			time.Sleep(126 * time.Second) // it has expired by itself, whatever was on its way
		}); err != nil {
			t.Errorf("Close reports a key that has expired: %v", err)
		}
	})
}

// If the backend refuses releases until Close's time is up, Close and the log say what it answered.
func TestCloseTellsWhyReleasesWereRefused(t *testing.T) {
	for _, releases := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			client := b.memory.Client()
			defer client.Close()
			var log bytes.Buffer
			l, err := holdfast.New(client,
				holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			lock := b.acquire(l, "key")
			refusal := errors.New("disk is read-only")
			client.Faults().Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
			if releases {
				lock.Release(background)
			}
			err = l.Close()
			mustBe(t, err, refusal, holdfast.ErrUnavailable)
			if errors.Is(err, holdfast.ErrUnknown) {
				t.Errorf("each release was answered, and Close calls the outcome unknown: %v", err)
			}
			synctest.Wait()
			if !strings.Contains(log.String(), refusal.Error()) {
				t.Errorf("the log does not say why the key is left to its TTL: %q", &log)
			}
			time.Sleep(time.Minute)
		})
	}
}

// slow is a backend that refuses releases, after a while.
type slow struct {
	*memhold.Backend
	refusal error
}

func (b slow) Release(ctx context.Context, _ driver.Claim) (driver.Result, error) {
	select {
	case <-ctx.Done():
		return driver.Result{}, ctx.Err()
	case <-time.After(2 * time.Second):
		return driver.Result{}, b.refusal
	}
}

// So they do if the last of several requests has no answer, because Close's time is up.
func TestCloseTellsWhyEarlierReleasesWereRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slow{memhold.New(), &driver.Error{Err: errors.New("disk is read-only")}}
		defer b.Backend.Close()
		var log bytes.Buffer
		l, err := holdfast.New(b, holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(background, "key"); err != nil {
			t.Fatal(err)
		}
		err = l.Close()
		mustBe(t, err, holdfast.ErrUnknown) // the last request may have taken effect
		synctest.Wait()
		for _, text := range []string{err.Error(), log.String()} {
			if strings.Count(text, b.refusal.Error()) != 1 {
				t.Errorf("%q; want that it says once why releases were refused", text)
			}
		}
	})
}

// However many keys are left, the error of Close fits into a log. It still holds all errors.
func TestErrorOfCloseIsBounded(t *testing.T) {
	for _, keys := range []int{1, 5, 6, 3000} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			client := b.memory.Client()
			defer client.Close()
			l, err := holdfast.New(client)
			if err != nil {
				t.Fatal(err)
			}
			faults := client.Faults()
			for i := range keys {
				b.acquire(l, fmt.Sprint("key", i))
			}
			rare := &driver.Error{Permanent: true, Err: errors.New("MOVED")}
			often := &driver.Error{Permanent: true, Err: errors.New("READONLY")}
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Key: "key0", Err: rare})
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Err: often})
			err = l.Close()
			mustBe(t, err, rare, holdfast.ErrUnavailable)
			var some *driver.Error
			if !errors.As(err, &some) || !some.Permanent {
				t.Errorf("of %d keys, errors.As finds %v, want the permanent error", keys, some)
			}
			text := err.Error()
			if named := strings.Count(text, `"key`); named != min(keys, 5) || len(text) > 1000 {
				t.Errorf("the error about %d keys names %d in %d bytes, want 5 at most in 1,000: %.1000s",
					keys, named, len(text), text)
			}
			all := fmt.Sprintf("release of %d keys not", keys)
			if keys == 1 {
				all = "release of 1 key not"
			}
			more := fmt.Sprintf("; and %d more", keys-5)
			if !strings.Contains(text, all) || strings.Contains(text, more) != (keys > 5) {
				t.Errorf("the error about %d keys does not say how many there are: %.1000s",
					keys, text)
			}
			time.Sleep(time.Minute)
		})
	}
}

// tardy is a backend whose releases get no answer, and return a while after their context has
// ended.
type tardy struct{ *memhold.Backend }

func (b tardy) Release(ctx context.Context, _ driver.Claim) (driver.Result, error) {
	<-ctx.Done()
	time.Sleep(time.Second / 2)
	return driver.Result{}, ctx.Err()
}

// A request has a second to return after Close has ended its context.
func TestCloseWaitsForRequestsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tardy{memhold.New()}
		defer b.Backend.Close()
		l, err := holdfast.New(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(background, "key"); err != nil {
			t.Fatal(err)
		}
		err = l.Close()
		mustBe(t, err, holdfast.ErrUnknown)
		if !strings.Contains(err.Error(), "release of 1 key not confirmed") {
			t.Errorf("Close = %v; want that the key's release is not confirmed", err)
		}
	})
}

// A key that several releases have left to its TTL is one key.
func TestCloseCountsKeysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(time.Minute))
		refusal := &driver.Error{Permanent: true, Err: errors.New("refused")}
		for range 2 {
			lock := b.acquire(l, "key")
			stop := faults.Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
			lock.Release(background)
			synctest.Wait() // for the release in the background
			stop()
			faults.Lose("key")
		}
		err := l.Close()
		mustBe(t, err, refusal)
		if text := err.Error(); !strings.Contains(text, "release of 1 key not confirmed") ||
			strings.Count(text, `"key"`) != 1 {
			t.Errorf("the error counts one key twice: %v", err)
		}
	})
}

// A short outage during Close leaves no key behind.
func TestCloseRepeatsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Releases, Times: 3, Err: driver.ErrUnavailable})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		b.mustBeFree(other, "key")
	})
}

// A request may take effect as late as the end of its clean-up. Then the key is taken for a TTL
// from there, and Close says so.
func TestCloseTellsOfALateRequest(t *testing.T) {
	for _, permanent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker(holdfast.WithTTL(time.Minute))
			other, _ := b.locker()
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1, Delay: 64 * time.Second})
			refusal := &driver.Error{Permanent: permanent, Err: errors.New("refused")}
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Err: refusal})
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "key")
			mustBe(t, err, context.DeadlineExceeded)
			time.Sleep(120 * time.Second)
			mustBe(t, l.Close(), refusal, holdfast.ErrUnavailable)
			b.mustBeHeld(other, "key")
			time.Sleep(5 * time.Second)
			b.mustBeFree(other, "key")
		})
	}
}
