package redsync

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/with/redsync/redis"
)

// Redsync makes mutexes that are kept in the same servers. One per process is enough. It is safe
// for concurrent use.
type Redsync struct {
	pools []redis.Pool

	mu     sync.Mutex
	nodes  []driver.Backend // what the pools have given; nil: not asked yet
	sites  map[terms]*site
	closed bool
}

// terms are what a Locker and its backend are made for.
type terms struct {
	drift   float64
	timeout time.Duration // that one of several servers has to answer
}

// site is where the locks of the same terms are.
type site struct {
	ready   chan struct{} // closed when the rest is set
	locker  *holdfast.Locker
	backend driver.Backend
	err     error // why there is no locker
}

// New returns a Redsync over these pools. With several pools, a lock is held on a majority of them;
// they must be servers that know nothing of each other. New makes no request. If something is wrong
// with a pool, Lock fails.
func New(pools ...redis.Pool) *Redsync {
	return &Redsync{pools: pools, nodes: make([]driver.Backend, len(pools)),
		sites: make(map[terms]*site)}
}

// NewMutex returns a mutex of that name, which is the key in Redis. It makes no request.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{
		redsync: r,
		name:    name,
		expiry:  8 * time.Second,
		tries:   32,
		delayFunc: func(int) time.Duration {
			return 50*time.Millisecond + mathrand.N(200*time.Millisecond)
		},
		genValueFunc:  genValue,
		driftFactor:   holdfast.DefaultDrift,
		timeoutFactor: 0.05,
	}
	for _, o := range options {
		o.Apply(m)
	}
	return m
}

func genValue() (string, error) {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return base64.StdEncoding.EncodeToString(b[:]), nil
}

// Close ends all locks, releases them, and closes what the pools gave; clients of go-redis stay
// open. What needs the servers fails with holdfast.ErrClosed from then on. A Redsync over one pool
// that is not used any more need not be closed if its mutexes are unlocked. Over several pools it
// keeps a few goroutines until Close. Close returns the error of holdfast.Locker.Close. Closing
// again does nothing and returns nil. The old library has no such method.
func (r *Redsync) Close() error {
	r.mu.Lock()
	sites, nodes := r.sites, r.nodes
	r.sites, r.nodes, r.closed = nil, nil, true
	r.mu.Unlock()
	errs := closeLockers(sites)
	for _, s := range sites { // after all Lockers: they share the nodes
		if s.backend != nil {
			errs = append(errs, s.backend.Close())
		}
	}
	for _, node := range nodes {
		if node != nil {
			errs = append(errs, node.Close())
		}
	}
	return errors.Join(errs...)
}

// closeLockers closes the Lockers side by side: in an outage each takes seconds.
func closeLockers(sites map[terms]*site) []error {
	var all sync.WaitGroup
	closed := make(chan error, len(sites))
	for _, s := range sites {
		all.Go(func() {
			if <-s.ready; s.locker != nil {
				closed <- s.locker.Close()
			}
		})
	}
	all.Wait()
	close(closed)
	var errs []error
	for err := range closed {
		errs = append(errs, err)
	}
	return errs
}

// site returns where the locks of a mutex are. The first call over several pools waits until a
// majority of them has answered, for a second or until ctx ends.
func (r *Redsync) site(ctx context.Context, m *Mutex) (*site, error) {
	t, err := r.terms(m)
	if err != nil {
		return nil, err
	}
	s, err := r.begin(t)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.ready:
		return s, s.err
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

const (
	// A Locker gives its backend a sixth of the TTL to answer, and 5 s at most, and a quorum may
	// need twice the time of a server. If the Locker's time were over first, nobody would say which
	// servers have not answered.
	timeoutsPerExpiry = 16
	maxTimeout        = 2 * time.Second
)

// terms fails with holdfast.ErrInvalid if a factor of the mutex is not allowed.
func (r *Redsync) terms(m *Mutex) (terms, error) {
	if !(m.driftFactor >= 0 && m.driftFactor < 0.5) {
		return terms{}, fmt.Errorf("redsync: %w: drift factor %v: must be at least 0 and less than "+
			"0.5", holdfast.ErrInvalid, m.driftFactor)
	}
	// Not as a Duration, because processors differ in what becomes of a number that is none.
	if try := float64(m.expiry) * m.timeoutFactor; !(try >= 1 && try <= float64(maxSpan)) {
		return terms{}, fmt.Errorf("redsync: %w: expiry %v times timeout factor %v: a try must "+
			"take 1ns to %v", holdfast.ErrInvalid, m.expiry, m.timeoutFactor, maxSpan)
	}
	t := terms{drift: m.driftFactor}
	if len(r.pools) > 1 {
		t.timeout = twoDigits(min(m.timeout(), m.expiry/timeoutsPerExpiry, maxTimeout))
	}
	return t, nil
}

// twoDigits rounds d down to two digits. A program may compute the expiry of each lock, and a
// Locker for each would stay until Close.
func twoDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d / unit * unit
}

// begin returns the site of these terms. If there is none, it begins to open one.
func (r *Redsync) begin(t terms) (*site, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("redsync: %w", holdfast.ErrClosed)
	}
	if s := r.sites[t]; s != nil {
		return s, nil
	}
	if err := r.askPools(); err != nil {
		return nil, err
	}
	s := &site{ready: make(chan struct{})}
	r.sites[t] = s
	nodes := slices.Clone(r.nodes)
	go func() { // which takes a while if servers do not answer
		defer close(s.ready)
		if s.open(t, nodes); s.backend != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.sites[t] == s {
			delete(r.sites, t) // so the next call tries again
		}
	}()
	return s, nil
}

// askPools asks each pool once for its backend, which is closed by Close alone: it may be one that
// the pool gives again. The caller holds r.mu.
func (r *Redsync) askPools() error {
	if len(r.pools) == 0 {
		return fmt.Errorf("redsync: %w: no pool: New needs one", holdfast.ErrInvalid)
	}
	for i, pool := range r.pools {
		if r.nodes[i] != nil {
			continue
		}
		if pool == nil {
			return fmt.Errorf("redsync: %w: pool %d is nil: make one with redis.NewPool",
				holdfast.ErrInvalid, i+1)
		}
		node, err := pool.Backend()
		if err != nil {
			return fmt.Errorf("redsync: pool %d: %w", i+1, err)
		}
		// A variable has a nil pointer if Open failed, or was never called.
		if v := reflect.ValueOf(node); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return fmt.Errorf("redsync: %w: pool %d has no backend: open one, for example with "+
				"redishold.Open", holdfast.ErrInvalid, i+1)
		}
		r.nodes[i] = node
	}
	return nil
}

// open sets all but ready. Without a backend, another call may succeed.
func (s *site) open(t terms, nodes []driver.Backend) {
	if len(nodes) == 1 {
		s.backend = nodes[0]
	} else {
		// There is no quarantine: the old library has none, and new servers would grant nothing for
		// that time.
		q, err := quorum.New(nodes, quorum.WithGuard(0), quorum.WithDrift(t.drift),
			quorum.WithNodeTimeout(t.timeout))
		if err != nil {
			s.err = err
			return
		}
		s.backend = q
	}
	// The TTL of the Locker bounds only requests that are about no lock of its own: each mutex has
	// a TTL of its own. It is the default, unless the backend allows no TTL as long as that.
	for ttl := holdfast.DefaultTTL; ttl >= holdfast.MinTTL; ttl /= 2 {
		// As in the old library, every try asks the servers, and nothing is handed over in memory.
		s.locker, s.err = holdfast.New(s.backend, holdfast.WithDrift(t.drift),
			holdfast.WithCohort(1, 0), holdfast.WithTTL(ttl))
		if s.err == nil {
			return
		}
	}
}
