package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
)

func TestLeader(t *testing.T) {
	play(t, func(s *stage) {
		a, b := s.candidate("a"), s.candidate("b")
		leader, err := b.Leader(background)
		if err != nil || leader.Exists() || leader.String() != "nobody" {
			t.Errorf("before the first term: %v, %v; want nobody", leader, err)
		}
		a.run(nil)
		leader, err = b.Leader(background)
		if err != nil || leader.Holder.Label != "a" || leader.Token != s.last {
			t.Errorf("%v of term %d, %v: want a of term %d", leader, leader.Token, err, s.last)
		}
		if text := leader.String(); !leader.Exists() || !strings.HasPrefix(text, "a") {
			t.Errorf("the leader exists: %v, and is %q; want a", leader.Exists(), text)
		}
		a.leave()
		b.leave()
	})
}

// seen is what an observer was told.
type seen struct {
	who string
	err error
}

func TestObserve(t *testing.T) {
	play(t, func(s *stage) {
		a, b, o := s.candidate("a"), s.candidate("b"), s.candidate("o")
		all, ended := make(chan seen, 100), make(chan struct{})
		ctx, cancel := context.WithCancel(background)
		go func() {
			defer close(ended)
			for leader, err := range o.Observe(ctx) {
				all <- seen{leader.Holder.Label, err}
			}
		}()
		next := func(want ...seen) {
			t.Helper()
			time.Sleep(election.DefaultPollInterval)
			synctest.Wait()
			if len(all) != len(want) {
				t.Fatalf("saw %d times something, want %v", len(all), want)
			}
			for _, w := range want {
				if got := <-all; got.who != w.who || !errors.Is(got.err, w.err) {
					t.Fatalf("saw %v, want %v", got, w)
				}
			}
		}
		time.Sleep(election.DefaultPollInterval / 2)
		next(seen{}) // nobody leads
		a.run(nil)
		b.run(nil)
		next(seen{who: "a"})
		next()
		a.Resign(background)
		next(seen{who: "b"})
		b.Resign(background)
		time.Sleep(time.Minute)
		b.leave()
		time.Sleep(time.Minute)
		for len(all) > 0 {
			<-all
		}
		remove := o.client.Faults().Inject(memhold.Fault{Err: errors.New("no route")})
		next(seen{err: holdfast.ErrUnavailable})
		next(seen{err: holdfast.ErrUnavailable}) // each time
		remove()
		next(seen{who: "a"}) // although nothing has changed
		cancel()
		<-ended
		if len(all) > 0 {
			t.Errorf("saw %v after the context had ended, want nothing", <-all)
		}
		a.leave()
		o.leave()
	})
}

// opaque is a backend that shows nothing.
type opaque struct{ driver.Backend }

func TestObserveWhatShowsNothing(t *testing.T) {
	play(t, func(s *stage) {
		locker, err := holdfast.New(opaque{s.memory})
		if err != nil {
			t.Fatal(err)
		}
		e, err := election.New(locker, "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = e.Leader(background); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Leader: %v, want ErrInvalid", err)
		}
		n := 0
		for _, err := range e.Observe(background) {
			if n++; !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("Observe: %v, want ErrInvalid", err)
			}
		}
		if n != 1 {
			t.Errorf("Observe yielded %d times, want one", n)
		}
		locker.Close()
	})
}

func TestObserverMayStop(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		for range a.Observe(background) {
			break
		}
		a.leave()
	})
}

// An observer may stop at an error. With a nil context nobody is asked.
func TestObserverMayStopAtAnError(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		a.client.Faults().Inject(memhold.Fault{Calls: memhold.Inspections,
			Err: errors.New("refused")})
		for _, err := range a.Observe(background) {
			if err == nil {
				t.Error("Observe yields no error when the backend refuses")
			}
			break
		}
		n := 0
		var none context.Context
		for _, err := range a.Observe(none) {
			if n++; !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("without a context: %v, want ErrInvalid", err)
			}
		}
		if n != 1 {
			t.Errorf("without a context, Observe yielded %d times, want one", n)
		}
		a.leave()
	})
}

// Without an identity the label is the Locker's.
func TestLeaderWithoutIdentity(t *testing.T) {
	play(t, func(s *stage) {
		locker, err := holdfast.New(s.memory.Client(), holdfast.WithLabel("the Locker's"))
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		e, err := election.New(locker, "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error)
		go func() { ended <- e.Run(ctx, untilEnd) }()
		synctest.Wait()
		leader, err := e.Leader(background)
		if err != nil || leader.Identity() != "the Locker's" {
			t.Errorf("the leader is %q, %v; want the Locker's label", leader.Identity(), err)
		}
		cancel()
		<-ended
	})
}
