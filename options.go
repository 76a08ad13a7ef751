package holdfast

import (
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Defaults of the options.
const (
	// DefaultTTL is the TTL of an acquisition. The lease is renewed after every third of it.
	DefaultTTL = 30 * time.Second

	// MinTTL is the shortest TTL accepted: 10 milliseconds.
	MinTTL = driver.MinTTL

	// MaxTTL is the longest TTL, and the longest maximum hold, accepted: 366 days.
	MaxTTL = driver.MaxTTL

	// DefaultDrift is the part of the TTL set aside for clocks that run at different rates;
	// 2 ms are always added to it.
	DefaultDrift = 0.01

	// DefaultCohortTurns and DefaultCohortSpan bound how often, and for how long, goroutines of one
	// Locker hand a key to each other before the Locker asks the backend whether others wait.
	DefaultCohortTurns = 64
	DefaultCohortSpan  = 50 * time.Millisecond
)

const (
	// driftConstant is the fixed part of the drift allowance: it covers the resolution of the
	// servers' expiry.
	driftConstant = 2 * time.Millisecond

	// maxCohortTurns is the largest number of turns accepted.
	maxCohortTurns = 1 << 20
)

// config holds the options of a Locker, or of one acquisition.
type config struct {
	ttl     time.Duration
	maxHold time.Duration
	label   string
	renew   bool
	shared  bool

	sharedKeys []string // these are shared, if shared is not set; nil: WithSharedKeys was not given

	permits   int  // of a semaphore
	semaphore bool // WithPermits was given

	// Of the Locker only:
	prefix string
	drift  float64
	turns  int
	span   time.Duration
	logger *slog.Logger // nil: none

	observers []Hooks // as they were given
	hooks     Hooks   // of all observers, made by New; each only passes an event on
}

// nilOption is the error for a nil option at index i of a list.
func nilOption(i int) error { return invalid("option %d is nil: leave it out", i+1) }

func defaults() config {
	return config{
		ttl:   DefaultTTL,
		renew: true,
		drift: DefaultDrift,
		turns: DefaultCohortTurns,
		span:  DefaultCohortSpan,
	}
}

// Option sets an option of a Locker. Every [AcquireOption] is an Option as well: it sets the
// default for the Locker's acquisitions.
type Option interface{ applyToLocker(*config) }

// AcquireOption sets an option of one acquisition.
type AcquireOption interface {
	Option
	applyToAcquire(*config)
}

type lockerOption func(*config)

func (f lockerOption) applyToLocker(c *config) { f(c) }

type acquireOption func(*config)

func (f acquireOption) applyToLocker(c *config)  { f(c) }
func (f acquireOption) applyToAcquire(c *config) { f(c) }

// WithTTL sets the length of the lease, from [MinTTL] to [MaxTTL]. The TTL is how long the key
// stays locked after its holder has crashed, and how long a holder may go on if its renewals fail.
// It must be well above the round trip to the backend. A backend may allow fewer TTLs
// (driver.Limited). New and Acquire fail with ErrInvalid if the TTL is not allowed. The default is
// [DefaultTTL].
func WithTTL(ttl time.Duration) AcquireOption {
	return acquireOption(func(c *config) { c.ttl = ttl })
}

// WithMaxHold bounds how long a lock is held, counted from the grant. After d the lock ends with
// [ErrMaxHold], and nothing renews it any more. The key becomes free when the holder releases the
// lock or the lease runs out. d is at most [MaxTTL], and at least the TTL if the lease is renewed.
// The default is 0, which means no bound.
//
// Without a bound, a lock is renewed for as long as the process lives, even if the goroutine that
// holds it is stuck. Set a bound where a stuck holder is worse than an interrupted one.
func WithMaxHold(d time.Duration) AcquireOption {
	return acquireOption(func(c *config) { c.maxHold = d })
}

// WithLabel adds a readable label of at most 128 bytes to the owner value, beside the host name and
// process ID. Everybody who waits for the key or inspects the backend sees the label, so keep
// secrets out of it. If goroutines hand a key over or share it in memory, the label is that of the
// goroutine that asked the backend. The default is no label.
func WithLabel(label string) AcquireOption {
	return acquireOption(func(c *config) { c.label = label })
}

// WithoutRenewal switches automatic renewal off: the lock ends with its lease, unless [Lock.Extend]
// is called in time. Each acquisition asks the backend for a full lease, even if the key passes
// from one goroutine of this Locker to another. By default leases are renewed.
func WithoutRenewal() AcquireOption {
	return acquireOption(func(c *config) { c.renew = false })
}

// WithShared asks for a shared lock, as for reading: at any moment a key is held by one exclusive
// lock or by any number of shared locks. New and Acquire fail with ErrInvalid if the backend cannot
// share keys (driver.Sharer). By default locks are exclusive. See Sharing in the package
// documentation, and [Lock.Downgrade].
func WithShared() AcquireOption {
	return acquireOption(func(c *config) { c.shared = true })
}

// WithExclusive asks for an exclusive lock. It undoes [WithShared] and [WithPermits], for one
// acquisition on a Locker that has one of them as its default.
func WithExclusive() AcquireOption {
	return acquireOption(func(c *config) { c.shared, c.permits, c.semaphore = false, 0, false })
}

// WithSharedKeys is [WithShared] for some of the keys of [Locker.AcquireAll],
// [Locker.TryAcquireAll] or [Locker.DoAll]; the other keys are exclusive. So a caller can read some
// keys and write others. The call fails with ErrInvalid if it does not have one of the keys. New,
// and calls that take a single key, refuse the option with ErrInvalid. By default all keys are
// exclusive, or all are shared with WithShared.
func WithSharedKeys(keys ...string) AcquireOption {
	keys = append([]string{}, keys...) // not nil, which means that the option was not given
	return acquireOption(func(c *config) { c.sharedKeys = keys })
}

// WithPrefix puts prefix before every key at the backend. Prefix and key together have at most
// 1,024 bytes. The default is no prefix.
func WithPrefix(prefix string) Option {
	return lockerOption(func(c *config) { c.prefix = prefix })
}

// WithDrift sets aside a part of the TTL for clocks that run at different rates, 0 <= drift < 0.5.
// A lease is valid for TTL - (TTL x drift + 2 ms), from just before its first request is sent. The
// clocks of all clients and servers of a key must differ in rate by less than drift: 0.01 is one
// part in a hundred. The default is [DefaultDrift].
func WithDrift(drift float64) Option {
	return lockerOption(func(c *config) { c.drift = drift })
}

// WithCohort bounds local handoff, by which goroutines of one Locker hand a key to each other in
// memory. At most turns of them in a row have the key, and none of them gets it later than span
// after the first. Then a waiter of another process gets its turn: Waiting in the package
// documentation says how long it waits. For a shared key only span matters: see Sharing there.
// turns is 1 to 1,048,576, and span is positive. The defaults are [DefaultCohortTurns] and
// [DefaultCohortSpan].
//
// If turns is 1, span is ignored and there is no local handoff: every acquisition asks the backend,
// and waits in its queue.
func WithCohort(turns int, span time.Duration) Option {
	return lockerOption(func(c *config) { c.turns, c.span = turns, span })
}

// WithHooks has the Locker call hooks, on a goroutine of their own. The option may be given several
// times: all hooks are called. The default is no hooks.
func WithHooks(hooks Hooks) Option {
	return lockerOption(func(c *config) { c.observers = append(c.observers, hooks) })
}

// WithLogger has the Locker write to logger, on a goroutine of its own. It logs
//   - a lock that was lost, unless by Close;
//   - a renewal that failed, and a key that could not be released;
//   - a panic of a hook, or of a context that was cancelled because a lock was lost;
//   - events that were dropped because hooks or logger are too slow;
//   - processes that use a semaphore with different numbers of permits (see [WithPermits]);
//   - a [Lock] that became garbage while it was held.
//
// If the option is given several times, the last logger counts. The default is nil, which means no
// log.
//
// A logger costs each acquisition one more allocation, so that a forgotten Lock is noticed. Nobody
// can release a forgotten Lock: it is renewed until it reaches its maximum hold or the Locker is
// closed.
func WithLogger(logger *slog.Logger) Option {
	return lockerOption(func(c *config) { c.logger = logger })
}

// validate checks all options together.
func (c *config) validate() error {
	if err := c.validateLocker(); err != nil {
		return err
	}
	if err := c.validatePermits(); err != nil {
		return err
	}
	switch {
	case c.ttl < MinTTL:
		return invalid("TTL %v: must be at least %v", c.ttl, MinTTL)
	case c.ttl > MaxTTL:
		return invalid("TTL %v: must be at most %v", c.ttl, MaxTTL)
	case c.validity(c.ttl) <= 0:
		return invalid("TTL %v leaves no validity after a drift allowance of %v", c.ttl,
			c.allowance(c.ttl))
	case c.maxHold < 0:
		return invalid("maximum hold %v: must not be negative", c.maxHold)
	case c.maxHold > MaxTTL:
		return invalid("maximum hold %v: must be at most %v; 0 means none", c.maxHold, MaxTTL)
	case c.maxHold > 0 && c.maxHold < c.ttl && c.renew:
		return invalid(
			"maximum hold %v is shorter than the TTL %v: it would never be renewed; shorten the TTL",
			c.maxHold, c.ttl)
	case len(c.label) > driver.MaxLabelLen:
		return invalid("label %.40q... has %d bytes: at most %d are allowed", c.label,
			len(c.label), driver.MaxLabelLen)
	}
	return nil
}

// validateLocker checks the options of a Locker alone.
func (c *config) validateLocker() error {
	switch {
	case !(c.drift >= 0 && c.drift < 0.5):
		return invalid("drift %v: must be at least 0 and less than 0.5", c.drift)
	case len(c.prefix) >= driver.MaxKeyLen:
		return invalid("prefix %.40q... has %d bytes: prefix and key together may have %d",
			c.prefix, len(c.prefix), driver.MaxKeyLen)
	case c.turns < 1 || c.turns > maxCohortTurns:
		return invalid("cohort of %d turns: must be 1 to %d", c.turns, maxCohortTurns)
	case c.turns > 1 && c.span <= 0:
		return invalid("cohort span %v with %d turns: must be positive", c.span, c.turns)
	}
	return nil
}

// allowance returns the drift allowance of a lease of the given length.
func (c *config) allowance(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*c.drift) + driftConstant
}

// validity returns how long a lease of the given length is valid, from just before its request is
// sent.
func (c *config) validity(lease time.Duration) time.Duration {
	return lease - c.allowance(lease)
}
