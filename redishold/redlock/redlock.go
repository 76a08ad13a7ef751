package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
)

// minNodes is the smallest number of nodes that tolerates the failure of one.
const minNodes = 3

// Option sets an option of [Open].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

type config struct {
	nodes  []redishold.Option
	quorum []quorum.Option
}

// WithNodes sets options for the connection to each node, for example redishold.WithTLS. They
// override the URL. Default: none.
func WithNodes(options ...redishold.Option) Option {
	return option(func(c *config) { c.nodes = append(c.nodes, options...) })
}

// WithQuorum sets options of the quorum, for example quorum.WithObserver or quorum.WithDrift. They
// override the URL. Default: none.
func WithQuorum(options ...quorum.Option) Option {
	return option(func(c *config) { c.quorum = append(c.quorum, options...) })
}

// Open returns a backend on the servers that the URL names. The caller closes it. The form is
//
//	redlock://[user[:password]@]host[:port],host[:port],host[:port]...[/database]
//
// and redlocks for TLS. All nodes share user, password, database and parameters. These are, after
// '?' and separated by '&':
//
//   - restart-guard: how long a node takes no part after a restart that may have cost it its data,
//     and the largest TTL allowed; 1m unless set, and 0s switches the quarantine off. See
//     quorum.WithGuard.
//   - node-timeout: how long each call to a node may take; the smaller of 50ms and a tenth of the
//     TTL unless set. See quorum.WithNodeTimeout.
//   - set: a name of 1 to 64 letters, digits, '.', '_' or '-' for just these servers. Without it,
//     servers refuse clients that name others, by the addresses as they are written, in any order.
//     It is for clients that know the servers by different addresses, and has to change when a
//     server is replaced by another.
//   - durable=always: the operator's word that no node forgets anything in a restart, which exempts
//     them from the quarantine; see the package documentation.
//   - db: the number of the database, as an alternative to the path.
//   - tls-ca, tls-cert, tls-key, with redlocks: files with certificates and key in PEM form.
//
// Nodes are named by host:port in errors, in events and in [quorum.Quorum.Status].
//
// Open does not wait until nodes can be reached. A minority that is down does not matter, and if a
// majority is down or refuses, the first call shows it. For at most a second Open asks the nodes
// who they are, and fails with quorum.ErrSameServer if two addresses lead to one server. If ctx
// ends first, it fails with the error of ctx. It fails with driver.ErrInvalid if the URL is not
// well formed, has a parameter that is unknown or not allowed, has an address twice, or has fewer
// than 3 addresses or more than quorum.MaxNodes, and for an option that is nil. No error contains a
// password.
func Open(ctx context.Context, url string, options ...Option) (*quorum.Quorum, error) {
	var c config
	for i, o := range options {
		if o == nil {
			return nil, nilOption("", i)
		}
		o.apply(&c)
	}
	if i := slices.Index(c.nodes, nil); i >= 0 {
		return nil, nilOption("WithNodes: ", i)
	}
	if i := slices.Index(c.quorum, nil); i >= 0 {
		return nil, nilOption("WithQuorum: ", i)
	}
	backends, settings, err := open(ctx, url, c.nodes)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	return join(ctx, backends, append(settings, c.quorum...))
}

// nilOption returns the error for a nil option at index i of a list.
func nilOption(list string, i int) error {
	return fmt.Errorf("redlock: %w: %soption %d is nil: leave it out", driver.ErrInvalid, list, i+1)
}

// Validate returns the error that Open would return for the URL on any servers, or nil. It connects
// to none.
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

// mute is a backend that cannot be asked who it is.
type mute struct{ driver.Backend }

// open opens the nodes without connecting, and returns what the URL says about the whole.
func open(ctx context.Context, url string,
	options []redishold.Option) ([]driver.Backend, []quorum.Option, error) {
	a, err := parse(url)
	if err != nil {
		return nil, nil, &driver.Error{Invalid: true, Err: err}
	}
	options = append([]redishold.Option{redishold.WithoutConnecting()}, options...)
	var backends []driver.Backend
	for _, url := range a.nodes {
		b, err := redishold.Open(ctx, url, options...)
		if err != nil {
			closeAll(backends)
			return nil, nil, cmp.Or(errors.Unwrap(err), err) // without redishold's name before it
		}
		backends = append(backends, b)
	}
	return backends, append(a.options, quorum.WithNames(a.names...),
		quorum.WithSet(a.setName())), nil
}

// join makes one backend of the nodes' backends. If it fails it closes them.
func join(ctx context.Context, backends []driver.Backend,
	options []quorum.Option) (*quorum.Quorum, error) {
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

// closeAll closes backends and drops their errors: the caller has another error, or asked nothing
// of them.
func closeAll(backends []driver.Backend) {
	for _, b := range backends {
		_ = b.Close()
	}
}
