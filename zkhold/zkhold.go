package zkhold

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Defaults of the options.
const (
	DefaultRoot     = "/holdfast"
	DefaultSession  = 40 * time.Second // the most that a server grants unless it is told otherwise
	DefaultPresence = 10 * time.Second
	DefaultTimeout  = 5 * time.Second
)

// MinSession is the shortest timeout of a session that is asked for.
const MinSession = time.Second

// minPresence is the shortest presence of a waiter.
const minPresence = 100 * time.Millisecond

// Backend keeps locks in ZooKeeper. It implements driver.Backend, driver.Notifier,
// driver.Inspector, driver.Checker, driver.Sharer and driver.Limited, and is safe for concurrent
// use.
type Backend struct {
	client   *zk.Conn
	session  session
	instance string        // in the names of its nodes, and of no other Backend's
	nodes    atomic.Uint64 // how many have a name
	servers  []string
	root     string
	slots    uint32 // how many; another number only in tests
	acl      []zk.ACL
	wanted   time.Duration // the timeout of the session
	presence time.Duration
	timeout  time.Duration
	dialer   Dialer
	ctx      context.Context // until Close
	cancel   context.CancelFunc
	turns    turns
	recall   recall
	running  sync.WaitGroup // requests and watches in the background

	mu          sync.Mutex
	closed      bool
	conn        net.Conn // the last one that was made
	claims      map[identity]*claim
	subscribers []*subscriber // replaced, never changed in place
}

var _ interface {
	driver.Backend
	driver.Notifier
	driver.Inspector
	driver.Checker
	driver.Sharer
	driver.Limited
} = (*Backend)(nil)

// Dialer makes a connection to a server within the timeout. The network is tcp.
type Dialer func(network, address string, timeout time.Duration) (net.Conn, error)

// Option sets an option of [Open].
type Option interface{ apply(*Backend) error }

type option func(*Backend) error

func (f option) apply(b *Backend) error { return f(b) }

// WithRoot sets the node below which everything is kept. All clients that are to exclude each other
// need the same. Default [DefaultRoot]. The path of a URL does the same; the option overrides it.
func WithRoot(root string) Option {
	return option(func(b *Backend) error {
		names := strings.Split(root, "/")
		if len(names) < 2 || names[0] != "" || slices.Contains(names[1:], "") ||
			slices.Contains(names, ".") || slices.Contains(names, "..") ||
			strings.ContainsFunc(root, func(r rune) bool { return r < ' ' || r > '~' }) {
			return invalid(
				"root %q: must be a path of names, such as %q, without . and .., in plain ASCII",
				root, DefaultRoot)
		}
		b.root = root
		return nil
	})
}

// WithSession sets the timeout of the session that the Backend asks for, at least [MinSession]. The
// claims of a killed process last for that long, and a TTL is three quarters of it at most. The
// server may grant another timeout: unless it is configured otherwise, two to twenty of its ticks,
// which is 4 to 40 seconds. The timeout should be four ticks or more. Default [DefaultSession].
func WithSession(timeout time.Duration) Option {
	return option(func(b *Backend) error {
		if timeout < MinSession || timeout > driver.MaxTTL {
			return invalid("session %v: must be %v to %v", timeout, MinSession, driver.MaxTTL)
		}
		b.wanted = timeout
		return nil
	})
}

// WithPresence sets how long a waiter counts as present after it last asked, from 100 milliseconds
// on. Default [DefaultPresence]. A claim with a shorter TTL is present for its TTL only. A waiter
// whose process is killed delays those behind it for as long as its session lasts.
func WithPresence(presence time.Duration) Option {
	return option(func(b *Backend) error {
		if presence < minPresence || presence > driver.MaxTTL {
			return invalid("presence %v: must be %v to %v", presence, minPresence, driver.MaxTTL)
		}
		b.presence = presence
		return nil
	})
}

// WithTimeout bounds each call, whatever its context says. Default [DefaultTimeout].
func WithTimeout(timeout time.Duration) Option {
	return option(func(b *Backend) error {
		if timeout <= 0 {
			return invalid("timeout %v: must be more than 0", timeout)
		}
		b.timeout = timeout
		return nil
	})
}

// WithDialer sets what makes connections, for a proxy or another TLS than that of a URL with
// zookeepers, which is spoken over these connections. Default net.DialTimeout.
func WithDialer(dialer Dialer) Option {
	return option(func(b *Backend) error {
		if dialer == nil {
			return invalid("the dialer is nil: leave the option out")
		}
		b.dialer = dialer
		return nil
	})
}

// Shares implements driver.Sharer: it returns true.
func (b *Backend) Shares() bool { return true }

// CheckTTL implements driver.Limited: a TTL is at most three quarters of the timeout that the
// server has granted to the session, and a millisecond at least.
func (b *Backend) CheckTTL(ttl time.Duration) error {
	_, timeout := b.session.current()
	if longest := share(timeout); ttl < time.Millisecond || ttl > longest {
		return invalid("TTL %v: must be %v to %v, which is three quarters of the session's %v, as granted",
			ttl, time.Millisecond, longest, timeout)
	}
	return nil
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// spawn runs f in the background, unless the Backend is closed.
func (b *Backend) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.running.Go(f)
	}
	return !b.closed
}

// Close ends the Backend and its session. Later calls fail with ErrUnavailable, and calls under way
// with ErrUnavailable or ErrUnknown. It delivers no more notices. Its keys become free and its
// waiters leave their queues: at once if a server answers within a second, and otherwise when the
// session ends by itself. Closing twice is safe.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.subscribers = nil
	for _, c := range b.claims {
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	b.mu.Unlock()
	b.cancel()
	b.client.Close()
	b.mu.Lock()
	if b.conn != nil {
		b.conn.Close() // the client would wait for an answer for much longer
	}
	b.mu.Unlock()
	b.turns.close()
	b.running.Wait()
	return nil
}
