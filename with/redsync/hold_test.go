package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/with/redsync"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

// stopped is a context that keeps the caller between the grant of a lock and its return.
type stopped struct {
	context.Context
	calls *atomic.Int64
	until chan struct{}
}

func (s stopped) Value(any) any { return nil }

func (s stopped) AfterFunc(f func()) (stop func() bool) {
	end := context.AfterFunc(s.Context, f)
	return func() bool {
		if s.calls.Add(1) == 1 {
			<-s.until
		}
		return end()
	}
}

func mustBeExpired(t *testing.T, m *redsync.Mutex) {
	t.Helper()
	if ok, err := m.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Errorf("Unlock for a lock that is lost: %v, %v", ok, err)
	}
}

func TestUnlockThatIsLate(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		m := s.process().NewMutex("k", redsync.WithExpiry(time.Second))
		s.lock(m) // the first goroutine; its work takes too long
		time.Sleep(2 * time.Second)
		s.lock(m) // the second
		second := m.Held()
		mustBeExpired(t, m)
		if second.Err() != nil || m.Held() != second {
			t.Errorf("the late Unlock has ended the lock of another: %v", second.Err())
		}
		s.unlock(m)
		mustBeExpired(t, m)
	})
}

// If all locks of a Mutex are lost, it tells of the last one.
func TestHeldAfterLosses(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		m := s.process().NewMutex("k", redsync.WithExpiry(time.Second))
		s.lock(m)
		time.Sleep(2 * time.Second)
		s.lock(m)
		second := m.Held()
		time.Sleep(2 * time.Second)
		if m.Held() != second {
			t.Error("Held is not the last lock")
		}
	})
}

func TestLockThatIsNotedLate(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		m := s.process().NewMutex("k", redsync.WithExpiry(time.Second),
			redsync.WithTimeoutFactor(1))
		ctx := stopped{t.Context(), new(atomic.Int64), make(chan struct{})}
		noted := make(chan error)
		go func() { noted <- m.LockContext(ctx) }()
		time.Sleep(2 * time.Second) // lost
		s.lock(m)
		live, value, until := m.Held(), m.Value(), m.Until()
		close(ctx.until)
		s.must(true, <-noted)
		if m.Held() != live || m.Value() != value || !m.Until().Equal(until) {
			t.Error("a lock that was lost before it was noted stands for the one that is held")
		}
		mustBeExpired(t, m)
		s.unlock(m)
		if !errors.Is(live.Err(), holdfast.ErrReleased) {
			t.Errorf("after both Unlocks: %v", live.Err())
		}
	})
}

func TestNestedLockOfOneMutex(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		m := s.process().NewMutex("k", redsync.WithRenewal())
		s.lock(m)
		outer, value := m.Held(), m.Value()
		s.must(true, m.LockContext(outer.Context(t.Context())))
		if m.Held() == outer || m.Value() == value {
			t.Error("the lock and the value are not of the last acquisition")
		}
		s.unlock(m)
		isTaken(t, "before the outer Unlock", s.process().NewMutex("k").TryLock())
		s.unlock(m)
		synctest.Wait()
		s.must(true, s.process().NewMutex("k").TryLock())
	})
}

func TestSetNXOnExtendOnlyAfterALoss(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		rs := s.process()
		m := rs.NewMutex("k", redsync.WithSetNXOnExtend(), redsync.WithExpiry(time.Second))
		s.lock(m)
		time.Sleep(2 * time.Second)
		s.must(m.Extend())
		s.must(rs.NewMutex("k", redsync.WithValue(m.Value())).Valid())
		s.unlock(m) // the new lock, and there is no other
		if ok, err := m.Extend(); ok {
			t.Errorf("Extend after Unlock: %v, %v", ok, err)
		}
		s.lock(m)
		s.must(true, m.Held().Release(t.Context()))
		if ok, err := m.Extend(); ok {
			t.Errorf("Extend after a release without Unlock: %v, %v", ok, err)
		}
		mustBeExpired(t, m)
		s.lock(m)
		s.must(true, rs.Close())
		if ok, err := m.Extend(); ok || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Extend after Close: %v, %v", ok, err)
		}
	})
}

// While nobody knows that a lock was lost, another goroutine of the Mutex may get it. It keeps it.
func TestLossThatNobodyKnows(t *testing.T) {
	for name, lose := range map[string]func(s *servers, m *redsync.Mutex){
		"lost": func(s *servers, _ *redsync.Mutex) {
			for _, node := range s.nodes {
				node.Faults().Lose("k")
			}
		},
		"unlocked by its value": func(s *servers, m *redsync.Mutex) {
			s.unlock(s.process().NewMutex("k", redsync.WithValue(m.Value())))
		},
	} {
		for _, nodes := range []int{1, 3} {
			play(t, nodes, func(t *testing.T, s *servers) {
				m := s.process().NewMutex("k")
				s.lock(m)
				lose(s, m)
				s.lock(m) // another goroutine
				second := m.Held()
				if ok, err := m.Unlock(); ok || second.Err() != nil {
					t.Errorf("%s, %d nodes: Unlock of the first: %v, %v; the second: %v", name, nodes,
						ok, err, second.Err())
				}
				if m.Held() != second {
					t.Errorf("%s, %d nodes: Held is not the lock that is held", name, nodes)
				}
				s.unlock(m)
			})
		}
	}
}

// The same if the lost lock is noted after the one that is held.
func TestLossThatNobodyKnowsOfALockThatIsNotedLate(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		m := s.process().NewMutex("k", redsync.WithTimeoutFactor(1))
		ctx := stopped{t.Context(), new(atomic.Int64), make(chan struct{})}
		noted := make(chan error)
		go func() { noted <- m.LockContext(ctx) }()
		time.Sleep(100 * time.Millisecond)
		s.nodes[0].Faults().Lose("k")
		s.lock(m)
		held := m.Held()
		close(ctx.until)
		s.must(true, <-noted)
		if m.Held() != held {
			t.Errorf("Held has token %d, not %d", m.Held().Token(), held.Token())
		}
		s.must(m.Extend())
		if ok, err := m.Unlock(); ok || held.Err() != nil {
			t.Errorf("Unlock of the lost lock: %v, %v; the other: %v", ok, err, held.Err())
		}
		s.unlock(m)
	})
}

// An Extend that acquires a lost lock anew leaves nothing behind an Unlock, which may come before
// it or meanwhile.
func TestExtendAnewBesideUnlock(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		play(t, 1, func(t *testing.T, s *servers) {
			rs, clients := s.faulty()
			m := rs.NewMutex("k", redsync.WithSetNXOnExtend(), redsync.WithRenewal())
			s.lock(m)
			lock := m.Held()
			s.nodes[0].Faults().Lose("k")
			<-lock.Done()
			clients[0].Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1,
				ReplyDelay: 100 * time.Millisecond})
			unlock := func() {
				if ok, err := m.Unlock(); ok {
					t.Errorf("Unlock of the lost lock = %v, %v", ok, err)
				}
			}
			if meanwhile {
				time.AfterFunc(50*time.Millisecond, unlock)
			} else {
				unlock()
			}
			began := time.Now()
			ok, err := m.Extend()
			if asked := time.Since(began) > 0; ok || !errors.Is(err, redsync.ErrExtendFailed) ||
				asked != meanwhile {
				t.Errorf("meanwhile %v: Extend = %v, %v, and has asked the server: %v; want "+
					"ErrExtendFailed", meanwhile, ok, err, asked)
			}
			entry, err := s.nodes[0].Inspect(t.Context(), "k")
			if err != nil || entry.Holder.Owner != "" {
				t.Errorf("meanwhile %v: %q has the key (%v)", meanwhile, entry.Holder.Owner, err)
			}
		})
	}
}

// numbered counts how often it is asked for its backend.
type numbered struct {
	redis.Pool
	asked *int
}

func (n numbered) Backend() (driver.Backend, error) {
	*n.asked++
	return n.Pool.Backend()
}

// After Close, nothing asks a pool for a backend, which nobody would close. A lock that was lost
// before is no exception.
func TestNothingIsOpenedAfterClose(t *testing.T) {
	play(t, 1, func(t *testing.T, s *servers) {
		asked := 0
		rs := redsync.New(numbered{redis.NewPool(s.nodes[0]), &asked})
		m := rs.NewMutex("k", redsync.WithSetNXOnExtend(), redsync.WithExpiry(time.Second))
		s.lock(m)
		value := redsync.WithValue(m.Value())
		time.Sleep(2 * time.Second)
		s.must(true, rs.Close())
		s.must(true, rs.Close())
		if ok, err := m.Extend(); ok || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Errorf("Extend of a lost lock after Close: %v, %v; want ErrExtendFailed", ok, err)
		}
		by := rs.NewMutex("k", value)
		for name, call := range map[string]func() error{
			"Lock":         rs.NewMutex("other").Lock,
			"with a queue": rs.NewMutex("other", redsync.WithQueue()).Lock,
			"Unlock":       func() error { _, err := by.Unlock(); return err },
			"Extend":       func() error { _, err := by.Extend(); return err },
			"Valid":        func() error { _, err := by.Valid(); return err },
		} {
			if err := call(); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("%s after Close: %v; want ErrClosed", name, err)
			}
		}
		if asked != 1 {
			t.Errorf("the pool was asked %d times, want once", asked)
		}
	})
}

// A Mutex with the value of a lock does not cut the lease that its holder relies on.
func TestExtendByValueShortensNothing(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		play(t, nodes, func(t *testing.T, s *servers) {
			m := s.process().NewMutex("k", redsync.WithExpiry(time.Minute))
			s.lock(m)
			value := redsync.WithValue(m.Value())
			by := s.process().NewMutex("k", value) // with the default expiry
			s.must(by.Extend())
			if rest := time.Until(by.Until()); rest <= 7*time.Second || rest > 8*time.Second {
				t.Errorf("the lock lasts for %v to the one that extends it", rest)
			}
			brief := s.process().NewMutex("k", value, redsync.WithExpiry(5*time.Millisecond))
			if ok, err := brief.Extend(); ok || !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("Extend by 5ms: %v, %v; want ErrInvalid", ok, err)
			}
			time.Sleep(50 * time.Second)
			err := s.process().NewMutex("k").TryLock()
			if taken := new(redsync.ErrTaken); !errors.As(err, &taken) {
				t.Errorf("while its holder counts on it, TryLock = %v", err)
			}
			s.must(by.Extend()) // 10 s remain
			time.Sleep(4 * time.Second)
			s.must(by.Extend()) // 6 s remain, and then 8
			synctest.Wait()     // for the last node
			for _, node := range s.nodes {
				if entry, err := node.Inspect(t.Context(), "k"); err != nil ||
					entry.Holder.ExpiresIn != 8*time.Second {
					t.Errorf("%v, %v; want a lease of 8s", entry.Holder, err)
				}
			}
		})
	}
}

// Close takes no longer for many Lockers than for one: each waits for servers that are silent.
func TestCloseOfManyLockersInAnOutage(t *testing.T) {
	play(t, 3, func(t *testing.T, s *servers) {
		rs, clients := s.faulty()
		for i := range 10 {
			s.lock(rs.NewMutex(fmt.Sprint("k", i), redsync.WithRenewal(),
				redsync.WithExpiry(time.Duration(8+i)*time.Second)))
		}
		for _, c := range clients {
			c.Faults().Freeze()
		}
		began := time.Now()
		err := rs.Close()
		if took := time.Since(began); err == nil || took > 7*time.Second {
			t.Errorf("Close = %v after %v; want an error after 7s at most", err, took)
		}
		for _, c := range clients {
			c.Faults().Thaw()
		}
	})
}
