package quorum

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// Quorum is a backend made of N backends. Make one with [New]. It is safe for concurrent use.
//
// Beside driver.Backend it implements driver.Notifier, driver.Inspector and driver.Checker.
type Quorum struct {
	nodes  []*node
	need   int // how many make a majority
	config config

	// base ends with Close. Calls to nodes live under it, never under a caller's context: that
	// ends the wait, and not what has to be finished.
	base   context.Context
	cancel context.CancelFunc

	seed       maphash.Seed
	shards     [shards]shard
	generation atomic.Uint64
	highest    atomic.Uint64 // largest token seen
	crew       crew
	closing    atomic.Bool
	flight     flight // calls
	parking    parking
	counters   counters
	unhear     []func() // ends the nodes' notices

	reporting sync.Mutex // one event after the other

	listening sync.RWMutex
	listeners []*listener // replaced, never changed in place
}

var (
	_ driver.Backend   = (*Quorum)(nil)
	_ driver.Notifier  = (*Quorum)(nil)
	_ driver.Inspector = (*Quorum)(nil)
	_ driver.Checker   = (*Quorum)(nil)
)

// New makes a Quorum of 1 to [MaxNodes] backends, which have to be independent of each other (R10); see the package
// documentation on how many. It sets the guard of those that have one (see [WithGuard]).
//
// It fails if an option is not allowed, and with [ErrSameServer] if two backends say that they talk to one server. For that it
// waits until a majority has said so, for at most a second. Nodes that do not answer are no reason to
// fail: they are compared when they do.
//
// The Quorum owns the backends from then on, and closes them. If New fails they are still the caller's.
func New(backends []driver.Backend, options ...Option) (*Quorum, error) {
	c := defaults()
	for _, o := range options {
		o.apply(&c)
	}
	if err := c.validate(len(backends)); err != nil {
		return nil, err
	}
	q := &Quorum{
		need:   len(backends)/2 + 1,
		config: c,
		seed:   maphash.MakeSeed(),
	}
	q.base, q.cancel = context.WithCancel(context.Background())
	q.crew.keep = 2 * len(backends)
	q.flight, q.crew.alive = newFlight(), newFlight()
	for i := range q.shards {
		q.shards[i].tracks = make(map[string]*track)
		q.shards[i].sweepAt = minSweep
	}
	for i, b := range backends {
		if b == nil {
			return nil, fmt.Errorf("quorum: backend %d is nil", i+1)
		}
		n := &node{index: i, backend: b, name: fmt.Sprintf("node %d", i+1), jitter: 1 + c.random()/4}
		if c.names != nil {
			n.name = c.names[i]
		}
		q.nodes = append(q.nodes, n)
	}
	for _, n := range q.nodes {
		if g, ok := n.backend.(driver.Guarded); ok {
			g.Guard(c.guard)
		}
	}
	ctx, cancel := context.WithTimeout(q.base, identifyTimeout)
	defer cancel()
	if err := q.identify(ctx); err != nil {
		q.cancel()
		return nil, fmt.Errorf("quorum: %w", err)
	}
	for i, n := range q.nodes {
		if notifier, ok := n.backend.(driver.Notifier); ok {
			q.unhear = append(q.unhear, notifier.Notify(func(notice driver.Notice) { q.heard(i, notice) }))
		}
	}
	return q, nil
}

func (q *Quorum) hash(key string) uint64 { return maphash.String(q.seed, key) }

// ready returns an error when no node is to be asked at all.
func (q *Quorum) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return refused(ctx.Err(), false)
	}
	if q.base.Err() != nil {
		return refused(errClosed, false)
	}
	return nil
}

// Close lets the calls under way end, for at most twice the node timeout, so that releases reach also those nodes that were
// not waited for. Then it closes the backends, and joins their errors. What is still held runs into its
// TTL. Calls after Close fail with ErrUnavailable. Closing twice is safe.
//
// It leaves no goroutine behind, if the backends' calls return when their context ends; for those that do not it waits no
// longer than twice the node timeout again.
func (q *Quorum) Close() error {
	if q.closing.Swap(true) {
		return nil
	}
	bound := q.config.bound(0)
	q.flight.wait(2 * bound)
	q.cancel()
	for _, stop := range q.unhear {
		stop()
	}
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		for _, t := range s.tracks {
			for _, r := range t.records {
				r.stopWaiting()
			}
		}
		s.mu.Unlock()
	}
	var errs []error
	for _, n := range q.nodes {
		n.stopFlushTimer()
		if err := n.backend.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.name, err))
		}
	}
	// Calls have returned by now, unless a backend ignores both the end of its context and Close.
	q.crew.close()
	q.flight.wait(bound)
	q.crew.alive.wait(bound)
	return errors.Join(errs...)
}
