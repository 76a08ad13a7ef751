package withcron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
)

type config struct {
	ctx     context.Context
	lock    []holdfast.AcquireOption
	onError func(name string, err error)
	onSkip  func(name string, err error)
}

// Option sets an option of a job.
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithContext sets the context that a job's own comes from. After it has ended no run begins, and a
// lock that is kept for the minimum time only is released. Default context.Background.
func WithContext(ctx context.Context) Option {
	return option(func(c *config) { c.ctx = ctx })
}

// WithLockOptions sets options of the lock, for example holdfast.WithTTL. Default: those of the
// Locker. A holdfast.WithMaxHold that is shorter than the minimum time ends the lock sooner.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithOnError has f called with the name of the job when something went wrong with a run: the lock
// was lost while the job ran or before the minimum time was over (a [*holdfast.LostError], told
// once, at the loss); the lock could not be asked for (for example holdfast.ErrUnavailable); its
// release was not confirmed; or the job returned an error. f is not called if another process has
// the lock, or for a loss by holdfast.Locker.Close. Calls may come from several goroutines at once.
// Default, also with a nil f: errors are logged as warnings with slog.Default.
func WithOnError(f func(name string, err error)) Option {
	return option(func(c *config) { c.onError = f })
}

// WithOnSkip has f called when a run is skipped because another process has the lock. err is the
// [*holdfast.HeldError], which says who has it. Default: nothing is called.
func WithOnSkip(f func(name string, err error)) Option {
	return option(func(c *config) { c.onSkip = f })
}

// NewJob returns a job for Cron.AddJob and Cron.Schedule that calls f under the lock of that name,
// with a context that ends when the lock is lost. The lock is kept for atLeast, from the start of
// the run, and until f has returned; 0 means until f has returned. If f panics, the lock is
// released at once, and the panic goes on.
//
// NewJob fails with holdfast.ErrInvalid if locker or f is nil, the name is empty, atLeast is
// negative, or an option is nil.
func NewJob(locker *holdfast.Locker, name string, atLeast time.Duration,
	f func(ctx context.Context, lock *holdfast.Lock) error, options ...Option) (cron.Job, error) {
	if f == nil {
		return nil, invalid("function is nil for %q: give one", name)
	}
	w, err := newWrapper(locker, name, atLeast, options)
	if err != nil {
		return nil, err
	}
	return cron.FuncJob(func() { w.run(f) }), nil
}

// SkipIfHeld returns a cron.JobWrapper that runs a job under the lock of that name, as [NewJob]
// does. If the lock is lost, the job is not told and runs on. SkipIfHeld fails as NewJob does.
func SkipIfHeld(locker *holdfast.Locker, name string, atLeast time.Duration,
	options ...Option) (cron.JobWrapper, error) {
	w, err := newWrapper(locker, name, atLeast, options)
	if err != nil {
		return nil, err
	}
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			w.run(func(context.Context, *holdfast.Lock) error {
				job.Run()
				return nil
			})
		})
	}, nil
}

// wrapper puts one lock around runs.
type wrapper struct {
	config
	locker  *holdfast.Locker
	name    string
	atLeast time.Duration
}

func newWrapper(locker *holdfast.Locker, name string, atLeast time.Duration,
	options []Option) (*wrapper, error) {
	switch {
	case locker == nil:
		return nil, invalid("locker is nil for %q: make one with holdfast.New", name)
	case name == "":
		return nil, invalid("the name is empty: each job has its own")
	case atLeast < 0:
		return nil, invalid("lock on %q kept for at least %v: must not be negative", name, atLeast)
	}
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	return &wrapper{c, locker, name, atLeast}, nil
}

func newConfig(options []Option) (config, error) {
	c := config{ctx: context.Background()}
	for i, o := range options {
		if o == nil {
			return c, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(&c)
	}
	for i, o := range c.lock {
		if o == nil {
			return c, invalid("lock option %d is nil: leave it out", i+1)
		}
	}
	if c.ctx == nil {
		return c, invalid("context is nil: leave WithContext out")
	}
	if c.onError == nil {
		c.onError = func(name string, err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn, err.Error(),
				slog.String("job", name))
		}
	}
	if c.onSkip == nil {
		c.onSkip = func(string, error) {}
	}
	return c, nil
}

// run calls f under the lock, if nobody has it.
func (w *wrapper) run(f func(context.Context, *holdfast.Lock) error) {
	asked := time.Now()
	lock, err := w.locker.TryAcquire(w.ctx, w.name, w.lock...)
	switch err.(type) { // not errors.Is: the cause of the context may be that another lock is held
	case nil:
	case *holdfast.HeldError:
		w.onSkip(w.name, err)
		return
	default:
		w.onError(w.name, err)
		return
	}
	var once sync.Once
	tell := func(err error) {
		// If the program has closed the Locker, it knows of the loss.
		if err != nil && !errors.Is(err, holdfast.ErrReleased) &&
			!errors.Is(err, holdfast.ErrClosed) {
			once.Do(func() { w.onError(w.name, err) })
		}
	}
	context.AfterFunc(lock.Context(context.Background()), func() { tell(lock.Err()) })
	defer func() { tell(lock.Release(context.WithoutCancel(w.ctx))) }()

	ctx := lock.Context(w.ctx)
	if err := f(ctx, lock); err != nil && !errors.Is(err, context.Cause(ctx)) {
		w.onError(w.name, err)
	}
	wait(ctx, time.Until(asked.Add(w.atLeast)))
}

// wait waits for d, or until ctx ends: with the lock, too.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withcron: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
