package redishold

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Backend keeps locks in a Redis deployment. It implements driver.Backend, driver.Notifier,
// driver.BatchInspector, driver.Checker, driver.Sharer, driver.Guarder, driver.Member,
// driver.Identifier and driver.Versioner, and is safe for concurrent use.
type Backend = protocol.Backend

// Option sets an option of [Open].
type Option interface{ applyToOpen(*config) }

// CommonOption sets an option of [New]. Every CommonOption is an [Option] of [Open] as well.
type CommonOption interface {
	Option
	applyToNew(*protocol.Options)
}

type option func(*config)

func (f option) applyToOpen(g *config) { f(g) }

type commonOption func(*protocol.Options)

func (f commonOption) applyToOpen(g *config)          { f(&g.options) }
func (f commonOption) applyToNew(o *protocol.Options) { f(o) }

// WithTLS has connections use TLS with this configuration, whatever the URL says about it. The
// server's name for verification is the host connected to, unless the configuration sets one.
// Default, also with nil: what the URL says.
func WithTLS(c *tls.Config) Option {
	return option(func(g *config) {
		if c != nil {
			g.tls = c.Clone()
		}
	})
}

// WithoutConnecting has [Open] return without connecting. An error of the server then shows in the
// first call that needs the server. It is for callers that can work without this server, such as a
// quorum. Default: Open connects, and fails if it cannot.
func WithoutConnecting() Option {
	return option(func(g *config) { g.lazy = true })
}

// WithReplicas has each acquisition and renewal wait until that many replicas, 0 to 255, have
// confirmed it, for at most timeout: 1 ms to 1 s; 0 means 100 ms. Default none. The parameters wait
// and wait-timeout of a URL do the same; the option prevails.
func WithReplicas(replicas int, timeout time.Duration) CommonOption {
	return commonOption(func(o *protocol.Options) {
		o.Replicas, o.ReplicaTimeout = replicas, timeout
	})
}

// WithReadOnly has the Backend change nothing on the server: it loads no scripts, tries no command
// out, subscribes to nothing, and sends only commands that read. Inspect, List, Check, Belongs,
// Identity and Version work, and everything else fails with protocol.ErrReadOnly, as
// ErrUnavailable. It is for tools that look at locks, and for users who may do no more: see Access
// in the package documentation. Default: locks can be acquired.
func WithReadOnly() CommonOption {
	return commonOption(func(o *protocol.Options) { o.ReadOnly = true })
}

// Open returns a Backend on the deployment that the URL names, and connects to it. ctx bounds that,
// not the Backend's life. The caller closes the Backend. The forms of a URL are
//
//	redis://[user[:password]@]host[:port][/database]
//	redis+unix:///path/of/socket[?db=database]
//	redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/primary[/database]
//	redis+cluster://[user[:password]@]host[:port][,host[:port]...]
//
// and the same with rediss for redis for TLS. Parameters are, after '?' and separated by '&':
// tls-ca, tls-cert and tls-key, files with certificates and key in PEM form; wait, how many
// replicas have to confirm each acquisition and renewal, and wait-timeout, for how long that may
// take (100ms); durable=always, the operator's word that a lone server forgets nothing in a
// restart, see the package documentation; sentinel-user and sentinel-password.
//
// Open fails with ErrInvalid if a part of the URL is wrong, which the error names, or if an option
// is nil or out of range. It fails with ErrUnavailable, in a *driver.Error, if the server cannot be
// reached or used: it is older than Redis 6.2, it is a read-only replica, it is a cluster but named
// as a single server or the reverse, or it refuses the login. No error contains a password.
func Open(ctx context.Context, url string, options ...Option) (*Backend, error) {
	g := newConfig()
	if err := g.parse(url); err != nil {
		return nil, fmt.Errorf("redishold: %w", &driver.Error{Invalid: true, Err: err})
	}
	for i, o := range options {
		if o == nil {
			return nil, nilOption(i)
		}
		o.applyToOpen(g)
	}
	if err := g.options.Validate(); err != nil {
		return nil, fmt.Errorf("redishold: %w", err)
	}
	var transport protocol.Transport
	switch g.mode {
	case standalone:
		transport = newStandalone(g)
	case sentinel:
		transport = newSentinel(g)
	case cluster:
		transport = newCluster(g)
	}
	b := protocol.New(transport, g.options)
	if g.lazy {
		return b, nil
	}
	if _, err := transport.All(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("redishold: %w", err)
	}
	return b, nil
}

// nilOption returns the error for a nil option at index i of a list.
func nilOption(i int) error {
	return fmt.Errorf("redishold: %w: option %d is nil: leave it out", driver.ErrInvalid, i+1)
}

var _ interface {
	driver.Backend
	driver.Notifier
	driver.BatchInspector
	driver.Checker
	driver.Sharer
	driver.Guarder
	driver.Identifier
	driver.Member
	driver.Versioner
} = (*Backend)(nil)
