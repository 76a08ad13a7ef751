package main

import (
	"context"
	"errors"
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

// openQuorum connects Holdfast over several nodes.
func openQuorum(ctx context.Context, at site, options []holdfast.Option) (*locker, error) {
	var backends []driver.Backend
	var all ends
	for _, address := range at.Redis {
		b, err := redishold.Open(ctx, "redis://"+address, redishold.WithoutConnecting())
		if err != nil {
			all.run()
			return nil, err
		}
		all.add(func() { b.Close() })
		backends = append(backends, b)
	}
	// The servers were just started, and keep nothing on disk, for all drivers alike. With the
	// default guard, nothing could be locked for the first minute. The guard itself costs only a
	// comparison of times on the client.
	settings := []quorum.Option{quorum.WithGuard(0)}
	if at.NodeTimeout > 0 {
		settings = append(settings, quorum.WithNodeTimeout(at.NodeTimeout))
	}
	q, err := quorum.New(backends, settings...)
	if err != nil {
		all.run()
		return nil, err
	}
	l, err := oursOn(q, options)
	if err != nil {
		return nil, err
	}
	l.second = func() float64 {
		counts := q.Status().Counts
		return float64(counts.SecondRounds) / float64(counts.Acquired)
	}
	return l, nil
}

// pooler connects redsync to one server.
type pooler func(address string) (pool redsyncpool.Pool, end func(), err error)

func goRedisPool(address string) (redsyncpool.Pool, func(), error) {
	client := goredis.NewClient(&goredis.Options{Addr: address})
	return redsyncgoredis.NewPool(client), func() { client.Close() }, nil
}

func rueidisPool(address string) (redsyncpool.Pool, func(), error) {
	client, err := rueidis.NewClient(stockSettings(address))
	if err != nil {
		return nil, nil, err
	}
	return redsyncrueidis.NewPool(rueidiscompat.NewAdapter(client)), client.Close, nil
}

// openRedsync keeps redsync's default delays, and tries without end.
func openRedsync(connect pooler, options ...redsync.Option) func(context.Context, site,
	time.Duration) (*locker, error) {
	return func(_ context.Context, at site, lease time.Duration) (*locker, error) {
		var pools []redsyncpool.Pool
		var all ends
		for _, address := range at.Redis {
			pool, f, err := connect(address)
			if err != nil {
				all.run()
				return nil, err
			}
			all.add(f)
			pools = append(pools, pool)
		}
		locks := redsync.New(pools...)
		settings := append([]redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(1 << 30)},
			options...)
		return &locker{
			acquire: func(ctx context.Context, key string) (held, error) {
				mutex := locks.NewMutex(key, settings...)
				return held{lock: mutex}, mutex.LockContext(ctx)
			},
			release: func(ctx context.Context, h held) error {
				ok, err := h.lock.(*redsync.Mutex).UnlockContext(ctx)
				if err == nil && !ok {
					err = errLost
				}
				return err
			},
			close: all.run,
		}, nil
	}
}

var openRedsyncFast = openRedsync(rueidisPool, redsync.WithFailFast(true))

const deleteMine = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`

// floorNode is the least that a lock on one server can do: it does not wait or renew, and has no
// tokens.
type floorNode struct {
	rueidis.Client
	sha string
}

func (n *floorNode) set(ctx context.Context, key, owner string, lease time.Duration) error {
	return n.Do(ctx,
		n.B().Set().Key(key).Value(owner).Nx().PxMilliseconds(lease.Milliseconds()).Build()).Error()
}

func (n *floorNode) unset(ctx context.Context, key, owner string) error {
	deleted, err := n.Do(ctx,
		n.B().Evalsha().Sha1(n.sha).Numkeys(1).Key(key).Arg(owner).Build()).AsInt64()
	if err == nil && deleted != 1 {
		err = errLost
	}
	return err
}

func openFloor(settings func(address string) rueidis.ClientOption) func(context.Context, site,
	time.Duration) (*locker, error) {
	return func(ctx context.Context, at site, lease time.Duration) (*locker, error) {
		var nodes []*floorNode
		var all ends
		for _, address := range at.Redis {
			n := new(floorNode)
			var err error
			if n.Client, err = rueidis.NewClient(settings(address)); err == nil {
				all.add(n.Close)
				nodes = append(nodes, n)
				n.sha, err = n.Do(ctx, n.B().ScriptLoad().Script(deleteMine).Build()).ToString()
			}
			if err != nil {
				all.run()
				return nil, err
			}
		}
		l := floorOver(nodes, driver.OwnerSuffix(""), lease)
		if len(nodes) == 1 {
			l = floorOn(nodes[0], driver.OwnerSuffix(""), lease)
		}
		l.close = all.run
		return l, nil
	}
}

func floorOn(node *floorNode, suffix string, lease time.Duration) *locker {
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			owner := driver.NewOwner(suffix)
			return held{key: key, owner: owner}, node.set(ctx, key, owner, lease)
		},
		release: func(ctx context.Context, h held) error { return node.unset(ctx, h.key, h.owner) },
	}
}

// nodesHold is one lock of a floor over several nodes. It has a goroutine for each node, so that a
// node gets the release after its acquisition.
type nodesHold struct {
	acquired, released chan error
	release            chan struct{}
}

// floorOver is the least that a lock over several nodes can do: it asks all of them at once and
// waits for a majority. It has no second try, no tokens, no bounds and no renewal.
func floorOver(nodes []*floorNode, suffix string, lease time.Duration) *locker {
	count := len(nodes)
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			h := &nodesHold{make(chan error, count), make(chan error, count), make(chan struct{})}
			owner := driver.NewOwner(suffix)
			for _, n := range nodes {
				go func() {
					h.acquired <- n.set(ctx, key, owner, lease)
					<-h.release
					h.released <- n.unset(ctx, key, owner)
				}()
			}
			err := majority(h.acquired, count)
			if err != nil {
				close(h.release)
			}
			return held{lock: h}, err
		},
		release: func(_ context.Context, h held) error {
			n := h.lock.(*nodesHold)
			close(n.release)
			return majority(n.released, count)
		},
	}
}

// majority waits until a majority of n has succeeded, or until that is impossible.
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
