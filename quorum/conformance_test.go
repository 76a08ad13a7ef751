package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// memories is a set of memhold nodes, and the clients of them by the Quorum made of them.
type memories struct {
	nodes   []*memhold.Backend
	clients map[driver.Backend][]*memhold.Backend
}

func newMemories(t testing.TB, n int) *memories {
	m := &memories{clients: make(map[driver.Backend][]*memhold.Backend)}
	for range n {
		node := memhold.New()
		t.Cleanup(func() { node.Close() })
		m.nodes = append(m.nodes, node)
	}
	return m
}

// open returns a Quorum with clients of its own of all nodes.
func (m *memories) open(t testing.TB, options ...quorum.Option) *quorum.Quorum {
	t.Helper()
	var clients []*memhold.Backend
	var list []driver.Backend
	for _, node := range m.nodes {
		c := node.Client()
		clients, list = append(clients, c), append(list, c)
	}
	q, err := quorum.New(list, options...)
	if err != nil {
		t.Fatal(err)
	}
	m.clients[q] = clients
	return q
}

// cutter loses the reply of a call when it is told to. It also returns only when the nodes that
// were not waited for have answered, because the suite looks from a second client at exactly what
// has changed, such as places in the queue, while a Quorum only promises a majority.
type cutter struct {
	*quorum.Quorum
	cut atomic.Bool
}

func (c *cutter) lost() error {
	// Fake time passes when everything else has come to rest, and by so much that a later caller is
	// later by the nodes' clocks.
	time.Sleep(10 * time.Microsecond)
	if !c.cut.Swap(false) {
		return nil
	}
	return &driver.Error{Maybe: true, Err: fmt.Errorf("reply lost")}
}

func (c *cutter) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := c.Quorum.Acquire(ctx, claim)
	if lost := c.lost(); lost != nil {
		return driver.Result{}, lost
	}
	// Of many contenders that ask at the same time, none may get a majority. The suite's rule is
	// for a backend that decides at one place; here the losers of a split vote ask again.
	for err == nil && r.State == driver.Busy && !claim.Queue && c.split(ctx, claim.Key) {
		time.Sleep(rand.N(time.Millisecond))
		r, err = c.Quorum.Acquire(ctx, claim)
	}
	return r, err
}

func (c *cutter) split(ctx context.Context, key string) bool {
	e, err := c.Inspect(ctx, key)
	return err == nil && e.Holder.Owner == "" && len(e.Sharers) == 0
}

func (c *cutter) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	r, err := c.Quorum.Renew(ctx, claims)
	if lost := c.lost(); lost != nil {
		return nil, lost
	}
	return r, err
}

func (c *cutter) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := c.Quorum.Release(ctx, claim)
	if lost := c.lost(); lost != nil {
		return driver.Result{}, lost
	}
	return r, err
}

func harness(n int, bubble bool) drivertest.Harness {
	return drivertest.Harness{
		Bubble: bubble,
		// More than the node timeout.
		ShortTTL: 3 * time.Second,
		NewStore: func(t testing.TB) drivertest.Store {
			m := newMemories(t, n)
			of := func(b driver.Backend) []*memhold.Backend {
				if c, ok := b.(*cutter); ok {
					b = c.Quorum
				}
				return m.clients[b]
			}
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					// Longer than the suite waits before it ends a context, and than any pause of
					// the machine.
					return &cutter{Quorum: m.open(t, quorum.WithGuard(0),
						quorum.WithNodeTimeout(2*time.Second))}
				},
				Lose: func(t testing.TB, key string) {
					for _, node := range m.nodes {
						node.Faults().Lose(key)
					}
				},
				CutReply: func(t testing.TB, b driver.Backend) { b.(*cutter).cut.Store(true) },
				Freeze: func(t testing.TB, b driver.Backend) (thaw func()) {
					for _, c := range of(b) {
						c.Faults().Freeze()
					}
					return func() {
						for _, c := range of(b) {
							c.Faults().Thaw()
						}
					}
				},
				Forget: func(t testing.TB) {
					for _, node := range m.nodes {
						node.Faults().Forget()
					}
				},
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Check: true, Share: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanForget: true,
		},
	}
}

func TestConformance(t *testing.T) {
	for _, n := range setSizes {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			drivertest.Run(t, harness(n, true))
		})
	}
}
