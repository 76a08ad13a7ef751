package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/oddcontext"
)

// If a context of Run panics, or ends its goroutine, when the grace is over and the lock is
// released, in a goroutine in which nobody can recover, that is reported, and no lock stays behind.
//
// Fails if the code is broken like this: contain without recover.
func TestContextThatPanicsWhenTheGraceIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		do   func()
		told string
	}{"panic": {func() { panic("odd") }, "a panic: odd"},
		"goexit": {runtime.Goexit, "a call of runtime.Goexit"}} {
		reached := 0
		for at := 1; at <= 20; at++ {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var told []error
				e, _ := newElection(t, election.WithPause(time.Hour, time.Hour),
					election.WithOnError(func(err error) {
						mu.Lock()
						defer mu.Unlock()
						told = append(told, err)
					}))
				inner, cancel := context.WithCancel(context.Background())
				defer cancel()
				var acted atomic.Bool
				ctx := oddcontext.New(inner, 0, func() {
					acted.Store(true)
					c.do()
				})
				end, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recover() }()
					e.Run(ctx, func(context.Context, election.Term) error {
						<-end
						return nil
					})
				}()
				time.Sleep(time.Second)
				ctx.Arm(at)
				err := e.Resign(context.Background()) // returns when the grace is over
				ctx.Arm(0)
				synctest.Wait()
				if acted.Load() {
					reached++
					mustFind(t, err, holdfast.ErrUnknown)
					mu.Lock()
					if text := fmt.Sprint(told); !strings.Contains(text, c.told) ||
						!errors.Is(errors.Join(told...), election.ErrOverdue) {
						t.Errorf("%s at %d: onError was told %s", name, at, text)
					}
					mu.Unlock()
				}
				mustFind(t, err, election.ErrOverdue)
				if leader, err := e.Leader(context.Background()); err != nil || leader.Exists() {
					t.Errorf("%s at %d: leader %v, %v; want nobody", name, at, leader, err)
				}
				close(end)
				cancel()
				<-done
			})
		}
		if reached == 0 {
			t.Errorf("%s: no release was cut off; the case is that one is", name)
		}
	}
}

// deadly is a context that ends the goroutine that next asks it for its deadline. Goroutines that
// sleep do, and none that waits for a lock.
type deadly struct {
	context.Context
	armed *atomic.Bool
}

func (d deadly) Deadline() (time.Time, bool) {
	if d.armed.Swap(false) {
		runtime.Goexit()
	}
	return d.Context.Deadline()
}

// A term ends if a context of Run ends the goroutine that checks the health or looks for preferred
// candidates: nothing would watch over the term any more. Nor does a preferred candidate show
// itself without checks.
func TestContextThatEndsWhatWatches(t *testing.T) {
	check := election.WithHealthCheck(time.Second, func(context.Context) error { return nil })
	for name, options := range map[string][]election.Option{"check": {check},
		"look": {ordinary()}, "show": {preferred(), check}} {
		play(t, func(s *stage) {
			other := s.candidate("b")
			if name == "show" {
				other.run(nil)
			}
			a := s.candidate("a", options...)
			inner, cancel := context.WithCancel(background)
			ctx := deadly{inner, new(atomic.Bool)}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				a.Run(ctx, untilEnd)
			}()
			time.Sleep(time.Second / 2)
			ctx.armed.Store(true)
			time.Sleep(time.Second)
			if told := fmt.Sprint(a.errors()); !strings.Contains(told, "runtime.Goexit") {
				t.Errorf("%s: told %s", name, told)
			}
			cancel()
			<-ended
			a.leave()
			other.leave()
		})
	}
}

func mustFind(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got %v, want one that wraps %q", err, target)
	}
}

// If a context of Run panics, or ends its goroutine, at any moment and in any goroutine of Run,
// neither the lock nor the second key stays behind.
//
// Fails if the code is broken like this: first or campaign without contain.
func TestContextThatPanicsInWhatWatches(t *testing.T) {
	check := election.WithHealthCheck(time.Second, func(context.Context) error { return nil })
	for name, do := range map[string]func(){"panic": func() { panic("odd") },
		"goexit": runtime.Goexit} {
		for kind, options := range map[string][]election.Option{
			"checked":   {check},
			"ordinary":  {check, election.WithPreferred(false)},
			"preferred": {check, election.WithPreferred(true)},
		} {
			for at := 1; at <= 60; at++ {
				synctest.Test(t, func(t *testing.T) {
					e, memory := newElection(t, append([]election.Option{
						election.WithPause(time.Minute, time.Minute),
						election.WithOnError(func(error) {})}, options...)...)
					rival, err := holdfast.New(memory)
					if err != nil {
						t.Fatal(err)
					}
					defer rival.Close()
					leads, err := rival.Acquire(context.Background(), "scheduler")
					if err != nil {
						t.Fatal(err)
					}
					inner, cancel := context.WithCancel(context.Background())
					defer cancel()
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { recover() }()
						e.Run(oddcontext.New(inner, at, do), untilEnd)
					}()
					time.Sleep(5 * time.Second)
					leads.Release(context.Background())
					time.Sleep(5 * time.Second)
					cancel()
					<-done
					synctest.Wait()
					for entry, err := range memory.List(context.Background(), "") {
						t.Errorf("%s, %s at %d: %q is held by %q, %v", kind, name, at, entry.Key,
							entry.Holder.Owner, err)
					}
				})
			}
		}
	}
}
