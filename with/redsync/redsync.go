package redsync

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
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

	mu    sync.Mutex
	sites map[terms]*site
}

// terms are what a Locker and its backend are made for.
type terms struct {
	drift   float64
	timeout time.Duration // of a call to one of several servers
}

// site is where the locks of the same terms are.
type site struct {
	locker  *holdfast.Locker // nil: no mutex has had a TTL that is allowed
	backend driver.Backend
}

// New returns a Redsync over these pools. With several pools, a lock is held on a majority of them;
// they must be servers that know nothing of each other. New makes no request. If something is wrong
// with a pool, Lock fails.
func New(pools ...redis.Pool) *Redsync {
	return &Redsync{pools: pools, sites: make(map[terms]*site)}
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
// open. A Redsync that is not used any more need not be closed if its mutexes are unlocked. It
// returns the error of holdfast.Locker.Close. The old library has no such method.
func (r *Redsync) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.sites {
		if s.locker != nil {
			errs = append(errs, s.locker.Close())
		}
	}
	for t, s := range r.sites { // pools may have given several of them the same backends
		errs = append(errs, s.backend.Close())
		delete(r.sites, t)
	}
	return errors.Join(errs...)
}

// site returns where the locks of a mutex are. The first call over several pools waits until a
// majority of them has answered, for a second at most.
func (r *Redsync) site(m *Mutex) (*site, error) {
	t := terms{drift: m.driftFactor}
	if len(r.pools) > 1 {
		// Here, because what open has made would be closed again; and not as a Duration, because
		// processors differ in what becomes of a number that is none.
		if try := float64(m.expiry) * m.timeoutFactor; !(try >= 0 && try <= float64(maxSpan)) {
			return nil, fmt.Errorf("redsync: %w: expiry %v times timeout factor %v: a try must "+
				"take 0s to %v", holdfast.ErrInvalid, m.expiry, m.timeoutFactor, maxSpan)
		}
		// Servers have less than the try: when that is over, nobody would say which did not answer.
		t.timeout = twoDigits(m.timeout() / 4 * 3)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[t]
	if s == nil {
		backend, err := r.open(t)
		if err != nil {
			return nil, err
		}
		s = &site{backend: backend}
		r.sites[t] = s
	}
	if s.locker != nil {
		return s, nil
	}
	// As in the old library, every try asks the servers, and nothing is handed over in memory. Each
	// mutex has a TTL of its own, and the backend may not allow the default. If it does not allow
	// this one, it stays for the next mutex.
	locker, err := holdfast.New(s.backend, holdfast.WithDrift(t.drift), holdfast.WithCohort(1, 0),
		holdfast.WithTTL(m.expiry))
	if err != nil {
		return nil, err
	}
	s.locker = locker
	return s, nil
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

// open returns a backend over all pools.
func (r *Redsync) open(t terms) (driver.Backend, error) {
	switch {
	case len(r.pools) == 0:
		return nil, fmt.Errorf("redsync: %w: no pool: New needs one", holdfast.ErrInvalid)
	case !(t.drift >= 0 && t.drift < 0.5):
		return nil, fmt.Errorf("redsync: %w: drift factor %v: must be at least 0 and less than 0.5",
			holdfast.ErrInvalid, t.drift)
	}
	var nodes []driver.Backend
	undo := func() {
		for _, node := range nodes {
			node.Close()
		}
	}
	for i, pool := range r.pools {
		if pool == nil {
			undo()
			return nil, fmt.Errorf("redsync: %w: pool %d is nil: make one with redis.NewPool",
				holdfast.ErrInvalid, i+1)
		}
		node, err := pool.Backend()
		if err != nil {
			undo()
			return nil, fmt.Errorf("redsync: pool %d: %w", i+1, err)
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	// There is no quarantine: the old library has none, and new servers would grant nothing for
	// that time.
	q, err := quorum.New(nodes, quorum.WithGuard(0), quorum.WithDrift(t.drift),
		quorum.WithNodeTimeout(t.timeout))
	if err != nil {
		undo()
		return nil, err
	}
	return q, nil
}
