package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// If a majority of the nodes has a queue, waiters are served in the order in which they came, and
// ask no more often than others do: whichever nodes answer first.
func TestMajorityWithAQueueKeepsTheOrder(t *testing.T) {
	for name, presences := range map[string][]time.Duration{
		"3 nodes": {time.Second, 0, time.Second},
		"5 nodes": {time.Second, 0, time.Second, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, len(presences))
				c.presences = presences
				l := newLine(t, c)
				const span = 20 * time.Second
				time.Sleep(span)
				c.do(func() {
					for i, w := range l.waiter {
						if n := w.conns[0].made["acquire"]; n > 65 {
							t.Errorf("waiter %d has asked %d times in %v", i, n, span)
						}
					}
				})
				l.mustKeepOrder(t)
			})
		})
	}
}

// A node that hangs delays no answer to a waiter that queues on a majority of the others.
func TestHungNodeDelaysNoWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.presences = []time.Duration{0, time.Second, time.Second, time.Second, time.Second}
		a := c.client()
		a.hold(a.claim())
		rest()
		c.freeze(4)
		for range 20 {
			b := c.client()
			c.soon("the answer to a waiter", 2, func() {
				if r := b.busy(b.queued()); r.Presence == 0 {
					t.Error("a waiter does not queue, and a majority of the nodes has a queue")
				}
			})
		}
		c.thaw(4)
	})
}

// clockless is a node that does not tell what its clock shows.
type clockless struct{ *conn }

func (n clockless) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	result, err := n.conn.Acquire(ctx, c)
	result.Clock = 0
	return result, err
}

// behind returns a client whose clock is half an hour behind, and whose nodes from index on do not
// tell theirs.
func (c *cluster) behind(index int) *client {
	c.t.Helper()
	conns := c.dial()
	nodes := backends(conns)
	for i := index; i < len(nodes); i++ {
		nodes[i] = clockless{conns[i]}
	}
	q, err := quorum.New(nodes, quorum.WithGuard(0), quorum.WithClock(func() uint64 {
		return uint64((c.servers[0].now() - 30*time.Minute) / time.Microsecond)
	}))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { q.Close() })
	return &client{Quorum: q, conns: conns, cluster: c}
}

// If a majority of the nodes tells its clock, the client's own clock does not matter: also if too
// few nodes have told theirs yet.
func TestNodeThatTellsNoClockLeavesItToTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, d := c.client(), c.client()
		a.hold(a.claim())
		rest()
		b := c.behind(2)
		first := d.queued()
		d.busy(first)
		time.Sleep(c.presence / 10)
		b.cut(true, 1)
		waiting := b.queued()
		told := b.busy(waiting).Clock
		b.cut(false, 1)
		again := b.queued()
		again.Ticket = told
		b.release(waiting, driver.Busy)
		if r := b.busy(again); r.Place != 2 {
			t.Errorf("place %d; want 2, behind the waiter that came first", r.Place)
		}
		next := b.queued()
		b.cut(true, 1)
		if r := b.busy(next); r.Place != 3 {
			t.Errorf("the next is at place %d; want 3", r.Place)
		}
	})
}

// If fewer nodes than a majority tell their clocks, clients go by their own, and not by a clock
// that others may not have heard of.
func TestFewNodesThatTellTheirClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		a.hold(a.claim())
		rest()
		b := c.behind(1)
		first := b.queued()
		b.busy(first)
		rest()
		ticket := time.Duration(b.busy(b.queued()).Clock) * time.Microsecond
		late := ticket - c.servers[0].now() + 30*time.Minute
		if late > 0 || late < -2*roundTrip {
			t.Errorf("the ticket is %v ahead of the client's clock; want its clock", late)
		}
	})
}
