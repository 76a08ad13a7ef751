package redishold

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// single is the transport of a deployment with one server in use: a lone one, or the primary that
// Sentinels name.
type single struct {
	config *config
	node   *node
	stop   func() // ends what runs in the background; nil for nothing
}

func newStandalone(g *config) *single {
	address := g.addresses[0]
	return &single{config: g, node: &node{
		config:  g,
		name:    address,
		find:    func(context.Context) (string, error) { return address, nil },
		trouble: func() {},
		check: func(s *protocol.Server, served bool) error {
			switch {
			case s.Cluster:
				return &driver.Error{Node: address, Permanent: true,
					Err: errors.New("the server is part of a cluster: use redis+cluster://")}
			case s.Replica:
				// If a primary was here before, this is an outage: the roles are changing, and the
				// name may soon lead to another server.
				return &driver.Error{Node: address, Permanent: !served,
					Err: fmt.Errorf("the server is a read-only replica of %s: use that one",
						s.Primary)}
			}
			return nil
		},
	}}
}

func (t *single) Conn(ctx context.Context, _ uint16) (protocol.Conn, error) {
	c, err := t.node.connect(ctx)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	return c, nil
}

func (t *single) Shard(uint16) string { return "" }

func (t *single) Follow(_ context.Context, _ uint16, address string) (protocol.Conn, error) {
	return nil, &driver.Error{Node: t.node.name, Permanent: true,
		Err: fmt.Errorf("the server is part of a cluster and says to ask %s: use redis+cluster://",
			address)}
}

func (t *single) All(ctx context.Context) ([]protocol.Conn, error) {
	c, err := t.Conn(ctx, 0)
	if err != nil {
		return nil, err
	}
	return []protocol.Conn{c}, nil
}

func (t *single) Ordered() bool { return true }

func (t *single) Cluster() bool { return false }

func (t *single) Listen(f func(*protocol.Server, string)) { t.config.hear = f }

func (t *single) Close() error {
	t.node.close()
	if t.stop != nil {
		t.stop()
	}
	return nil
}
