package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold"
)

// Drivers that there are only over several nodes.
const (
	redsyncFast = "redsync-failfast" // on rueidis, with its option not to wait for nodes that it does not need
	roundTrip   = "round-trip"       // one command to all nodes, and the answers of a majority: no lock at all
)

// openOverNodes connects a driver to independent servers.
func openOverNodes(ctx context.Context, name string, at site, lease time.Duration) (locker, error) {
	addresses := at.Redis
	switch name {
	case ours:
		return openQuorum(ctx, at, holdfast.WithTTL(lease))
	case oursAlone:
		return openQuorum(ctx, at, holdfast.WithTTL(lease), holdfast.WithCohort(1, 0))
	case floor, roundTrip:
		return openNodesFloor(ctx, addresses, lease)
	case redsyncGoRedis:
		var pools []redsyncpool.Pool
		var clients []*goredis.Client
		for _, address := range addresses {
			client := goredis.NewClient(&goredis.Options{Addr: address})
			clients = append(clients, client)
			pools = append(pools, redsyncgoredis.NewPool(client))
		}
		return &redsyncLocker{redsync.New(pools...), lease, func() {
			for _, c := range clients {
				c.Close()
			}
		}, nil}, nil
	case redsyncRueidis, redsyncFast:
		clients, err := rueidisClients(addresses, stockSettings)
		if err != nil {
			return nil, err
		}
		var pools []redsyncpool.Pool
		for _, c := range clients {
			pools = append(pools, redsyncrueidis.NewPool(rueidiscompat.NewAdapter(c)))
		}
		var options []redsync.Option
		if name == redsyncFast {
			options = append(options, redsync.WithFailFast(true))
		}
		return &redsyncLocker{redsync.New(pools...), lease, func() { closeAll(clients) }, options}, nil
	}
	return nil, fmt.Errorf("driver %q: there is none of that name over several nodes", name)
}

func rueidisClients(addresses []string, settings func(string) rueidis.ClientOption) (clients []rueidis.Client, err error) {
	for _, address := range addresses {
		client, err := rueidis.NewClient(settings(address))
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func closeAll(clients []rueidis.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// quorumLocker is Holdfast over several nodes.
type quorumLocker struct {
	locker
	quorum *quorum.Quorum
}

func openQuorum(ctx context.Context, at site, options ...holdfast.Option) (locker, error) {
	var backends []driver.Backend
	abandon := func() {
		for _, b := range backends {
			b.Close()
		}
	}
	for _, address := range at.Redis {
		b, err := redishold.Open(ctx, "redis://"+address, redishold.WithoutConnecting())
		if err != nil {
			abandon()
			return nil, err
		}
		backends = append(backends, b)
	}
	// The servers keep nothing on disk, for all drivers alike, and were started a moment ago. With the guard, nothing could be
	// locked for its first minute. It is a comparison of points of time on the client, and costs nothing else.
	settings := []quorum.Option{quorum.WithGuard(0)}
	if at.NodeTimeout > 0 {
		settings = append(settings, quorum.WithNodeTimeout(at.NodeTimeout))
	}
	q, err := quorum.New(backends, settings...)
	if err != nil {
		abandon()
		return nil, err
	}
	l, err := oursOn(q, options...)
	if err != nil {
		return nil, err
	}
	return &quorumLocker{l, q}, nil
}

// nodesFloor is the least that a lock over several nodes can do: it asks all of them at once and waits for a majority,
// with no second try, tokens, bounds, or renewal.
type nodesFloor struct {
	clients []rueidis.Client
	shas    []string
	suffix  string
	lease   int64 // in milliseconds
}

func openNodesFloor(ctx context.Context, addresses []string, lease time.Duration) (*nodesFloor, error) {
	clients, err := rueidisClients(addresses, ourSettings)
	if err != nil {
		return nil, err
	}
	l := &nodesFloor{clients: clients, suffix: driver.OwnerSuffix(""), lease: lease.Milliseconds()}
	for _, c := range clients {
		sha, err := c.Do(ctx, c.B().ScriptLoad().Script(deleteMine).Build()).ToString()
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		l.shas = append(l.shas, sha)
	}
	return l, nil
}

// nodesHold is one lock of nodesFloor: a goroutine for each node, so that a node is asked to release what it was asked to
// acquire, and not before.
type nodesHold struct {
	acquired, released chan error
	release            chan struct{}
}

func (l *nodesFloor) acquire(ctx context.Context, key string) (held, error) {
	n := len(l.clients)
	h := &nodesHold{make(chan error, n), make(chan error, n), make(chan struct{})}
	owner := driver.NewOwner(l.suffix)
	for i, c := range l.clients {
		go func() {
			err := c.Do(ctx, c.B().Set().Key(key).Value(owner).Nx().PxMilliseconds(l.lease).Build()).Error()
			h.acquired <- err
			<-h.release
			deleted, err := c.Do(ctx, c.B().Evalsha().Sha1(l.shas[i]).Numkeys(1).Key(key).Arg(owner).Build()).AsInt64()
			if err == nil && deleted != 1 {
				err = errLost
			}
			h.released <- err
		}()
	}
	err := majority(h.acquired, n)
	if err != nil {
		close(h.release)
	}
	return held{lock: h}, err
}

func (l *nodesFloor) release(_ context.Context, h held) error {
	n := h.lock.(*nodesHold)
	close(n.release)
	return majority(n.released, len(l.clients))
}

// majority waits until one has succeeded, or can not.
func majority(results <-chan error, n int) error {
	need := n/2 + 1
	var errs []error
	for good := 0; good < need && len(errs) <= n-need; {
		if err := <-results; err != nil {
			errs = append(errs, err)
		} else {
			good++
		}
	}
	if len(errs) > n-need {
		return errors.Join(errs...)
	}
	return nil
}

func (l *nodesFloor) close() { closeAll(l.clients) }
