package election_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

func ordinary() election.Option  { return election.WithPreferred(false) }
func preferred() election.Option { return election.WithPreferred(true) }

// An ordinary leader gives up in order for a preferred candidate, and leads again when that is
// gone.
func TestPreferred(t *testing.T) {
	play(t, func(s *stage) {
		a, p := s.candidate("a", ordinary()), s.candidate("p", preferred())
		var cause error
		a.run(func(ctx context.Context, term election.Term) error {
			<-ctx.Done()
			if cause == nil {
				cause = context.Cause(ctx)
			}
			time.Sleep(5 * time.Second) // it is waited for
			if err := term.Err(); err != nil {
				t.Errorf("the lock was lost while the function ran: %v", err)
			}
			return nil
		})
		time.Sleep(time.Hour)
		s.mustLead("a")
		p.run(nil)
		time.Sleep(election.DefaultPollInterval + 5*time.Second - 1)
		s.mustLead("a")
		time.Sleep(time.Nanosecond)
		s.mustLead("p")
		if cause != election.ErrPreferred {
			t.Errorf("the cause is %v, want ErrPreferred", cause)
		}
		time.Sleep(time.Hour)
		s.mustLead("p")
		p.leave()
		s.mustLead("a")
		a.leave()
		a.mustTellNothing()
		p.mustTellNothing()
		s.mustBeEmpty()
	})
}

// mustBeEmpty fails the test unless nobody holds the second key.
func (s *stage) mustBeEmpty() {
	s.t.Helper()
	e, err := s.memory.Inspect(background, "scheduler@preferred")
	if err != nil || e.Holder.Owner != "" || len(e.Waiters) > 0 {
		s.t.Errorf("the second key has %+v, %v; want neither holder nor waiters", e, err)
	}
}

// Ordinary candidates that come first in the queue let the preferred one pass, and do not begin.
func TestPreferredPassesTheQueue(t *testing.T) {
	play(t, func(s *stage) {
		var all []*candidate
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, s.candidate(name, ordinary()))
		}
		all = append(all, s.candidate("p", preferred()))
		for _, c := range all {
			c.client.Faults().Inject(memhold.Fault{Calls: memhold.Inspections,
				Delay: 100 * time.Millisecond})
			c.run(nil)
		}
		time.Sleep(2 * election.DefaultPollInterval)
		s.mustLead("p")
		if s.starts() != 1 {
			t.Errorf("%d functions were called, want that of p", s.starts())
		}
		for _, c := range all {
			c.leave()
			c.mustTellNothing()
		}
	})
}

// Two preferred candidates do not take the lead from each other, and an ordinary one leads only
// when both are gone.
func TestTwoPreferred(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a", ordinary())
		p, q := s.candidate("p", preferred()), s.candidate("q", preferred())
		a.run(nil)
		p.run(nil)
		q.run(nil)
		time.Sleep(time.Hour)
		s.mustLead("p")
		if s.starts() != 2 {
			t.Errorf("%d terms, want those of a and p", s.starts())
		}
		p.leave()
		time.Sleep(time.Minute)
		s.mustLead("q")
		time.Sleep(time.Hour)
		s.mustLead("q")
		q.leave()
		s.mustLead("a")
		a.leave()
	})
}

// Nobody gives up for a preferred candidate that is not healthy.
func TestPreferredIsHealthy(t *testing.T) {
	play(t, func(s *stage) {
		var well atomic.Bool
		a := s.candidate("a", ordinary())
		p := s.candidate("p", preferred(), election.WithHealthCheck(time.Second,
			func(context.Context) error {
				if well.Load() {
					return nil
				}
				return errWork
			}))
		a.run(nil)
		p.run(nil)
		time.Sleep(time.Hour)
		s.mustLead("a")
		if told := p.errors(); len(told) < 10 || !errors.Is(told[0], election.ErrUnhealthy) {
			t.Errorf("told %d errors: %v, want ErrUnhealthy", len(told), told)
		}
		if s.starts() != 1 {
			t.Errorf("%d terms, want one", s.starts())
		}
		well.Store(true)
		time.Sleep(election.DefaultMaxPause + election.DefaultPollInterval)
		s.mustLead("p")
		p.leave()
		a.leave()
	})
}

// A preferred candidate that becomes unhealthy while it waits no longer shows itself.
func TestPreferredFallsIll(t *testing.T) {
	play(t, func(s *stage) {
		var sick atomic.Bool
		p := s.candidate("p", preferred())
		q := s.candidate("q", preferred(), election.WithHealthCheck(time.Second,
			func(context.Context) error {
				if sick.Load() {
					return errWork
				}
				return nil
			}))
		p.run(nil)
		q.run(nil)
		if e, err := s.memory.Inspect(background, "scheduler@preferred"); err != nil ||
			driver.ParseOwner(e.Holder.Owner).Label != "q" {
			t.Errorf("the second key is held by %q, %v, want q", e.Holder.Owner, err)
		}
		sick.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		q.mustTell(election.ErrUnhealthy)
		s.mustBeEmpty()
		q.leave()
		p.leave()
	})
}

// If a check hangs in the campaign, the candidate stops showing itself in time, and the term fails.
func TestHungCheckOfAPreferred(t *testing.T) {
	play(t, func(s *stage) {
		hang := make(chan struct{})
		var hangs atomic.Bool
		var called atomic.Int32
		a := s.candidate("a")
		b := s.candidate("b")
		p := s.candidate("p", preferred(), election.WithHealthCheck(time.Second,
			func(context.Context) error {
				if called.Add(1) > 1 {
					t.Error("two checks run at the same time")
				}
				defer called.Add(-1)
				if hangs.Load() {
					<-hang
				}
				return nil
			}))
		a.run(nil)
		p.run(nil)
		b.run(nil)
		hangs.Store(true)
		time.Sleep(1500 * time.Millisecond)
		a.leave() // p is next; its first check may not be called beside the one that hangs
		time.Sleep(time.Second)
		s.mustLead("b")
		close(hang)
		hangs.Store(false)
		p.leave()
		for _, err := range p.errors() {
			if !errors.Is(err, election.ErrUnhealthy) {
				t.Errorf("told %v, want ErrUnhealthy", err)
			}
		}
		b.leave()
	})
}

// A preferred candidate that hangs while it waits, or fails as soon as it leads, costs the others
// little.
func TestBadPreferred(t *testing.T) {
	for _, test := range []struct {
		name   string
		freeze bool
	}{{"fails", false}, {"hangs", true}} {
		t.Run(test.name, func(t *testing.T) {
			play(t, func(s *stage) {
				a, p := s.candidate("a", ordinary()), s.candidate("p", preferred())
				var led time.Duration
				terms := 0
				a.run(func(ctx context.Context, term election.Term) error {
					terms++
					since := now()
					defer func() { led += now() - since }()
					return untilEnd(ctx, term)
				})
				began := now()
				p.run(func(context.Context, election.Term) error { return errWork })
				for range 60 {
					if test.freeze { // it shows itself, and then hangs
						p.client.Faults().Thaw()
						time.Sleep(10 * time.Second)
						p.client.Faults().Freeze()
						time.Sleep(50 * time.Second)
					} else {
						time.Sleep(time.Minute)
					}
				}
				p.client.Faults().Thaw()
				a.leave()
				p.leave()
				took := now() - began
				if led < took*7/10 {
					t.Errorf("the other candidate has led for %v of %v, want seven tenths at least",
						led, took)
				}
				if most := int(took/election.DefaultMaxPause) + 2; terms > most || terms < 20 {
					t.Errorf("%d terms of the other in %v, want 20 to %d", terms, took, most)
				}
			})
		})
	}
}

// A preferred candidate without permission to show itself is told so once. It campaigns and leads
// as usual.
func TestPreferredThatMayNotShowItself(t *testing.T) {
	play(t, func(s *stage) {
		p := s.candidate("p", preferred())
		other := s.candidate("other")
		other.run(nil)
		permanent := &driver.Error{Permanent: true, Err: errors.New("not allowed")}
		p.client.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
			Key: "scheduler@preferred", Err: permanent})
		p.run(nil)
		time.Sleep(time.Hour)
		p.mustTell(permanent)
		p.mustTellNothing()
		other.leave()
		s.mustLead("p")
		p.leave()
	})
}

// If the backend does not answer the look, that is reported once, and the term goes on.
func TestLookingFails(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a", ordinary())
		remove := a.client.Faults().Inject(memhold.Fault{Calls: memhold.Inspections,
			Err: errors.New("no route")})
		a.run(nil)
		s.mustLead("a")
		time.Sleep(time.Minute)
		a.mustTell(holdfast.ErrUnavailable)
		remove()
		time.Sleep(time.Minute)
		s.mustLead("a")
		a.client.Faults().Inject(memhold.Fault{Calls: memhold.Inspections,
			Err: errors.New("no route")})
		time.Sleep(time.Minute)
		a.mustTell(holdfast.ErrUnavailable)
		p := s.candidate("p", preferred())
		p.run(nil)
		time.Sleep(time.Minute)
		s.mustLead("a")
		a.client.Faults().Clear()
		time.Sleep(election.DefaultPollInterval)
		s.mustLead("p")
		p.leave()
		a.leave()
	})
}

func TestPreferredOnWhatShowsNothing(t *testing.T) {
	play(t, func(s *stage) {
		locker, err := holdfast.New(opaque{s.memory})
		if err != nil {
			t.Fatal(err)
		}
		for _, is := range []bool{true, false} {
			_, err := election.New(locker, "scheduler", election.WithPreferred(is))
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("WithPreferred(%v): %v, want ErrInvalid", is, err)
			}
		}
		locker.Close()
	})
}

func TestNameForPreferred(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		long := strings.Repeat("x", driver.MaxKeyLen-len("@preferred")+1)
		for name, want := range map[string]error{long: holdfast.ErrInvalid, long[1:]: nil} {
			_, err := election.New(a.locker, name, ordinary())
			if !errors.Is(err, want) {
				t.Errorf("a name of %d bytes: %v, want %v", len(name), err, want)
			}
		}
		locker, err := holdfast.New(s.memory.Client(), holdfast.WithPrefix("a/"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = election.New(locker, long[1:], ordinary())
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a name that is too long with the prefix: %v, want ErrInvalid", err)
		}
		locker.Close()
		a.leave()
	})
}

// A candidate that loses the lock while it looks for a preferred candidate does not know that yet,
// and may begin beside the next leader. It is told before its lease is over.
func TestLossWhileItLooks(t *testing.T) {
	play(t, func(s *stage) {
		h := &history{stage: s, lost: make(map[holdfast.Token]time.Duration)}
		s.excused = h.excused
		a, b := s.candidate("a", ordinary()), s.candidate("b", preferred())
		a.client.Faults().Inject(memhold.Fault{Calls: memhold.Inspections, Times: 1,
			Delay: 900 * time.Millisecond})
		a.run(nil)
		s.mustLead()
		h.lose()
		b.run(nil)
		s.mustLead("b")
		time.Sleep(900 * time.Millisecond)
		s.mustLead("b", "a")
		time.Sleep(ttl - 900*time.Millisecond)
		s.mustLead("b")
		a.mustTell(holdfast.ErrLost)
		b.leave()
		a.leave()
	})
}

// A preferred candidate that waits behind another one to show itself, and leaves, has met no error.
func TestPreferredLeavesBeforeItShowsItself(t *testing.T) {
	play(t, func(s *stage) {
		var all []*candidate
		for _, name := range []string{"p", "q", "r"} {
			c := s.candidate(name, preferred())
			c.run(nil)
			time.Sleep(time.Minute)
			all = append(all, c)
		}
		s.mustLead("p")
		for i := len(all) - 1; i >= 0; i-- {
			all[i].leave()
			all[i].mustTellNothing()
		}
		s.mustBeEmpty()
	})
}

// A preferred candidate shows itself for as long as it waits, also if its locks are not renewed.
func TestPreferredWithoutRenewal(t *testing.T) {
	play(t, func(s *stage) {
		p := s.candidate("p", preferred(), election.WithLockOptions(holdfast.WithoutRenewal()))
		other := s.candidate("b")
		other.run(nil)
		p.run(nil)
		for range 90 {
			time.Sleep(time.Second)
			e, err := s.memory.Inspect(background, "scheduler@preferred")
			if err != nil || e.Holder.Owner == "" {
				t.Fatalf("%v: the second key is held by %q, %v", now(), e.Holder.Owner, err)
			}
		}
		other.leave()
		s.mustLead("p")
		p.mustTellNothing()
		p.leave()
		s.mustBeEmpty()
	})
}

// However often a preferred candidate has lost the second key before, it soon shows itself again.
func TestPreferredShowsItselfSoonAfterALoss(t *testing.T) {
	play(t, func(s *stage) {
		b, p := s.candidate("b"), s.candidate("p", preferred())
		b.run(nil)
		p.run(nil)
		for range 8 {
			time.Sleep(2 * election.DefaultMaxPause)
			s.memory.Faults().Lose("scheduler@preferred")
			time.Sleep(ttl + election.DefaultMinPause)
			e, err := s.memory.Inspect(background, "scheduler@preferred")
			if err != nil || e.Holder.Owner == "" {
				t.Fatalf("%v: the second key is held by %q, %v", now(), e.Holder.Owner, err)
			}
			p.mustTell(holdfast.ErrLost)
		}
		p.leave()
		b.leave()
	})
}

// counting is a context that counts how often it is asked for its deadline. A goroutine that sleeps
// does so once.
type counting struct {
	context.Context
	asked *atomic.Int64
}

func (c counting) Deadline() (time.Time, bool) {
	c.asked.Add(1)
	return c.Context.Deadline()
}

// A preferred candidate looks after its second key a few times for each lease, although the first
// lease, which was handed over, is much shorter than those after it.
func TestPreferredRestsAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New(memhold.WithPresence(10 * time.Millisecond))
		defer memory.Close()
		var lockers []*holdfast.Locker
		for range 2 {
			l, err := holdfast.New(memory)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			lockers = append(lockers, l)
		}
		locks, err := lockers[0].AcquireAll(background,
			[]string{"scheduler", "scheduler@preferred"})
		if err != nil {
			t.Fatal(err)
		}
		e, err := election.New(lockers[1], "scheduler", preferred())
		if err != nil {
			t.Fatal(err)
		}
		inner, cancel := context.WithCancel(background)
		ctx := counting{inner, new(atomic.Int64)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.Run(ctx, untilEnd)
		}()
		time.Sleep(time.Second)
		locks.Lock("scheduler@preferred").Release(background)
		time.Sleep(time.Second)
		before := ctx.asked.Load()
		time.Sleep(time.Minute)
		if n := ctx.asked.Load() - before; n > 20 {
			t.Errorf("it slept %d times in a minute; want a few times for each lease", n)
		}
		cancel()
		<-done
	})
}
