package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/redishold"
)

// The drivers by name.
const (
	ours           = "holdfast"
	oursAlone      = "holdfast-nocohort" // every acquisition asks the server
	oursGoRedis    = "holdfast-goredis"  // on a client of go-redis, with the client's own settings
	floor          = "floor"             // SET NX PX and compare-and-delete, on our client library with our settings
	floorStock     = "floor-stock"       // the same with the library's own settings
	redsyncGoRedis = "redsync-goredis"
	redsyncRueidis = "redsync-rueidis"
	redisLock      = "redislock"
	rueidisLock    = "rueidislock"
	blpop          = "blpop" // a token that is taken by BLPOP and given back by LPUSH
	bare           = "bare"  // of held locks: pipelined renewals and nothing else
)

// peers are other people's libraries on Redis: on one server, and all of them.
var (
	singlePeers = []string{redsyncGoRedis, redsyncRueidis, redisLock, rueidisLock}
	peers       = append([]string{redsyncFast}, singlePeers...)
)

// ttl is the lease that all drivers take unless a scenario is about renewal.
const ttl = 30 * time.Second

// held is a lock in the form its driver has it. It is passed by value, so that measuring allocates nothing.
type held struct {
	key, owner string
	lock       any
	end        context.CancelFunc
}

// locker is a driver that is connected.
type locker interface {
	// acquire waits for the key, if the driver can.
	acquire(ctx context.Context, key string) (held, error)
	release(ctx context.Context, h held) error
	close()
}

// preparer is a locker that has something to do before a key is first locked.
type preparer interface {
	prepare(ctx context.Context, key string) error
}

// open connects a driver to a site. lease is for how long a lock is taken, and a third of it is the interval of
// renewals where the driver renews.
func open(ctx context.Context, name string, at site, lease time.Duration) (locker, error) {
	if len(at.Redis) > 1 {
		return openOverNodes(ctx, name, at, lease)
	}
	address := at.Redis[0]
	switch name {
	case ours:
		return openOurs(ctx, address, holdfast.WithTTL(lease))
	case oursAlone:
		return openOurs(ctx, address, holdfast.WithTTL(lease), holdfast.WithCohort(1, 0))
	case oursGoRedis:
		client := goredis.NewClient(&goredis.Options{Addr: address})
		backend, err := goredishold.New(client)
		if err != nil {
			client.Close()
			return nil, err
		}
		l, err := oursOn(backend, holdfast.WithTTL(lease))
		if err != nil {
			return nil, err
		}
		return &closing{l, client.Close}, nil
	case floor:
		return openFloor(ctx, ourSettings(address), lease)
	case floorStock:
		return openFloor(ctx, stockSettings(address), lease)
	case redsyncGoRedis:
		client := goredis.NewClient(&goredis.Options{Addr: address})
		return &redsyncLocker{redsync.New(redsyncgoredis.NewPool(client)), lease, func() { client.Close() }, nil}, client.Ping(ctx).Err()
	case redsyncRueidis:
		client, err := rueidis.NewClient(stockSettings(address))
		if err != nil {
			return nil, err
		}
		return &redsyncLocker{redsync.New(redsyncrueidis.NewPool(rueidiscompat.NewAdapter(client))), lease, client.Close, nil}, nil
	case redisLock:
		client := goredis.NewClient(&goredis.Options{Addr: address})
		return &redislockLocker{redislock.New(client), lease, func() { client.Close() }}, client.Ping(ctx).Err()
	case rueidisLock:
		return openRueidislock(address, lease)
	case blpop:
		client, err := rueidis.NewClient(stockSettings(address))
		if err != nil {
			return nil, err
		}
		return &blpopLocker{client}, nil
	case etcdMutex:
		return openEtcd(at.Etcd, lease)
	case advisory:
		return openPostgres(ctx, at.Postgres)
	}
	return nil, fmt.Errorf("driver %q: there is none of that name", name)
}

// oursLocker is Holdfast as its users use it.
type oursLocker struct {
	backend driver.Backend
	locker  *holdfast.Locker
}

func openOurs(ctx context.Context, address string, options ...holdfast.Option) (locker, error) {
	backend, err := redishold.Open(ctx, "redis://"+address)
	if err != nil {
		return nil, err
	}
	return oursOn(backend, options...)
}

// oursOn closes the backend when it fails, or is closed.
func oursOn(backend driver.Backend, options ...holdfast.Option) (locker, error) {
	l, err := holdfast.New(backend, append(options, holdfast.WithPrefix("lock:"))...)
	if err != nil {
		backend.Close()
		return nil, err
	}
	return &oursLocker{backend, l}, nil
}

func (l *oursLocker) acquire(ctx context.Context, key string) (held, error) {
	lock, err := l.locker.Acquire(ctx, key)
	return held{lock: lock}, err
}

func (l *oursLocker) release(ctx context.Context, h held) error {
	return h.lock.(*holdfast.Lock).Release(ctx)
}

func (l *oursLocker) close() {
	l.locker.Close()
	l.backend.Close()
}

// closing is a locker with something to close after it.
type closing struct {
	locker
	after func() error
}

func (l *closing) close() {
	l.locker.close()
	l.after()
}

// ourSettings are those that redishold gives to the client library.
func ourSettings(address string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{address}, ForceSingleClient: true, DisableRetry: true, DisableCache: true,
		PipelineMultiplex: -1, AlwaysPipelining: true, RingScaleEachConn: 10,
		ReadBufferEachConn: 1 << 16, WriteBufferEachConn: 1 << 16, ConnWriteTimeout: 5 * time.Second,
	}
}

// stockSettings are the library's own.
func stockSettings(address string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true}
}

const (
	deleteMine = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
	renewMine  = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end`
)

// floorLocker is the least that a lock can do: no waiting, no tokens, no renewal.
type floorLocker struct {
	client rueidis.Client
	sha    string
	suffix string
	lease  int64 // in milliseconds
}

func openFloor(ctx context.Context, option rueidis.ClientOption, lease time.Duration) (locker, error) {
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	sha, err := client.Do(ctx, client.B().ScriptLoad().Script(deleteMine).Build()).ToString()
	if err != nil {
		client.Close()
		return nil, err
	}
	return &floorLocker{client, sha, driver.OwnerSuffix(""), lease.Milliseconds()}, nil
}

func (l *floorLocker) acquire(ctx context.Context, key string) (held, error) {
	owner := driver.NewOwner(l.suffix)
	err := l.client.Do(ctx, l.client.B().Set().Key(key).Value(owner).Nx().PxMilliseconds(l.lease).Build()).Error()
	return held{key: key, owner: owner}, err
}

func (l *floorLocker) release(ctx context.Context, h held) error {
	n, err := l.client.Do(ctx, l.client.B().Evalsha().Sha1(l.sha).Numkeys(1).Key(h.key).Arg(h.owner).Build()).AsInt64()
	if err == nil && n != 1 {
		err = errLost
	}
	return err
}

func (l *floorLocker) close() { l.client.Close() }

var errLost = errors.New("the lock was lost")

// redsyncLocker has redsync's own delays, and as many tries as it takes.
type redsyncLocker struct {
	*redsync.Redsync
	lease   time.Duration
	end     func()
	options []redsync.Option
}

func (l *redsyncLocker) acquire(ctx context.Context, key string) (held, error) {
	mutex := l.NewMutex(key, append([]redsync.Option{redsync.WithExpiry(l.lease), redsync.WithTries(1 << 30)}, l.options...)...)
	return held{lock: mutex}, mutex.LockContext(ctx)
}

func (l *redsyncLocker) release(ctx context.Context, h held) error {
	ok, err := h.lock.(*redsync.Mutex).UnlockContext(ctx)
	if err == nil && !ok {
		err = errLost
	}
	return err
}

func (l *redsyncLocker) close() { l.end() }

// redislockLocker polls as its README shows it.
type redislockLocker struct {
	*redislock.Client
	lease time.Duration
	end   func()
}

func (l *redislockLocker) acquire(ctx context.Context, key string) (held, error) {
	// Without a deadline it would wait no longer than the lease. With an attempt that succeeds at once there is
	// nothing to bound.
	lock, err := l.Obtain(ctx, key, l.lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	return held{lock: lock}, err
}

func (l *redislockLocker) release(ctx context.Context, h held) error {
	return h.lock.(*redislock.Lock).Release(ctx)
}

func (l *redislockLocker) close() { l.end() }

// rueidislockLocker locks one key, not the three of its default, which on one server cost three times as much for
// nothing; and uses what it recommends for newer servers. With one key there is no next one to try soon; with its
// default of 20 ms for that, an attempt on a busy machine is cut short, and who made it may then wait for ever for a
// key that is free.
type rueidislockLocker struct{ rueidislock.Locker }

func openRueidislock(address string, lease time.Duration) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true},
		KeyMajority:  1, KeyValidity: lease, ExtendInterval: lease / 3, NoLoopTracking: true,
		TryNextAfter: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return rueidislockLocker{l}, nil
}

func (l rueidislockLocker) acquire(ctx context.Context, key string) (held, error) {
	_, cancel, err := l.WithContext(ctx, key)
	return held{end: cancel}, err
}

func (l rueidislockLocker) release(_ context.Context, h held) error {
	h.end()
	return nil
}

func (l rueidislockLocker) close() { l.Close() }

// blpopLocker passes a token through a list. It is no lock: a holder that dies takes the token with it.
type blpopLocker struct{ client rueidis.Client }

func (l *blpopLocker) prepare(ctx context.Context, key string) error {
	return l.release(ctx, held{key: key})
}

func (l *blpopLocker) acquire(ctx context.Context, key string) (held, error) {
	for {
		// Not ctx: for one that can be cancelled the library takes a slower way.
		err := l.client.Do(context.Background(), l.client.B().Blpop().Key(key).Timeout(0.2).Build()).Error()
		switch {
		case err == nil:
			return held{key: key}, nil
		case !rueidis.IsRedisNil(err):
			return held{}, err
		case ctx.Err() != nil:
			return held{}, ctx.Err()
		}
	}
}

func (l *blpopLocker) release(ctx context.Context, h held) error {
	return l.client.Do(ctx, l.client.B().Lpush().Key(h.key).Element("token").Build()).Error()
}

func (l *blpopLocker) close() { l.client.Close() }

// chosen keeps those of the drivers that a list separated by commas names; all, if it names none.
func chosen(all []string, list string) []string {
	if list == "" {
		return all
	}
	names := strings.Split(list, ",")
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(names, name) })
}
