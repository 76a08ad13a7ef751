package election_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

var errWork = errors.New("the work failed")

func TestOneLeads(t *testing.T) {
	play(t, func(s *stage) {
		a, b := s.candidate("a"), s.candidate("b")
		a.run(nil)
		b.run(nil)
		s.mustLead("a")
		time.Sleep(time.Hour)
		s.mustLead("a")

		a.leave()
		s.mustLead("b") // at the same moment: by the handoff
		if !errors.Is(a.err, errBye) {
			t.Errorf("Run returned %v, want the cause of its context", a.err)
		}
		b.leave()
		a.mustTellNothing()
		b.mustTellNothing()
		s.mustLead()
	})
}

func TestFunctionThatReturnsLeadsAgain(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		n := 0
		a.run(func(ctx context.Context, term election.Term) error {
			if n++; n == 1 {
				return nil
			}
			if n == 2 {
				return errWork
			}
			return untilEnd(ctx, term)
		})
		s.mustLead()
		a.mustTellNothing()
		time.Sleep(election.DefaultMinPause)
		s.mustLead() // it failed
		a.mustTell(errWork)
		time.Sleep(2 * election.DefaultMinPause)
		s.mustLead("a")
		a.leave()
	})
}

func TestTermErrorSaysWhat(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		var token holdfast.Token
		a.run(func(_ context.Context, term election.Term) error {
			token = term.Token()
			return errWork
		})
		told := a.errors()
		var e *election.TermError
		if len(told) != 1 || !errors.As(told[0], &e) || e.Name != "scheduler" || e.Token != token {
			t.Errorf("told %v, want a TermError of term %d", told, token)
		}
		a.leave()
	})
}

func TestStopOnError(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a", election.WithStopOnError())
		a.run(func(context.Context, election.Term) error { return errWork })
		a.mustEnd()
		if a.err != errWork {
			t.Errorf("Run returned %v, want %v", a.err, errWork)
		}
		a.mustTellNothing()
		a.mustBeFree()
		a.leave()
	})
}

// An error after the term was ended from outside does not end Run.
func TestStopOnErrorNotAfterALoss(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a", election.WithStopOnError())
		n := 0
		a.run(func(ctx context.Context, term election.Term) error {
			<-ctx.Done()
			n++
			return errWork
		})
		a.client.Faults().Freeze()
		time.Sleep(ttl)
		told := a.errors()
		if len(told) != 2 || !errors.Is(told[0], holdfast.ErrLost) || !errors.Is(told[1], errWork) {
			t.Errorf("told %v, want the loss and the function's error", told)
		}
		a.client.Faults().Thaw()
		time.Sleep(time.Minute)
		s.mustLead("a")
		a.leave()
		a.mustTell(errWork) // Run returns the cause of its context, so this is told
		if n != 2 || !errors.Is(a.err, errBye) {
			t.Errorf("%d terms, and Run returned %v; want 2, and the cause of its context",
				n, a.err)
		}
	})
}

// mustBeFree fails the test unless nobody holds the lock.
func (c *candidate) mustBeFree() {
	c.s.t.Helper()
	e, err := c.s.memory.Inspect(background, "scheduler")
	if err != nil || e.Holder.Owner != "" {
		c.s.t.Errorf("the lock is held by %q, %v; want nobody", e.Holder.Owner, err)
	}
}

func TestPanicGoesOnAndLeavesNothing(t *testing.T) {
	play(t, func(s *stage) {
		a, b := s.candidate("a"), s.candidate("b")
		trip := make(chan struct{})
		a.run(func(context.Context, election.Term) error {
			<-trip
			panic("oh")
		})
		b.run(nil)
		close(trip)
		a.mustEnd()
		if a.panic != "oh" {
			t.Errorf("Run panicked with %v, want oh", a.panic)
		}
		s.mustLead("b") // at the same moment
		a.run(nil)      // Run may be called again
		b.leave()
		s.mustLead("a")
		a.leave()
	})
}

func TestPanicOfOnErrorLeavesNothing(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a", election.WithOnError(func(error) { panic("told") }))
		for what, f := range map[string]func(context.Context, election.Term) error{
			"an error": func(context.Context, election.Term) error { return errors.New("work") },
			"a campaign": func(context.Context, election.Term) error {
				a.client.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
					Err: holdfast.ErrUnavailable})
				return nil // the campaign fails
			},
		} {
			a.run(f)
			a.mustEnd()
			a.client.Faults().Clear()
			if a.panic != "told" {
				t.Errorf("%s: Run panicked with %v, want told", what, a.panic)
			}
			a.mustBeFree()
		}
		a.run(nil) // Run may be called again, and tells again
		s.mustLead("a")
		a.leave()
	})
}

func TestEndOfTheGoroutineLeavesNothing(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		a.run(func(context.Context, election.Term) error {
			runtime.Goexit()
			return nil
		})
		a.mustEnd()
		a.mustBeFree()
		a.leave()
	})
}

func TestLossEndsTheTermBeforeAnotherLeads(t *testing.T) {
	play(t, func(s *stage) {
		a, b := s.candidate("a"), s.candidate("b")
		var lost time.Duration
		a.run(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			if lost == 0 {
				lost = now()
			}
			return nil
		})
		b.run(nil)
		began := now()
		a.client.Faults().Freeze()
		// enter checks that a was told.
		for who := s.leaders(); len(who) == 0 || who[0] != "b"; who = s.leaders() {
			if time.Sleep(time.Millisecond); now() > began+time.Hour {
				t.Fatal("b does not lead an hour after the freeze")
			}
		}
		if lost == 0 || lost >= now() || now() > began+ttl+time.Millisecond {
			t.Errorf("a was told at %v, b leads at %v, %v after the freeze", lost, now(),
				now()-began)
		}
		a.client.Faults().Thaw()
		time.Sleep(time.Minute)
		if told := a.errors(); len(told) == 0 || !errors.Is(told[0], holdfast.ErrLost) {
			t.Errorf("a told %v, want the loss first", told)
		}
		b.leave()
		a.leave()
	})
}

func TestClosedLockerEndsRun(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		a.run(nil)
		a.locker.Close()
		a.mustEnd()
		if !errors.Is(a.err, holdfast.ErrClosed) {
			t.Errorf("Run returned %v, want ErrClosed", a.err)
		}
		a.mustTell(holdfast.ErrLost)
		a.leave()
	})
}

func TestErrorsOfCampaigns(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		remove := a.client.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
			Err: errors.New("refused")})
		a.run(nil)
		time.Sleep(time.Minute)
		told := a.errors()
		if len(told) < 60/5 || len(told) > 60/2.5+8 {
			t.Errorf("told %d errors in a minute, want 12 to 32: %v", len(told), told)
		}
		for _, err := range told {
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "sched") {
				t.Errorf("told %v, want ErrUnavailable with the key", err)
			}
		}
		remove()
		time.Sleep(5 * time.Second)
		s.mustLead("a")

		// After a term, the pauses between campaigns that fail begin as short as at first.
		a.errors() // those of the first campaigns
		remove = a.client.Faults().Inject(memhold.Fault{Calls: memhold.Acquires,
			Err: errors.New("refused")})
		time.Sleep(time.Minute) // so that the term counts as a long one
		if err := a.Resign(background); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * election.DefaultMinPause)
		if n := len(a.errors()); n < 2 {
			t.Errorf("%d campaigns failed soon after a term, want two at least", n)
		}
		remove()
		time.Sleep(5 * time.Second)
		s.mustLead("a")

		permanent := &driver.Error{Permanent: true, Err: errors.New("wrong password")}
		a.client.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Err: permanent})
		if err := a.Resign(background); err != nil {
			t.Error(err)
		}
		a.mustEnd()
		if !errors.Is(a.err, permanent) {
			t.Errorf("Run returned %v, want %v", a.err, permanent)
		}
		a.leave()
	})
}

func TestInvalid(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		var none context.Context
		long := strings.Repeat("x", 2000)
		check := func(context.Context) error { return nil }
		for what, err := range map[string]error{
			"locker":   second(election.New(nil, "scheduler")),
			"name":     second(election.New(a.locker, "")),
			"long":     second(election.New(a.locker, long)),
			"option":   second(election.New(a.locker, "x", nil)),
			"lock":     second(election.New(a.locker, "x", election.WithLockOptions(nil))),
			"identity": second(election.New(a.locker, "x", election.WithIdentity(long))),
			"pause":    second(election.New(a.locker, "x", election.WithPause(0, 1))),
			"pauses":   second(election.New(a.locker, "x", election.WithPause(2, 1))),
			"grace":    second(election.New(a.locker, "x", election.WithGrace(0))),
			"poll":     second(election.New(a.locker, "x", election.WithPollInterval(0))),
			"interval": second(election.New(a.locker, "x", election.WithHealthCheck(0, check))),
			"check":    second(election.New(a.locker, "x", election.WithHealthCheck(1, nil))),
			"function": a.Run(background, nil),
			"context":  a.Run(none, untilEnd),
			"resign":   a.Resign(none),
			"lock's":   runOnce(a.locker, election.WithLockOptions(holdfast.WithTTL(1))),
			"lock's 2": runOnce(a.locker, election.WithLockOptions(holdfast.WithMaxHold(-1))),
			"the Run's": func() error {
				ctx, cancel := context.WithTimeout(background, time.Hour)
				defer cancel()
				a.run(nil)
				return a.Run(ctx, untilEnd)
			}(),
		} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		a.leave()
	})
}

func second(_ *election.Election, err error) error { return err }

func runOnce(locker *holdfast.Locker, options ...election.Option) error {
	e, err := election.New(locker, "other", options...)
	if err != nil {
		return err
	}
	return e.Run(background, untilEnd)
}

// On a Locker that shares by default there is still one leader.
func TestExclusiveOnALockerThatShares(t *testing.T) {
	play(t, func(s *stage) {
		var all []*election.Election
		ctx, cancel := context.WithCancel(background)
		locker, err := holdfast.New(s.memory, holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			e, err := election.New(locker, "scheduler")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
			go e.Run(ctx, func(ctx context.Context, term election.Term) error {
				defer s.enter("x", ctx, term)()
				return untilEnd(ctx, term)
			})
		}
		s.mustLead("x")
		all[0].Resign(background)
		all[1].Resign(background)
		time.Sleep(time.Minute)
		s.mustLead("x")
		cancel()
		synctest.Wait()
		locker.Close()
	})
}

func TestMaxHoldBoundsATerm(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a", election.WithLockOptions(holdfast.WithMaxHold(time.Minute)))
		b := s.candidate("b")
		a.run(nil)
		b.run(nil)
		time.Sleep(time.Minute)
		s.mustLead("b")
		a.mustTell(holdfast.ErrMaxHold)
		b.leave()
		a.leave()
	})
}

// Without WithOnError, errors go to the default log.
func TestErrorsAreLogged(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	play(t, func(s *stage) {
		a := s.candidate("a", election.WithOnError(nil))
		a.run(func(context.Context, election.Term) error { return errWork })
		synctest.Wait()
		a.leave()
	})
	if text := log.String(); !strings.Contains(text, errWork.Error()) ||
		!strings.Contains(text, "level=WARN") {
		t.Errorf("the log says %q, want a warning with the error", text)
	}
}
