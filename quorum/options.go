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

	// DefaultNodeTimeout bounds each call to a node, unless a tenth of the TTL is shorter; see
	// [WithNodeTimeout].
	DefaultNodeTimeout = 50 * time.Millisecond

	// DefaultGuard is how long a node takes no part after a restart, and the longest TTL; see
	// [WithGuard].
	DefaultGuard = time.Minute

	// DefaultDrift is the part of the TTL set aside for clocks that run at different rates; see
	// [WithDrift].
	DefaultDrift = 0.01

	// maxSetName is the longest name of a set. Every server stores the name, and gets it for
	// comparison.
	maxSetName = 4096

	// driftConstant is the fixed part of the drift allowance. It covers the resolution of the
	// nodes' expiry.
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

// WithNodeTimeout bounds each call to a node. It must be well above the round trip to the slowest
// node that is to count, including the time to connect. It must be small compared with the TTL,
// because a call takes this long if no majority answers. A batch of renewals gets more time, in
// proportion to its size. A claim fails with driver.ErrInvalid if its TTL, less the drift
// allowance, is not longer than the node timeout. The default is the smaller of a tenth of the TTL
// and [DefaultNodeTimeout].
func WithNodeTimeout(d time.Duration) Option {
	return option(func(c *config) { c.timeout = d })
}

// WithGuard sets the restart quarantine: how long a node takes no part after a restart, in which it
// may have forgotten what it had granted. The guard is also the longest TTL: a claim with a longer
// one fails with driver.ErrInvalid. All clients of a node must have the same guard (see
// [Quorum.Adopt]). A guard of 0 switches the quarantine off and allows every TTL. Then a node that
// restarts without its data can grant a lock that is still held. The guard works with backends that
// implement driver.Guarder; other backends must never lose their data. The default is
// [DefaultGuard].
//
// If all nodes have just started, or no client has asked them before, they grant nothing until the
// guard is over. The error says how long that takes.
func WithGuard(guard time.Duration) Option {
	return option(func(c *config) { c.guard = guard })
}

// WithDrift sets aside a part of the TTL for clocks that run at different rates, 0 <= drift < 0.5.
// An acquisition that takes longer than TTL - (TTL x drift + 2 ms), counted from just before its
// first request, fails with [ErrTooLate]. Use the value that the Locker has. The default is
// [DefaultDrift].
func WithDrift(drift float64) Option {
	return option(func(c *config) { c.drift = drift })
}

// WithNames sets the names of the nodes in errors and in [Status], one for each backend, in their
// order. The default is "node 1" and so on.
func WithNames(names ...string) Option {
	return option(func(c *config) { c.names = names })
}

// WithSet names the set of these nodes, for nodes that implement driver.Member. All clients of
// exactly these nodes use the same name, and clients of other nodes use another one. The name has
// at most 4096 bytes of printable ASCII without '/' and space. Only the name tells a node from
// another one that has taken its place. So if you change the nodes, change the name and call
// [Quorum.Adopt]. Package redlock makes the name from the addresses. The default is no name; then
// nodes compare only their number and the guard.
func WithSet(name string) Option {
	return option(func(c *config) { c.set = name })
}

// WithObserver has f called whenever the state of a node changes, one event after the other. f runs
// on a goroutine that talks to a node, so it must not block. It may call [Quorum.Status], and no
// other method. The default is no observer.
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
