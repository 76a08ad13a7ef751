package quorum_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// inbox collects what a client is told.
func (c *client) inbox() chan driver.Notice {
	in := make(chan driver.Notice, 100)
	stop := c.Notify(func(n driver.Notice) { in <- n })
	c.cluster.t.Cleanup(stop)
	return in
}

// told returns the next notice, which has to come within n round trips.
func (c *cluster) told(in chan driver.Notice, n int) driver.Notice {
	c.t.Helper()
	time.Sleep(time.Duration(n) * roundTrip)
	select {
	case notice := <-in:
		return notice
	default:
		c.t.Fatalf("no notice after %d round trips", n)
		return driver.Notice{}
	}
}

// A release hands the key over to the waiter on a majority of nodes, which tell the waiter so: it
// need not ask. It does not matter if a minority is down.
func TestHandoffByNotices(t *testing.T) {
	for _, n := range []int{1, 3, 4, 5} {
		for gone := range n - n/2 {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n)
				a, b := c.client(), c.client()
				in := b.inbox()
				holder := a.claim()
				first := a.hold(holder).Token
				waiting := b.queued()
				waiting.Block = 3
				if r := b.busy(waiting); r.Presence != time.Second || r.Place != 1 {
					t.Errorf("%d nodes: place %d, present for %v; want the first place for 1s", n,
						r.Place, r.Presence)
				}
				rest := b.calls("acquire")
				for i := range gone {
					c.freeze(i)
				}
				a.release(holder, driver.Held)
				notice := c.told(in, 2)
				if notice.Kind != driver.Granted || notice.Key != "k" ||
					notice.Owner != waiting.Owner || notice.Token <= first || notice.Block != 3 {
					t.Errorf(
						"%d of %d nodes gone: notice %+v; want that %s has the key, with a block of 3 tokens above %d",
						gone, n, notice, waiting.Owner, first)
				}
				if calls := b.calls("acquire") - rest; calls > 0 {
					t.Errorf("%d of %d nodes gone: the waiter had to ask, %d times", gone, n, calls)
				}
				if held := c.holds(waiting); held < n/2+1 {
					t.Errorf(
						"%d of %d nodes gone: told that it has the key, the waiter has it on %d; want a majority",
						gone, n, held)
				}
				b.renew(waiting, driver.Held)
				for i := range gone {
					c.thaw(i)
				}
				b.release(waiting, driver.Held)
				select {
				case more := <-in:
					t.Errorf("%d of %d nodes gone: a second notice %+v", gone, n, more)
				default:
				}
			})
		}
	}
}

// If nodes hand over with different tokens, that is no grant yet: the waiter is told to ask, which
// settles the token.
func TestHandoffWithDifferentTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder := a.claim()
		a.hold(holder)
		waiting := b.queued()
		b.busy(waiting)
		rest := a.now()
		c.fences(rest+1e9, rest+2e9, rest+3e9)
		a.release(holder, driver.Held)
		if notice := c.told(in, 2); notice.Kind != driver.Freed || notice.Owner != waiting.Owner {
			t.Errorf("notice %+v; want that asking is worthwhile", notice)
		}
		if token := b.hold(waiting).Token; token < rest+2e9 {
			t.Errorf("token %d; want one that a majority has acknowledged", token)
		}
		b.release(waiting, driver.Held)
	})
}

// R1: notices may come when the presence is over, for example to a process that was stopped. Then
// the grant is over, too. The waiter is told to ask, and not that it holds the key: it may be
// asking already, and would count the answer's presence for the grant.
func TestR1_NoticesAfterThePresenceAreNoGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder := a.claim()
		a.hold(holder)
		waiting := b.queued()
		time.Sleep(b.busy(waiting).Presence)
		for _, conn := range b.conns {
			conn.heard(driver.Notice{Kind: driver.Granted, Key: "k", Owner: waiting.Owner,
				Token: a.now(), Block: 1})
		}
		if notice := c.told(in, 1); notice.Kind != driver.Freed || notice.Owner != waiting.Owner {
			t.Errorf("notice %+v; want that asking is worthwhile", notice)
		}
		b.release(waiting, driver.Lost)
		a.release(holder, driver.Held)
	})
}

// R1: a grant to a waiter that was not present any more is over. A late notice of it, when the
// waiter waits again, must not count as a new grant.
func TestR1_LateNoticesAreNoGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder := a.claim()
		a.hold(holder)
		waiting := b.queued()
		presence := b.busy(waiting).Presence
		// it does not ask in time, so it may have been granted the key and have lost it
		time.Sleep(presence + roundTrip)
		b.busy(waiting)
		time.Sleep(roundTrip) // all have answered
		for _, conn := range b.conns {
			conn.heard(driver.Notice{Kind: driver.Granted, Key: "k", Owner: waiting.Owner,
				Token: a.now(), Block: 1})
		}
		for notice := c.told(in, 1); ; notice = <-in {
			if notice.Kind == driver.Granted {
				t.Errorf("notice %+v while %s holds the key", notice, holder.Owner)
			}
			if len(in) == 0 {
				break
			}
		}
		b.busy(waiting)
		a.renew(holder, driver.Held)
		a.release(holder, driver.Held)
		b.hold(waiting)
		b.release(waiting, driver.Held)
	})
}

// R1: a node carried out a request and its answer was lost, so the claim may have been granted the
// key there and have lost it again. A late notice of that is no new grant.
func TestR1_NoticeAfterAnUnansweredRequestIsNoGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		waiting.Token += 1e9 // so that all nodes grant this token
		a.hold(holder)
		rest()
		c.do(func() { c.servers[2].slow = 100 * time.Millisecond })
		b.busy(waiting)
		time.Sleep(60 * time.Millisecond)
		c.do(func() { c.servers[2].slow = 0 })
		b.cut(true, 2)
		for round := range 9 {
			if round == 4 {
				b.cut(false, 2)
			}
			b.busy(waiting)
			time.Sleep(c.presence / 3)
		}
		if s := b.Status().Nodes[2]; s.State != quorum.Up {
			t.Fatalf("node 3 is %v; the case is that it has answered", s.State)
		}
		b.conns[2].heard(driver.Notice{Kind: driver.Granted, Key: "k", Owner: waiting.Owner,
			Token: waiting.Token, Block: 1})
		c.do(func() { c.servers[0].release(holder) })
		if notice := c.told(in, 1); notice.Kind == driver.Granted {
			t.Errorf("notice %+v; want no grant: the key is held by %v", notice, c.holders("k"))
		}
		b.Release(context.Background(), waiting)
		a.Release(context.Background(), holder)
	})
}

// The waiter counts on a grant for as long as, by the last answer of a majority, it is present.
// Nodes that did not get that request drop it earlier, so what they hand over is not part of a
// grant.
func TestR1_HandoffLastsAsLongAsPromised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.hold(holder)
		presence := b.busy(waiting).Presence
		time.Sleep(presence / 2)
		b.cut(true, 3, 4)
		b.busy(waiting)
		time.Sleep(60 * time.Millisecond) // until the two have failed to answer
		b.cut(false, 3, 4)
		c.freeze(0, 1)
		a.release(holder, driver.Held)
		if notice := c.told(in, 2); notice.Kind != driver.Freed {
			t.Errorf(
				"notice %+v; want that asking is worthwhile, as two of the three nodes may drop it early",
				notice)
		}
		b.hold(waiting)
		c.thaw(0, 1)
		b.release(waiting, driver.Held)
	})
}

// R24: waiters that were handed a part each do not keep each other from the key: within the node
// timeout all but one give back their part.
func TestR24_WaitersLetGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4)
		a, b := c.client(), c.client()
		for _, cl := range []*client{a, b} {
			cl.inbox()
		}
		first, second := a.queued(), b.queued()
		c.do(func() {
			// Each has queued on two nodes when the key becomes free there.
			for i, s := range c.servers {
				conn, claim := a.conns[i], first
				if i >= 2 {
					conn, claim = b.conns[i], second
				}
				s.acquire(conn, claim)
			}
		})
		a.busy(first)
		b.busy(second)
		time.Sleep(200 * time.Millisecond)
		h := c.holders("k")
		if c.holds(first) < 3 && c.holds(second) < 3 {
			t.Errorf("200 ms later the nodes are held by %v; want a majority of one", h)
		}
		a.Release(t.Context(), first)
		b.Release(t.Context(), second)
	})
}

// The first waiters of processes have places by the nodes' clocks, and if requests got lost, nodes
// have them in different orders: on each node two others come first. They must not pass the node to
// each other for ever.
func TestR24_FirstWaitersInDifferentOrders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const nodes, longest = 5, time.Second // twenty node timeouts
		c := newCluster(t, nodes)
		a := c.client()
		holder := a.claim()
		a.hold(holder)
		var waiters []*client
		var claims []driver.Claim
		for range 2 * nodes {
			w := c.client()
			claim := w.queued()
			w.cut(true, 0, 1, 2, 3, 4)
			w.fail(claim)
			w.cut(false, 0, 1, 2, 3, 4)
			waiters, claims = append(waiters, w), append(claims, claim)
		}
		c.do(func() {
			for i, s := range c.servers {
				for k := range claims {
					k = (2*i + k) % len(claims)
					s.acquire(waiters[k].conns[i], claims[k])
				}
			}
		})
		var all sync.WaitGroup
		for k, w := range waiters {
			in := w.inbox()
			all.Go(func() {
				w.turn(claims[k], in)
				w.Release(t.Context(), claims[k])
			})
		}
		rest()
		a.release(holder, driver.Held)
		if d := took(all.Wait); d > longest {
			t.Errorf("it took %v to serve all; want at most %v", d, longest)
		}
		rest()
		c.clean("k")
	})
}

// turn waits for the claim's turn, for at most 20 seconds.
func (c *client) turn(claim driver.Claim, in chan driver.Notice) {
	for giveUp := time.Now().Add(20 * time.Second); time.Now().Before(giveUp); {
		if r, err := c.Acquire(context.Background(), claim); err == nil && r.State == driver.Held {
			return
		}
		select {
		case n := <-in:
			if n.Kind == driver.Granted {
				return
			}
		case <-time.After(c.cluster.presence / 3):
		}
	}
}

// R17: if too few nodes keep a queue, a waiter that is told that it does not wait leaves nothing
// behind: also not on a node that had not answered by then, or that does keep a queue.
func TestR17_WithoutAQueueNothingIsLeft(t *testing.T) {
	for _, presence := range []time.Duration{0, 50 * time.Millisecond} {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			c.presence = presence
			a, b := c.client(), c.client()
			b.cut(true, 2)
			holder := b.claim()
			b.hold(holder)
			c.freeze(2)
			if r := a.busy(a.queued()); r.Presence != 0 {
				t.Errorf("presence %v: the claim is queued for %v; want that it is not",
					presence, r.Presence)
			}
			time.Sleep(20 * time.Millisecond)
			c.do(func() {
				for i, s := range c.servers[:2] {
					for _, w := range s.keys["k"].queue {
						t.Errorf("presence %v: server %d has %s in the queue", presence, i, w.owner)
					}
				}
			})
			time.Sleep(100 * time.Millisecond) // until nobody waits for the last answer any more
			c.thaw(2)
			rest()
			if owner := c.holders("k")[2]; owner != "" {
				t.Errorf("presence %v: a server that answered late is held by %s", presence, owner)
			}
			b.cut(false, 2)
			b.release(holder, driver.Held)
		})
	}
}

// A waiter that gives up leaves the nodes that it holds and all queues, and the next waiter is
// served.
func TestWaiterGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b, d := c.client(), c.client(), c.client()
		in := d.inbox()
		holder, second, third := a.claim(), b.queued(), d.queued()
		a.hold(holder)
		b.busy(second)
		if r := d.busy(third); r.Place != 2 {
			t.Errorf("place %d; want 2", r.Place)
		}
		b.release(second, driver.Busy)
		a.release(holder, driver.Held)
		if notice := c.told(in, 2); notice.Kind != driver.Granted || notice.Owner != third.Owner {
			t.Errorf("notice %+v; want that %s has the key", notice, third.Owner)
		}
		d.release(third, driver.Held)
		rest()
		c.clean("k")
	})
}

// R21, R22: a waiter that got only a part gives it back after a random time that is clearly longer
// than asking takes. So several such waiters do not collide again.
func TestR21R22_PartsAreKeptForARandomTime(t *testing.T) {
	kept := func(chance float64) (d time.Duration) {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			a := c.client(quorum.WithRandom(func() float64 { return chance }))
			waiting := a.queued()
			c.do(func() {
				for _, s := range c.servers[1:] {
					s.give("k", "another", time.Minute)
				}
			})
			d = took(func() {
				a.busy(waiting)
				for c.holds(waiting) > 0 {
					time.Sleep(10 * time.Microsecond)
				}
			})
			a.release(waiting, driver.Busy)
		})
		return d
	}
	short, long := kept(0), kept(0.9)
	if short < 2*roundTrip || long < short*3/2 || long > 50*time.Millisecond {
		t.Errorf(
			"kept for %v to %v; want well over a round trip of %v, differently long, and less than the node timeout",
			short, long, roundTrip)
	}
}

// A claim is asked for, and given back while the answer is under way. So the answer, which says
// held, is out of date when it comes. If it counted as a vote, one server would have two holders,
// and with the third server each would have a majority.
func TestOutdatedAnswerIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, w, x := c.client(), c.client(), c.client()
		var told atomic.Bool
		w.Notify(func(n driver.Notice) {
			if n.Kind == driver.Granted {
				told.Store(true)
			}
		})
		first := a.claim()
		a.hold(first)
		rest()
		early, late := x.queued(), w.queued()
		early.Ticket, late.Ticket = 1, 2
		early.Token, late.Token = a.now()+3e9, a.now()+1e9
		x.cut(true, 0, 1)
		x.fail(early) // waits on server 2 only, before the other
		w.busy(late)
		time.Sleep(5 * roundTrip)

		// Server 0 is handed over to the later one, which asks again: the answer, that it holds the
		// key there, takes 40 ms.
		c.do(func() {
			c.servers[0].release(first)
			c.servers[0].slow = 40 * time.Millisecond
		})
		time.Sleep(roundTrip)
		late.Token += 1e9
		asked := time.Now()
		w.busy(late)
		c.do(func() { c.servers[0].slow = 0 })
		// Meanwhile it lets go of the server, behind that request, and the earlier one begins to
		// wait there.
		time.Sleep(15 * time.Millisecond)
		x.cut(false, 0)
		x.busy(early)

		// The answer has come, and the others become free, and go one to each.
		time.Sleep(time.Until(asked.Add(42 * time.Millisecond)))
		a.release(first, driver.Held)
		time.Sleep(2 * roundTrip)
		if owners := c.holders("k"); owners[0] != early.Owner || owners[1] != late.Owner ||
			owners[2] != early.Owner {
			t.Fatalf("held by %v; the case is that the later one has server 1 only", owners)
		}
		x.hold(early)
		if told.Load() {
			t.Errorf("%s is told to hold the key, and so is %s", late.Owner, early.Owner)
		}
	})
}

// A waiter that has asked again and again for longer than a presence is still told of its grant.
func TestHandoffAfterLongerThanAPresence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.hold(holder)
		for range 6 {
			b.busy(waiting)
			time.Sleep(c.presence / 3)
		}
		a.release(holder, driver.Held)
		if n := c.told(in, 2); n.Kind != driver.Granted || n.Owner != waiting.Owner {
			t.Errorf("told %+v; want a grant", n)
		}
		b.release(waiting, driver.Held)
	})
}

// A lock that was handed over is healed like any other.
func TestHandedOverIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.hold(holder)
		b.busy(waiting)
		a.release(holder, driver.Held)
		if notice := c.told(in, 2); notice.Kind != driver.Granted {
			t.Fatalf("notice %+v; want that %s has the key", notice, waiting.Owner)
		}
		b.renew(waiting, driver.Held)
		c.restart(true, 0)
		b.renew(waiting, driver.Held)
		rest()
		if n := c.holds(waiting); n != 3 {
			t.Errorf("held on %d of 3 nodes; want all: %v", n, c.holders("k"))
		}
		b.release(waiting, driver.Held)
	})
}

// A waiter whose caller has stopped asking keeps no node: the part that it is given goes back, and
// it does not queue there again.
func TestWaiterThatIsNotAskedForKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		b.inbox()
		holder, waiting := a.claim(), b.queued()
		b.cut(true, 0)
		a.hold(holder)
		b.busy(waiting)
		b.cut(true, 1)
		a.release(holder, driver.Held) // node 3 alone hands over
		time.Sleep(roundTrip)
		if n := c.holds(waiting); n == 0 {
			t.Fatal("no node was handed over")
		}
		time.Sleep(5 * time.Second) // which is longer than the presence, and less than the TTL
		if owner := c.holders("k")[2]; owner != "" {
			t.Errorf("node 3 is held by %s, 5 s after it was last asked for", owner)
		}
		b.cut(false, 0, 1)
		b.Release(context.Background(), waiting)
		rest()
		c.clean("k")
	})
}

// A part is given back by one request. Its answer says that the claim held the node until then, and
// not that it holds it now.
func TestPartIsGivenBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.cut(true, 2)
		a.hold(holder)
		b.busy(waiting) // it gets node 3, and another claim holds the others
		time.Sleep(c.presence / 2)
		if n := b.calls("release"); n != 1 {
			t.Errorf("node 3 was asked %d times to release the claim; want once", n)
		}
		a.cut(false, 2)
		b.release(waiting, driver.Busy)
		a.release(holder, driver.Held)
	})
}
