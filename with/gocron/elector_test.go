package withgocron_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/election"
	withgocron "github.com/holdfast-go/holdfast/with/gocron"
)

// campaign has the process campaign until it leaves.
func (p *process) campaign() (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.elector.Run(ctx)
	}()
	leave = func() {
		cancel()
		<-done
	}
	p.t.Cleanup(leave)
	synctest.Wait()
	return leave
}

func TestLeaderRunsTheJobs(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		a, b := f.candidate("a"), f.candidate("b")
		for name, p := range map[string]*process{"a": a, "b": b} {
			p.job("report", gocron.DurationJob(time.Minute), func() { f.note(name) })
		}
		if err := a.elector.IsLeader(t.Context()); !errors.Is(err, withgocron.ErrNotLeader) {
			t.Errorf("IsLeader before it campaigns = %v", err)
		}
		leave := a.campaign()
		b.campaign()
		time.Sleep(2*time.Minute + time.Second)
		leave()
		time.Sleep(2 * time.Minute)
		if got := f.noted(); !slices.Equal(got, []string{"a", "a", "b", "b"}) {
			t.Errorf("run by %q; want twice by a, then twice by b", got)
		}
	})
}

// The context of a run ends with the term, and the run has failed.
func TestLossOfTheTermEndsTask(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.candidate("a")
		p.campaign()
		var cause error
		p.job("report", atOnce, p.elector.Task(
			func(ctx context.Context, term election.Term) error {
				if term.Token() == 0 || ctx.Err() != nil {
					t.Errorf("token %d, context %v", term.Token(), ctx.Err())
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return errWork
			}))
		synctest.Wait()
		f.lose("jobs")
		isLoss(t, "the cause of the context", cause)
		failed := p.errors(&p.failed)
		if len(failed) != 1 || !errors.Is(failed[0], errWork) {
			t.Fatalf("the run failed with %v, want what the job returned", failed)
		}
		isLoss(t, "the error of the run", failed[0])
		if err := p.elector.IsLeader(t.Context()); !errors.Is(err, withgocron.ErrNotLeader) {
			t.Errorf("IsLeader after the loss = %v", err)
		}
	})
}

// When a leader leaves in order, the next one leads after its tasks have returned.
func TestNextLeadsAfterTasks(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		a, b := f.candidate("a"), f.candidate("b")
		leave := a.campaign()
		b.campaign()
		a.job("report", atOnce, a.elector.Task(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			if b.elector.IsLeader(ctx) == nil {
				t.Error("the next one leads already")
			}
			time.Sleep(5 * time.Second) // to end in order
			if b.elector.IsLeader(ctx) == nil {
				t.Error("the next one leads while the task ends")
			}
			f.note("ended")
			return nil
		}))
		synctest.Wait()
		leave()
		synctest.Wait()
		if err := b.elector.IsLeader(t.Context()); err != nil || len(f.noted()) != 1 {
			t.Errorf("IsLeader of the next one = %v, the task %q", err, f.noted())
		}
		time.Sleep(time.Minute) // gocron does not shut down in a bubble while a job sleeps
	})
}

// The process may have stopped leading between gocron's question and the job.
func TestTaskWithoutItsTerm(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.candidate("a")
		err := p.elector.Task(func(context.Context, election.Term) error {
			t.Error("called")
			return nil
		})(t.Context())
		if !errors.Is(err, withgocron.ErrNotLeader) {
			t.Errorf("the task = %v, want ErrNotLeader", err)
		}
	})
}
