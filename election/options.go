package election

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Defaults of the options.
const (
	// DefaultMinPause and DefaultMaxPause bound the pause after a term.
	DefaultMinPause = time.Second
	DefaultMaxPause = time.Minute

	// DefaultGrace is for how long the lock stays held for a function that was told to end.
	DefaultGrace = 30 * time.Second

	// DefaultPollInterval is how often Observe asks who leads.
	DefaultPollInterval = time.Second
)

type config struct {
	identity    string
	lock        []holdfast.AcquireOption
	minPause    time.Duration
	maxPause    time.Duration
	grace       time.Duration
	poll        time.Duration
	checkEvery  time.Duration
	check       func(context.Context) error
	checked     bool // WithHealthCheck was given
	stopOnError bool
	onError     func(error)
}

// Option sets an option of an Election.
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithIdentity sets how others see this candidate: a name, an address. It is the label of the lock
// (holdfast.WithLabel), at most 128 bytes, beside host and process ID. Default: that of the Locker,
// or none.
func WithIdentity(identity string) Option {
	return option(func(c *config) { c.identity = identity })
}

// WithLockOptions sets options of the lock, for example holdfast.WithTTL: how long nobody leads
// after the leader's process was killed. holdfast.WithMaxHold bounds a term. Default: those of the
// Locker. The lock is exclusive in any case.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithPause sets the smallest and the largest pause after a term: see Pauses in the package
// documentation. 0 < smallest <= largest. Defaults [DefaultMinPause] and [DefaultMaxPause].
func WithPause(smallest, largest time.Duration) Option {
	return option(func(c *config) { c.minPause, c.maxPause = smallest, largest })
}

// WithGrace sets for how long the lock stays held, and is renewed, for a function that was told to
// end on purpose and has not returned. After that it is released, and [ErrOverdue] told. The grace
// is positive. Default [DefaultGrace]. See "A function that does not return" in the package
// documentation.
func WithGrace(grace time.Duration) Option {
	return option(func(c *config) { c.grace = grace })
}

// WithHealthCheck has the leader give up when the check fails. It is called with the lock held,
// first before the function and then again interval after it last returned. A check that panics has
// failed, and so has one that takes longer than interval, when its context ends. The lock does not
// wait for a check that does not return, but Run does. Default: no check.
func WithHealthCheck(interval time.Duration, check func(context.Context) error) Option {
	return option(func(c *config) { c.checkEvery, c.check, c.checked = interval, check, true })
}

// WithStopOnError has Run return the error of the function if that ended the term by itself.
// Default: the error is told to [WithOnError], and Run campaigns again.
func WithStopOnError() Option {
	return option(func(c *config) { c.stopOnError = true })
}

// WithOnError has f called with every error that is not returned: why a campaign failed, a term
// ended (a [*TermError]), or a release was not confirmed. Calls come one at a time, from goroutines
// of Run, while the lock is not held. f must not call Resign, and should return soon: Run waits for
// it. Default, and with nil: errors are logged as warnings with slog.Default.
func WithOnError(f func(error)) Option {
	return option(func(c *config) { c.onError = f })
}

// WithPollInterval sets how often [Election.Observe] asks who leads. It is positive. Default
// [DefaultPollInterval].
func WithPollInterval(interval time.Duration) Option {
	return option(func(c *config) { c.poll = interval })
}

func newConfig(options []Option) (config, error) {
	c := config{minPause: DefaultMinPause, maxPause: DefaultMaxPause, grace: DefaultGrace,
		poll: DefaultPollInterval}
	for i, o := range options {
		if o == nil {
			return c, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(&c)
	}
	if c.onError == nil {
		c.onError = func(err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn, err.Error())
		}
	}
	return c, c.validate()
}

func (c *config) validate() error {
	for i, o := range c.lock {
		if o == nil {
			return invalid("lock option %d is nil: leave it out", i+1)
		}
	}
	switch {
	case len(c.identity) > driver.MaxLabelLen:
		return invalid("identity %.40q... has %d bytes: at most %d are allowed", c.identity,
			len(c.identity), driver.MaxLabelLen)
	case c.minPause <= 0 || c.maxPause < c.minPause:
		return invalid("pauses of %v to %v: the smallest must be positive, and the largest no less",
			c.minPause, c.maxPause)
	case c.grace <= 0:
		return invalid("grace %v: must be positive", c.grace)
	case c.poll <= 0:
		return invalid("poll interval %v: must be positive", c.poll)
	case c.checked && (c.checkEvery <= 0 || c.check == nil):
		return invalid("a health check every %v: the interval must be positive, and the check "+
			"not nil", c.checkEvery)
	}
	return nil
}

// acquireOptions are those of the lock. The last ones count.
func (c *config) acquireOptions() []holdfast.AcquireOption {
	options := append([]holdfast.AcquireOption(nil), c.lock...)
	if c.identity != "" {
		options = append(options, holdfast.WithLabel(c.identity))
	}
	return append(options, holdfast.WithExclusive())
}
