package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// If a lock has reached its maximum hold, and its release then finds it gone, it counts as lost
// once.
func TestOneLockIsLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		lock := b.acquire(l, "key", holdfast.WithMaxHold(time.Minute))
		<-lock.Done()
		faults.Lose("key")
		lock.Release(background)
		if s := l.Stats(); s.Lost != 1 {
			t.Errorf("%d lost of %d acquired, want 1", s.Lost, s.Acquired)
		}
	})
}

// A loss that only Release finds is reported and counted like any other.
func TestLossFoundByReleaseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log bytes.Buffer
		told := 0
		l, faults := b.locker(holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) {
			told++
		}}),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		lock := b.acquire(l, "key")
		faults.Lose("key")
		err := lock.Release(background)
		synctest.Wait()
		s := l.Stats()
		if !errors.Is(err, holdfast.ErrLost) || told != int(s.Lost) || log.Len() == 0 ||
			s.Released+s.Lost != s.Acquired {
			t.Errorf(
				"release: %v; Stats: %d lost, %d released of %d; hook Lost called %d times; log %q",
				err, s.Lost, s.Released, s.Acquired, told, &log)
		}
	})
}

// A key that AcquireAll loses while it waits for another one is no loss: nobody has got its lock.
func TestLossBeforeTheSetIsCompleteIsNotTold(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			var log bytes.Buffer
			told := 0
			l, faults := b.locker(holdfast.WithTTL(3*time.Second),
				holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) { told++ }}),
				holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			other, _ := b.locker()
			taken := b.acquire(other, "b")
			time.AfterFunc(time.Second, func() { faults.Lose("a") })
			time.AfterFunc(10*time.Second, func() { taken.Release(background) })
			bound := 5 * time.Second
			if again {
				bound = time.Minute
			}
			ctx, cancel := context.WithTimeout(background, bound)
			defer cancel()
			set, err := l.AcquireAll(ctx, []string{"a", "b"})
			if again != (err == nil) {
				t.Fatal(err)
			}
			synctest.Wait()
			if s := l.Stats(); s.Lost != 0 || told != 0 || log.Len() != 0 {
				t.Errorf("%d counted, %d told, log %q; want no loss", s.Lost, told, &log)
			}
			if !again {
				time.Sleep(10 * time.Second)
				return
			}
			faults.Lose("a") // now it is the caller's
			<-set.Done()
			mustBe(t, set.Release(background), holdfast.ErrLost)
			synctest.Wait()
			if s := l.Stats(); s.Lost != 1 || told != 1 || log.Len() == 0 || s.Held != 0 ||
				s.Released+s.Lost != s.Acquired {
				t.Errorf("counted %+v, %d told, log %q; want one loss", s, told, &log)
			}
		})
	}
}

// That is so, too, if the key came from another goroutine: handed over, or shared at once, or after
// the span.
func TestLossOfWhatCameInMemoryIsNotTold(t *testing.T) {
	shared := []holdfast.AcquireOption{holdfast.WithShared()}
	for _, c := range []struct {
		options []holdfast.AcquireOption
		after   time.Duration
	}{{nil, 0}, {shared, 0}, {shared, 2 * holdfast.DefaultCohortSpan}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			told := 0
			l, faults := b.locker(holdfast.WithTTL(3*time.Second),
				holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) { told++ }}))
			other, _ := b.locker()
			taken := b.acquire(other, "b")
			first := b.acquire(l, "a", c.options...)
			time.Sleep(c.after)
			time.AfterFunc(10*time.Millisecond, func() { b.release(first) })
			time.AfterFunc(time.Second, func() { faults.Lose("a") })
			ctx, cancel := context.WithTimeout(background, 5*time.Second)
			defer cancel()
			_, err := l.AcquireAll(ctx, []string{"a", "b"}, c.options...)
			mustBe(t, err, context.DeadlineExceeded)
			synctest.Wait()
			if s := l.Stats(); s.Lost != 0 || told != 0 || s.Acquired != 1 {
				t.Errorf("counted %+v, %d told; want no loss", s, told)
			}
			b.release(taken)
		})
	}
}

// Nor is the loss of a key by which scouts keep an order.
func TestLossOfTheGateIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log bytes.Buffer
		told := 0
		l, faults := b.locker(
			holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) { told++ }}),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		other, _ := b.locker()
		permits := b.acquirePermits(other, "deploy", 1)
		got := b.waitFor(l, "deploy", 1, 1)
		time.Sleep(time.Second)
		faults.Lose("deploy@permit/gate1")
		faults.Lose("deploy@permit/scout")
		time.Sleep(time.Minute)
		if s := l.Stats(); s.Lost != 0 || told != 0 || log.Len() != 0 {
			t.Errorf("%d counted, %d told, log %q; want no loss", s.Lost, told, &log)
		}
		b.releasePermits(permits)
		b.release(<-got)
	})
}

// A clean-up comes at most a second after the backend answers again.
func TestCleanUpComesWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		var worst time.Duration
		for i := range 20 {
			lock := b.acquire(l, "key")
			remove := faults.Inject(memhold.Fault{Err: errors.New("down")})
			lock.Release(background)
			time.Sleep(5*time.Second + time.Duration(i)*50*time.Millisecond)
			remove() // the backend answers again, without delay
			start := time.Now()
			for {
				lock, err := other.TryAcquire(background, "key")
				if err == nil {
					lock.Release(background)
					break
				}
				time.Sleep(time.Millisecond)
			}
			worst = max(worst, time.Since(start))
		}
		if worst > time.Second {
			t.Errorf("the key was taken for up to %v more, want a second at most", worst)
		}
	})
}

// The log tells of a release that was never confirmed.
func TestLogTellsOfAReleaseThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log bytes.Buffer
		l, faults := b.locker(holdfast.WithTTL(time.Second),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		err := l.Do(background, "key", func(context.Context, *holdfast.Lock) error {
			faults.Inject(memhold.Fault{Err: errors.New("down")})
			return nil
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if log.Len() == 0 {
			t.Errorf(
				"Do: %v; the release was never confirmed, not in an hour, and the log is empty",
				err)
		}
		faults.Clear()
	})
}

// queued is a backend that knows of every claim that it is only queued.
type queued struct{ *memhold.Backend }

func (q queued) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	_, err := q.Backend.Release(ctx, claim)
	return driver.Result{State: driver.Busy}, err
}

// A lock whose claim turns out to be queued, at its release, does not hold the key any more.
func TestReleaseOfALostLockThatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var told error
		l := b.lockerOn(queued{b.memory.Client()}, holdfast.WithHooks(holdfast.Hooks{
			Lost: func(e holdfast.LostEvent) { told = e.Err }}))
		lock := b.acquire(l, "key")
		err := lock.Release(background)
		mustBe(t, err, holdfast.ErrLost)
		synctest.Wait()
		if s := l.Stats(); s.Lost != 1 || s.Released != 0 || told == nil {
			t.Errorf("counted %+v, told %v; want a loss", s, told)
		}
	})
}
