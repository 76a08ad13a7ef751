package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// A renewal extends only what is there and is the claim's (R34), and counts with a majority of such
// nodes (R35). Nodes that have lost the key are set again, but that does not count: else a lost
// lock would come back.
func TestR34R35_RenewalNeedsMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		claim := a.claim()
		a.hold(claim)
		rest()
		lose := func(servers ...int) {
			c.do(func() {
				for _, i := range servers {
					c.servers[i].keys["k"].owner = ""
				}
			})
		}
		lose(0, 1)
		a.renew(claim, driver.Held)
		rest()
		if n := c.holds(claim); n != 5 {
			t.Errorf("after a renewal held on %d of 5 nodes; want that two were healed", n)
		}
		if n := a.Status().Healed; n != 2 {
			t.Errorf("Status counts %d healed; want 2", n)
		}
		lose(0, 1, 2)
		a.renew(claim, driver.Lost)
		time.Sleep(roundTrip)
		c.clean("k") // what was left of it is given back
		other := b.claim()
		b.hold(other)
		b.release(other, driver.Held)
		rest()
		a.renew(claim, driver.Lost)
		rest()
		c.clean("k")
	})
}

// A lock outlives node after node, as long as there is a renewal in between.
func TestHealing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		claim := a.claim()
		claim.Token += 1e12 // its clock is far ahead
		first := a.hold(claim).Token
		for i := range 20 {
			time.Sleep(2 * time.Second)
			c.crash(i%5, (i+1)%5)
			time.Sleep(time.Second)
			a.renew(claim, driver.Held)
			c.restart(true, i%5, (i+1)%5)
			time.Sleep(2 * time.Second) // the breaker's probes
			a.renew(claim, driver.Held)
			rest()
			if n := c.holds(claim); n != 5 {
				t.Fatalf("round %d: held on %d of 5 nodes: %v", i, n, c.holders("k"))
			}
			b.busy(b.claim())
		}
		// The nodes that were healed go on above the tokens that were granted.
		a.release(claim, driver.Held)
		rest()
		if next := b.hold(b.claim()).Token; next <= first {
			t.Errorf("token %d after %d, want a larger one", next, first)
		}
	})
}

// Tokens of a renewal count too: a healed node goes on above them.
func TestHealingGoesOnAboveRenewedTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		more := claim
		more.Token += 1e12 // its clock is far ahead by now
		more.Block = 5
		last := a.renew(more, driver.Held).Token + 4
		rest()
		c.restart(true, 0)
		a.renew(claim, driver.Held)
		rest()
		c.do(func() {
			if fence := c.servers[0].fence; fence < last {
				t.Errorf("the node that was healed grants tokens above %d; want above %d",
					fence, last)
			}
		})
		a.release(claim, driver.Held)
	})
}

// A claim that a majority has lost is given back where it is left.
func TestR17_LostRenewalLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		c.restart(true, 0, 1)
		a.renew(claim, driver.Lost)
		time.Sleep(roundTrip)
		c.clean("k")
	})
}

// R17: if no node has a claim any more, because its key was deleted, the claim does not wait on a
// node either.
func TestR17_LostRenewalLeavesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		other, claim := b.claim(), a.queued()
		c.do(func() { c.servers[2].acquire(b.conns[2], other) })
		a.hold(claim)
		// Two more claims are in the batch, so that all answers are needed to decide it.
		second, third := a.claim(), a.claim()
		second.Key, third.Key = "second", "third"
		a.hold(second)
		a.hold(third)
		rest()
		c.do(func() {
			for _, s := range c.servers[:2] {
				delete(s.keys, "k") // by hand
			}
			delete(c.servers[1].keys, "second")
			delete(c.servers[2].keys, "third")
			if k := c.servers[2].keys["k"]; k.owner != other.Owner || len(k.queue) != 1 {
				t.Errorf("server 2 is held by %s, %d wait; want one to wait for %s", k.owner,
					len(k.queue), other.Owner)
			}
		})
		results, err := a.Renew(t.Context(), []driver.Claim{claim, second, third})
		if err != nil || results[0].State != driver.Lost || results[1].State != driver.Held ||
			results[2].State != driver.Held {
			t.Errorf("Renew: %v, %v; want lost, held, held", results, err)
		}
		time.Sleep(roundTrip)
		c.do(func() {
			for _, w := range c.servers[2].keys["k"].queue {
				t.Errorf("%s is in the queue of server 2; want nobody", w.owner)
			}
		})
	})
}

// Healing takes no node from another, and stops with the release.
func TestHealingSparesOthersAndTheDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		c.do(func() { c.servers[0].keys["k"].owner = "somebody" })
		a.renew(claim, driver.Held)
		rest()
		if h := c.holders("k"); h[0] != "somebody" {
			t.Errorf("holders %v; want that node 0 is left to somebody", h)
		}
		c.do(func() { c.servers[0].keys["k"].owner = "" })
		// The release follows the renewal at once: what heals must not come after it.
		for range 50 {
			a.renew(claim, driver.Held)
			a.release(claim, driver.Held)
			rest()
			c.clean("k")
			claim = a.claim()
			a.hold(claim)
			rest()
			c.do(func() { c.servers[0].keys["k"].owner = "" })
		}
	})
}

// A batch is one call a node, each claim has its own outcome, and neither a slow node nor a lost
// claim delays the others.
func TestRenewBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 1000
		c := newCluster(t, 5)
		a := c.client()
		claims := make([]driver.Claim, n)
		for i := range claims {
			claims[i] = a.claim()
			claims[i].Key = fmt.Sprintf("k%d", i)
			if i%10 != 0 {
				a.hold(claims[i])
			}
		}
		rest()
		c.do(func() {
			for i := 1; i < n; i += 10 {
				for _, s := range c.servers[:3] {
					s.keys[claims[i].Key].owner = ""
				}
			}
		})
		c.freeze(4)
		before := a.calls("renew")
		var results []driver.Result
		var err error
		c.soon("renewing with one node hung", 1, func() {
			results, err = a.Renew(context.Background(), claims)
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			want := driver.Held
			if i%10 <= 1 {
				want = driver.Lost
			}
			if r.State != want {
				t.Errorf("claim %d: %v (%v); want %v", i, r.State, r.Err, want)
			}
		}
		if calls := a.calls("renew") - before; calls != 5 {
			t.Errorf("%d calls for a batch of %d on 5 nodes; want one a node", calls, n)
		}
		c.thaw(4)
		for _, claim := range claims {
			a.Release(context.Background(), claim)
		}
	})
}

// calls counts the requests of a kind to all nodes.
func (c *client) calls(what string) (n uint64) {
	c.cluster.do(func() {
		for _, conn := range c.conns {
			n += conn.made[what]
		}
	})
	return n
}

// Without a majority of answers a claim's outcome is unknown, and the error says why, node by node.
func TestRenewUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 5)
		c.freeze(0, 1, 2)
		r := a.renew(claim, driver.Unknown)
		var e *quorum.Error
		if !errors.Is(r.Err, driver.ErrUnknown) || !errors.As(r.Err, &e) || e.Got != 2 ||
			e.Need != 3 || e.Nodes[0].Err == nil || e.Nodes[4].State != driver.Held {
			t.Errorf("error %v; want an unknown outcome with 2 of 3 needed", r.Err)
		}
		c.thaw(0, 1, 2)
		a.renew(claim, driver.Held)
		a.release(claim, driver.Held)
	})
}

// A claim is lost when too few nodes are left that may have it, and not while a node that has not
// answered could make a majority. Until then it is not healed either: it may be another's.
func TestRenewIsNotLostTooEarly(t *testing.T) {
	for n, lost := range map[int]int{3: 1, 5: 2} {
		bubble(t, func(t *testing.T) {
			c, a, claim := held(t, n)
			c.crash(0)
			c.restart(true, 0)
			if lost == 2 {
				c.crash(1)
				c.restart(true, 1)
			}
			c.freeze(n - 1)
			a.renew(claim, driver.Unknown)
			rest()
			if s := a.Status(); s.Healed != 0 {
				t.Errorf("%d nodes: healed %d times without a majority", n, s.Healed)
			}
			c.thaw(n - 1)
			a.renew(claim, driver.Held)
			rest()
			if has := c.holds(claim); has != n {
				t.Errorf("%d nodes: %d have it after the next renewal", n, has)
			}
			a.release(claim, driver.Held)
		})
	}
}

// The caller that ends a run of turns learns that others wait, and yields the key on all nodes.
func TestWaitingIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		claim := a.claim()
		a.hold(claim)
		run := claim
		run.Block = 3
		if a.renew(run, driver.Held).Waiting {
			t.Error("Renew tells that somebody waits, and nobody does")
		}
		waiting := b.queued()
		b.busy(waiting)
		rest()
		b.busy(waiting) // still present
		if !a.renew(run, driver.Held).Waiting {
			t.Error("Renew does not tell that somebody waits")
		}
		if a.renew(claim, driver.Held).Waiting {
			t.Error("a Renew without a block tells that somebody waits")
		}
		a.release(claim, driver.Held)
		time.Sleep(roundTrip)
		if n := c.holds(waiting); n != 5 {
			t.Errorf("the waiter holds %d of 5 nodes; want all: %v", n, c.holders("k"))
		}
		b.hold(waiting)
		a.renew(claim, driver.Lost)
		b.release(waiting, driver.Held)
	})
}

// It is enough if one node, any of them, says so: the others may not have been asked by anybody
// yet.
func TestAnyNodeTellsThatSomebodyWaits(t *testing.T) {
	for i := range 3 {
		bubble(t, func(t *testing.T) {
			c, a, claim := held(t, 3)
			b := c.client()
			for k := range 3 {
				b.cut(k != i, k)
			}
			waiting := b.queued()
			b.Acquire(context.Background(), waiting) // no majority
			claim.Block = 3
			c.do(func() { c.servers[(i+1)%3].slow = 2 * roundTrip }) // it does not decide
			if !a.renew(claim, driver.Held).Waiting {
				t.Errorf("Renew does not tell that a claim waits on node %d: %v", i, c.holders("k"))
			}
			c.do(func() { c.servers[(i+1)%3].slow = 0 })
			rest()
			b.cut(false, 0, 1, 2)
			b.Release(context.Background(), waiting)
			a.release(claim, driver.Held)
		})
	}
}

// unheard is a connection on which no renewal is answered that draws tokens, if it is told so.
type unheard struct {
	*conn
	silent atomic.Bool
}

func (u *unheard) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	results, err := u.conn.Renew(ctx, claims)
	if u.silent.Load() && claims[0].Block > 0 {
		<-ctx.Done()
		return nil, &driver.Error{Maybe: true, Err: ctx.Err()}
	}
	return results, err
}

// A lock may live for long by its runs of turns. At the end of each run another minority of nodes
// gives no answer. The lock goes on, even if one node is down in between.
func TestUnansweredRunsEndNoLock(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, n)
				conns := c.dial()
				nodes, backends := make([]*unheard, n), make([]driver.Backend, n)
				for i := range nodes {
					nodes[i] = &unheard{conn: conns[i]}
					backends[i] = nodes[i]
				}
				q, err := quorum.New(backends, quorum.WithGuard(0))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { q.Close() })
				a := &client{Quorum: q, conns: conns, cluster: c}
				claim := a.claim()
				a.hold(claim)
				last := driver.Token(0)
				for i := range 50 {
					for k := range n / 2 {
						nodes[(i+k)%n].silent.Store(true)
					}
					run := claim
					run.Block, run.Token = 3, a.now()
					r := a.renew(run, driver.Held)
					if r.Token <= last {
						t.Fatalf("token %d after %d, want a larger one", r.Token, last)
					}
					last = r.Token + 2
					for k := range n {
						nodes[k].silent.Store(false)
					}
					rest()
					a.cut(true, i%n)
					a.renew(claim, driver.Held) // the watchdog's
					a.cut(false, i%n)
					rest()
				}
				a.release(claim, driver.Held)
			})
		})
	}
}
