package redislock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	sites   *sites         // where its site is
}

// site is where the locks of all Clients over one client are.
type site struct {
	locker  *holdfast.Locker
	backend driver.Backend
	closing bool          // guarded by sites.mu
	err     error         // of Close, after its end
	gone    chan struct{} // closed at the end of Close

	mu    sync.Mutex
	held  map[string][]*held       // by its name; several if locks are nested
	turns map[string]chan struct{} // by the name of what is being obtained; closed afterwards
}

// sites has the sites that are needed, each from the first acquisition until the end of a Close.
type sites struct {
	mu sync.Mutex
	of map[redis.UniversalClient]*site // that over a backend is under nil
}

// common has the sites over go-redis clients, so that the function Obtain need not make one for
// each call. While its mutex is held, nothing waits for a server or calls code of the user's.
var common = newSites()

func newSites() *sites { return &sites{of: make(map[redis.UniversalClient]*site)} }

// New returns a Client over a go-redis client, which stays the caller's. It makes no request. If
// something is wrong with client, Obtain fails.
func New(client RedisClient) *Client { return &Client{client: client, sites: common} }

// NewOver returns a Client over any backend of Holdfast: that of redishold.Open, which needs no
// go-redis client, or of memhold.New, for tests. The old library has no such function.
func NewOver(backend driver.Backend) *Client {
	return &Client{backend: backend, sites: newSites()}
}

// Close ends and releases all locks over the go-redis client that the Client was made with, also
// those of other Clients over it. If NewOver has made the Client, it does so with all locks of this
// Client. It frees what they needed. client and backend stay open, and Clients may obtain new
// locks; a call that obtains one meanwhile goes on when Close is done. A Client that lives as long
// as the process need not be closed. It returns the error of holdfast.Locker.Close; of several
// calls at once each waits until that is done, and returns it. The old library has no such method.
func (c *Client) Close() error {
	s, first := c.close()
	if s == nil {
		return nil
	}
	if !first {
		<-s.gone
		return s.err
	}
	defer c.remove(s)
	s.err = s.locker.Close()
	if c.backend == nil {
		s.err = errors.Join(s.err, s.backend.Close())
	}
	return s.err
}

// place returns under which client the site is in sites: only this one may be looked up there, as
// another one need not be comparable. It fails if the client is not allowed.
func (c *Client) place() (redis.UniversalClient, error) {
	if c.backend != nil {
		return nil, nil
	}
	switch client := c.client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		return client, nil
	}
	return nil, fmt.Errorf("redislock: %w: client is a %T: give a *redis.Client or a "+
		"*redis.ClusterClient", holdfast.ErrInvalid, c.client)
}

// close returns the site for a Close, nil if there is none, and whether this is its first Close.
func (c *Client) close() (s *site, first bool) {
	place, err := c.place()
	if err != nil {
		return nil, false
	}
	c.sites.mu.Lock()
	defer c.sites.mu.Unlock()
	s = c.sites.of[place]
	if s != nil {
		first = !s.closing
		s.closing = true
	}
	return s, first
}

// remove ends the first Close of a site.
func (c *Client) remove(s *site) {
	place, _ := c.place()
	c.sites.mu.Lock()
	delete(c.sites.of, place)
	c.sites.mu.Unlock()
	close(s.gone)
}

// open returns where the locks are. ttl is that of a lock.
func (c *Client) open(ttl time.Duration) (*site, error) {
	place, err := c.place()
	if err != nil {
		return nil, err
	}
	c.sites.mu.Lock()
	defer c.sites.mu.Unlock()
	if s := c.sites.of[place]; s != nil {
		return s, nil
	}
	backend := c.backend
	if backend == nil {
		if backend, err = goredishold.New(place); err != nil {
			return nil, err
		}
	}
	// As in the old library, every try asks the server, and nothing is handed over in memory. Each
	// lock has a TTL of its own, and backend may not allow the default.
	locker, err := holdfast.New(backend, holdfast.WithCohort(1, 0), holdfast.WithTTL(ttl))
	if err != nil {
		if c.backend == nil {
			backend.Close()
		}
		return nil, err
	}
	s := &site{locker: locker, backend: backend, gone: make(chan struct{}),
		held: make(map[string][]*held), turns: make(map[string]chan struct{})}
	c.sites.of[place] = s
	return s, nil
}

// Options are those of an acquisition.
type Options struct {
	// RetryStrategy says when to try again. Default: not at all.
	RetryStrategy RetryStrategy

	// Metadata is what Lock.Metadata returns.
	Metadata string

	// Token stands for the lock: whoever has a lock obtains it again with the same Token, through
	// the same go-redis client. At most 128 bytes of printable ASCII. Default: 16 random bytes in
	// base64.
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
			fresh.release(context.Background())
		}
	}()
	err := retry(ctx, ttl, options.RetryStrategy, func(ctx context.Context) (bool, error) {
		var err error
		fresh, err = c.obtain(ctx, keys, ttl, lock)
		if err == ErrNotObtained {
			refused = true
			return false, nil
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

// obtain tries once, and sets what the lock holds. It returns that if it was not held before. If a
// Close ends the try, it does not count: Clients may obtain new locks after that.
func (c *Client) obtain(ctx context.Context, keys []string, ttl time.Duration,
	lock *Lock) (fresh *held, err error) {
	for {
		s, err := c.open(ttl)
		if err != nil {
			return nil, err
		}
		fresh, err := s.obtain(ctx, keys, ttl, lock)
		// The cause of ctx may be that another Locker was closed.
		if !errors.Is(err, holdfast.ErrClosed) || ctx.Err() != nil {
			return fresh, err
		}
		// The server may have granted the keys to this try, and Close waits for their release.
		select {
		case <-s.gone:
		case <-ctx.Done():
		}
	}
}

// obtain is Client.obtain, and fails with ErrClosed if a Close ends the try.
func (s *site) obtain(ctx context.Context, keys []string, ttl time.Duration,
	lock *Lock) (fresh *held, err error) {
	unique := slices.Compact(slices.Sorted(slices.Values(keys)))
	name := fmt.Sprintf("%q", append(unique, lock.token)) // quoted: a key may have any character
	defer s.turn(ctx, name)()
	for {
		own := s.own(name) // only the turn adds to it
		asked := time.Now()
		set, err := s.locker.TryAcquireAll(ctx, unique, holdfast.WithTTL(ttl),
			holdfast.WithoutRenewal(), holdfast.WithLabel(lock.label()))
		if err == nil {
			lock.held = s.hold(name, set, ttl, asked)
			return lock.held, nil
		}
		// Not errors.Is: the cause of ctx may be that another lock was not obtained.
		if _, refusal := err.(*holdfast.HeldError); !refusal {
			return nil, err
		}
		if len(own) == 0 {
			return nil, ErrNotObtained
		}
		for _, h := range own {
			if err := h.refresh(ctx, ttl); err != ErrNotObtained {
				lock.held = h
				return nil, err
			}
		}
		// They have ended since the try. When they are released, another one is for the key alone.
		for _, h := range own {
			select {
			case <-h.gone:
			case <-ctx.Done():
			}
		}
	}
}

// turn waits until nobody else obtains what has the name, or ctx ends: then a try fails anyhow.
func (s *site) turn(ctx context.Context, name string) (end func()) {
	for {
		s.mu.Lock()
		other := s.turns[name]
		if other == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return func() {}
		}
	}
	defer s.mu.Unlock()
	turn := make(chan struct{})
	s.turns[name] = turn
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.turns, name)
		close(turn)
	}
}

// own returns what is held under the name, or is being released.
func (s *site) own(name string) []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.held[name])
}

// hold notes what was obtained. ttl and asked are of the request.
func (s *site) hold(name string, set *holdfast.LockSet, ttl time.Duration,
	asked time.Time) *held {
	h := &held{set: set, ttl: ttl, until: asked.Add(ttl), wake: make(chan struct{}, 1),
		site: s, ends: 1, gone: make(chan struct{})}
	h.vanish = sync.OnceFunc(func() {
		others := slices.DeleteFunc(s.held[name], func(other *held) bool { return other == h })
		if s.held[name] = others; len(others) == 0 {
			delete(s.held, name)
		}
		close(h.gone)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], h)
	context.AfterFunc(set.Context(context.Background()), h.leave)
	return h
}
