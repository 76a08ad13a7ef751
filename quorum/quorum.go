package quorum

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Quorum is a backend made of N backends. Make one with [New]. It is safe for concurrent use.
//
// Beside driver.Backend it implements driver.Notifier, driver.BatchInspector, driver.Checker,
// driver.Limited, and driver.Sharer: it grants shared claims if all nodes do.
type Quorum struct {
	group  *node.Group
	nodes  []*node.Node
	need   int // how many make a majority
	config config
	late   *lateness // for callers that ask about many keys

	unsharing string // a node that grants no shared claims; empty if there is none

	seed       maphash.Seed
	shards     [shards]shard
	generation atomic.Uint64
	highest    atomic.Uint64 // largest token seen
	lastTicket atomic.Uint64
	closing    atomic.Bool
	parking    parking
	doubts     atomic.Int64 // claims with a release that may take effect yet
	unsure     atomic.Int64 // claims with nodes that are unsure of the last token
	counters   counters
	unhear     []func() // ends the nodes' notices

	listening sync.RWMutex
	listeners []*listener // replaced, never changed in place
}

var (
	_ driver.Backend        = (*Quorum)(nil)
	_ driver.Notifier       = (*Quorum)(nil)
	_ driver.BatchInspector = (*Quorum)(nil)
	_ driver.Checker        = (*Quorum)(nil)
	_ driver.Limited        = (*Quorum)(nil)
	_ driver.Sharer         = (*Quorum)(nil)
)

// New makes a Quorum of 1 to [MaxNodes] backends, which must be independent of each other; see the
// package documentation on how many. It sets the guard of those that implement driver.Guarder (see
// [WithGuard]), and the set of those that implement driver.Member (see [Quorum.Adopt]).
//
// It fails with driver.ErrInvalid if a backend or an option is not allowed, and with
// [ErrSameServer] as well if two backends say that they talk to one server. To find out it waits
// for a majority to answer, for at most a second. It does not fail if nodes do not answer: they are
// compared when they do.
//
// On success the Quorum owns the backends and closes them. If New fails they are still the
// caller's.
func New(backends []driver.Backend, options ...Option) (*Quorum, error) {
	c := defaults()
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
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
	q.group = node.NewGroup(node.Config{
		Observe: c.observe(),
		// what it finds is in the nodes' state
		Identify:     func(ctx context.Context) { _ = q.identify(ctx) },
		Closed:       errClosed,
		Keep:         2 * len(backends),
		ReleaseBound: c.bound(0),
		MinPresence:  DefaultNodeTimeout,
	})
	for i := range q.shards {
		q.shards[i].keys = make(map[string]*key)
		q.shards[i].sweepAt = minSweep
	}
	for i, b := range backends {
		if b == nil {
			return nil, invalid("backend %d is nil: open it first", i+1)
		}
		name := fmt.Sprintf("node %d", i+1)
		if c.names != nil {
			name = c.names[i]
		}
		q.nodes = append(q.nodes, node.New(q.group, i, name, b, c.random()))
	}
	q.late = newLateness(len(q.nodes), lateFor)
	q.unsharing = unsharing(q.nodes)
	for _, n := range q.nodes {
		if g, ok := n.Backend.(driver.Guarder); ok {
			g.Guard(c.guard)
		}
	}
	q.join()
	ctx, cancel := context.WithTimeout(q.group.Context(), node.IdentifyTimeout)
	defer cancel()
	if err := q.identify(ctx); err != nil {
		q.group.Cancel()
		return nil, invalid("%w", err)
	}
	for i, n := range q.nodes {
		if notifier, ok := n.Backend.(driver.Notifier); ok {
			q.unhear = append(q.unhear, notifier.Notify(func(notice driver.Notice) {
				q.heard(i, notice)
			}))
		}
	}
	return q, nil
}

func (q *Quorum) hash(key string) uint64 { return maphash.String(q.seed, key) }

// ready returns an error if no node is to be asked at all: ctx has ended, or the Quorum is closed.
func (q *Quorum) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return node.Refused(ctx.Err(), false)
	}
	if q.group.Context().Err() != nil {
		return node.Refused(errClosed, false)
	}
	return nil
}

// Close waits for calls under way, for at most twice the node timeout, so that releases also reach
// the nodes that nobody waited for. Then it closes the backends, and returns their errors joined.
// Keys that are still held run into their TTL, and so does what a node was to give back and has not
// confirmed ([NodeStatus].Owed). Calls after Close fail with ErrUnavailable. Closing twice is safe.
//
// It leaves no goroutine behind if the backends' calls return when their context ends. For other
// calls it waits no longer than twice the node timeout again.
func (q *Quorum) Close() error {
	if q.closing.Swap(true) {
		return nil
	}
	bound := q.config.bound(0)
	q.group.Wait(2 * bound)
	q.group.Cancel()
	for _, stop := range q.unhear {
		stop()
	}
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		for _, k := range s.keys {
			for _, r := range k.records {
				r.stopWaiting()
			}
		}
		s.mu.Unlock()
	}
	var errs []error
	for _, n := range q.nodes {
		if err := n.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	// Calls have returned by now, unless a backend ignores both the end of its context and Close.
	q.group.Close(bound)
	return errors.Join(errs...)
}
