package withgocron_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withgocron "github.com/holdfast-go/holdfast/with/gocron"
)

// A job that takes no time, on two hosts whose clocks differ by a second. The second case is what
// the minimum is for.
func TestClocksThatDiffer(t *testing.T) {
	const ticks, takes = 10, 5 * time.Millisecond
	for name, c := range map[string]struct {
		atLeast time.Duration
		runs    int64
	}{
		"kept for longer than clocks differ": {5 * time.Second, ticks},
		"kept for as long as the job takes":  {0, 2 * ticks},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, f *fleet) {
				var runs atomic.Int64
				first := time.Now().Add(time.Minute)
				for _, ahead := range []time.Duration{0, time.Second} {
					f.process(ahead, c.atLeast).job("report", gocron.DurationJob(time.Minute),
						func() {
							runs.Add(1)
							time.Sleep(takes)
						}, first)
				}
				time.Sleep(ticks*time.Minute + 30*time.Second)
				if n := runs.Load(); n != c.runs {
					f.t.Errorf("%d runs of %d ticks, want %d", n, ticks, c.runs)
				}
			})
		})
	}
}

func TestHeldIsSkipped(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		a, b := f.process(0, 0), f.process(0, 0)
		end := make(chan struct{})
		a.job("report", atOnce, func() { <-end })
		synctest.Wait()
		b.job("report", atOnce, func() { f.note("b ran, too") })
		b.job("other", atOnce, func() { f.note("b ran the other") })
		synctest.Wait()
		close(end)
		synctest.Wait()
		var held *holdfast.HeldError
		if errs := b.errors(&b.lockless); len(errs) != 1 || !errors.As(errs[0], &held) ||
			held.Key != "report" {
			t.Errorf("AfterLockError got %v, want a HeldError of report", errs)
		}
		if got := f.noted(); len(got) != 1 || got[0] != "b ran the other" {
			t.Errorf("%q; want that b runs the job that nobody has", got)
		}
		if !f.isFree("report") {
			t.Error("the lock is still held after the job has ended")
		}
	})
}

// The context of a run ends with the lock, and the run has failed.
func TestLossEndsTask(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, 0)
		var cause error
		p.job("report", atOnce, p.jobs.Task("report",
			func(ctx context.Context, lock *holdfast.Lock) error {
				if lock.Token() == 0 || ctx.Err() != nil {
					t.Errorf("token %d, context %v", lock.Token(), ctx.Err())
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return errWork
			}))
		synctest.Wait()
		f.lose("report")
		isLoss(t, "the cause of the context", cause)
		failed, told := p.errors(&p.failed), p.errors(&p.told)
		if len(failed) != 1 || !errors.Is(failed[0], errWork) {
			t.Fatalf("the run failed with %v, want what the job returned", failed)
		}
		isLoss(t, "the error of the run", failed[0])
		if len(told) != 1 {
			t.Fatalf("told %v, want one loss", told)
		}
		isLoss(t, "what was told", told[0])
	})
}

// A job without a context of ours runs on, and the loss is reported.
func TestLossIsToldOfOtherJobs(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, 0)
		end := make(chan struct{})
		p.job("report", atOnce, func(ctx context.Context) error {
			<-end
			return ctx.Err()
		})
		synctest.Wait()
		f.lose("report")
		told := p.errors(&p.told)
		if len(told) != 1 {
			close(end)
			t.Fatalf("told %v while the job runs, want one loss", told)
		}
		isLoss(t, "what was told", told[0])
		close(end)
		synctest.Wait()
		if failed := p.errors(&p.failed); len(failed) != 0 || len(p.errors(&p.told)) != 1 {
			t.Errorf("failed with %v, told %v; want that the job has not noticed", failed,
				p.errors(&p.told))
		}
	})
}

// gocron ends the context of jobs when it shuts down, and unlocks with that context.
func TestShutdownReleases(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, 0)
		p.job("report", atOnce, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		synctest.Wait()
		if f.isFree("report") {
			t.Error("no lock is held while the job runs")
		}
		if err := p.scheduler.Shutdown(); err != nil {
			t.Fatal(err)
		}
		if err := p.jobs.Wait(t.Context()); err != nil || !f.isFree("report") {
			t.Errorf("Wait = %v, free: %v; want that the lock is released", err,
				f.isFree("report"))
		}
		if told := p.errors(&p.told); len(told) != 0 {
			t.Errorf("told %v", told)
		}
	})
}

// A lock is kept after the scheduler was shut down, and Wait waits for it.
func TestWaitForTheMinimum(t *testing.T) {
	const atLeast = 5 * time.Second
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, atLeast)
		began := time.Now()
		p.job("report", atOnce, func() { time.Sleep(time.Second) })
		time.Sleep(2 * time.Second)
		if err := p.scheduler.Shutdown(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errWork)
		if err := p.jobs.Wait(ctx); err != errWork || f.isFree("report") {
			t.Errorf("Wait = %v, free: %v; want the cause, and that the lock is kept", err,
				f.isFree("report"))
		}
		if err := p.jobs.Wait(t.Context()); err != nil || !f.isFree("report") {
			t.Errorf("Wait = %v, free: %v", err, f.isFree("report"))
		}
		if took := time.Since(began); took != atLeast {
			t.Errorf("the lock was kept for %v, want %v", took, atLeast)
		}
		if err := p.jobs.Wait(t.Context()); err != nil {
			t.Errorf("Wait with nothing to wait for = %v", err)
		}
	})
}

// A lock that is lost before the minimum is over does not protect against clocks any more.
func TestLossBeforeTheMinimumIsOver(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, time.Hour)
		p.job("report", atOnce, func() {})
		synctest.Wait()
		f.lose("report")
		told := p.errors(&p.told)
		if len(told) != 1 {
			t.Fatalf("told %v, want one loss", told)
		}
		isLoss(t, "what was told", told[0])
		began := time.Now()
		if err := p.jobs.Wait(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Wait = %v after %v; want that nothing is kept", err, time.Since(began))
		}
	})
}

func TestReleaseNotConfirmed(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, 0)
		end := make(chan struct{})
		p.job("report", atOnce, func() { <-end })
		synctest.Wait()
		p.client.Close()
		close(end)
		time.Sleep(time.Minute)
		told := p.errors(&p.told)
		if len(told) != 1 || !errors.Is(told[0], holdfast.ErrUnavailable) {
			t.Errorf("told %v, want that the backend is unavailable", told)
		}
	})
}

// Whoever closes the Locker knows that its locks end.
func TestCloseIsNotTold(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, time.Hour)
		p.job("report", atOnce, func() {})
		synctest.Wait()
		if err := p.holdfast.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if told := p.errors(&p.told); len(told) != 0 || !f.isFree("report") {
			t.Errorf("told %v, free: %v", told, f.isFree("report"))
		}
	})
}

// A run whose lock was lost ends when the next run of the job has begun in the same process: the
// next one keeps its lock.
func TestLateRunLeavesTheNextOneItsLock(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, 0)
		late, err := p.jobs.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		f.lose("report")
		f.memory.Faults().Lose("report") // the thief is gone
		next, err := p.jobs.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		isLoss(t, "Unlock of the late run", late.Unlock(t.Context()))
		if err := p.jobs.Task("report", func(_ context.Context, lock *holdfast.Lock) error {
			return lock.Err()
		})(t.Context()); err != nil {
			t.Errorf("the next run failed with %v", err)
		}
		if err := next.Unlock(t.Context()); err != nil || !f.isFree("report") {
			t.Errorf("Unlock = %v, free: %v", err, f.isFree("report"))
		}
	})
}

// Wait returns although WithOnError, told of a release that is not confirmed, ends the goroutine,
// as a test that fails does.
func TestWaitAfterOnErrorHasEndedTheGoroutine(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.newProcess()
		jobs, err := withgocron.New(p.holdfast, 0,
			withgocron.WithOnError(func(string, error) { runtime.Goexit() }))
		if err != nil {
			t.Fatal(err)
		}
		lock, err := jobs.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		p.client.Faults().Inject(memhold.Fault{Calls: memhold.Releases, Times: 1, Err: errWork})
		go lock.Unlock(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := jobs.Wait(ctx); err != nil {
			t.Errorf("Wait = %v", err)
		}
	})
}

func TestTaskWithoutItsLock(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process(0, 0)
		p.job("report", atOnce, p.jobs.Task("another name",
			func(context.Context, *holdfast.Lock) error {
				f.note("called")
				return nil
			}))
		synctest.Wait()
		failed := p.errors(&p.failed)
		if len(failed) != 1 || !errors.Is(failed[0], withgocron.ErrNotLocked) ||
			len(f.noted()) != 0 {
			t.Errorf("failed with %v, %q; want ErrNotLocked", failed, f.noted())
		}
	})
}

func TestInvalid(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		locker := f.newProcess().holdfast
		for name, make := range map[string]func() error{
			"no locker": func() error { return second(withgocron.New(nil, 0)) },
			"negative":  func() error { return second(withgocron.New(locker, -1)) },
			"nil option": func() error {
				return second(withgocron.New(locker, 0, nil))
			},
			"nil lock option": func() error {
				return second(withgocron.New(locker, 0, withgocron.WithLockOptions(nil)))
			},
			"no election": func() error { return second(withgocron.NewElector(nil)) },
		} {
			if err := make(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func isLoss(t *testing.T, what string, err error) {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		t.Errorf("%s is %v, want a LostError", what, err)
	}
}
