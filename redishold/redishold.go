package redishold

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Backend keeps locks in a Redis deployment. It implements driver.Backend, driver.Notifier, driver.Inspector,
// driver.Guarded, driver.Identified and driver.Versioned, and is safe for concurrent use.
type Backend = protocol.Backend

// Option sets an option of [Open].
type Option func(*config)

// WithTLS has connections use TLS with this configuration, whatever the URL says about it. The server's name
// for verification is the host connected to, unless the configuration sets one. nil changes nothing.
func WithTLS(c *tls.Config) Option {
	return func(g *config) {
		if c != nil {
			g.tls = c.Clone()
		}
	}
}

// WithoutConnecting has [Open] return without having connected: what is wrong with the server shows in the
// first call that needs it. Default: Open fails. It is for those who can go on without this server,
// as a quorum can.
func WithoutConnecting() Option {
	return func(g *config) { g.lazy = true }
}

// Open returns a Backend on the deployment that the URL names, and connects to it, bounded by ctx. It is
// closed by its Close. The forms are
//
//	redis://[user[:password]@]host[:port][/database]
//	redis+unix:///path/of/socket[?db=database]
//	redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/primary[/database]
//	redis+cluster://[user[:password]@]host[:port][,host[:port]...]
//
// and the same with rediss for redis for TLS. Parameters are, after '?' and separated by '&': tls-ca,
// tls-cert and tls-key, files with certificates and key in PEM form; wait, how many replicas have to confirm
// each acquisition and renewal, and wait-timeout, for how long that may take (100ms); sentinel-user and
// sentinel-password.
//
// It fails with an error that says what part of the URL is wrong; or, as a *driver.Error, with ErrUnavailable
// when the server can not be reached or used: a Redis older than 6.2, a read-only replica, a cluster named as
// a single server or the reverse, a refused login. No error holds a password.
func Open(ctx context.Context, url string, options ...Option) (*Backend, error) {
	g := newConfig()
	if err := g.parse(url); err != nil {
		return nil, fmt.Errorf("redishold: %w", err)
	}
	for _, option := range options {
		option(g)
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
	b := protocol.New(transport, protocol.Options{Replicas: g.replicas, ReplicaTimeout: g.replicaTimeout})
	if g.lazy {
		return b, nil
	}
	if _, err := transport.All(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("redishold: %w", err)
	}
	return b, nil
}

var _ interface {
	driver.Backend
	driver.Notifier
	driver.Inspector
	driver.Guarded
	driver.Identified
	driver.Versioned
} = (*Backend)(nil)
