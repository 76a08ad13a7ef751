package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Limits and defaults.
const (
	// MaxNodes is the largest number of nodes accepted.
	MaxNodes = 9

	// DefaultNodeTimeout bounds each call to a node, together with the tenth part of the TTL; see [WithNodeTimeout].
	DefaultNodeTimeout = 50 * time.Millisecond

	// DefaultGuard is how long a node takes no part after a restart that may have cost it its data, and
	// the largest TTL; see [WithGuard].
	DefaultGuard = time.Minute

	// DefaultDrift is the part of the TTL set aside for clocks that run at different rates; see [WithDrift].
	DefaultDrift = 0.01

	// driftConstant is always added to the drift allowance: it covers the resolution of the nodes' expiry.
	driftConstant = 2 * time.Millisecond
)

type config struct {
	timeout  time.Duration // 0: by TTL
	guard    time.Duration
	drift    float64
	names    []string
	observer func(NodeEvent)
	random   func() float64 // in [0, 1)
}

func defaults() config {
	return config{guard: DefaultGuard, drift: DefaultDrift, random: rand.Float64}
}

// Option sets an option of [New].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithNodeTimeout bounds each call to a node (R13). Default: the smaller of the tenth part of the TTL and
// [DefaultNodeTimeout]. It must be well above the round trip to the slowest node that shall count, connecting
// included, and small against the TTL: nodes are asked at the same time, but with a majority not answering
// it is what a call costs. A batch of renewals gets more, in proportion to its size.
func WithNodeTimeout(d time.Duration) Option {
	return option(func(c *config) { c.timeout = d })
}

// WithGuard sets the restart quarantine (R32): for how long a node takes no part after a restart in which it may have
// forgotten what it had granted. It is also the largest TTL allowed. Default [DefaultGuard]; 0
// switches the quarantine off and allows every TTL, and then a node that restarts without its data can give a lock
// away that is held (R29). It concerns backends that implement driver.Guarded; the others have to
// keep their data by themselves.
//
// A set of nodes that were all started just now grants nothing before the guard is over: the error
// says for how long.
func WithGuard(guard time.Duration) Option {
	return option(func(c *config) { c.guard = guard })
}

// WithDrift sets the part of the TTL set aside for clocks that run at different rates, 0 <= drift < 0.5. Default
// [DefaultDrift]; 2 ms are always added. An acquisition whose last step ends later than TTL - (TTL x drift + 2 ms) after
// its first request is given back (R14, R16). Give it the value that the Locker has.
func WithDrift(drift float64) Option {
	return option(func(c *config) { c.drift = drift })
}

// WithNames names the nodes in errors and in [Status], in the order of the backends. Default: "node 1" and so on.
func WithNames(names ...string) Option {
	return option(func(c *config) { c.names = names })
}

// WithObserver has f called whenever a node becomes available or stops being so. It is called one event after
// the other, on a goroutine that talks to a node, and must not block. It may call Status, and no other method.
func WithObserver(f func(NodeEvent)) Option {
	return option(func(c *config) { c.observer = f })
}

func (c *config) validate(nodes int) error {
	switch {
	case nodes == 0:
		return errors.New("quorum: no backends: at least 1 is needed, and 3 for any tolerance of faults")
	case nodes > MaxNodes:
		return fmt.Errorf("quorum: %d backends: at most %d are allowed", nodes, MaxNodes)
	case c.timeout < 0:
		return fmt.Errorf("quorum: node timeout %v: must not be negative", c.timeout)
	case c.guard < 0:
		return fmt.Errorf("quorum: guard %v: must not be negative; 0 switches the quarantine off", c.guard)
	case c.guard > 0 && c.timeout > c.guard:
		return fmt.Errorf("quorum: node timeout %v is longer than the guard %v, the largest TTL allowed", c.timeout, c.guard)
	case !(c.drift >= 0 && c.drift < 0.5):
		return fmt.Errorf("quorum: drift %v: must be at least 0 and less than 0.5", c.drift)
	case c.names != nil && len(c.names) != nodes:
		return fmt.Errorf("quorum: %d names for %d backends: each needs one", len(c.names), nodes)
	}
	return nil
}

// allowance is the drift allowance of a lease (R16).
func (c *config) allowance(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*c.drift) + driftConstant
}

// bound is how long one call to a node may take, for a claim with this TTL.
func (c *config) bound(ttl time.Duration) time.Duration {
	switch {
	case c.timeout > 0:
		return c.timeout
	case ttl <= 0:
		return DefaultNodeTimeout
	default:
		return min(ttl/10, DefaultNodeTimeout)
	}
}
