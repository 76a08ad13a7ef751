package holdfast

import (
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Defaults of the options.
const (
	// DefaultTTL is the lease of an acquisition, renewed every third of it.
	DefaultTTL = 30 * time.Second

	// MinTTL is the shortest lease accepted.
	MinTTL = driver.MinTTL

	// DefaultDrift is the part of the TTL set aside for clocks that run at different rates;
	// DriftConstant is always added to it (R16, R19).
	DefaultDrift = 0.01

	// DriftConstant is the fixed part of the drift allowance: it covers the resolution of the
	// servers' expiry.
	DriftConstant = 2 * time.Millisecond

	// DefaultCohortTurns and DefaultCohortSpan bound how often and for how long goroutines of
	// one Locker hand a key to each other before other processes are asked.
	DefaultCohortTurns = 64
	DefaultCohortSpan  = 50 * time.Millisecond

	// MaxCohortTurns is the largest number of turns accepted.
	MaxCohortTurns = 1 << 20
)

// config is what the options of a Locker and of one acquisition amount to.
type config struct {
	ttl     time.Duration
	maxHold time.Duration
	label   string
	renew   bool

	// Of the Locker only:
	prefix string
	drift  float64
	turns  int
	span   time.Duration
	hooks  Hooks
	logger *slog.Logger
}

func defaults() config {
	return config{
		ttl:    DefaultTTL,
		renew:  true,
		drift:  DefaultDrift,
		turns:  DefaultCohortTurns,
		span:   DefaultCohortSpan,
		logger: slog.New(slog.DiscardHandler),
	}
}

// Option sets an option of a Locker. Every [AcquireOption] is one as well and
// sets the default for the Locker's acquisitions.
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

// WithTTL sets the lease: how long the key stays locked when its holder is gone, and how
// long a holder may work that cannot renew (R9). Default [DefaultTTL], at least [MinTTL]. It must be
// well above the round trip to the backend; a backend may set a maximum.
func WithTTL(ttl time.Duration) AcquireOption {
	return acquireOption(func(c *config) { c.ttl = ttl })
}

// WithMaxHold bounds how long a lock is kept by renewal (R36). When it is reached, the lock ends with
// [ErrMaxHold]; the key becomes free when the holder releases it or the lease runs out. Default 0:
// no bound. Set it where a stuck holder is worse than one that is interrupted: the
// watchdog renews for as long as the process lives, whatever its goroutines do.
func WithMaxHold(d time.Duration) AcquireOption {
	return acquireOption(func(c *config) { c.maxHold = d })
}

// WithLabel adds a readable label, at most 128 bytes, to the owner value, beside host and process
// ID. It is shown to whoever waits for the key or inspects the backend. Keep secrets out of it.
func WithLabel(label string) AcquireOption {
	return acquireOption(func(c *config) { c.label = label })
}

// WithoutRenewal switches the watchdog off: the lock ends with its lease, unless
// [Lock.Extend] is called.
func WithoutRenewal() AcquireOption {
	return acquireOption(func(c *config) { c.renew = false })
}

// WithPrefix puts prefix before every key. Prefix and key together may have 1,024 bytes. Default none.
func WithPrefix(prefix string) Option {
	return lockerOption(func(c *config) { c.prefix = prefix })
}

// WithDrift sets the part of the TTL set aside for clocks that run at different rates, 0 <= drift < 0.5.
// Default [DefaultDrift]. The validity of a lease is TTL - (TTL x drift + [DriftConstant]) from before the
// first request (R11, R16). All clients and servers of a key must agree on the rate of time within it.
func WithDrift(drift float64) Option {
	return lockerOption(func(c *config) { c.drift = drift })
}

// WithCohort bounds local handoff: while goroutines of this Locker wait for a key, it is
// handed from one to the next in memory, at most turns times in a row and, counted from the first, no
// longer than span; then a waiter of another process gets its turn. Defaults [DefaultCohortTurns] and
// [DefaultCohortSpan]. With turns 1 (span is ignored) there is no local handoff: every acquisition asks the backend.
func WithCohort(turns int, span time.Duration) Option {
	return lockerOption(func(c *config) { c.turns, c.span = turns, span })
}

// WithHooks has the Locker call hooks. Only the last one given counts.
func WithHooks(hooks Hooks) Option {
	return lockerOption(func(c *config) { c.hooks = hooks })
}

// WithLogger has the Locker log losses and failed renewals and clean-ups. Default: silent.
func WithLogger(logger *slog.Logger) Option {
	return lockerOption(func(c *config) {
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		c.logger = logger
	})
}

// validate checks all options together.
func (c *config) validate() error {
	switch {
	case c.ttl < MinTTL:
		return invalid("TTL %v: must be at least %v", c.ttl, MinTTL)
	case c.maxHold < 0:
		return invalid("maximum hold %v: must not be negative", c.maxHold)
	case c.maxHold > 0 && c.maxHold < c.ttl && c.renew:
		return invalid("maximum hold %v is shorter than the TTL %v: it would never be renewed; shorten the TTL", c.maxHold, c.ttl)
	case len(c.label) > driver.MaxLabelLen:
		return invalid("label %.40q... has %d bytes: at most %d are allowed", c.label, len(c.label), driver.MaxLabelLen)
	case !(c.drift >= 0 && c.drift < 0.5):
		return invalid("drift %v: must be at least 0 and less than 0.5", c.drift)
	case c.validity(c.ttl) <= 0:
		return invalid("TTL %v leaves no validity after a drift allowance of %v", c.ttl, c.allowance(c.ttl))
	case len(c.prefix) >= driver.MaxKeyLen:
		return invalid("prefix %.40q... has %d bytes: prefix and key together may have %d", c.prefix, len(c.prefix), driver.MaxKeyLen)
	case c.turns < 1 || c.turns > MaxCohortTurns:
		return invalid("cohort of %d turns: must be 1 to %d", c.turns, MaxCohortTurns)
	case c.turns > 1 && c.span <= 0:
		return invalid("cohort span %v with %d turns: must be positive", c.span, c.turns)
	}
	return nil
}

// allowance is the drift allowance of a lease (R16).
func (c *config) allowance(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*c.drift) + DriftConstant
}

// validity is how long a lease counts from before its request.
func (c *config) validity(lease time.Duration) time.Duration {
	return lease - c.allowance(lease)
}
