package redsync_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
)

// What Holdfast refuses as invalid is not tried again.
func TestInvalidAtOnce(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs := s.process()
		for _, o := range []redsync.Option{redsync.WithFailFast(true), redsync.WithQueue()} {
			began := time.Now()
			err := rs.NewMutex("k", o, redsync.WithGenValueFunc(func() (string, error) {
				return strings.Repeat("x", 129), nil
			})).Lock()
			var e *redsync.RedisError
			if took := time.Since(began); took != 0 || !errors.Is(err, holdfast.ErrInvalid) ||
				errors.As(err, &e) {
				t.Errorf("%v after %v", err, took)
			}
		}
	})
}

// Nothing is tried again after Close.
func TestCloseBetweenTries(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.lock(s.process().NewMutex("k"))
		rs := s.process()
		time.AfterFunc(time.Minute, func() { rs.Close() })
		began := time.Now()
		err := rs.NewMutex("k", redsync.WithRetryDelay(time.Hour)).Lock()
		if took := time.Since(began); took != time.Hour || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("%v after %v; want ErrClosed from the next try", err, took)
		}
	})
}

// The end of the context in the last try is told as that in a delay.
func TestContextEndsInTheLastTry(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		clients[0].Faults().Freeze()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errWhy)
		defer cancel()
		err := rs.NewMutex("k").TryLockContext(ctx)
		if !errors.Is(err, redsync.ErrFailed) || !errors.Is(err, errWhy) {
			t.Error(err)
		}
		clients[0].Faults().Thaw()
	})
}

// TryLock waits for nobody.
func TestTryLockDoesNotQueue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.lock(s.process().NewMutex("k"))
		began := time.Now()
		isTaken(t, "TryLock", s.process().NewMutex("k", redsync.WithQueue()).TryLock())
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A delay that is negative counts as none, and does not take from the time of the tries.
func TestNegativeDelays(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		a := s.process().NewMutex("k")
		s.lock(a)
		time.AfterFunc(300*time.Millisecond, func() { a.Unlock() })
		s.lock(s.process().NewMutex("k", redsync.WithQueue(), redsync.WithTries(3),
			redsync.WithRetryDelay(-time.Second)))
	})
}

// The end of the context in the queue is told as in the tries.
func TestQueueUntilTheContextEnds(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		s.lock(s.process().NewMutex("k"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errWhy)
		defer cancel()
		err := s.process().NewMutex("k", redsync.WithQueue()).LockContext(ctx)
		if !errors.Is(err, redsync.ErrFailed) || !errors.Is(err, errWhy) {
			t.Error(err)
		}
	})
}

// Extend over several servers that fail says what has failed.
func TestExtendWithoutAnswers(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		m := rs.NewMutex("k")
		s.lock(m)
		for _, c := range clients {
			c.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Err: errors.New("down")})
		}
		if ok, err := m.Extend(); ok || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Errorf("%v, %v", ok, err)
		}
	})
}
