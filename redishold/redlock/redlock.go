package redlock

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
)

// minNodes is the smallest number of nodes that tolerates the failure of one.
const minNodes = 3

// Option sets an option of [Open].
type Option func(*config)

type config struct {
	nodes  []redishold.Option
	quorum []quorum.Option
}

// WithNodes sets options for the connection to each node: redishold.WithTLS, for one. They prevail over the URL.
func WithNodes(options ...redishold.Option) Option {
	return func(c *config) { c.nodes = append(c.nodes, options...) }
}

// WithQuorum sets options of the whole: quorum.WithObserver or quorum.WithDrift, for example. They prevail over the URL.
func WithQuorum(options ...quorum.Option) Option {
	return func(c *config) { c.quorum = append(c.quorum, options...) }
}

// Open returns a backend on the servers that the URL names. It is closed by its Close. The form is
//
//	redlock://[user[:password]@]host[:port],host[:port],host[:port]...[/database]
//
// and redlocks for TLS. All nodes share user, password, database and parameters. These are, after '?' and separated by
// '&':
//
//   - restart-guard: for how long a node takes no part after a restart that may have cost it its data, and the largest
//     TTL allowed; 1m unless set, and 0s switches the quarantine off. See quorum.WithGuard.
//   - node-timeout: how long each call to a node may take; the smaller of 50ms and a tenth of the TTL unless set. See
//     quorum.WithNodeTimeout.
//   - db: the number of the database, as an alternative to the path.
//   - tls-ca, tls-cert, tls-key, with redlocks: files with certificates and key in PEM form.
//
// Nodes are named by host:port in errors, in events and in [quorum.Quorum.Status].
//
// It does not wait for nodes to be there: a minority that is down does not matter, and that a majority is down, or refuses,
// shows in the first call. It asks them for a second at most who they are, ends early with the error of ctx if that
// ends, and fails with quorum.ErrSameServer if two addresses lead to one server. It fails as well if the URL is not well formed,
// has a parameter that is unknown or not allowed, an address twice, fewer than 3 addresses or more than
// quorum.MaxNodes. No error holds a password.
func Open(ctx context.Context, url string, options ...Option) (*quorum.Quorum, error) {
	var c config
	for _, option := range options {
		option(&c)
	}
	backends, settings, err := open(ctx, url, c.nodes)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	return join(ctx, backends, append(settings, c.quorum...))
}

// Validate returns the error that Open has for a URL whatever the servers are like, or nil. It connects to none.
func Validate(url string) error {
	backends, settings, err := open(context.Background(), url, nil)
	if err == nil {
		for i := range backends {
			backends[i] = mute{backends[i]}
		}
		var q *quorum.Quorum
		if q, err = quorum.New(backends, settings...); err == nil {
			return q.Close()
		}
		closeAll(backends)
	}
	return fmt.Errorf("redlock: %w", err)
}

// mute is a backend that can not be asked who it is.
type mute struct{ driver.Backend }

// open opens the nodes, connecting to none, and returns what the URL says of the whole.
func open(ctx context.Context, url string, options []redishold.Option) ([]driver.Backend, []quorum.Option, error) {
	a, err := parse(url)
	if err != nil {
		return nil, nil, err
	}
	options = append([]redishold.Option{redishold.WithoutConnecting()}, options...)
	var backends []driver.Backend
	for _, url := range a.nodes {
		b, err := redishold.Open(ctx, url, options...)
		if err != nil {
			closeAll(backends)
			return nil, nil, a.explain(err)
		}
		backends = append(backends, b)
	}
	// After the nodes were opened: until then a part of a password may be taken for hosts.
	if err := a.validate(); err != nil {
		closeAll(backends)
		return nil, nil, a.explain(err)
	}
	return backends, append(a.options, quorum.WithNames(a.names...)), nil
}

// join makes one backend of those of the nodes. If it fails it closes them.
func join(ctx context.Context, backends []driver.Backend, options []quorum.Option) (*quorum.Quorum, error) {
	type joined struct {
		q   *quorum.Quorum
		err error
	}
	done := make(chan joined, 1)
	go func() {
		q, err := quorum.New(backends, options...)
		if err != nil {
			closeAll(backends)
			err = fmt.Errorf("redlock: %w", err)
		}
		done <- joined{q, err}
	}()
	select {
	case j := <-done:
		return j.q, j.err
	case <-ctx.Done():
		go func() {
			if j := <-done; j.err == nil {
				j.q.Close()
			}
		}()
		return nil, fmt.Errorf("redlock: %w", &driver.Error{Err: context.Cause(ctx)})
	}
}

// closeAll closes backends that nothing was asked of, or that there is an error of already.
func closeAll(backends []driver.Backend) {
	for _, b := range backends {
		_ = b.Close()
	}
}
