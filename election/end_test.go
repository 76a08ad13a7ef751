package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

func TestResign(t *testing.T) {
	play(t, func(s *stage) {
		a, b := s.candidate("a"), s.candidate("b")
		if err := a.Resign(background); err != nil {
			t.Errorf("Resign of a candidate that does not lead: %v", err)
		}
		var causes []error
		var done <-chan struct{}
		a.run(func(ctx context.Context, term election.Term) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			done = term.Done()
			time.Sleep(5 * time.Second) // it is waited for
			if err := term.Err(); err != nil {
				t.Errorf("the lock was lost while the function ran: %v", err)
			}
			if isClosed(done) {
				t.Error("Done was closed while the function ran")
			}
			return nil
		})
		b.run(nil)
		began := now()
		if err := a.Resign(background); err != nil {
			t.Error(err)
		}
		s.mustLead("b")
		if !isClosed(done) {
			t.Error("the next candidate leads, and Done is not closed")
		}
		if now()-began != 5*time.Second {
			t.Errorf("b leads %v after Resign, want 5s: when the function returns", now()-began)
		}
		a.mustTellNothing()
		time.Sleep(time.Minute)
		b.leave()
		s.mustLead("a") // it has campaigned again
		a.leave()
		if len(causes) != 2 || causes[0] != election.ErrResigned || causes[1] != errBye {
			t.Errorf("the contexts had the causes %v, want ErrResigned, bye", causes)
		}
	})
}

func TestResignWaitsAsLongAsItsContext(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		a.run(func(ctx context.Context, _ election.Term) error {
			// The function itself may call it, with the context of the term.
			if err := a.Resign(ctx); !errors.Is(err, election.ErrResigned) {
				t.Errorf("Resign in the function: %v, want ErrResigned", err)
			}
			time.Sleep(time.Second)
			return nil
		})
		ctx, cancel := context.WithTimeout(background, time.Millisecond)
		defer cancel()
		if err := a.Resign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Resign: %v, want the error of its context", err)
		}
		a.leave()
	})
}

func TestResignReportsARelease(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		a.run(nil)
		s.memory.Faults().Lose("scheduler")
		if err := a.Resign(background); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Resign of a lost lock: %v, want ErrLost", err)
		}
		a.mustTell(holdfast.ErrLost)
		s.mustLead() // a makes a pause
		if err := a.Resign(background); err != nil {
			t.Errorf("Resign between two terms: %v", err)
		}
		time.Sleep(time.Minute)
		s.mustLead("a")
		a.client.Faults().Freeze()
		if err := a.Resign(background); !errors.Is(err, holdfast.ErrUnknown) {
			t.Errorf("Resign with a frozen backend: %v, want ErrUnknown", err)
		}
		a.mustTell(holdfast.ErrUnknown)
		a.client.Faults().Thaw()
		a.leave()
	})
}

// A function that hangs holds the lock for the grace, which is longer than the lease, and then no
// longer.
func TestGrace(t *testing.T) {
	const grace = 3 * ttl
	for _, test := range []struct {
		name string
		end  func(a *candidate)
	}{
		{"Resign", func(a *candidate) {
			go func() {
				if err := a.Resign(background); !errors.Is(err, election.ErrOverdue) {
					t.Errorf("Resign: %v, want ErrOverdue", err)
				}
			}()
		}},
		{"cancel", func(a *candidate) { a.cancel(errBye) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			play(t, func(s *stage) {
				a := s.candidate("a", election.WithGrace(grace))
				b := s.candidate("b")
				hang := make(chan struct{})
				a.run(func(context.Context, election.Term) error {
					<-hang
					return nil
				})
				b.run(nil)
				began := now()
				test.end(a)
				time.Sleep(grace - time.Millisecond)
				s.mustLead("a")
				a.mustTellNothing()
				time.Sleep(time.Millisecond)
				s.mustLead("a", "b") // a's function still runs
				if now()-began != grace {
					t.Errorf("b leads after %v, want %v", now()-began, grace)
				}
				a.mustTell(election.ErrOverdue)
				close(hang)
				synctest.Wait()
				s.mustLead("b")
				a.mustTellNothing()
				a.leave()
				b.leave()
			})
		})
	}
}

// Run does not return before onError has.
func TestRunWaitsForWhatItTells(t *testing.T) {
	play(t, func(s *stage) {
		hang, told := make(chan struct{}), make(chan struct{})
		a := s.candidate("a", election.WithOnError(func(error) { <-told }))
		a.run(func(context.Context, election.Term) error {
			<-hang
			return nil
		})
		a.cancel(errBye)
		time.Sleep(election.DefaultGrace + time.Second)
		close(hang)
		time.Sleep(time.Minute)
		select {
		case <-a.ran:
			t.Error("Run has returned while onError runs")
		default:
		}
		close(told)
		a.leave()
	})
}

// If a function runs on while another leads, that is reported: the loss at once, and after the
// grace that the function has not returned. Each is reported once.
func TestLossIsToldWhileTheFunctionRuns(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(a *candidate) // before the loss
	}{
		{"in the term", func(*candidate) {}},
		{"in the grace", func(a *candidate) { a.cancel(errBye) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			play(t, func(s *stage) {
				a, b := s.candidate("a"), s.candidate("b")
				hang := make(chan struct{})
				a.run(func(context.Context, election.Term) error {
					<-hang
					return nil
				})
				b.run(nil)
				test.end(a)
				a.client.Faults().Freeze()
				time.Sleep(ttl)
				s.mustLead("a", "b") // a's function still runs
				a.mustTell(holdfast.ErrLost)
				time.Sleep(election.DefaultGrace)
				a.client.Faults().Thaw()
				a.mustTell(election.ErrOverdue)
				close(hang)
				a.mustTellNothing()
				a.leave()
				b.leave()
			})
		})
	}
}

// The error of a release that did not wait for the function is reported as well.
func TestOverdueReleaseThatIsNotConfirmed(t *testing.T) {
	play(t, func(s *stage) {
		s.grace = time.Second
		a := s.candidate("a", election.WithGrace(s.grace))
		hang := make(chan struct{})
		a.run(func(context.Context, election.Term) error {
			<-hang
			return nil
		})
		a.client.Faults().Freeze()
		a.cancel(errBye)
		time.Sleep(2 * ttl)
		told := a.errors()
		if len(told) != 2 || !errors.Is(told[0], election.ErrOverdue) ||
			!errors.Is(told[1], holdfast.ErrUnknown) {
			t.Errorf("told %v, want ErrOverdue and ErrUnknown", told)
		}
		a.client.Faults().Thaw()
		close(hang)
		a.leave()
	})
}

// With a context that has ended, nobody is asked.
func TestRunAfterTheEnd(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		a.client.Faults().Freeze()
		ctx, cancel := context.WithCancelCause(background)
		cancel(errBye)
		began := now()
		if err := a.Run(ctx, untilEnd); !errors.Is(err, errBye) || now() != began {
			t.Errorf("Run returned %v after %v, want the cause at once", err, now()-began)
		}
		a.mustTellNothing()
		a.client.Faults().Thaw()
		a.leave()
	})
}

func TestShutdownIsOneHandoff(t *testing.T) {
	play(t, func(s *stage) {
		a, b := s.candidate("a"), s.candidate("b")
		a.run(nil)
		b.run(nil)
		began := now()
		a.cancel(errBye)
		s.mustLead("b")
		if now() != began {
			t.Errorf("b leads %v after the cancellation, want at once", now()-began)
		}
		a.leave()
		b.leave()
	})
}

// A candidate that fails as soon as it leads must not make the others wait.
func TestFlappingCandidate(t *testing.T) {
	play(t, func(s *stage) {
		failed := 0
		flapping := s.candidate("flapping")
		steady := s.candidate("steady")
		var led time.Duration
		flapping.run(func(context.Context, election.Term) error {
			failed++
			return errWork
		})
		steady.run(func(ctx context.Context, term election.Term) error {
			since := now()
			defer func() { led += now() - since }()
			done, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return untilEnd(done, term)
		})
		began := now()
		time.Sleep(3 * time.Hour)
		flapping.leave()
		steady.leave()
		if led < (now()-began)*9/10*10/70 {
			t.Errorf("the steady candidate has led for %v of %v, want nine seventieths at least",
				led, now()-began)
		}
		// After the first few pauses, each is at least half of the largest.
		most := int((now()-began)/(election.DefaultMaxPause/2)) + 8
		if failed > most || failed < 100 {
			t.Errorf("the other has led %d times in %v, want 100 to %d", failed, now()-began, most)
		}
	})
}

// After a term that lasted, the pause is the smallest again.
func TestPauseIsShortAfterALongTerm(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		n := 0
		a.run(func(ctx context.Context, term election.Term) error {
			if n++; n%20 == 0 {
				return untilEnd(ctx, term)
			}
			return errWork
		})
		for range 3 {
			for len(s.leaders()) == 0 {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			time.Sleep(2 * election.DefaultMaxPause)
			was := n
			a.Resign(background)
			time.Sleep(election.DefaultMinPause)
			synctest.Wait()
			if n != was+1 {
				t.Errorf("%d terms within the smallest pause after a long one, want 1", n-was)
			}
		}
		a.leave()
	})
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
