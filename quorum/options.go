package quorum

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Limits and defaults.
const (
	// MaxNodes is the largest number of nodes accepted.
	MaxNodes = 9

	// DefaultNodeTimeout bounds each call to a node, together with the tenth part of the TTL; see
	// [WithNodeTimeout].
	DefaultNodeTimeout = 50 * time.Millisecond

	// DefaultGuard is how long a node takes no part after a restart that may have cost it its data,
	// and the largest TTL; see [WithGuard].
	DefaultGuard = time.Minute

	// DefaultDrift is the part of the TTL set aside for clocks that run at different rates; see
	// [WithDrift].
	DefaultDrift = 0.01

	// maxSetName bounds what every server stores and is sent for comparison.
	maxSetName = 4096

	// driftConstant is always added to the drift allowance: it covers the resolution of the nodes'
	// expiry.
	driftConstant = 2 * time.Millisecond
)

type config struct {
	timeout  time.Duration // 0: by TTL
	guard    time.Duration
	drift    float64
	names    []string
	set      string
	observer func(NodeEvent)
	random   func() float64 // in [0, 1)

	microseconds func() uint64 // this machine's clock, since 1970
}

func defaults() config {
	return config{guard: DefaultGuard, drift: DefaultDrift, random: rand.Float64,
		microseconds: clock.Microseconds}
}

// Option sets an option of [New].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithNodeTimeout bounds each call to a node. Default: the smaller of the tenth part of the TTL and
// [DefaultNodeTimeout]. It must be well above the round trip to the slowest node that is to count,
// connecting included. It must be small against the TTL: all nodes are asked at the same time, but
// when no majority answers, a call takes this long. A batch of renewals gets more, in proportion to
// its size. A claim is refused with driver.ErrInvalid unless its TTL, less the drift allowance, is
// longer.
func WithNodeTimeout(d time.Duration) Option {
	return option(func(c *config) { c.timeout = d })
}

// WithGuard sets the restart quarantine: how long a node takes no part after a restart in which it
// may have forgotten what it had granted. It is also the largest TTL allowed: others are refused
// with driver.ErrInvalid. All clients of a node must have the same guard, see [Quorum.Adopt].
// Default [DefaultGuard]. 0 switches the quarantine off and allows every TTL: then a node that
// restarts without its data can grant a lock that is still held. The guard works with backends that
// implement driver.Guarder. Other backends must never lose their data.
//
// Nodes that were all started just now, or that are asked for the first time, grant nothing before
// the guard is over. The error says how long that takes.
func WithGuard(guard time.Duration) Option {
	return option(func(c *config) { c.guard = guard })
}

// WithDrift sets the part of the TTL set aside for clocks that run at different rates, 0 <= drift <
// 0.5. Default [DefaultDrift]; 2 ms are always added. An acquisition that takes longer than TTL -
// (TTL x drift + 2 ms), from before its first request, fails with [ErrTooLate]. Use the value that
// the Locker has.
func WithDrift(drift float64) Option {
	return option(func(c *config) { c.drift = drift })
}

// WithNames names the nodes in errors and in [Status], in the order of the backends, one name each.
// Default: "node 1" and so on.
func WithNames(names ...string) Option {
	return option(func(c *config) { c.names = names })
}

// WithSet names the set of these nodes, for nodes that implement driver.Member. All clients of just
// these nodes have the same name, and clients of other nodes have another. It has at most 4096
// bytes of printable ASCII but '/' and space. Only the name tells a node from another one that has
// taken its place: if you change the nodes, change the name and call [Quorum.Adopt]. Package
// redlock makes the name of the addresses. Default: none; then nodes compare only their number and
// the guard.
func WithSet(name string) Option {
	return option(func(c *config) { c.set = name })
}

// WithObserver has f called whenever a node's state changes, one event after the other. f runs on a
// goroutine that talks to a node, so it must not block. It may call Status, and no other method.
// Default none.
func WithObserver(f func(NodeEvent)) Option {
	return option(func(c *config) { c.observer = f })
}

func (c *config) validate(nodes int) error {
	switch {
	case nodes == 0:
		return invalid("no backends: at least 1 is needed, and 3 for any tolerance of faults")
	case nodes > MaxNodes:
		return invalid("%d backends: at most %d are allowed", nodes, MaxNodes)
	case c.timeout < 0:
		return invalid("node timeout %v: must not be negative", c.timeout)
	case c.guard < 0:
		return invalid("guard %v: must not be negative; 0 switches the quarantine off", c.guard)
	case c.guard > 0 && c.timeout > c.guard:
		return invalid("node timeout %v is longer than the guard %v, the largest TTL allowed",
			c.timeout, c.guard)
	case !(c.drift >= 0 && c.drift < 0.5):
		return invalid("drift %v: must be at least 0 and less than 0.5", c.drift)
	case len(c.set) > maxSetName || strings.ContainsFunc(c.set, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/'
	}):
		return invalid("set %.80q: must be at most %d bytes of printable ASCII but '/' and space",
			c.set, maxSetName)
	case c.names != nil && len(c.names) != nodes:
		return invalid("%d names for %d backends: each needs one", len(c.names), nodes)
	}
	return nil
}

// invalid returns the error for an argument that is not allowed.
func invalid(format string, args ...any) error {
	return fmt.Errorf("quorum: %w: "+format, append([]any{driver.ErrInvalid}, args...)...)
}

// allowance returns the drift allowance of a lease of that length.
func (c *config) allowance(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*c.drift) + driftConstant
}

// bound returns how long one call to a node may take, for a claim with this TTL.
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
