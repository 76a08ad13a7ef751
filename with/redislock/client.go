package redislock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/goredishold"
)

var (
	// ErrNotObtained: somebody else has the lock. From Refresh: the caller does not have it any
	// more.
	ErrNotObtained = errors.New("redislock: not obtained")

	// ErrLockNotHeld: the lock had ended when it was to be released.
	ErrLockNotHeld = errors.New("redislock: lock not held")
)

// RedisClient is a *redis.Client or a *redis.ClusterClient: Obtain fails with holdfast.ErrInvalid
// for another one.
type RedisClient interface {
	redis.Scripter
}

// Client obtains locks from one Redis deployment. It is safe for concurrent use.
type Client struct {
	client  RedisClient
	backend driver.Backend // in place of client
	mu      sync.Mutex
	site    *site // nil: not needed yet
}

// site is where the locks of all Clients over one client are.
type site struct {
	locker  *holdfast.Locker
	backend driver.Backend
	closed  atomic.Bool // by one of its Clients

	mu   sync.Mutex
	held map[string]*held // by key
}

// sites has those of go-redis clients, so that the function Obtain need not make one for each call.
var sites = struct {
	sync.Mutex
	of map[redis.UniversalClient]*site
}{of: make(map[redis.UniversalClient]*site)}

// New returns a Client over a go-redis client, which stays the caller's. It makes no request. If
// something is wrong with client, Obtain fails.
func New(client RedisClient) *Client { return &Client{client: client} }

// NewOver returns a Client over any backend of Holdfast: that of redishold.Open, which needs no
// go-redis client, or of memhold.New, for tests. The old library has no such function.
func NewOver(backend driver.Backend) *Client { return &Client{backend: backend} }

// Close ends and releases all locks over the go-redis client that the Client was made with, also
// those of other Clients over it. If NewOver has made the Client, it does so with all locks of this
// Client. It frees what they needed. client and backend stay open, and Clients may obtain new
// locks. A Client that lives as long as the process need not be closed. It returns the error of
// holdfast.Locker.Close. The old library has no such method.
func (c *Client) Close() error {
	c.mu.Lock()
	s := c.site
	c.site = nil
	c.mu.Unlock()
	if client, ok := c.client.(redis.UniversalClient); ok && c.backend == nil {
		sites.Lock()
		if s == nil {
			s = sites.of[client]
		}
		if s != nil && sites.of[client] == s {
			delete(sites.of, client)
		}
		sites.Unlock()
	}
	if s == nil || s.closed.Swap(true) {
		return nil
	}
	err := s.locker.Close()
	if c.backend == nil {
		err = errors.Join(err, s.backend.Close())
	}
	return err
}

// open returns where the locks are. ttl is that of a lock.
func (c *Client) open(ttl time.Duration) (*site, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.site != nil && !c.site.closed.Load() {
		return c.site, nil
	}
	var err error
	if c.backend != nil {
		c.site, err = newSite(c.backend, ttl)
		return c.site, err
	}
	var client redis.UniversalClient
	switch r := c.client.(type) {
	case *redis.Client:
		client = r
	case *redis.ClusterClient:
		client = r
	default:
		return nil, fmt.Errorf("redislock: %w: client is a %T: give a *redis.Client or a "+
			"*redis.ClusterClient", holdfast.ErrInvalid, c.client)
	}
	sites.Lock()
	defer sites.Unlock()
	if c.site = sites.of[client]; c.site != nil {
		return c.site, nil
	}
	backend, err := goredishold.New(client)
	if err != nil {
		return nil, err
	}
	if c.site, err = newSite(backend, ttl); err != nil {
		backend.Close()
		return nil, err
	}
	sites.of[client] = c.site
	return c.site, nil
}

func newSite(backend driver.Backend, ttl time.Duration) (*site, error) {
	// As in the old library, every try asks the server, and nothing is handed over in memory. Each
	// lock has a TTL of its own, and backend may not allow the default.
	locker, err := holdfast.New(backend, holdfast.WithCohort(1, 0), holdfast.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return &site{locker: locker, backend: backend, held: make(map[string]*held)}, nil
}

// Options are those of an acquisition.
type Options struct {
	// RetryStrategy says when to try again. Default: not at all.
	RetryStrategy RetryStrategy

	// Metadata is what Lock.Metadata returns.
	Metadata string

	// Token stands for the lock: a process that has a lock obtains it again with the same Token. At
	// most 128 bytes of printable ASCII. Default: 16 random bytes in base64.
	Token string
}

func (o *Options) orDefault() Options {
	var options Options
	if o != nil {
		options = *o
	}
	if options.RetryStrategy == nil {
		options.RetryStrategy = NoRetry()
	}
	return options
}

// Obtain is [Client.Obtain] of New(client).
func Obtain(ctx context.Context, client RedisClient, key string, ttl time.Duration,
	opt *Options) (*Lock, error) {
	return New(client).Obtain(ctx, key, ttl, opt)
}

// ObtainMulti is [Client.ObtainMulti] of New(client).
func ObtainMulti(ctx context.Context, client RedisClient, keys []string, ttl time.Duration,
	opt *Options) (*Lock, error) {
	return New(client).ObtainMulti(ctx, keys, ttl, opt)
}

// Obtain is [Client.ObtainMulti] of one key.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration,
	opt *Options) (*Lock, error) {
	return c.ObtainMulti(ctx, []string{key}, ttl, opt)
}

// ObtainMulti acquires all keys, or none, for ttl; less than 10 ms count as 10 ms. It fails with
//   - [ErrNotObtained] if another has one of them at the last try, joined with the error of ctx if
//     that has ended. A ctx without a deadline ends after ttl;
//   - holdfast.ErrUnavailable or holdfast.ErrUnknown if Redis does not answer, at once;
//   - holdfast.ErrInvalid for an argument that is not allowed.
func (c *Client) ObtainMulti(ctx context.Context, keys []string, ttl time.Duration,
	opt *Options) (*Lock, error) {
	ttl = max(ttl, minTTL)
	s, err := c.open(ttl)
	if err != nil {
		return nil, err
	}
	options := opt.orDefault()
	lock := &Lock{Client: c, keys: slices.Clone(keys), token: options.Token,
		metadata: options.Metadata}
	if lock.token == "" {
		lock.token = randomToken()
	}
	refused := false
	var fresh *held
	defer func() {
		if fresh != nil { // ctx panics
			fresh.set.Release(context.Background())
		}
	}()
	err = retry(ctx, ttl, options.RetryStrategy, func(ctx context.Context) (bool, error) {
		fresh, err = s.obtain(ctx, keys, ttl, lock)
		lock.held = fresh
		// Not errors.Is: the cause of ctx may be that another lock was not obtained.
		if _, refusal := err.(*holdfast.HeldError); refusal {
			err = ErrNotObtained
			if lock.held = s.again(keys, options.Token); lock.held != nil {
				err = lock.held.refresh(ctx, ttl)
			}
			if err == ErrNotObtained { // somebody else has it, perhaps since the last refresh
				refused = true
				return false, nil
			}
		}
		if err != nil && refused && ctx.Err() != nil {
			return false, nil // it was held when somebody last answered
		}
		return true, err
	})
	fresh = nil
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// minTTL is the shortest that Holdfast has.
const minTTL = 10 * time.Millisecond

func randomToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// obtain tries once.
func (s *site) obtain(ctx context.Context, keys []string, ttl time.Duration,
	lock *Lock) (*held, error) {
	unique := slices.Compact(slices.Sorted(slices.Values(keys)))
	asked := time.Now()
	set, err := s.locker.TryAcquireAll(ctx, unique, holdfast.WithTTL(ttl),
		holdfast.WithoutRenewal(), holdfast.WithLabel(lock.label()))
	if err != nil {
		return nil, err
	}
	h := &held{set: set, keys: unique, token: lock.token, ttl: ttl, until: asked.Add(ttl),
		wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range unique {
		s.held[key] = h
	}
	context.AfterFunc(set.Context(context.Background()), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range unique {
			if s.held[key] == h {
				delete(s.held, key)
			}
		}
	})
	return h, nil
}

// again returns what this process holds under the token and has exactly these keys, or nil.
func (s *site) again(keys []string, token string) *held {
	if token == "" {
		return nil
	}
	unique := slices.Compact(slices.Sorted(slices.Values(keys)))
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[unique[0]]
	if h == nil || !slices.Equal(h.keys, unique) || h.token != token {
		return nil
	}
	return h
}
