package election

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Defaults of the options.
const (
	// DefaultMinPause and DefaultMaxPause bound the pause after a term.
	DefaultMinPause = time.Second
	DefaultMaxPause = time.Minute

	// DefaultGrace is how long the lock stays held for a function that was told to end.
	DefaultGrace = 30 * time.Second

	// DefaultPollInterval is how often Observe asks who leads, and how often a leader looks for a
	// preferred candidate.
	DefaultPollInterval = time.Second
)

type config struct {
	identity    string
	payload     string
	preference  preference
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

// WithPayload sets what this candidate tells others while it leads, for example an address (see
// [Leader.Payload]). It is one line of text without < and >, and stays the same for the whole term.
// Identity and payload share the label of the lock, as "identity <payload>", so together they may
// have 125 bytes. Everybody who can look at the lock sees them. Without an identity the label has
// only the payload; the label of the Locker is not used. Default: none.
func WithPayload(payload string) Option {
	return option(func(c *config) { c.payload = payload })
}

// WithPreferred has ordinary candidates give up for preferred ones. Give it to all candidates of
// the election, with true for a preferred one. While a preferred candidate waits and is healthy, it
// holds a second key: the name of the election with "@preferred" behind it. An ordinary leader
// looks for that key before it calls its function, and then every [DefaultPollInterval] (see
// [WithPollInterval]). When it finds the key, it ends its term on purpose, with [ErrPreferred].
// Ordinary candidates that come first in the queue do the same, so the preferred one leads after
// some handoffs. A candidate gives up at most once within the largest pause (see [WithPause]), so a
// preferred one that fails again and again, or hangs, does not keep others from leading. A
// preferred leader gives up for nobody. The backend must be one that holdfast.Locker.Inspect can
// inspect. Default: the candidate does not give up and is not preferred.
func WithPreferred(isPreferred bool) Option {
	return option(func(c *config) {
		c.preference = ordinary
		if isPreferred {
			c.preference = preferred
		}
	})
}

// WithLockOptions sets options of the lock. holdfast.WithTTL, for example, bounds how long nobody
// leads after the leader's process was killed. holdfast.WithMaxHold bounds a term. Default: those
// of the Locker. The lock is exclusive in any case.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithPause sets the smallest and the largest pause after a term: see Pauses in the package
// documentation. 0 < smallest <= largest. Defaults [DefaultMinPause] and [DefaultMaxPause].
func WithPause(smallest, largest time.Duration) Option {
	return option(func(c *config) { c.minPause, c.maxPause = smallest, largest })
}

// WithGrace sets how long the lock stays held, and is renewed, for a function that has not returned
// after an end on purpose. After that the lock is released, and [ErrOverdue] is told. The grace is
// positive. Default [DefaultGrace]. See "A function that does not return" in the package
// documentation.
func WithGrace(grace time.Duration) Option {
	return option(func(c *config) { c.grace = grace })
}

// WithHealthCheck has the leader give up when the check fails. The check is called while the lock
// is held: first before the function, and then each time when interval has passed since it last
// returned. A check that panics has failed. A check that takes longer than interval has failed too;
// its context ends then. The release of the lock does not wait for a check that does not return,
// but Run does. Default: no check.
func WithHealthCheck(interval time.Duration, check func(context.Context) error) Option {
	return option(func(c *config) { c.checkEvery, c.check, c.checked = interval, check, true })
}

// WithStopOnError has Run return the error of the function if the function ended the term by
// itself. Default: the error is told to [WithOnError], and Run campaigns again.
func WithStopOnError() Option {
	return option(func(c *config) { c.stopOnError = true })
}

// WithOnError has f called with every error that is not returned. The error says why a campaign
// failed, why a term ended (a [*TermError]), why a release was not confirmed, or why the second key
// of WithPreferred could not be held or looked at. Calls come one at a time, from goroutines of
// Run, and do not delay the end of a term. f must not call Resign, and should return soon, because
// Run waits for it. A panic of f goes on through Run or, at a loss, ends the process. Default, also
// with a nil f: errors are logged as warnings with slog.Default.
func WithOnError(f func(error)) Option {
	return option(func(c *config) { c.onError = f })
}

// WithPollInterval sets how often [Election.Observe] asks who leads, and how often a leader looks
// for a preferred candidate. It is positive. Default [DefaultPollInterval].
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
	return c.checkAnnounced()
}

// acquireOptions returns the options of the lock. Of two for one thing, the later counts.
func (c *config) acquireOptions() []holdfast.AcquireOption {
	options := append([]holdfast.AcquireOption(nil), c.lock...)
	if label := announced(c.identity, c.payload); label != "" {
		options = append(options, holdfast.WithLabel(label))
	}
	return append(options, holdfast.WithExclusive())
}
