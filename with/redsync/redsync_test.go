package redsync_test

import (
	"context"
	"encoding/base64"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

var errWhy = errors.New("the caller's reason")

// servers are what mutexes are kept in.
type servers struct {
	t     *testing.T
	nodes []*memhold.Backend
}

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, nodes int, f func(*testing.T, *servers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{t: t}
		for range nodes {
			node := memhold.New()
			t.Cleanup(func() { node.Close() })
			s.nodes = append(s.nodes, node)
		}
		f(t, s)
	})
}

// process returns the Redsync of another process.
func (s *servers) process() *redsync.Redsync {
	rs, _ := s.faulty()
	return rs
}

// faulty returns a process, and the clients that it has of the servers.
func (s *servers) faulty() (*redsync.Redsync, []*memhold.Backend) {
	var pools []redis.Pool
	var clients []*memhold.Backend
	for _, node := range s.nodes {
		clients = append(clients, node.Client())
		pools = append(pools, redis.NewPool(clients[len(clients)-1]))
	}
	rs := redsync.New(pools...)
	s.t.Cleanup(func() { rs.Close() })
	return rs, clients
}

// must fails the test if something that has to succeed did not.
func (s *servers) must(ok bool, err error) {
	s.t.Helper()
	if !ok || err != nil {
		s.t.Fatal(ok, err)
	}
}

func (s *servers) lock(m *redsync.Mutex) {
	s.t.Helper()
	s.must(true, m.Lock())
}

func (s *servers) unlock(m *redsync.Mutex) {
	s.t.Helper()
	ok, err := m.Unlock()
	s.must(ok, err)
}

// isTaken checks for the ErrTaken of the old library, as its users do.
func isTaken(t *testing.T, what string, err error) {
	t.Helper()
	var taken *redsync.ErrTaken
	if !errors.As(err, &taken) || !slices.Equal(taken.Nodes, []int{0}) {
		t.Errorf("%s: %v, want an ErrTaken of node 0", what, err)
	}
}

func TestLockUnlockAndAgain(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k"), s.process().NewMutex("k")
		var token holdfast.Token
		for range 3 {
			for _, m := range []*redsync.Mutex{a, b} {
				s.lock(m)
				if m.Held().Token() <= token {
					t.Errorf("token %v after %v", m.Held().Token(), token)
				}
				token = m.Held().Token()
				s.unlock(m)
			}
		}
		if a.Name() != "k" {
			t.Errorf("the name is %q", a.Name())
		}
	})
}

// Eight seconds, 32 tries, 50 to 250 ms.
func TestDefaults(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k"), s.process().NewMutex("k")
		if !a.Until().IsZero() || a.Value() != "" || a.Held() != nil {
			t.Errorf("before the first lock: %v, %q, %v", a.Until(), a.Value(), a.Held())
		}
		s.lock(a)
		value, err := base64.StdEncoding.DecodeString(a.Value())
		if err != nil || len(value) != 16 {
			t.Errorf("the value is %q (%v), want 16 bytes in base64", a.Value(), err)
		}
		entry, err := s.nodes[0].Inspect(t.Context(), "k")
		if err != nil || entry.Holder.ExpiresIn != 8*time.Second {
			t.Errorf("the key expires in %v, %v", entry.Holder.ExpiresIn, err)
		}
		const valid = 8*time.Second - 80*time.Millisecond - 2*time.Millisecond
		if left := time.Until(a.Until()); left != valid {
			t.Errorf("valid for %v, want %v", left, valid)
		}
		s.must(a.Extend())
		began := time.Now()
		isTaken(t, "Lock", b.Lock())
		if took := time.Since(began); took < 31*50*time.Millisecond ||
			took > 31*250*time.Millisecond {
			t.Errorf("32 tries took %v", took)
		}
	})
}

func TestTries(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.lock(s.process().NewMutex("k"))
		var asked []int
		b := s.process().NewMutex("k", redsync.WithTries(4),
			redsync.WithRetryDelayFunc(func(tries int) time.Duration {
				asked = append(asked, tries)
				return 10 * time.Millisecond
			}))
		began := time.Now()
		err := b.Lock()
		isTaken(t, "Lock", err)
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Holder.Host == "" {
			t.Errorf("Lock = %v, want one that says who has it", err)
		}
		if took := time.Since(began); took != 30*time.Millisecond ||
			!slices.Equal(asked, []int{1, 2, 3}) {
			t.Errorf("it took %v, with delays for %v", took, asked)
		}
		asked = nil
		isTaken(t, "TryLock", b.TryLock())
		if len(asked) != 0 {
			t.Errorf("TryLock has waited: %v", asked)
		}
		if err := s.process().NewMutex("k", redsync.WithTries(0)).Lock(); err != redsync.ErrFailed {
			t.Errorf("Lock without a try = %v, want ErrFailed", err)
		}
	})
}

// If a lock is unlocked meanwhile, the next try gets it.
func TestTriesUntilUnlocked(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k"), s.process().NewMutex("k",
			redsync.WithRetryDelay(100*time.Millisecond))
		s.lock(a)
		time.AfterFunc(250*time.Millisecond, func() { a.Unlock() })
		began := time.Now()
		s.lock(b)
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("it took %v, want the third delay to be over", took)
		}
	})
}

// A lock is not renewed. After its expiry another has it, and its former holder is told of that.
func TestExpiry(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k", redsync.WithExpiry(time.Second)),
			s.process().NewMutex("k")
		s.lock(a)
		ctx := a.Held().Context(t.Context())
		time.Sleep(900 * time.Millisecond)
		isTaken(t, "TryLock before the expiry", b.TryLock())
		if ctx.Err() != nil {
			t.Error("the context has ended before the expiry")
		}
		time.Sleep(100 * time.Millisecond)
		s.must(true, b.TryLock())
		if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
			t.Errorf("the context ended with %v, want the loss", context.Cause(ctx))
		}
		ok, err := a.Extend()
		isTaken(t, "Extend after the expiry", err)
		if ok || !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Errorf("Extend after the expiry = %v, %v", ok, err)
		}
		if ok, err := a.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("Unlock after the expiry = %v, %v; want ErrLockAlreadyExpired", ok, err)
		}
		s.unlock(b) // unharmed
	})
}

func TestExtend(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k", redsync.WithExpiry(time.Second)),
			s.process().NewMutex("k")
		s.lock(a)
		for range 5 {
			time.Sleep(600 * time.Millisecond)
			until := a.Until()
			s.must(a.Extend())
			if moved := a.Until().Sub(until); moved != 600*time.Millisecond {
				t.Errorf("Until has moved by %v", moved)
			}
			s.must(a.Valid())
		}
		isTaken(t, "TryLock", b.TryLock())
		s.unlock(a)
		if ok, err := a.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("a second Unlock = %v, %v", ok, err)
		}
		if ok, err := a.Valid(); ok || err != nil {
			t.Errorf("Valid after Unlock = %v, %v", ok, err)
		}
		if ok, err := b.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("Unlock of what was never locked = %v, %v", ok, err)
		}
	})
}

func TestSetNXOnExtend(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k", redsync.WithSetNXOnExtend()), s.process().NewMutex("k")
		s.lock(a)
		token := a.Held().Token()
		time.Sleep(9 * time.Second)
		s.must(a.Extend())
		if a.Held().Token() <= token || a.Held().Err() != nil {
			t.Errorf("%v after %v: %v", a.Held(), token, a.Held().Err())
		}
		time.Sleep(9 * time.Second)
		s.lock(b)
		ok, err := a.Extend()
		if isTaken(t, "Extend of what another has", err); ok {
			t.Error("it is extended")
		}
	})
}

// Every try asks the server, even if the process has the lock as far as it knows.
func TestKeyIsRemoved(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs := s.process()
		a, b := rs.NewMutex("k"), rs.NewMutex("k")
		s.lock(a)
		isTaken(t, "TryLock", b.TryLock())
		s.nodes[0].Faults().Lose("k")
		s.must(true, b.TryLock())
		ok, err := a.Extend()
		if isTaken(t, "Extend of what is lost", err); ok {
			t.Error("it is extended")
		}
		s.unlock(b)
	})
}

func TestContexts(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k"), s.process().NewMutex("k")
		s.lock(a)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errWhy)
		defer cancel()
		began := time.Now()
		if err := b.LockContext(ctx); !errors.Is(err, redsync.ErrFailed) ||
			!errors.Is(err, errWhy) || time.Since(began) != time.Second {
			t.Errorf("LockContext = %v after %v; want ErrFailed, and why", err, time.Since(began))
		}
		if err := b.TryLockContext(ctx); !errors.Is(err, redsync.ErrFailed) {
			t.Errorf("TryLockContext = %v, want ErrFailed", err)
		}
		// Only the wait for the unlock ends with the context.
		if ok, err := a.UnlockContext(ctx); ok || err == nil {
			t.Errorf("UnlockContext = %v, %v; want that it is not confirmed", ok, err)
		}
		synctest.Wait()
		var none context.Context
		s.must(true, b.TryLockContext(none))
		s.must(b.ExtendContext(none))
		s.must(b.ValidContext(none))
		s.must(b.UnlockContext(none))
		s.lock(b)
		byValue := s.process().NewMutex("k", redsync.WithValue(b.Value()))
		s.must(byValue.ExtendContext(none))
		s.must(byValue.UnlockContext(none))
	})
}

// odd is a context that panics when it is asked for its channel for the last of some times.
type odd struct {
	context.Context
	left *int
}

func (o odd) Done() <-chan struct{} {
	if *o.left--; *o.left == 0 {
		panic("a fault of the caller's")
	}
	return o.Context.Done()
}

// If the caller's context panics, whenever that is, nobody has the lock.
func TestContextThatPanics(t *testing.T) {
	for _, queue := range []redsync.Option{redsync.WithRenewal(), redsync.WithQueue()} {
		panics := 0
		for at := 1; at <= 10; at++ {
			play(t, 1, func(t *testing.T, s *servers) {
				m := s.process().NewMutex("k", redsync.WithRenewal(), queue)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer func() {
					if recover() != nil {
						panics++
						s.must(true, s.process().NewMutex("k").TryLock())
					}
				}()
				left := at
				s.must(true, m.LockContext(odd{ctx, &left}))
			})
		}
		if panics < 3 {
			t.Errorf("it panicked %d times; want that it does before and after the request", panics)
		}
	}
}

func TestValues(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		gen := func() (string, error) { return "first", nil }
		rs, clients := s.faulty()
		a := rs.NewMutex("k", redsync.WithGenValueFunc(gen))
		s.lock(a)
		clients[0].Faults().Freeze() // that process is gone
		defer clients[0].Faults().ThawDropping()
		if a.Value() != "first" {
			t.Errorf("the value is %q", a.Value())
		}
		other := s.process().NewMutex("k", redsync.WithValue("second"))
		if ok, err := other.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("Unlock with another value = %v, %v", ok, err)
		}
		ok, err := other.Extend()
		if isTaken(t, "Extend with another value", err); ok {
			t.Error("it is extended")
		}
		same := s.process().NewMutex("k", redsync.WithValue(a.Value()))
		time.Sleep(7 * time.Second)
		s.must(same.Extend())
		s.must(same.Valid())
		time.Sleep(7 * time.Second)
		isTaken(t, "TryLock of what was extended", s.process().NewMutex("k").TryLock())
		s.unlock(same)
		s.lock(s.process().NewMutex("k"))

		fails := s.process().NewMutex("k",
			redsync.WithGenValueFunc(func() (string, error) { return "", errWhy }))
		if err := fails.Lock(); err != errWhy {
			t.Errorf("Lock = %v, want the error of the function", err)
		}
	})
}

// The cause of a context may be the end of another lock. That is no end of this one.
func TestContextOfAnotherLock(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs := s.process()
		released := rs.NewMutex("released")
		s.lock(released)
		s.unlock(released)
		for _, cause := range []error{
			&holdfast.LostError{Key: "lost", Reason: errors.New("gone")},
			&holdfast.LostError{Key: "closed", Reason: holdfast.ErrClosed},
			released.Held().Err(),
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			m := rs.NewMutex("k", redsync.WithSetNXOnExtend())
			if err := m.LockContext(ctx); !errors.Is(err, redsync.ErrFailed) {
				t.Errorf("%v: LockContext = %v, want ErrFailed", cause, err)
			}
			s.lock(m)
			var redisError *redsync.RedisError
			if ok, err := m.ExtendContext(ctx); ok || !errors.As(err, &redisError) ||
				errors.As(err, new(*redsync.ErrTaken)) {
				t.Errorf("%v: ExtendContext = %v, %v; want a RedisError", cause, ok, err)
			}
			s.must(m.Valid())
			if ok, err := m.UnlockContext(ctx); ok || !errors.As(err, &redisError) ||
				errors.Is(err, redsync.ErrLockAlreadyExpired) {
				t.Errorf("%v: UnlockContext = %v, %v; want a RedisError", cause, ok, err)
			}
			if ok, err := m.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
				t.Errorf("%v: Unlock = %v, %v; want ErrLockAlreadyExpired", cause, ok, err)
			}
			synctest.Wait() // the release goes on in the background
		}
	})
}

// If the only server does not answer, the error says so, as before.
func TestNoAnswer(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		a := rs.NewMutex("k", redsync.WithTries(2), redsync.WithRetryDelay(time.Millisecond))
		s.lock(a)
		clients[0].Faults().Freeze()
		var redisError *redsync.RedisError
		began := time.Now()
		err := rs.NewMutex("other", redsync.WithTries(2),
			redsync.WithRetryDelay(time.Millisecond)).Lock()
		if !errors.As(err, &redisError) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v, want a RedisError", err)
		}
		if took := time.Since(began); took != 2*400*time.Millisecond+time.Millisecond {
			t.Errorf("two tries took %v, want a twentieth of the expiry each", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ok, err := a.ExtendContext(ctx); ok || !errors.As(err, &redisError) {
			t.Errorf("Extend = %v, %v; want a RedisError", ok, err)
		}
		clients[0].Faults().Thaw()
	})
}

func TestInvalid(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs := s.process()
		for name, m := range map[string]*redsync.Mutex{
			"no pool":  redsync.New().NewMutex("k"),
			"nil pool": redsync.New(nil).NewMutex("k"),
			"no name":  rs.NewMutex(""),
			"expiry":   rs.NewMutex("k", redsync.WithExpiry(time.Millisecond)),
			"drift":    rs.NewMutex("k", redsync.WithDriftFactor(0.5)),
		} {
			err := m.Lock()
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: Lock = %v, want ErrInvalid", name, err)
			}
			if name == "nil pool" &&
				!strings.Contains(err.Error(), "pool 1 is nil: make one with") {
				t.Errorf("%s: Lock = %v, want the number of the pool and what to do", name, err)
			}
		}
		for _, o := range []redsync.Option{redsync.WithFailFast(true),
			redsync.WithShufflePools(true), redsync.WithTimeoutFactor(0.5),
			redsync.WithTimeoutFactor(1e7), // eighty million seconds
			redsync.WithDriftFactor(0.1), redsync.OptionFunc(func(*redsync.Mutex) {})} {
			m := rs.NewMutex("k", o)
			s.lock(m)
			s.unlock(m)
		}
	})
}

func TestRenewal(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a, b := s.process().NewMutex("k", redsync.WithRenewal()), s.process().NewMutex("k")
		s.lock(a)
		time.Sleep(time.Minute)
		if isTaken(t, "TryLock", b.TryLock()); !a.Until().After(time.Now()) {
			t.Errorf("valid until %v, want a time to come", a.Until())
		}
		s.nodes[0].Faults().Give("k", "a thief", time.Hour)
		<-a.Held().Done()
		if ok, err := a.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("Unlock after a loss = %v, %v", ok, err)
		}
	})
}

func TestQueue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a := s.process().NewMutex("k")
		s.lock(a)
		delay := redsync.WithRetryDelay(time.Second)
		b := s.process().NewMutex("k", delay, redsync.WithQueue())
		time.AfterFunc(1500*time.Millisecond, func() { a.Unlock() })
		began := time.Now()
		s.lock(b)
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("it took %v, want the moment of Unlock", took)
		}
		c := s.process().NewMutex("k", delay, redsync.WithQueue(), redsync.WithTries(3))
		began = time.Now()
		isTaken(t, "Lock", c.Lock())
		if took := time.Since(began); took != 2*time.Second+400*time.Millisecond {
			t.Errorf("it waited for %v, want two delays and a try", took)
		}
	})
}

// endless has so many tries with the longest delay.
func endless(tries int) redsync.Option {
	return redsync.OptionFunc(func(m *redsync.Mutex) {
		redsync.WithTries(tries).Apply(m)
		redsync.WithRetryDelay(math.MaxInt64).Apply(m)
	})
}

// However many tries there are, and however long their delays, Lock asks.
func TestQueueWithoutAnEnd(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		for _, o := range []redsync.Option{redsync.WithTries(math.MaxInt),
			redsync.WithRetryDelay(math.MaxInt64), endless(4), endless(5)} {
			a := s.process().NewMutex("k", redsync.WithQueue(), o)
			s.lock(a)
			time.AfterFunc(time.Hour, func() { a.Unlock() })
			b := s.process().NewMutex("k", redsync.WithQueue(), o)
			s.must(a.Extend())
			s.lock(b)
			s.unlock(b)
		}
	})
}

// The wait in the queue is as long as all tries would take. Negative delays count as none.
func TestQueueForAsLongAsTheTries(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a := s.process().NewMutex("k", redsync.WithRenewal())
		s.lock(a)
		time.AfterFunc(15*time.Second, func() { a.Unlock() })
		b := s.process().NewMutex("k", redsync.WithQueue(), redsync.WithTries(20_001),
			redsync.WithRetryDelay(time.Millisecond))
		s.lock(b)
		s.unlock(b)
		c := s.process().NewMutex("k", redsync.WithQueue(), redsync.WithRetryDelay(-time.Hour))
		s.lock(c)
		s.unlock(c)
	})
}

// A majority decides, and does not wait for the others.
func TestSeveralPools(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		a, b := rs.NewMutex("k"), s.process().NewMutex("k", redsync.WithTries(1))
		clients[2].Faults().Freeze()
		s.lock(a)
		s.must(a.Extend())
		var taken *redsync.ErrTaken
		if err := b.Lock(); !errors.As(err, &taken) || len(taken.Nodes) != 0 {
			t.Errorf("Lock = %v, want an ErrTaken without nodes", err)
		}
		s.unlock(a)
		s.lock(b)
		s.unlock(b)
		clients[1].Faults().Freeze()
		if err := rs.NewMutex("other", redsync.WithTries(1)).Lock(); !errors.Is(err,
			redsync.ErrFailed) {
			t.Errorf("Lock without a majority = %v, want ErrFailed", err)
		}
		clients[1].Faults().Thaw()
		clients[2].Faults().Thaw()
	})
}

// The error of a lock without a majority says which servers have not answered, whatever the times
// and however often it was tried.
func TestErrorNamesSilentServers(t *testing.T) {
	for _, expiry := range []time.Duration{50 * time.Millisecond, time.Second, 8 * time.Second,
		3 * time.Minute, time.Hour} {
		for _, factor := range []float64{0.01, 0.05, 0.25, 0.5, 2} {
			for _, tries := range []int{1, 2, 5} {
				for _, option := range []redsync.Option{redsync.WithFailFast(false),
					redsync.WithQueue()} {
					play(t, 3, func(t *testing.T, s *servers) {
						rs, clients := s.faulty()
						for _, client := range clients[1:] {
							client.Faults().Freeze()
							defer client.Faults().Thaw()
						}
						err := rs.NewMutex("k", redsync.WithExpiry(expiry),
							redsync.WithTries(tries), redsync.WithTimeoutFactor(factor),
							option).Lock()
						for _, name := range []string{"node 2", "node 3"} {
							if !errors.Is(err, redsync.ErrFailed) ||
								!strings.Contains(err.Error(), name) {
								t.Errorf("expiry %v, factor %v, %d tries: %v, want ErrFailed with %q",
									expiry, factor, tries, err, name)
							}
						}
					})
				}
			}
		}
	}
}

// A server has the time of a try to answer.
func TestSlowServers(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		play(t, nodes, func(t *testing.T, s *servers) {
			rs, clients := s.faulty()
			for _, client := range clients {
				client.Faults().Inject(memhold.Fault{ReplyDelay: 390 * time.Millisecond})
			}
			m := rs.NewMutex("k", redsync.WithTries(1))
			s.lock(m)
			s.unlock(m)
			for _, client := range clients {
				client.Faults().Inject(memhold.Fault{ReplyDelay: 410 * time.Millisecond})
			}
			err := rs.NewMutex("other", redsync.WithTries(1)).Lock()
			var silent *redsync.RedisError
			if !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &silent) {
				t.Errorf("%d servers that need longer than a try: %v, want no answer", nodes, err)
			}
		})
	}
}

// Over several servers a try takes at most three times what a server has to answer, also while the
// one before is being taken back.
func TestTimeOfATry(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		s.lock(rs.NewMutex("open"))
		for _, client := range clients[1:] {
			client.Faults().Freeze()
			defer client.Faults().Thaw()
		}
		m := rs.NewMutex("k")
		for range 10 {
			began := time.Now()
			m.TryLock()
			took := time.Since(began)
			if took < 400*time.Millisecond || took > 1200*time.Millisecond {
				t.Errorf("a try took %v; want 400 to 1200 ms", took)
			}
		}
	})
}

// Waiting in the queue of silent servers does not say that somebody has the lock.
func TestQueueOfSilentServers(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		clients[0].Faults().Freeze()
		defer clients[0].Faults().Thaw()
		err := rs.NewMutex("k", redsync.WithQueue(), redsync.WithTries(3)).Lock()
		var silent *redsync.RedisError
		if !errors.As(err, &silent) {
			t.Errorf("Lock = %v, want a RedisError", err)
		}
	})
}

// A context ends the wait for servers that do not answer the first call. Nobody else waits for
// them.
func TestContextWhileItOpens(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		s.lock(rs.NewMutex("open"))
		for _, client := range clients[1:] {
			client.Faults().Freeze()
			defer client.Faults().Thaw()
		}
		began := time.Now()
		for i := range 3 { // each has terms of its own
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := rs.NewMutex("k", redsync.WithDriftFactor(0.1*float64(i+1))).LockContext(ctx)
			if !errors.Is(err, redsync.ErrFailed) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock = %v, want ErrFailed by the context", err)
			}
		}
		if took := time.Since(began); took != 30*time.Millisecond {
			t.Errorf("three locks took %v; want the 10 ms of each context", took)
		}
	})
}

// However long the expiry, Close does not wait for silent servers for long.
func TestCloseOfSilentServers(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		m := rs.NewMutex("k", redsync.WithExpiry(24*time.Hour))
		s.lock(m)
		clients[2].Faults().Freeze()
		defer clients[2].Faults().Thaw()
		s.unlock(m)
		s.lock(m)
		began := time.Now()
		if err := rs.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// counted is a pool that counts how often it is asked for a backend.
type counted struct {
	redis.Pool
	n *int
}

func (c counted) Backend() (driver.Backend, error) {
	*c.n++
	return c.Pool.Backend()
}

// Each pool is asked once, and expiries that hardly differ, as those of a program that computes
// them, need no Locker each.
func TestManyExpiries(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		n := 0
		var pools []redis.Pool
		for _, node := range s.nodes {
			pools = append(pools, counted{redis.NewPool(node.Client()), &n})
		}
		rs := redsync.New(pools...)
		defer rs.Close()
		for i := range 100 {
			s.lock(rs.NewMutex("k"+strconv.Itoa(i),
				redsync.WithExpiry(time.Minute+time.Duration(i)*time.Millisecond)))
		}
		if n != len(pools) {
			t.Errorf("%d backends for %d pools; want one for each", n, len(pools))
		}
		if n := rs.Sites(); n != 1 {
			t.Errorf("%d Lockers; want one", n)
		}
		s.lock(rs.NewMutex("short", redsync.WithExpiry(8*time.Second))) // 400 ms
		s.lock(rs.NewMutex("longer", redsync.WithExpiry(8100*time.Millisecond)))
		if n := rs.Sites(); n != 2 {
			t.Errorf("%d Lockers; want one for 400 and 405 ms", n)
		}
		s.lock(rs.NewMutex("longest", redsync.WithExpiry(8200*time.Millisecond)))
		if n := rs.Sites(); n != 3 {
			t.Errorf("%d Lockers; want another for 410 ms", n)
		}
	})
}

// With an expiry of an hour a try may take minutes, and no Locker minds.
func TestLongExpiry(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		m := s.process().NewMutex("k", redsync.WithExpiry(time.Hour))
		s.lock(m)
		if left := time.Until(m.Until()); left < 59*time.Minute {
			t.Errorf("locked for %v; want an hour", left)
		}
		s.unlock(m)
	})
}

// What is wrong with one mutex does not keep others from their locks.
func TestInvalidSpoilsNoOther(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, queue := range []redsync.Option{redsync.WithFailFast(false), redsync.WithQueue()} {
			play(t, nodes, func(t *testing.T, s *servers) {
				rs := s.process()
				for _, o := range []redsync.Option{redsync.WithTimeoutFactor(-1),
					redsync.WithTimeoutFactor(math.NaN()), redsync.WithTimeoutFactor(math.Inf(1)),
					redsync.WithTimeoutFactor(1e30), redsync.WithTimeoutFactor(1e9),
					redsync.WithTimeoutFactor(0), redsync.WithTimeoutFactor(1e-30),
					redsync.WithExpiry(math.MaxInt64), redsync.WithExpiry(-1),
					redsync.WithDriftFactor(0.5), redsync.WithDriftFactor(-0.1)} {
					err := rs.NewMutex("k", o, queue).Lock()
					if !errors.Is(err, holdfast.ErrInvalid) {
						t.Errorf("Lock = %v, want ErrInvalid", err)
					}
				}
				err := rs.NewMutex("k", redsync.WithTimeoutFactor(-1), queue).Lock()
				const wrong = "expiry 8s times timeout factor -1: "
				if err == nil || !strings.Contains(err.Error(), wrong) {
					t.Errorf("Lock = %v, which does not name what is wrong", err)
				}
				s.lock(rs.NewMutex("k"))
			})
		}
	}
}

// sometimes is a pool that fails for the calls whose numbers it has.
type sometimes struct {
	redis.Pool
	calls *int
	fails []int
}

func (p sometimes) Backend() (driver.Backend, error) {
	*p.calls++
	if slices.Contains(p.fails, *p.calls) {
		return nil, errors.New("out of order")
	}
	return p.Pool.Backend()
}

// A pool that fails is asked again, and those that have not failed go on working.
func TestPoolThatFails(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		calls := 0
		rs := redsync.New(redis.NewPool(s.nodes[0].Client()), redis.NewPool(s.nodes[1].Client()),
			sometimes{redis.NewPool(s.nodes[2].Client()), &calls, []int{1, 3}})
		defer rs.Close()
		m := rs.NewMutex("k")
		if err := m.Lock(); err == nil || !strings.Contains(err.Error(), "pool 3: out of order") {
			t.Errorf("Lock = %v, want the error of pool 3", err)
		}
		s.lock(m)
		s.lock(rs.NewMutex("hour", redsync.WithExpiry(time.Hour)))
		s.must(m.Extend())
		s.unlock(m)
	})
}

// Close closes what the pools gave, also if one of them has not given anything.
func TestCloseClosesTheNodes(t *testing.T) {
	play(t, 2, func(t *testing.T, s *servers) {
		rs := redsync.New(redis.NewPool(s.nodes[0]), redis.NewPool(s.nodes[1]), nil)
		if err := rs.NewMutex("k").Lock(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Lock = %v, want ErrInvalid", err)
		}
		if err := rs.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		for i, node := range s.nodes {
			if _, err := node.Release(t.Context(), driver.Claim{Key: "k"}); err == nil {
				t.Errorf("node %d is open", i+1)
			}
		}
	})
}

// The drift factor is set aside of the expiry.
func TestDrift(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		play(t, nodes, func(t *testing.T, s *servers) {
			for factor, valid := range map[float64]time.Duration{0: 10 * time.Second,
				0.4: 6 * time.Second} {
				m := s.process().NewMutex("k", redsync.WithExpiry(10*time.Second),
					redsync.WithDriftFactor(factor))
				s.lock(m)
				want := valid - 2*time.Millisecond
				if got := time.Until(m.Until()); got != want {
					t.Errorf("with %v valid for %v, want %v", factor, got, want)
				}
				s.unlock(m)
			}
		})
	}
}

// renamed is a server that may say that it is another one.
type renamed struct {
	*memhold.Backend
	name *string
}

func (r renamed) Identity(context.Context) (string, error) { return *r.name, nil }

// One server that is given twice is no majority, whenever it is noticed.
func TestServerGivenTwice(t *testing.T) {
	play(t, 2, func(t *testing.T, s *servers) {
		rs := redsync.New(redis.NewPool(s.nodes[0].Client()), redis.NewPool(s.nodes[0].Client()),
			redis.NewPool(s.nodes[1].Client()))
		defer rs.Close()
		for range 3 {
			if err := rs.NewMutex("k").Lock(); !errors.Is(err, holdfast.ErrInvalid) ||
				!strings.Contains(err.Error(), "same server twice") {
				t.Errorf("Lock = %v, want ErrInvalid", err)
			}
		}
	})
}

// When names lead to the right servers again, locks are granted.
func TestServerGivenTwiceForAWhile(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		first, second, third := "a", "a", "b"
		rs := redsync.New(redis.NewPool(renamed{s.nodes[0], &first}),
			redis.NewPool(renamed{s.nodes[1], &second}),
			redis.NewPool(renamed{s.nodes[2], &third}))
		defer rs.Close()
		m := rs.NewMutex("k")
		if err := m.Lock(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Lock = %v, want ErrInvalid", err)
		}
		second = "c"
		s.lock(m)
	})
}

// A pool without a backend is named, and Close needs none.
func TestPoolWithoutABackend(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, backend := range []driver.Backend{nil, (*memhold.Backend)(nil)} {
			play(t, nodes, func(t *testing.T, s *servers) {
				pools := []redis.Pool{redis.NewPool(backend)}
				for _, node := range s.nodes[1:] {
					pools = append(pools, redis.NewPool(node.Client()))
				}
				rs := redsync.New(pools...)
				for range 2 {
					if err := rs.NewMutex("k").Lock(); !errors.Is(err, holdfast.ErrInvalid) ||
						!strings.Contains(err.Error(), "pool 1 has no backend") {
						t.Errorf("Lock = %v, want ErrInvalid with the pool", err)
					}
				}
				if err := rs.Close(); err != nil {
					t.Errorf("Close = %v", err)
				}
			})
		}
	}
}

// The expiry of a mutex that was locked first bounds no request of another.
func TestFirstExpiryIsNobodyElses(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		play(t, nodes, func(t *testing.T, s *servers) {
			rs, clients := s.faulty()
			expiry := redsync.WithExpiry(time.Minute)
			m := s.process().NewMutex("k", expiry)
			s.lock(m)
			s.lock(rs.NewMutex("first", redsync.WithExpiry(50*time.Millisecond),
				redsync.WithTries(1)))
			for _, client := range clients {
				client.Faults().Inject(memhold.Fault{ReplyDelay: 20 * time.Millisecond})
			}
			by := rs.NewMutex("k", expiry, redsync.WithValue(m.Value()))
			s.must(by.Valid())
			s.must(by.Extend())
			s.must(by.Unlock())
		})
	}
}

// brief is a backend with a longest TTL, as a quorum with a short guard has one.
type brief struct{ *memhold.Backend }

func (brief) CheckTTL(ttl time.Duration) error {
	if ttl > 10*time.Second {
		return &driver.Error{Invalid: true, Err: errors.New("longer than ten seconds")}
	}
	return nil
}

// A backend that does not allow the default TTL of Holdfast allows others.
func TestBackendWithALongestTTL(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs := redsync.New(redis.NewPool(brief{s.nodes[0]}))
		defer rs.Close()
		if err := rs.NewMutex("k", redsync.WithExpiry(time.Minute)).Lock(); !errors.Is(err,
			holdfast.ErrInvalid) {
			t.Errorf("Lock for longer = %v, want ErrInvalid", err)
		}
		m := rs.NewMutex("k")
		s.lock(m)
		s.unlock(m)
	})
}

// Close releases the locks of all terms, though all of them are over the same backends.
func TestCloseReleasesAll(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, other := s.process(), s.process()
		s.lock(rs.NewMutex("short"))
		s.lock(rs.NewMutex("long", redsync.WithExpiry(time.Hour)))
		s.lock(rs.NewMutex("drift", redsync.WithDriftFactor(0.02)))
		if err := rs.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		for _, name := range []string{"short", "long", "drift"} {
			if err := other.NewMutex(name).TryLock(); err != nil {
				t.Errorf("TryLock of %q after Close = %v", name, err)
			}
		}
	})
}

// The lock is granted if it is free on a majority of the servers, whichever they are.
func TestMajorityIsFree(t *testing.T) {
	for taken := range 1 << 4 {
		play(t, 4, func(t *testing.T, s *servers) {
			for i, node := range s.nodes {
				if taken&(1<<i) != 0 {
					node.Faults().Give("k", "foobar", time.Hour)
				}
			}
			err := s.process().NewMutex("k", redsync.WithTries(1)).Lock()
			if free := 4 - bits.OnesCount(uint(taken)); (err == nil) != (free >= 3) {
				t.Errorf("Lock with %d servers free = %v", free, err)
			}
		})
	}
}
