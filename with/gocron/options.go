package withgocron

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast"
)

type config struct {
	lock    []holdfast.AcquireOption
	onError func(job string, err error)
}

// Option sets an option of a [Locker].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithLockOptions sets options of the locks, for example holdfast.WithTTL. Default: those of the
// holdfast.Locker. A holdfast.WithMaxHold that is shorter than the minimum time ends the lock
// sooner.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithOnError has f called when a lock was lost while its job ran or before the minimum time was
// over (a [*holdfast.LostError]), and when a release was not confirmed (holdfast.ErrUnavailable or
// holdfast.ErrUnknown). f is not called for a loss by holdfast.Locker.Close. It is called once for
// each run, at the loss, on a goroutine of its own or of gocron, perhaps for several jobs at once.
// Default, also with a nil f: errors are logged as warnings with slog.Default.
func WithOnError(f func(job string, err error)) Option {
	return option(func(c *config) { c.onError = f })
}

func newConfig(options []Option) (c config, err error) {
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
	if c.onError == nil {
		c.onError = func(job string, err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn, err.Error(),
				slog.String("job", job))
		}
	}
	return c, nil
}
