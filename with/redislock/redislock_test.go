package redislock_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redislock"
)

// server is what locks are kept in.
type server struct {
	*testing.T
	memory *memhold.Backend
}

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(*server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		t.Cleanup(func() { memory.Close() })
		f(&server{t, memory})
	})
}

// process returns the Client of another process, and that process's connection to the server.
func (s *server) process() (*redislock.Client, *memhold.Backend) {
	backend := s.memory.Client()
	client := redislock.NewOver(backend)
	s.Cleanup(func() {
		client.Close()
		backend.Close()
	})
	return client, backend
}

func (s *server) obtain(c *redislock.Client, ttl time.Duration,
	opt *redislock.Options) *redislock.Lock {
	s.Helper()
	lock, err := c.Obtain(s.Context(), "k", ttl, opt)
	if err != nil {
		s.Fatal(err)
	}
	return lock
}

// isFree reports whether nobody has the key.
func (s *server) isFree() bool {
	s.Helper()
	entry, err := s.memory.Inspect(s.Context(), "k")
	if err != nil {
		s.Fatal(err)
	}
	return entry.Holder.Owner == ""
}

func (s *server) is(what string, err, want error) {
	s.Helper()
	if err != want {
		s.Errorf("%s = %v, want %v itself", what, err, want)
	}
}

func TestObtainReleaseAndAgain(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, _ := s.process()
		var token holdfast.Token
		for range 2 {
			for _, c := range []*redislock.Client{a, b} {
				lock := s.obtain(c, time.Second, &redislock.Options{Metadata: "m"})
				if lock.Held().Token("k") <= token {
					s.Errorf("token %v after %v", lock.Held().Token("k"), token)
				}
				token = lock.Held().Token("k")
				if lock.Key() != "k" || !slices.Equal(lock.Keys(), []string{"k"}) ||
					len(lock.Token()) != 22 || lock.Metadata() != "m" {
					s.Errorf("%q, %q, %q, %q", lock.Key(), lock.Keys(), lock.Token(),
						lock.Metadata())
				}
				entry, err := s.memory.Inspect(s.Context(), "k")
				if label := driver.ParseOwner(entry.Holder.Owner).Label; err != nil ||
					label != lock.Token()+"m" {
					s.Errorf("others see %q, %v", label, err)
				}
				for _, c := range []*redislock.Client{a, b} {
					_, err := c.Obtain(s.Context(), "k", time.Second, nil)
					s.is("Obtain", err, redislock.ErrNotObtained)
				}
				s.is("Release", lock.Release(s.Context()), nil)
				s.is("Release", lock.Release(s.Context()), redislock.ErrLockNotHeld)
				s.is("Refresh", lock.Refresh(s.Context(), time.Second, nil),
					redislock.ErrNotObtained)
			}
		}
		var none *redislock.Lock
		s.is("Release", none.Release(s.Context()), redislock.ErrLockNotHeld)
		s.is("Refresh", none.Refresh(s.Context(), time.Second, nil), redislock.ErrNotObtained)
		if _, err := none.TTL(s.Context()); err != redislock.ErrLockNotHeld {
			s.Errorf("TTL = %v", err)
		}
	})
}

// A lock is not renewed. Its holder hears of its end before another has it.
func TestExpiry(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, _ := s.process()
		lock := s.obtain(a, time.Second, nil)
		ctx := lock.Held().Context(s.Context())
		if ttl, err := lock.TTL(s.Context()); ttl != time.Second || err != nil {
			s.Errorf("TTL = %v, %v", ttl, err)
		}
		began := time.Now()
		s.obtain(b, time.Minute, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		if took := time.Since(began); took != time.Second {
			s.Errorf("it took %v, want the TTL", took)
		}
		if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
			s.Errorf("the context ended with %v, want the loss", context.Cause(ctx))
		}
		if ttl, err := lock.TTL(s.Context()); ttl != 0 || err != nil {
			s.Errorf("TTL = %v, %v", ttl, err)
		}
		s.is("Refresh", lock.Refresh(s.Context(), time.Second, nil), redislock.ErrNotObtained)
		s.is("Release", lock.Release(s.Context()), redislock.ErrLockNotHeld)
		if s.isFree() {
			s.Error("the next holder was released")
		}
	})
}

// A lock lasts as long as Refresh says, whatever TTL it was obtained with.
func TestRefresh(t *testing.T) {
	for name, ttls := range map[string][]time.Duration{
		"same":                  {10 * time.Second},
		"longer":                {25 * time.Second},
		"shorter":               {2 * time.Second},
		"longer, then shorter":  {time.Minute, 3 * time.Second},
		"longer, then a moment": {time.Minute, time.Second},
		"longer, then the same": {time.Minute, 10 * time.Second},
		"shorter, then longer":  {2 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *server) {
				c, _ := s.process()
				lock := s.obtain(c, 10*time.Second, nil)
				var want time.Duration
				for _, ttl := range ttls {
					time.Sleep(time.Second)
					s.is("Refresh", lock.Refresh(s.Context(), ttl, nil), nil)
					if left, err := lock.TTL(s.Context()); left != ttl || err != nil {
						s.Errorf("TTL = %v, %v; want %v", left, err, ttl)
					}
					want = ttl
				}
				// A lock that ends with its lease ends a little earlier.
				time.Sleep(want - 200*time.Millisecond)
				if err := lock.Held().Err(); err != nil || s.isFree() {
					s.Errorf("200ms before its end: %v, free: %v", err, s.isFree())
				}
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if lock.Held().Err() == nil || !s.isFree() {
					s.Errorf("at its end: %v, free: %v", lock.Held().Err(), s.isFree())
				}
				s.is("Release", lock.Release(s.Context()), redislock.ErrLockNotHeld)
			})
		})
	}
}

// The time counts from before the request.
func TestTTLWithASlowServer(t *testing.T) {
	play(t, func(s *server) {
		c, backend := s.process()
		const slow = 100 * time.Millisecond
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Delay: slow})
		lock := s.obtain(c, 10*time.Second, nil)
		if left, err := lock.TTL(s.Context()); left != 10*time.Second-slow || err != nil {
			s.Errorf("TTL after Obtain = %v, %v", left, err)
		}
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Delay: slow})
		s.is("Refresh", lock.Refresh(s.Context(), 20*time.Second, nil), nil)
		if left, err := lock.TTL(s.Context()); left != 20*time.Second-slow || err != nil {
			s.Errorf("TTL after Refresh = %v, %v", left, err)
		}
	})
}

// A lock that has ended is not refreshed by further tries.
func TestRefreshAfterTheEnd(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		lock := s.obtain(c, time.Second, nil)
		time.Sleep(time.Second)
		began := time.Now()
		err := lock.Refresh(s.Context(), time.Minute,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})
		s.is("Refresh", err, redislock.ErrNotObtained)
		if took := time.Since(began); took != 0 {
			s.Errorf("Refresh took %v", took)
		}
	})
}

// A refresh that is answered at the moment at which the lock ends either fails, or the lock lasts.
// Which goroutine comes first is up to the scheduler, so there are many tries.
func TestRefreshAtTheEnd(t *testing.T) {
	var refreshed, failed int
	for range 2000 {
		play(t, func(s *server) {
			c, backend := s.process()
			lock := s.obtain(c, 10*time.Second, nil)
			s.is("Refresh", lock.Refresh(s.Context(), 2*time.Second, nil), nil)
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals,
				Delay: 100 * time.Millisecond})
			time.Sleep(1900 * time.Millisecond)
			if err := lock.Refresh(s.Context(), 2*time.Second, nil); err != nil {
				s.is("Refresh", err, redislock.ErrNotObtained)
				failed++
				return
			}
			refreshed++
			time.Sleep(time.Second)
			if err := lock.Held().Err(); err != nil {
				s.Errorf("a second after a refresh for two: %v", err)
			}
		})
	}
	t.Logf("%d were refreshed, %d not", refreshed, failed)
}

// A lock ends when Refresh says, also if the server has not answered a renewal by then.
func TestRefreshEndsWithoutAnAnswer(t *testing.T) {
	for _, ttl := range []time.Duration{3010 * time.Millisecond, 5 * time.Second} {
		play(t, func(s *server) {
			c, backend := s.process()
			lock := s.obtain(c, 9*time.Second, nil)
			s.is("Refresh", lock.Refresh(s.Context(), ttl, nil), nil)
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals,
				ReplyDelay: 2500 * time.Millisecond})
			time.Sleep(ttl)
			synctest.Wait()
			left, err := lock.TTL(s.Context())
			if left != 0 || err != nil || lock.Held().Err() == nil || !s.isFree() {
				s.Errorf("%v after a refresh for that: TTL %v, %v, the lock %v, free: %v", ttl, left,
					err, lock.Held().Err(), s.isFree())
			}
		})
	}
}

// A lock that is renewed for a long refresh tells of its loss, too.
func TestLossOfWhatIsRefreshed(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		lock := s.obtain(c, time.Second, nil)
		s.is("Refresh", lock.Refresh(s.Context(), time.Hour, nil), nil)
		time.Sleep(time.Minute)
		s.memory.Faults().Give("k", "a thief", time.Hour)
		<-lock.Held().Done()
		s.is("Release", lock.Release(s.Context()), redislock.ErrLockNotHeld)
	})
}

func TestSameToken(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, _ := s.process()
		mine := &redislock.Options{Token: "foo", Metadata: "bar"}
		first := s.obtain(a, time.Second, mine)
		time.Sleep(900 * time.Millisecond)
		second := s.obtain(a, time.Second, &redislock.Options{Token: "foo", Metadata: "baz"})
		if second.Token() != "foo" || second.Metadata() != "baz" || first.Metadata() != "bar" {
			s.Errorf("%q, %q, %q", second.Token(), second.Metadata(), first.Metadata())
		}
		time.Sleep(900 * time.Millisecond)
		_, err := b.Obtain(s.Context(), "k", time.Second, mine)
		s.is("Obtain of another process", err, redislock.ErrNotObtained)
		for _, other := range []string{"fo_", "fo", "foob", "foobar"} {
			_, err = a.Obtain(s.Context(), "k", time.Second, &redislock.Options{Token: other})
			s.is("Obtain with the token "+other, err, redislock.ErrNotObtained)
		}
		for _, keys := range [][]string{{"j", "k"}, {"k", "l"}} {
			_, err = a.ObtainMulti(s.Context(), keys, time.Second, mine)
			s.is("Obtain of other keys", err, redislock.ErrNotObtained)
		}
		for _, keys := range [][]string{{"i", "j"}, {"j", "i", "j"}} {
			_, err = a.ObtainMulti(s.Context(), keys, time.Second, mine)
			s.is("Obtain of the same keys in another order", err, nil)
		}
		s.is("Release", second.Release(s.Context()), nil)
		s.is("Release", first.Release(s.Context()), redislock.ErrLockNotHeld)
		s.obtain(b, time.Second, mine)
	})
}

// What was just released does not stand in for the lock that was obtained with its Token since.
// Which goroutine comes first is up to the scheduler, so there are many tries.
func TestSameTokenAfterARelease(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		mine := &redislock.Options{Token: "foo"}
		for range 1000 {
			first := s.obtain(c, time.Minute, mine)
			if again := s.obtain(c, time.Minute, mine); again.Held() != first.Held() {
				s.Fatal("obtained again: another lock")
			}
			s.is("Release", first.Release(s.Context()), nil)
		}
	})
}

// Goroutines that use one Token at once all have the lock. Which of them comes first is up to the
// scheduler, so there are many tries.
func TestSameTokenAtOnce(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		for range 1000 {
			var locks [4]*redislock.Lock
			var wait sync.WaitGroup
			for i := range locks {
				wait.Go(func() {
					lock, err := c.Obtain(s.Context(), "k", time.Minute,
						&redislock.Options{Token: "foo"})
					s.is("Obtain", err, nil)
					locks[i] = lock
				})
			}
			if wait.Wait(); s.Failed() {
				return
			}
			for _, lock := range locks {
				wait.Go(func() { lock.Release(s.Context()) })
			}
			wait.Wait()
		}
	})
}

// A Token is not refused because of what is being done with it: the lock is obtained, refreshed or
// released just then.
func TestSameTokenMeanwhile(t *testing.T) {
	mine := &redislock.Options{Token: "foo"}
	release := func(s *server, _ *redislock.Client, l *redislock.Lock) {
		s.is("Release", l.Release(s.Context()), nil)
	}
	for name, c := range map[string]struct {
		lock bool          // there is one before
		late time.Duration // the answer to the first try
		do   func(*server, *redislock.Client, *redislock.Lock)
		took time.Duration
	}{
		"obtained": {false, time.Second,
			func(s *server, c *redislock.Client, _ *redislock.Lock) {
				_, err := c.Obtain(s.Context(), "k", time.Minute, mine)
				s.is("Obtain", err, nil)
			}, time.Second},
		"released": {true, 0, release, 2 * time.Second},
		"released twice": {true, 0, func(s *server, c *redislock.Client, l *redislock.Lock) {
			time.AfterFunc(100*time.Millisecond, func() {
				s.is("Release", l.Release(s.Context()), redislock.ErrLockNotHeld)
			})
			release(s, c, l)
		}, 2 * time.Second},
		"released during the try": {true, time.Second,
			func(s *server, c *redislock.Client, l *redislock.Lock) {
				time.Sleep(600 * time.Millisecond)
				release(s, c, l)
			}, 2600 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *server) {
				backend := slow{s.memory.Client()}
				defer backend.Close()
				client := redislock.NewOver(backend)
				defer client.Close()
				var before *redislock.Lock
				if c.lock {
					before = s.obtain(client, time.Minute, mine)
				}
				backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1,
					ReplyDelay: c.late})
				began := time.Now()
				var wait sync.WaitGroup
				defer wait.Wait()
				wait.Go(func() { c.do(s, client, before) })
				time.Sleep(500 * time.Millisecond)
				// With another TTL no goroutine of the Locker waits for another one.
				lock := s.obtain(client, time.Hour, mine)
				if took := time.Since(began); took != c.took {
					s.Errorf("it took %v, want %v", took, c.took)
				}
				if err := lock.Held().Err(); err != nil {
					s.Error(err)
				}
			})
		})
	}
}

// Whoever waits for another goroutine with the same Token waits no longer than its context lasts.
func TestSameTokenAndTheContext(t *testing.T) {
	play(t, func(s *server) {
		c, backend := s.process()
		mine := &redislock.Options{Token: "foo"}
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1,
			ReplyDelay: time.Minute})
		go c.Obtain(s.Context(), "k", time.Hour, mine)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Obtain(ctx, "k", time.Hour, mine)
		if took := time.Since(began); took != time.Second ||
			!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redislock.ErrNotObtained) {
			s.Errorf("Obtain = %v after %v, want the end of its context", err, took)
		}
		time.Sleep(time.Minute)
	})
}

// A lock that is nested in another one has a Token of its own, and ends by itself: the outer one
// can be obtained again meanwhile and afterwards.
func TestSameTokenWithANestedLock(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		outer := &redislock.Options{Token: "outer"}
		first := s.obtain(c, time.Minute, outer)
		ctx := first.Held().Context(s.Context())
		nested, err := c.Obtain(ctx, "k", time.Minute, &redislock.Options{Token: "nested"})
		if err != nil {
			s.Fatal(err)
		}
		for token, want := range map[string]*redislock.Lock{"outer": first, "nested": nested} {
			again := s.obtain(c, time.Minute, &redislock.Options{Token: token})
			if again.Held() != want.Held() {
				s.Errorf("the token %s gave another lock", token)
			}
		}
		s.is("Release", nested.Release(s.Context()), nil)
		synctest.Wait()
		s.obtain(c, time.Minute, outer)
		_, err = c.Obtain(s.Context(), "k", time.Minute, &redislock.Options{Token: "nested"})
		s.is("Obtain with the token of what has ended", err, redislock.ErrNotObtained)
		s.is("Release", first.Release(s.Context()), nil)
	})
}

// If a lock is lost and nobody knows it yet, the same token is tried again as the strategy says.
func TestSameTokenAfterALoss(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		mine := &redislock.Options{Token: "foo",
			RetryStrategy: redislock.LinearBackoff(time.Second)}
		lost := s.obtain(c, time.Minute, mine)
		s.memory.Faults().Give("k", "a thief", 5*time.Second)
		began := time.Now()
		lock := s.obtain(c, time.Minute, mine)
		if took := time.Since(began); took != 5*time.Second {
			s.Errorf("it took %v, want as long as the other one had it", took)
		}
		s.is("Release of what was lost", lost.Release(s.Context()), redislock.ErrLockNotHeld)
		s.is("Release", lock.Release(s.Context()), nil)
	})
}

// A loss that nobody knows yet is found by Release or Refresh. There is no TTL then.
func TestLossIsFound(t *testing.T) {
	for name, find := range map[string]func(*server, *redislock.Lock) (err, want error){
		"Release": func(s *server, l *redislock.Lock) (error, error) {
			return l.Release(s.Context()), redislock.ErrLockNotHeld
		},
		"Refresh": func(s *server, l *redislock.Lock) (error, error) {
			return l.Refresh(s.Context(), time.Minute, nil), redislock.ErrNotObtained
		},
	} {
		play(t, func(s *server) {
			c, _ := s.process()
			lock := s.obtain(c, time.Minute, nil)
			s.memory.Faults().Give("k", "a thief", time.Hour)
			err, want := find(s, lock)
			s.is(name, err, want)
			if left, err := lock.TTL(s.Context()); left != 0 || err != nil {
				s.Errorf("TTL after the loss: %v, %v", left, err)
			}
		})
	}
}

// asked is a backend that counts how often it is asked for a key.
type asked struct {
	*memhold.Backend
	times *atomic.Int32
}

func (b asked) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	b.times.Add(1)
	return b.Backend.Acquire(ctx, claim)
}

// Every try asks the server, whatever this process has, and nothing is handed over in memory: so
// other processes have the same chance.
func TestEveryTryAsks(t *testing.T) {
	play(t, func(s *server) {
		backend := asked{s.memory.Client(), new(atomic.Int32)}
		defer backend.Close()
		c := redislock.NewOver(backend)
		defer c.Close()
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, ReplyDelay: time.Second})
		const tries = 5
		var wait sync.WaitGroup
		for range tries {
			wait.Go(func() {
				lock, err := c.Obtain(s.Context(), "k", time.Minute, nil)
				if err == nil {
					err = lock.Release(s.Context())
				}
				if err != nil {
					s.is("Obtain", err, redislock.ErrNotObtained)
				}
			})
		}
		wait.Wait()
		if n := backend.times.Load(); n != tries {
			s.Errorf("%d tries asked the server %d times", tries, n)
		}
	})
}

func TestSeveralKeys(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, _ := s.process()
		keys := []string{"k", "j", "k"}
		lock, err := a.ObtainMulti(s.Context(), keys, time.Second, nil)
		if keys[0] = "x"; err != nil || lock.Key() != "k" || len(lock.Keys()) != 3 {
			s.Fatal(lock, err)
		}
		_, err = b.ObtainMulti(s.Context(), []string{"i", "j"}, time.Second, nil)
		s.is("ObtainMulti", err, redislock.ErrNotObtained)
		_, err = b.Obtain(s.Context(), "i", time.Second, nil)
		s.is("Obtain of what was not obtained", err, nil)
		s.is("Release", lock.Release(s.Context()), nil)
		s.obtain(b, time.Second, nil)
	})
}

func TestRetry(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, _ := s.process()
		s.obtain(a, time.Hour, nil)
		limited := func(strategy redislock.RetryStrategy) redislock.RetryStrategy {
			return redislock.LimitRetry(strategy, 4)
		}
		const ms = time.Millisecond
		for name, c := range map[string]struct {
			strategy redislock.RetryStrategy
			takes    time.Duration
			ended    bool // the context
		}{
			"none":        {redislock.NoRetry(), 0, false},
			"limited":     {limited(redislock.LinearBackoff(time.Second)), 4 * time.Second, false},
			"for the TTL": {redislock.LinearBackoff(3 * time.Second), 10 * time.Second, true},
			"exponential": {limited(redislock.ExponentialBackoff(0, 0)), (4 + 8 + 16 + 32) * ms,
				false},
			"within bounds": {limited(redislock.ExponentialBackoff(6*ms, 10*ms)),
				(6 + 8 + 10 + 10) * ms, false},
		} {
			began := time.Now()
			_, err := b.Obtain(s.Context(), "k", 10*time.Second,
				&redislock.Options{RetryStrategy: c.strategy})
			if took := time.Since(began); took != c.takes {
				s.Errorf("%s: it took %v, want %v", name, took, c.takes)
			}
			if c.ended != errors.Is(err, context.DeadlineExceeded) ||
				!errors.Is(err, redislock.ErrNotObtained) {
				s.Errorf("%s: %v", name, err)
			}
			if !c.ended {
				s.is(name, err, redislock.ErrNotObtained)
			}
		}
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := b.Obtain(ctx, "k", time.Millisecond,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Minute)})
		if !errors.Is(err, redislock.ErrNotObtained) || !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("Obtain = %v, want ErrNotObtained with the error of the context", err)
		}
	})
}

// A context with a deadline bounds the tries, and the TTL does not. The delay does not overflow.
func TestRetryForLong(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, _ := s.process()
		s.obtain(a, time.Minute, nil)
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		_, err := b.Obtain(ctx, "k", time.Second,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})
		s.is("Obtain", err, nil)
		strategy := redislock.ExponentialBackoff(0, 0)
		for i := range 100 {
			if delay := strategy.NextBackoff(); delay <= 0 {
				s.Fatalf("delay %d is %v", i, delay)
			}
		}
	})
}

// If the server does not answer, Obtain fails at once, also after it was refused.
func TestNoAnswerAfterARefusal(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		b, backend := s.process()
		s.obtain(a, time.Hour, nil)
		time.AfterFunc(500*time.Millisecond, func() {
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
				Err: errors.New("down")})
		})
		began := time.Now()
		_, err := b.Obtain(s.Context(), "k", time.Minute,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)})
		if took := time.Since(began); took != time.Second ||
			!errors.Is(err, holdfast.ErrUnavailable) {
			s.Errorf("Obtain = %v after %v, want ErrUnavailable from the second try", err, took)
		}
	})
}

// If the context ends in a try, the error says so, and that somebody had the lock before.
func TestContextEndsInATry(t *testing.T) {
	for name, strategy := range map[string]redislock.RetryStrategy{
		"one of many": redislock.LinearBackoff(time.Second),
		"the last":    redislock.LimitRetry(redislock.LinearBackoff(time.Second), 1),
	} {
		play(t, func(s *server) {
			a, _ := s.process()
			b, backend := s.process()
			lock := s.obtain(a, time.Hour, nil)
			ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
			defer cancel()
			time.AfterFunc(500*time.Millisecond, func() {
				backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
					ReplyDelay: time.Minute})
			})
			_, err := b.Obtain(ctx, "k", time.Minute,
				&redislock.Options{RetryStrategy: strategy})
			if !errors.Is(err, redislock.ErrNotObtained) ||
				!errors.Is(err, context.DeadlineExceeded) {
				s.Errorf("%s: Obtain = %v, want ErrNotObtained with the error of the context", name,
					err)
			}
			err = lock.Refresh(ctx, time.Minute, nil)
			if n := strings.Count(err.Error(), context.DeadlineExceeded.Error()); n != 1 {
				s.Errorf("%s: the error names the end of the context %d times: %v", name, n, err)
			}
		})
	}
}

// The cause of a context may be the end of another lock, or why another was not obtained. That says
// nothing of this one.
func TestContextOfAnotherLock(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		released, err := a.Obtain(s.Context(), "released", time.Minute, nil)
		if err != nil {
			s.Fatal(err)
		}
		s.is("Release", released.Release(s.Context()), nil)
		for _, cause := range []error{
			&holdfast.LostError{Key: "lost", Reason: errors.New("gone")},
			&holdfast.LostError{Key: "lost", Reason: holdfast.ErrClosed},
			&holdfast.HeldError{Key: "held"},
			released.Held().Err(),
		} {
			ctx, cancel := context.WithCancelCause(s.Context())
			cancel(cause)
			ended := func(what string, err error) {
				s.Helper()
				if !errors.Is(err, context.Canceled) || errors.Is(err, redislock.ErrNotObtained) ||
					errors.Is(err, redislock.ErrLockNotHeld) {
					s.Errorf("%v: %s = %v, want the error of the context alone", cause, what, err)
				}
			}
			_, err := a.Obtain(ctx, "k", time.Minute, nil)
			ended("Obtain", err)
			lock, err := a.Obtain(s.Context(), "k", time.Minute, nil)
			if err != nil {
				s.Fatal(err)
			}
			ended("Refresh", lock.Refresh(ctx, time.Minute, nil))
			ended("Release", lock.Release(ctx))
			s.is("Release", lock.Release(s.Context()), redislock.ErrLockNotHeld)
			synctest.Wait() // the release goes on in the background
		}
	})
}

// A lock of several keys has ended when one of them was released by itself.
func TestReleaseOfWhatWasReleasedInPart(t *testing.T) {
	play(t, func(s *server) {
		a, _ := s.process()
		lock, err := a.ObtainMulti(s.Context(), []string{"k", "j", "i"}, time.Minute, nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, key := range []string{"k", "j"} {
			s.is("Release", lock.Held().Lock(key).Release(s.Context()), nil)
		}
		s.is("Refresh", lock.Refresh(s.Context(), time.Minute, nil), redislock.ErrNotObtained)
		s.is("Release", lock.Release(s.Context()), redislock.ErrLockNotHeld)
	})
}

// Obtain reports a missing answer at once. Refresh tries again.
func TestNoAnswer(t *testing.T) {
	play(t, func(s *server) {
		a, backend := s.process()
		mine := &redislock.Options{Token: "foo",
			RetryStrategy: redislock.LinearBackoff(time.Second)}
		lock := s.obtain(a, time.Minute, mine)
		remove := backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals,
			Err: holdfast.ErrUnavailable})
		if _, err := a.Obtain(s.Context(), "k", time.Minute, mine); !errors.Is(err,
			holdfast.ErrUnavailable) || errors.Is(err, redislock.ErrNotObtained) {
			s.Errorf("Obtain with the token in use = %v, want ErrUnavailable alone", err)
		}
		remove()
		backend.Faults().Freeze()
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := a.Obtain(ctx, "j", time.Minute,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redislock.ErrNotObtained) {
			s.Errorf("Obtain = %v, want the error of the context alone", err)
		}
		time.AfterFunc(20*time.Second, backend.Faults().Thaw)
		s.is("Refresh", lock.Refresh(s.Context(), time.Minute,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Second)}), nil)
	})
}

// A key may have any character, and stands for itself alone.
func TestTokenOfKeysWithAnyCharacter(t *testing.T) {
	for _, c := range []struct {
		mine        []string
		theirs      string
		token, same string
	}{
		{[]string{"x", "y"}, "x\x00y", "worker", "worker"},
		{[]string{"x", "y"}, "x y", "worker", "worker"},
		{[]string{"x", "y"}, `x" "y`, "worker", "worker"},
		{[]string{"ab"}, "a", "c", "bc"},
	} {
		play(t, func(s *server) {
			a, _ := s.process()
			b, _ := s.process()
			_, err := a.ObtainMulti(s.Context(), c.mine, time.Minute,
				&redislock.Options{Token: c.token})
			s.is("Obtain", err, nil)
			_, err = b.Obtain(s.Context(), c.theirs, time.Minute, nil)
			s.is("Obtain by another process", err, nil)
			_, err = a.Obtain(s.Context(), c.theirs, time.Minute, &redislock.Options{Token: c.same})
			s.is("Obtain of what another process has", err, redislock.ErrNotObtained)
		})
	}
}

// The label that others see has the metadata if both together are allowed.
func TestLabel(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		for metadata, there := range map[string]bool{strings.Repeat("m", 106): true,
			strings.Repeat("m", 107): false, "a~ ": true, "\x7f": false, "\x1f": false,
			"é": false} {
			lock := s.obtain(c, time.Minute, &redislock.Options{Metadata: metadata})
			entry, err := s.memory.Inspect(s.Context(), "k")
			s.is("Inspect", err, nil)
			want := lock.Token()
			if there {
				want += metadata
			}
			if label := driver.ParseOwner(entry.Holder.Owner).Label; label != want {
				s.Errorf("with the metadata %q the label is %q, want %q", metadata, label, want)
			}
			s.is("Release", lock.Release(s.Context()), nil)
		}
	})
}

func TestLongMetadata(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		for _, metadata := range []string{strings.Repeat("m", 1000), "\x00\xff"} {
			lock := s.obtain(c, time.Minute, &redislock.Options{Metadata: metadata})
			if lock.Metadata() != metadata {
				s.Errorf("the metadata are %q", lock.Metadata())
			}
			s.is("Release", lock.Release(s.Context()), nil)
		}
	})
}

type wrapped struct{ *redis.Client }

// unhashable is a wrapper that cannot be a key of a map.
type unhashable struct {
	*redis.Client
	_ []redis.Hook
}

// Obtain takes the clients of the library and no others. One that it refuses does no harm to Close,
// and none to other Clients.
func TestClients(t *testing.T) {
	const nobody = "127.0.0.1:1"
	client := redis.NewClient(&redis.Options{Addr: nobody, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nobody},
		MaxRedirects: -1, DialerRetries: 1})
	defer cluster.Close()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, c := range map[string]struct {
		client redislock.RedisClient
		want   error
	}{
		"nil":                   {nil, holdfast.ErrInvalid},
		"a nil Client":          {(*redis.Client)(nil), holdfast.ErrInvalid},
		"a nil ClusterClient":   {(*redis.ClusterClient)(nil), holdfast.ErrInvalid},
		"a Ring":                {ring, holdfast.ErrInvalid},
		"a wrapper":             {wrapped{client}, holdfast.ErrInvalid},
		"an unhashable wrapper": {unhashable{Client: client}, holdfast.ErrInvalid},
		"a Client":              {client, holdfast.ErrUnavailable},
		"a ClusterClient":       {cluster, holdfast.ErrUnavailable},
	} {
		over := redislock.New(c.client)
		for range 2 {
			if _, err := over.Obtain(t.Context(), "k", time.Minute, nil); !errors.Is(err, c.want) {
				t.Errorf("%s: Obtain = %v, want %v", name, err, c.want)
			}
			if err := over.Close(); err != nil {
				t.Errorf("%s: Close = %v", name, err)
			}
		}
	}
}

func TestInvalid(t *testing.T) {
	long := strings.Repeat("x", 129)
	play(t, func(s *server) {
		c, _ := s.process()
		for name, f := range map[string]func() (*redislock.Lock, error){
			"no client": func() (*redislock.Lock, error) {
				return redislock.Obtain(s.Context(), nil, "k", time.Second, nil)
			},
			"a wrapper": func() (*redislock.Lock, error) {
				return redislock.Obtain(s.Context(), wrapped{}, "k", time.Second, nil)
			},
			"no key": func() (*redislock.Lock, error) {
				return c.Obtain(s.Context(), "", time.Second, nil)
			},
			"no keys": func() (*redislock.Lock, error) {
				return c.ObtainMulti(s.Context(), nil, time.Second, nil)
			},
			"no context to refresh": func() (*redislock.Lock, error) {
				var none context.Context
				return nil, s.obtain(c, time.Second, nil).Refresh(none, time.Second, nil)
			},
			"no context": func() (*redislock.Lock, error) {
				var none context.Context
				return c.Obtain(none, "k", time.Second, nil)
			},
			"TTL": func() (*redislock.Lock, error) {
				return c.Obtain(s.Context(), "j", 366*24*time.Hour+1, nil)
			},
			"token": func() (*redislock.Lock, error) {
				return c.Obtain(s.Context(), "k", time.Second, &redislock.Options{Token: long})
			},
		} {
			if _, err := f(); !errors.Is(err, holdfast.ErrInvalid) {
				s.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

// brief is a backend with a longest TTL, as a quorum with a short guard has one.
type brief struct{ *memhold.Backend }

func (brief) CheckTTL(ttl time.Duration) error {
	if ttl > time.Second {
		return &driver.Error{Invalid: true, Err: errors.New("longer than a second")}
	}
	return nil
}

// A backend that does not allow the default TTL of Holdfast allows others.
func TestBackendWithALongestTTL(t *testing.T) {
	play(t, func(s *server) {
		client := redislock.NewOver(brief{s.memory})
		defer client.Close()
		if _, err := client.Obtain(s.Context(), "k", time.Minute, nil); !errors.Is(err,
			holdfast.ErrInvalid) {
			s.Errorf("Obtain for longer = %v, want ErrInvalid", err)
		}
		if err := s.obtain(client, time.Second, nil).Release(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestClose(t *testing.T) {
	play(t, func(s *server) {
		c, _ := s.process()
		lock := s.obtain(c, time.Minute, nil)
		s.is("Close", c.Close(), nil)
		if lock.Held().Err() == nil || !s.isFree() {
			s.Errorf("after Close: %v, free: %v", lock.Held().Err(), s.isFree())
		}
		s.is("Close", c.Close(), nil)
		s.is("Release", s.obtain(c, time.Minute, nil).Release(s.Context()), nil)
	})
}

// Close says that locks may be left.
func TestCloseWithoutAnAnswer(t *testing.T) {
	play(t, func(s *server) {
		c, backend := s.process()
		s.obtain(c, time.Minute, nil)
		backend.Faults().Freeze()
		if err := c.Close(); !errors.Is(err, holdfast.ErrUnknown) {
			s.Errorf("Close = %v, want ErrUnknown", err)
		}
	})
}

// Close returns when all locks are released, also if another Close has begun to do so, with the
// same error. An Obtain that comes meanwhile obtains its lock when that is done.
func TestCloseTwiceAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		late memhold.Fault
		want error
	}{
		"answered":     {memhold.Fault{Delay: 2 * time.Second}, nil},
		"not answered": {memhold.Fault{CutReply: true}, holdfast.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *server) {
				client, backend := s.process()
				s.obtain(client, time.Minute, nil)
				c.late.Calls = memhold.Releases
				defer backend.Faults().Inject(c.late)()
				var errs [2]error
				var took [2]time.Duration
				var wait sync.WaitGroup
				began := time.Now()
				for i := range errs {
					wait.Go(func() { errs[i], took[i] = client.Close(), time.Since(began) })
				}
				synctest.Wait()
				s.obtain(client, time.Minute, nil)
				obtained := time.Since(began)
				wait.Wait()
				if errs[0] != errs[1] || !errors.Is(errs[0], c.want) {
					s.Errorf("Close = %v and %v, want %v", errs[0], errs[1], c.want)
				}
				if took[0] != took[1] || took[0] < c.late.Delay || obtained != took[0] {
					s.Errorf("Close took %v, and Obtain %v", took, obtained)
				}
			})
		})
	}
}

// A TTL that is shorter than Holdfast has counts as the shortest, also if it is that of the first
// lock of a Client.
func TestShortTTL(t *testing.T) {
	for _, ttl := range []time.Duration{math.MinInt64, -1, 0, 1, 10*time.Millisecond - 1} {
		play(t, func(s *server) {
			c, _ := s.process()
			lock := s.obtain(c, ttl, nil)
			s.is("Refresh", lock.Refresh(s.Context(), ttl, nil), nil)
			if left, err := lock.TTL(s.Context()); left != 10*time.Millisecond || err != nil {
				s.Errorf("the TTL of %v is %v, %v", ttl, left, err)
			}
		})
	}
}

// slow is a backend whose releases take effect two seconds late.
type slow struct{ *memhold.Backend }

func (b slow) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	time.Sleep(2 * time.Second)
	return b.Backend.Release(ctx, claim)
}

// A Close ends no Obtain that is under way: that obtains a lock when Close is done.
func TestCloseWhileOthersObtain(t *testing.T) {
	for name, c := range map[string]struct {
		others time.Duration // how long another process has the key
		answer time.Duration // how late the first try is answered; Close comes before
		ctx    time.Duration // how long the context lasts
		want   time.Duration // when the lock is there; 0: never
	}{
		"between two tries":                  {3 * time.Second, 0, time.Minute, 3 * time.Second},
		"while the server grants":            {0, time.Second, time.Minute, 3 * time.Second},
		"and the context ends before it can": {0, time.Second, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *server) {
				if c.others > 0 {
					s.memory.Faults().Give("k", "another", c.others)
				}
				backend := slow{s.memory.Client()}
				s.Cleanup(func() { backend.Close() })
				client := redislock.NewOver(backend)
				closed := make(chan error, 1)
				s.Cleanup(func() {
					s.is("Close", errors.Join(<-closed, client.Close()), nil)
				})
				backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1,
					ReplyDelay: c.answer})
				time.AfterFunc(500*time.Millisecond, func() { closed <- client.Close() })
				ctx, cancel := context.WithTimeout(s.Context(), c.ctx)
				defer cancel()
				options := &redislock.Options{}
				if c.others > 0 {
					options.RetryStrategy = redislock.LinearBackoff(time.Second)
				}
				began := time.Now()
				_, err := client.Obtain(ctx, "k", time.Minute, options)
				switch took := time.Since(began); {
				case c.want > 0 && (err != nil || took != c.want):
					s.Errorf("Obtain = %v after %v, want the lock after %v", err, took, c.want)
				case c.want == 0 && (!errors.Is(err, context.DeadlineExceeded) || took != c.ctx ||
					errors.Is(err, redislock.ErrNotObtained)):
					s.Errorf("Obtain = %v after %v, want the end of its context", err, took)
				}
			})
		})
	}
}

// odd is a context that panics in the last of some calls.
type odd struct {
	context.Context
	left *int
}

func (o odd) count() {
	if *o.left--; *o.left == 0 {
		panic("a fault of the caller's")
	}
}

func (o odd) Deadline() (time.Time, bool) { o.count(); return o.Context.Deadline() }
func (o odd) Done() <-chan struct{}       { o.count(); return o.Context.Done() }
func (o odd) Err() error                  { o.count(); return o.Context.Err() }
func (o odd) Value(key any) any           { o.count(); return o.Context.Value(key) }

// obtainOddly obtains the key with a context that panics in its at-th call, and reports whether it
// did. A context with a deadline is asked in the middle of a try, another one before and after.
func (s *server) obtainOddly(c *redislock.Client, bounded bool, at int,
	opt *redislock.Options) (panicked bool) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	if bounded {
		ctx, cancel = context.WithTimeout(s.Context(), time.Hour)
	}
	defer cancel()
	defer func() { panicked = recover() != nil }()
	if _, err := c.Obtain(odd{ctx, &at}, "k", time.Minute, opt); err != nil {
		s.Error(err)
	}
	return
}

// oddly calls f with a context in which a call of Obtain panics, until there are no more calls.
func oddly(t *testing.T, f func(s *server, c *redislock.Client, bounded bool,
	at int) (panicked bool)) {
	t.Helper()
	for _, bounded := range []bool{false, true} {
		for at, panicked := 1, true; panicked; at++ {
			play(t, func(s *server) {
				c, _ := s.process()
				panicked = f(s, c, bounded, at)
			})
			if !panicked && at < 6 {
				t.Errorf("bounded %v: only %d calls of the context", bounded, at-1)
			}
		}
	}
}

// If the caller's context panics, whenever that is, nobody has the lock, and its Token can be used
// again.
func TestContextThatPanics(t *testing.T) {
	oddly(t, func(s *server, c *redislock.Client, bounded bool, at int) bool {
		mine := &redislock.Options{Token: "foo"}
		panicked := s.obtainOddly(c, bounded, at, mine)
		if panicked {
			if synctest.Wait(); !s.isFree() {
				s.Errorf("bounded %v, call %d: the lock is held", bounded, at)
			}
			s.is("Release", s.obtain(c, time.Minute, mine).Release(s.Context()), nil)
		}
		return panicked
	})
}

// If the caller's context panics while a lock is obtained again with its Token, those who have the
// lock keep it.
func TestContextThatPanicsWithATokenInUse(t *testing.T) {
	oddly(t, func(s *server, c *redislock.Client, bounded bool, at int) bool {
		mine := &redislock.Options{Token: "foo"}
		first := s.obtain(c, time.Minute, mine)
		panicked := s.obtainOddly(c, bounded, at, mine)
		synctest.Wait()
		s.obtain(c, time.Minute, mine)
		s.is("Release", first.Release(s.Context()), nil)
		if !s.isFree() {
			s.Errorf("bounded %v, call %d: the lock is held", bounded, at)
		}
		return panicked
	})
}
