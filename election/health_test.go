package election_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/election"
)

func TestHealthCheck(t *testing.T) {
	var errSick = errors.New("sick")
	hang := make(chan struct{})
	for _, test := range []struct {
		name string
		bad  func(ctx context.Context) error
		took time.Duration // from the check that fails to the next leader
	}{
		{"fails", func(context.Context) error { return errSick }, 0},
		{"panics", func(context.Context) error { panic("sick") }, 0},
		{"is too late", func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}, time.Second},
		{"hangs", func(context.Context) error {
			<-hang
			return nil
		}, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			play(t, func(s *stage) {
				hang = make(chan struct{}) // of this bubble
				checks := 0
				a := s.candidate("a", election.WithHealthCheck(time.Second,
					func(ctx context.Context) error {
						if checks++; checks == 10 {
							return test.bad(ctx)
						}
						return nil
					}))
				b := s.candidate("b")
				a.run(nil)
				b.run(nil)
				time.Sleep(9*time.Second - 1)
				s.mustLead("a")
				time.Sleep(1 + test.took)
				s.mustLead("b")
				close(hang)
				a.mustTell(election.ErrUnhealthy)
				a.leave()
				b.leave()
			})
		})
	}
}

// The check before the function delays nobody, however it fails.
func TestFirstHealthCheck(t *testing.T) {
	var hang chan struct{}
	for _, test := range []struct {
		name string
		bad  func(ctx context.Context) error
		took time.Duration // until the next one leads
	}{
		{"fails", func(context.Context) error { return errWork }, 0},
		{"panics", func(context.Context) error { panic("sick") }, 0},
		{"ends its goroutine", func(context.Context) error {
			runtime.Goexit()
			return nil
		}, 0},
		{"hangs", func(context.Context) error {
			<-hang
			return nil
		}, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			play(t, func(s *stage) {
				hang = make(chan struct{}) // of this bubble
				a := s.candidate("a", election.WithHealthCheck(time.Second, test.bad))
				b := s.candidate("b")
				began := now()
				a.run(nil)
				b.run(nil)
				time.Sleep(test.took)
				s.mustLead("b")
				if s.starts() != 1 || now()-began != test.took {
					t.Errorf("%d functions were called in %v, want that of b alone", s.starts(),
						now()-began)
				}
				close(hang)
				a.mustTell(election.ErrUnhealthy)
				a.leave()
				b.leave()
			})
		})
	}
}

// Resign and the end of Run wait for the function, not for the check.
func TestEndInTheFirstHealthCheck(t *testing.T) {
	play(t, func(s *stage) {
		hang := make(chan struct{})
		a := s.candidate("a", election.WithHealthCheck(time.Hour, func(context.Context) error {
			<-hang
			return nil
		}))
		b := s.candidate("b")
		a.run(nil)
		b.run(nil)
		began := now()
		if err := a.Resign(background); err != nil || now() != began {
			t.Errorf("Resign returned %v after %v, want nil at once", err, now()-began)
		}
		s.mustLead("b")
		close(hang)
		a.leave()
		b.leave()
		a.mustTellNothing()
	})
}

// A candidate that is not healthy does not lead.
func TestHealthCheckComesFirst(t *testing.T) {
	play(t, func(s *stage) {
		var well atomic.Bool
		a := s.candidate("a", election.WithHealthCheck(time.Second,
			func(context.Context) error {
				if well.Load() {
					return nil
				}
				return errWork
			}))
		a.run(nil)
		s.mustLead()
		a.mustTell(errWork)
		if s.starts() > 0 {
			t.Error("the function was called though the health check fails")
		}
		well.Store(true)
		time.Sleep(time.Minute)
		s.mustLead("a")
		a.leave()
	})
}

// A check that hangs delays the end of Run, which leaves no goroutine, but not the next leader.
func TestRunWaitsForTheCheck(t *testing.T) {
	play(t, func(s *stage) {
		hang := make(chan struct{})
		checks := 0
		a := s.candidate("a", election.WithHealthCheck(time.Second,
			func(context.Context) error {
				if checks++; checks > 1 {
					<-hang
				}
				return nil
			}))
		b := s.candidate("b")
		a.run(nil)
		b.run(nil)
		time.Sleep(1500 * time.Millisecond)
		a.cancel(errBye)
		s.mustLead("b")
		select {
		case <-a.ran:
			t.Error("Run has returned while the check runs")
		default:
		}
		close(hang)
		a.leave()
		b.leave()
	})
}
