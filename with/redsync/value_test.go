package redsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

// A lock of the old library has its value and nothing else.
func TestValueOfTheOldLibrary(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.nodes[0].Faults().Give("k", "old", 5*time.Second)
		by := s.process().NewMutex("k", redsync.WithValue("old"))
		s.must(by.Valid())
		s.must(by.Extend())
		s.unlock(by)
	})
}

// A lock that is lost between the look at it and the request is not reported as held.
func TestValueOfALockLostMeanwhile(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		clients[0].Faults().Inject(memhold.Fault{Calls: memhold.Releases | memhold.Renewals,
			Delay: 100 * time.Millisecond})
		by := rs.NewMutex("k", redsync.WithValue("old"))
		for _, call := range []func() (bool, error){by.Unlock, by.Extend} {
			s.nodes[0].Faults().Give("k", "old", 5*time.Second)
			time.AfterFunc(50*time.Millisecond, func() { s.nodes[0].Faults().Lose("k") })
			if ok, err := call(); ok || err == nil {
				t.Errorf("%v, %v", ok, err)
			}
		}
	})
}

// An answer that comes when the lease is over is none.
func TestExtendByValueAnsweredLate(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		s.nodes[0].Faults().Give("k", "old", time.Second)
		clients[0].Faults().Inject(memhold.Fault{Calls: memhold.Renewals,
			ReplyDelay: 990 * time.Millisecond})
		by := rs.NewMutex("k", redsync.WithValue("old"), redsync.WithExpiry(time.Second))
		if ok, err := by.Extend(); ok || !errors.Is(err, redsync.ErrExtendFailed) ||
			!errors.Is(err, holdfast.ErrLost) {
			t.Errorf("%v, %v", ok, err)
		}
	})
}

// A server that fails is not one that says that the lock is lost.
func TestExtendByValueRefused(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		play(t, nodes, func(t *testing.T, s *servers) {
			rs, clients := s.faulty()
			for _, c := range clients {
				c.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Key: "k",
					Err: errors.New("down")})
			}
			m := s.process().NewMutex("k")
			s.lock(m)
			ok, err := rs.NewMutex("k", redsync.WithValue(m.Value())).Extend()
			var silent *redsync.RedisError
			if ok || errors.As(err, new(*redsync.ErrTaken)) || nodes == 1 &&
				!errors.As(err, &silent) || nodes > 1 && !errors.Is(err, redsync.ErrExtendFailed) {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
}

// Drift and 2 ms are set aside as after Lock.
func TestUntilOfAnExtendByValue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.nodes[0].Faults().Give("k", "old", time.Second)
		by := s.process().NewMutex("k", redsync.WithValue("old"))
		s.must(by.Extend())
		if left := time.Until(by.Until()); left != 8*time.Second-82*time.Millisecond {
			t.Error(left)
		}
	})
}

// A Mutex without a value has nothing to do with a lock without a label.
func TestUnlockWithoutAValue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		backend := s.nodes[0].Client()
		locker, err := holdfast.New(backend)
		s.must(true, err)
		defer locker.Close()
		lock, err := locker.TryAcquire(t.Context(), "k")
		s.must(true, err)
		if ok, err := s.process().NewMutex("k").Unlock(); ok || err == nil {
			t.Errorf("Unlock = %v, %v", ok, err)
		}
		s.must(true, lock.Release(t.Context()))
	})
}

// Requests by value end after the expiry, or the five seconds that a Locker has.
func TestRequestsByValueEnd(t *testing.T) {
	for expiry, longest := range map[time.Duration]time.Duration{
		time.Second: time.Second, 24 * time.Hour: 5 * time.Second} {
		play(t, 1, func(t *testing.T, s *servers) {
			rs, clients := s.faulty()
			clients[0].Faults().Inject(memhold.Fault{Calls: memhold.Releases | memhold.Renewals,
				ReplyDelay: 100 * time.Hour})
			by := rs.NewMutex("k", redsync.WithValue("old"), redsync.WithExpiry(expiry))
			for name, call := range map[string]func() (bool, error){"Extend": by.Extend,
				"Unlock": by.Unlock} {
				s.nodes[0].Faults().Give("k", "old", expiry)
				began := time.Now()
				ok, err := call()
				if took := time.Since(began); ok || err == nil || took != longest {
					t.Errorf("%s by %v: %v, %v after %v; want an error after %v", name, expiry, ok,
						err, took, longest)
				}
			}
			time.Sleep(200 * time.Hour)
		})
	}
}

// A backend that does not allow a TTL is not asked for it by a value either.
func TestExtendByValueForTooLong(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.nodes[0].Faults().Give("k", "old", 5*time.Second)
		rs := redsync.New(redis.NewPool(brief{s.nodes[0].Client()}))
		defer rs.Close()
		by := rs.NewMutex("k", redsync.WithExpiry(time.Minute), redsync.WithValue("old"))
		if ok, err := by.Extend(); ok || !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Extend for a minute where 10s are the longest: %v, %v; want ErrInvalid", ok, err)
		}
	})
}

// Servers that do not answer the first question leave the lock unextended as any other.
func TestExtendByValueWithoutAnswers(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		s.lock(rs.NewMutex("other"))
		for _, c := range clients[1:] {
			c.Faults().Freeze()
			defer c.Faults().Thaw()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		by := rs.NewMutex("k", redsync.WithValue("v"))
		if ok, err := by.ExtendContext(ctx); ok || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Errorf("Extend: %v, %v; want ErrExtendFailed", ok, err)
		}
		if ok, err := by.UnlockContext(ctx); ok || !errors.Is(err, redsync.ErrFailed) {
			t.Errorf("Unlock: %v, %v; want ErrFailed", ok, err)
		}
	})
}
