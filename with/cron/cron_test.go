package withcron_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	withcron "github.com/holdfast-go/holdfast/with/cron"
)

var errWork = errors.New("the work failed")

// fleet is several processes that share one memory.
type fleet struct {
	t      *testing.T
	memory *memhold.Backend
}

// play runs a test in a bubble, where time is exact and costs nothing.
func play(t *testing.T, f func(*testing.T, *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := memhold.New()
		t.Cleanup(func() { memory.Close() })
		f(t, &fleet{t, memory})
	})
}

// process is one process of the fleet, with a Cron of its own.
type process struct {
	*fleet
	client *memhold.Backend
	locker *holdfast.Locker
	cron   *cron.Cron

	mu      sync.Mutex
	told    []error // by WithOnError
	skipped []error // by WithOnSkip
}

func (f *fleet) process() *process {
	f.t.Helper()
	client := f.memory.Client()
	locker, err := holdfast.New(client)
	if err != nil {
		f.t.Fatal(err)
	}
	p := &process{fleet: f, client: client, locker: locker, cron: cron.New()}
	p.cron.Start()
	f.t.Cleanup(func() {
		<-p.cron.Stop().Done()
		locker.Close()
		client.Close()
	})
	return p
}

func (p *process) options() []withcron.Option {
	keep := func(list *[]error) func(string, error) {
		return func(name string, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if name != "report" {
				p.t.Errorf("told of %q", name)
			}
			*list = append(*list, err)
		}
	}
	return []withcron.Option{withcron.WithOnError(keep(&p.told)),
		withcron.WithOnSkip(keep(&p.skipped))}
}

// job returns a job with a context.
func (p *process) job(atLeast time.Duration, f func(context.Context, *holdfast.Lock) error,
	options ...withcron.Option) cron.Job {
	p.t.Helper()
	job, err := withcron.NewJob(p.locker, "report", atLeast, f, append(p.options(), options...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return job
}

// wrapped returns a job without a context.
func (p *process) wrapped(atLeast time.Duration, f func()) cron.Job {
	p.t.Helper()
	skip, err := withcron.SkipIfHeld(p.locker, "report", atLeast, p.options()...)
	if err != nil {
		p.t.Fatal(err)
	}
	return cron.NewChain(skip).Then(cron.FuncJob(f))
}

func (p *process) errors(list *[]error) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(*list)
}

// lose gives the key to somebody else, and waits until its holder has noticed.
func (f *fleet) lose(key string) {
	f.memory.Faults().Give(key, "a thief", time.Hour)
	time.Sleep(holdfast.DefaultTTL)
	synctest.Wait()
}

// isFree reports whether nobody has the lock.
func (f *fleet) isFree(key string) bool {
	f.t.Helper()
	entry, err := f.memory.Inspect(context.Background(), key)
	if err != nil {
		f.t.Fatal(err)
	}
	return entry.Holder.Owner == ""
}

// once is a schedule that is due now, and never again.
type once struct{ due *atomic.Bool }

func now() cron.Schedule { return once{new(atomic.Bool)} }

func (o once) Next(now time.Time) time.Time {
	if o.due.Swap(true) {
		return time.Time{}
	}
	return now
}

// skewed is the schedule of a host whose clock is ahead.
type skewed struct {
	cron.Schedule
	ahead time.Duration
}

func (s skewed) Next(now time.Time) time.Time {
	return s.Schedule.Next(now.Add(s.ahead)).Add(-s.ahead)
}

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
				every, err := cron.ParseStandard("* * * * *")
				if err != nil {
					t.Fatal(err)
				}
				for _, ahead := range []time.Duration{0, time.Second} {
					p := f.process()
					p.cron.Schedule(skewed{every, ahead}, p.wrapped(c.atLeast, func() {
						runs.Add(1)
						time.Sleep(takes)
					}))
				}
				time.Sleep(ticks*time.Minute + 30*time.Second)
				if n := runs.Load(); n != c.runs {
					t.Errorf("%d runs of %d ticks, want %d", n, ticks, c.runs)
				}
			})
		})
	}
}

func TestHeldIsSkipped(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		a, b := f.process(), f.process()
		end := make(chan struct{})
		a.cron.Schedule(now(), a.wrapped(0, func() { <-end }))
		synctest.Wait()
		b.cron.Schedule(now(), b.wrapped(0, func() { t.Error("it ran twice") }))
		synctest.Wait()
		close(end)
		synctest.Wait()
		var held *holdfast.HeldError
		if errs := b.errors(&b.skipped); len(errs) != 1 || !errors.As(errs[0], &held) {
			t.Errorf("WithOnSkip got %v, want a HeldError", errs)
		}
		if !f.isFree("report") || len(a.errors(&a.told))+len(b.errors(&b.told)) != 0 {
			t.Errorf("free: %v, told %v, %v", f.isFree("report"), a.told, b.told)
		}
	})
}

// The context of a job ends with the lock.
func TestLossEndsJob(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		var cause error
		p.cron.Schedule(now(), p.job(time.Hour,
			func(ctx context.Context, lock *holdfast.Lock) error {
				if lock.Token() == 0 || ctx.Err() != nil {
					t.Errorf("token %d, context %v", lock.Token(), ctx.Err())
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return cause
			}))
		synctest.Wait()
		f.lose("report")
		isLoss(t, "the cause of the context", cause)
		told := p.errors(&p.told)
		if len(told) != 1 {
			t.Fatalf("told %v, want one loss", told)
		}
		isLoss(t, "what was told", told[0])
		<-p.cron.Stop().Done() // the minimum is not waited for
	})
}

// A job without a context runs on, and the loss is reported.
func TestLossIsToldOfWrappedJob(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		end := make(chan struct{})
		p.cron.Schedule(now(), p.wrapped(0, func() { <-end }))
		synctest.Wait()
		f.lose("report")
		told := p.errors(&p.told)
		if len(told) != 1 {
			t.Fatalf("told %v while the job runs, want one loss", told)
		}
		isLoss(t, "what was told", told[0])
		close(end)
		synctest.Wait()
		if told := p.errors(&p.told); len(told) != 1 {
			t.Errorf("told %v, want the loss once", told)
		}
	})
}

// A program that stops the Cron and waits for its jobs has kept the minimum.
func TestStopWaitsForTheMinimum(t *testing.T) {
	const atLeast = 5 * time.Second
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		began := time.Now()
		p.cron.Schedule(now(), p.wrapped(atLeast, func() { time.Sleep(time.Second) }))
		time.Sleep(2 * time.Second)
		if f.isFree("report") {
			t.Error("the lock is free when the job has ended")
		}
		<-p.cron.Stop().Done()
		if took := time.Since(began); took != atLeast || !f.isFree("report") {
			t.Errorf("the lock was kept for %v, want %v; it is free: %v", took, atLeast,
				f.isFree("report"))
		}
	})
}

func TestContextEndsTheMinimum(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		ctx, cancel := context.WithCancelCause(t.Context())
		runs := 0
		job := p.job(time.Hour, func(context.Context, *holdfast.Lock) error {
			runs++
			return nil
		}, withcron.WithContext(ctx))
		p.cron.Schedule(now(), job)
		synctest.Wait()
		cancel(errWork)
		synctest.Wait()
		if !f.isFree("report") || len(p.errors(&p.told)) != 0 {
			t.Errorf("free: %v, told %v", f.isFree("report"), p.told)
		}
		job.Run()
		if told := p.errors(&p.told); runs != 1 || len(told) != 1 || !errors.Is(told[0], errWork) {
			t.Errorf("%d runs, told %v; want no run after the end, and its cause", runs, told)
		}
	})
}

// A program that closes its Locker is not told of what it has done.
func TestCloseIsNotTold(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		job := p.job(0, func(ctx context.Context, _ *holdfast.Lock) error {
			p.locker.Close()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		job.Run()
		synctest.Wait()
		if told := p.errors(&p.told); len(told) != 0 {
			t.Errorf("told %v", told)
		}
	})
}

func TestErrorsAreTold(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		end := make(chan struct{})
		job := p.job(0, func(context.Context, *holdfast.Lock) error {
			<-end
			return errWork
		})
		p.cron.Schedule(now(), job)
		synctest.Wait()
		p.client.Close()
		close(end)
		time.Sleep(time.Minute)
		job.Run()
		told := p.errors(&p.told)
		if len(told) != 3 || told[0] != errWork || !errors.Is(told[1], holdfast.ErrUnavailable) ||
			!errors.Is(told[2], holdfast.ErrUnavailable) {
			t.Errorf("told %v; want the error of the job, that of the release, and that of the "+
				"next run", told)
		}
	})
}

func TestPanicReleases(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		for what, job := range map[string]cron.Job{
			"the job": p.wrapped(time.Hour, func() { panic("!") }),
			"the function that is told": p.job(time.Hour,
				func(context.Context, *holdfast.Lock) error { return errors.New("work") },
				withcron.WithOnError(func(string, error) { panic("!") })),
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", what)
					}
				}()
				job.Run()
			}()
			if !f.isFree("report") {
				t.Errorf("the lock is held after a panic of %s", what)
			}
		}
	})
}

func TestInvalid(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		var none context.Context
		work := func(context.Context, *holdfast.Lock) error { return nil }
		for name, make := range map[string]func() error{
			"no locker":       wrap(nil, "a", 0),
			"no name":         wrap(p.locker, "", 0),
			"negative":        wrap(p.locker, "a", -1),
			"nil option":      wrap(p.locker, "a", 0, nil),
			"nil lock option": wrap(p.locker, "a", 0, withcron.WithLockOptions(nil)),
			"nil context":     wrap(p.locker, "a", 0, withcron.WithContext(none)),
			"no locker, job":  func() error { return second(withcron.NewJob(nil, "a", 0, work)) },
			"no function": func() error {
				return second(withcron.NewJob(p.locker, "a", 0, nil))
			},
		} {
			if err := make(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

func wrap(locker *holdfast.Locker, name string, atLeast time.Duration,
	options ...withcron.Option) func() error {
	return func() error { return second(withcron.SkipIfHeld(locker, name, atLeast, options...)) }
}

func second[T any](_ T, err error) error { return err }

func isLoss(t *testing.T, what string, err error) {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		t.Errorf("%s is %v, want a LostError", what, err)
	}
}

// The end of the context is an error, also if its cause is that another lock is held.
func TestContextThatEndsWithAnotherLock(t *testing.T) {
	play(t, func(t *testing.T, f *fleet) {
		p := f.process()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&holdfast.HeldError{Key: "another"})
		w, err := withcron.SkipIfHeld(p.locker, "report", 0,
			append(p.options(), withcron.WithContext(ctx))...)
		if err != nil {
			t.Fatal(err)
		}
		w(cron.FuncJob(func() { t.Error("the job ran") })).Run()
		told, skipped := p.errors(&p.told), p.errors(&p.skipped)
		if len(skipped) != 0 || len(told) != 1 || !errors.Is(told[0], context.Canceled) {
			t.Errorf("told %v, skipped %v; want an error of the context alone", told, skipped)
		}
	})
}
