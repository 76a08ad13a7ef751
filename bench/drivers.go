package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/redishold"
)

// The drivers by name.
const (
	ours        = "holdfast"
	oursAlone   = "holdfast-nocohort" // every acquisition asks the server
	oursGoRedis = "holdfast-goredis"  // on a client of go-redis, with the client's own settings
	oursRedis   = "holdfast-redis"    // in scenarios of commands: holdfast run on Redis
	// SET NX PX and compare-and-delete, on the client library and settings of redishold
	floor          = "floor"
	floorStock     = "floor-stock" // the same with the library's default settings
	redsyncGoRedis = "redsync-goredis"
	redsyncRueidis = "redsync-rueidis"
	// on rueidis, with redsync's option not to wait for nodes that it does not need
	redsyncFast = "redsync-failfast"
	redisLock   = "redislock"
	rueidisLock = "rueidislock"
	blpop       = "blpop" // BLPOP takes a token, LPUSH gives it back
	// no lock: pipelined renewals and nothing else, or a command alone
	bare = "bare"
	// no lock: one command to all nodes, and the answers of a majority
	roundTrip   = "round-trip"
	etcdMutex   = "etcd"        // concurrency.Mutex, on one etcd
	advisory    = "postgres"    // session-level advisory locks
	redisPy     = "redis-py"    // its Lock, in Python
	redlockNode = "redlock-npm" // redlock on ioredis, in Node.js
	flock       = "flock"       // the system call, or the command of util-linux
	etcdctl     = "etcdctl"     // its lock command
)

// Groups of drivers. peers are other libraries on Redis; singlePeers work with one server. others
// are libraries and commands that are not on Redis, or not in Go. outside needs more than Redis and
// Go. floors do little more than the least that a lock needs.
var (
	singlePeers = []string{redsyncGoRedis, redsyncRueidis, redisLock, rueidisLock}
	peers       = append([]string{redsyncFast}, singlePeers...)
	others      = []string{etcdMutex, advisory, pgLock, zkLock, redisPy, redlockNode, flock,
		etcdctl}
	outside = slices.Concat(onEtcd, onPostgres, onZooKeeper,
		[]string{redisPy, redlockNode, flock, etcdctl})
	floors = []string{floor, floorStock}
)

// ttl is the TTL of all drivers, except in scenarios about renewal.
const ttl = 30 * time.Second

// site says where drivers find their servers.
type site struct {
	Redis     []string // addresses; several are nodes of a quorum, none means that locks are files
	Etcd      string   // address
	Postgres  string   // URL
	ZooKeeper string   // address
	Directory string   // for locks that are files

	NodeTimeout time.Duration // of a quorum; 0 for its default
}

// held is a lock in its driver's form. It is passed by value, so that measuring allocates nothing.
type held struct {
	key, owner string
	id         int64
	lock       any
}

// locker is a connected driver.
type locker struct {
	// waits for the key, and heeds ctx, as far as the driver can
	acquire func(ctx context.Context, key string) (held, error)
	release func(ctx context.Context, h held) error
	close   func()

	// like acquire, but alone, where acquire shares; else nil
	write func(ctx context.Context, key string) (held, error)
	ours  *holdfast.Locker // of Holdfast; else nil
	// the part of acquisitions that needed a second round; may be nil
	second func() float64
	// not nil: it measures itself, in place of acquire and release
	program *program
}

// openers connect drivers to a site. lease is the TTL. A driver that renews does so every third of
// it.
var openers = map[string]func(ctx context.Context, at site, lease time.Duration) (*locker, error){
	ours:           openOurs(),
	oursAlone:      openOurs(holdfast.WithCohort(1, 0)),
	oursGoRedis:    openGoRedis,
	floor:          openFloor(ourSettings),
	floorStock:     openFloor(stockSettings),
	roundTrip:      openFloor(ourSettings),
	redsyncGoRedis: openRedsync(goRedisPool),
	redsyncRueidis: openRedsync(rueidisPool),
	redsyncFast:    openRedsyncFast,
	redisLock:      openRedislock,
	rueidisLock:    openRueidislock,
	blpop:          openBLPOP,
	etcdMutex:      openEtcd,
	advisory:       openPostgres,
	flock:          openFlock,
	oursShared:     sharedBy(openOurs()),
	oursSet:        setBy(openOurs()),
	readersHash:    openReadersHash,
	floorSet:       openFloorSet,
	oursPermits:    permitsBy(openOurs()),
	oursEtcd:       openSystem(openOursEtcd),
	oursEtcdTurns:  openSystem(openOursEtcd, holdfast.WithCohort(1024, holdfast.DefaultCohortSpan)),
	oursPostgres:   openSystem(openOursPostgres),
	oursZooKeeper:  openSystem(openOursZooKeeper),
	twoTxns:        openTwoTxns,
	twoUpdates:     openTwoUpdates,
	listenNotify:   openListenNotify,
	pgLock:         openPGLock,
	zkLock:         openZKLock,
}

func open(ctx context.Context, name string, at site, lease time.Duration) (*locker, error) {
	f := openers[name]
	if f == nil {
		return nil, fmt.Errorf("unknown driver %q", name)
	}
	return f(ctx, at, lease)
}

// openOurs connects Holdfast as its users do.
func openOurs(options ...holdfast.Option) func(context.Context, site,
	time.Duration) (*locker, error) {
	return func(ctx context.Context, at site, lease time.Duration) (*locker, error) {
		var backend driver.Backend
		var err error
		switch len(at.Redis) {
		case 0:
			backend, err = filehold.Open(at.Directory)
		case 1:
			backend, err = redishold.Open(ctx, "redis://"+at.Redis[0])
		default:
			return openQuorum(ctx, at, append(options, holdfast.WithTTL(lease)))
		}
		if err != nil {
			return nil, err
		}
		return oursOn(backend, append(options, holdfast.WithTTL(lease)))
	}
}

func openGoRedis(_ context.Context, at site, lease time.Duration) (*locker, error) {
	client := goredis.NewClient(&goredis.Options{Addr: at.Redis[0]})
	backend, err := goredishold.New(client)
	if err != nil {
		client.Close()
		return nil, err
	}
	l, err := oursOn(backend, []holdfast.Option{holdfast.WithTTL(lease)})
	if err != nil {
		client.Close()
		return nil, err
	}
	end := l.close
	l.close = func() {
		end()
		client.Close()
	}
	return l, nil
}

// oursOn makes a locker of a backend. It closes the backend when it fails and when the locker is
// closed.
func oursOn(backend driver.Backend, options []holdfast.Option) (*locker, error) {
	l, err := holdfast.New(backend, append(options, holdfast.WithPrefix("lock:"))...)
	if err != nil {
		backend.Close()
		return nil, err
	}
	return &locker{
		ours: l,
		acquire: func(ctx context.Context, key string) (held, error) {
			lock, err := l.Acquire(ctx, key)
			return held{lock: lock}, err
		},
		release: func(ctx context.Context, h held) error {
			return h.lock.(*holdfast.Lock).Release(ctx)
		},
		close: func() {
			l.Close()
			backend.Close()
		},
	}, nil
}

// ourSettings are the settings of the client library in redishold.
func ourSettings(address string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{address}, ForceSingleClient: true, DisableRetry: true,
		DisableCache:      true,
		PipelineMultiplex: -1, AlwaysPipelining: true, RingScaleEachConn: 10,
		ReadBufferEachConn: 1 << 16, WriteBufferEachConn: 1 << 16,
		ConnWriteTimeout: 5 * time.Second,
	}
}

// stockSettings are the default settings of the client library.
func stockSettings(address string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true}
}

var errLost = errors.New("the lock was lost")

// openRedislock polls as the README of redislock shows.
func openRedislock(_ context.Context, at site, lease time.Duration) (*locker, error) {
	connection := goredis.NewClient(&goredis.Options{Addr: at.Redis[0]})
	client := redislock.New(connection)
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			// Without a deadline in ctx, redislock waits no longer than the lease.
			lock, err := client.Obtain(ctx, key, lease,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
			return held{lock: lock}, err
		},
		release: func(ctx context.Context, h held) error {
			return h.lock.(*redislock.Lock).Release(ctx)
		},
		close: func() { connection.Close() },
	}, nil
}

// openRueidislock locks one key, not the default of three, which on one server cost three times as
// much for nothing. NoLoopTracking is what rueidislock recommends for newer servers. TryNextAfter
// bounds an attempt. With its default of 20 ms, a busy machine cuts attempts short, and the waiter
// may then wait for ever for a free key.
func openRueidislock(_ context.Context, at site, lease time.Duration) (*locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: stockSettings(at.Redis[0]),
		KeyMajority:  1, KeyValidity: lease, ExtendInterval: lease / 3, NoLoopTracking: true,
		TryNextAfter: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			_, cancel, err := l.WithContext(ctx, key)
			return held{lock: cancel}, err
		},
		release: func(_ context.Context, h held) error {
			h.lock.(context.CancelFunc)()
			return nil
		},
		close: l.Close,
	}, nil
}

// openBLPOP passes a token through a list. That is no lock: a holder that dies takes the token with
// it.
func openBLPOP(_ context.Context, at site, _ time.Duration) (*locker, error) {
	client, err := rueidis.NewClient(stockSettings(at.Redis[0]))
	if err != nil {
		return nil, err
	}
	return &locker{
		acquire: func(ctx context.Context, key string) (held, error) {
			for {
				// Not ctx: the library is slower with a context that can be cancelled.
				err := client.Do(context.Background(),
					client.B().Blpop().Key(key).Timeout(0.2).Build()).Error()
				if err == nil {
					return held{key: key}, nil
				}
				if !rueidis.IsRedisNil(err) {
					return held{}, err
				}
				if ctx.Err() != nil {
					return held{}, ctx.Err()
				}
			}
		},
		release: func(ctx context.Context, h held) error {
			return client.Do(ctx, client.B().Lpush().Key(h.key).Element("token").Build()).Error()
		},
		close: client.Close,
	}, nil
}
