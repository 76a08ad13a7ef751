package election_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/oddcontext"
	"github.com/holdfast-go/holdfast/memhold"
)

// newElection returns an election on memory that has nothing else.
func newElection(t *testing.T, options ...election.Option) (*election.Election, *memhold.Backend) {
	t.Helper()
	memory := memhold.New()
	t.Cleanup(func() { memory.Close() })
	l, err := holdfast.New(memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	e, err := election.New(l, "scheduler", options...)
	if err != nil {
		t.Fatal(err)
	}
	return e, memory
}

// If a context of Run panics, or ends its goroutine, at any moment of a term, no lock stays behind.
func TestContextThatPanicsLeavesNoLock(t *testing.T) {
	for name, do := range map[string]func(){"panic": func() { panic("odd") },
		"goexit": runtime.Goexit} {
		terms := 0
		for at := 1; at <= 20; at++ {
			synctest.Test(t, func(t *testing.T) {
				e, _ := newElection(t, election.WithPause(time.Hour, time.Hour),
					election.WithOnError(func(error) {}))
				inner, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recover() }()
					e.Run(oddcontext.New(inner, at, do),
						func(context.Context, election.Term) error {
							terms++
							time.Sleep(time.Second)
							return nil
						})
				}()
				time.Sleep(time.Minute)
				cancel()
				<-done
				synctest.Wait()
				if leader, err := e.Leader(context.Background()); err != nil || leader.Exists() {
					t.Errorf("%s at %d: leader %v, %v; want nobody", name, at, leader, err)
				}
			})
		}
		if terms < 5 {
			t.Errorf("%d terms; want 5 at least", terms)
		}
	}
}

// If a context of Run panics, or ends its goroutine, as the term ends, Resign still returns.
//
// Fails if the code is broken like this: release without defer, or end without defer.
func TestContextThatPanicsKeepsNobodyInResign(t *testing.T) {
	for name, do := range map[string]func(){"panic": func() { panic("odd") },
		"goexit": runtime.Goexit} {
		cut := 0
		for at := 1; at <= 20; at++ {
			synctest.Test(t, func(t *testing.T) {
				e, _ := newElection(t, election.WithPause(time.Hour, time.Hour),
					election.WithOnError(func(error) {}))
				inner, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recover() }()
					e.Run(oddcontext.New(inner, at, do),
						func(context.Context, election.Term) error {
							time.Sleep(time.Second)
							return nil
						})
				}()
				time.Sleep(500 * time.Millisecond)
				switch err := e.Resign(context.Background()); {
				case errors.Is(err, holdfast.ErrUnknown):
					cut++ // the release did not return
				case err != nil:
					t.Errorf("%s at %d: Resign: %v", name, at, err)
				}
				cancel()
				<-done
				if err := e.Resign(context.Background()); err != nil {
					t.Errorf("%s at %d: Resign when Run has returned: %v", name, at, err)
				}
				synctest.Wait()
				if leader, err := e.Leader(context.Background()); err != nil || leader.Exists() {
					t.Errorf("%s at %d: leader %v, %v; want nobody", name, at, leader, err)
				}
			})
		}
		if cut == 0 {
			t.Errorf("%s: no release was cut off; the case is that some are", name)
		}
	}
}
