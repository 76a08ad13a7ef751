package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// The published case: 3 of 5 nodes grant a lock, one of them restarts without its data, and the
// lock is granted again by it and the other two. Without a quarantine that is two holders; with it
// it is not (R29, R32).
func TestR29R32_RestartWithoutData(t *testing.T) {
	for _, guard := range []time.Duration{0, 20 * time.Second} {
		t.Run(fmt.Sprintf("guard %v", guard), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				a, b := c.client(quorum.WithGuard(guard)), c.client(quorum.WithGuard(guard))
				a.cut(true, 3, 4)
				holder := a.claim()
				first := a.hold(holder).Token
				c.crash(2)
				c.restart(true, 2)
				second := b.claim()
				r, err := b.Acquire(context.Background(), second)
				if guard == 0 {
					if err != nil || r.State != driver.Held {
						t.Fatalf("Acquire = %v, %v; the case is that it is granted", r.State, err)
					}
					// As far as both know, they have a majority. Here the tokens still rise: the
					// node that has forgotten its counter was proposed the time.
					if r.Token <= first {
						t.Errorf("token %d after %d, want a larger one", r.Token, first)
					}
					return
				}
				if err == nil && r.State == driver.Held {
					t.Fatal("two clients hold the key at once")
				}
				// That stays so for as long as the holder may count on it.
				for range 9 {
					time.Sleep(time.Second)
					if r, err := b.Acquire(context.Background(), b.claim()); err == nil &&
						r.State == driver.Held {
						t.Fatal("two clients hold the key at once")
					}
				}
				time.Sleep(time.Second)
				b.hold(b.claim())
			})
		})
	}
}

// If a majority has restarted without its data, nothing can be locked until its quarantine is over
// (R33), and the error says for how long. A new set of nodes begins like that.
func TestR33_MajorityRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client(quorum.WithGuard(20 * time.Second))
		holder := a.claim()
		a.hold(holder)
		rest()
		c.restart(true, 0, 1)
		time.Sleep(5 * time.Second)
		c.restart(true, 2, 3, 4)
		time.Sleep(5 * time.Second)
		for _, call := range map[string]func() error{
			"Acquire": func() error {
				_, err := a.Acquire(context.Background(), a.claim())
				return err
			},
			"Renew": func() error {
				results, err := a.Renew(context.Background(), []driver.Claim{holder})
				if err != nil {
					return err
				}
				return results[0].Err
			},
		} {
			err := call()
			var q *driver.QuarantineError
			if !errors.As(err, &q) || driver.Permanent(err) {
				t.Fatalf("error %v; want a QuarantineError that is not permanent", err)
			}
			// Two nodes have 10 seconds to go and three have 15; a majority of three is there when
			// the third is.
			if q.Remaining < 14*time.Second || q.Remaining > 15*time.Second {
				t.Errorf("quarantine for another %v; want 15s", q.Remaining)
			}
			if !strings.Contains(err.Error(), "in restart quarantine, for another 1") {
				t.Errorf("error %q; want that it says for how long", err)
			}
		}
		for i, n := range a.Status().Nodes {
			if n.State != quorum.Quarantined || n.Quarantine <= 0 || n.Quarantine > 15*time.Second {
				t.Errorf("node %d: %+v; want quarantined", i, n)
			}
		}
		time.Sleep(15 * time.Second)
		claim := a.claim()
		a.hold(claim)
		a.release(claim, driver.Held)
		for i, n := range a.Status().Nodes {
			if n.State != quorum.Up || n.Quarantine != 0 {
				t.Errorf("node %d: %+v; want up", i, n)
			}
		}
	})
}

// Releases are served in quarantine: the lease of the key may have been kept.
func TestReleaseInQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client(quorum.WithGuard(20 * time.Second))
		claim := a.claim()
		a.hold(claim)
		c.restart(true, 0)
		a.release(claim, driver.Held)
	})
}

// R39, K1: a node whose clock jumps forward gives its key away early. If the other nodes that could
// object are out of reach, there are two holders, as documented. The tokens tell them apart.
func TestR39K1_ForwardJump(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		a.cut(true, 3, 4)
		first := a.hold(a.claim()).Token
		b.cut(true, 0, 1)
		b.busy(b.claim())
		rest()
		c.do(func() { c.servers[2].setClock(time.Minute, 1) })
		claim := b.claim()
		claim.Token = 1 // whatever b's clock says
		if second := b.hold(claim).Token; second <= first {
			t.Errorf("the second holder has token %d, the first %d; want it to rise", second, first)
		}
	})
}

// K5: a clock that jumps back only makes a lease last longer.
func TestK5_BackwardJump(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		claim := a.claim()
		a.hold(claim)
		c.do(func() {
			for _, s := range c.servers {
				s.setClock(-30*time.Second, 1)
			}
		})
		time.Sleep(39 * time.Second)
		b.busy(b.claim())
		time.Sleep(2 * time.Second)
		b.hold(b.claim())
	})
}

// R19: clocks need not agree on the time, only on its rate.
func TestR19_ClocksDisagree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		c.do(func() {
			for i, s := range c.servers {
				s.setClock(time.Duration(i-2)*1000*time.Hour, 0.995+0.0025*float64(i))
			}
		})
		claim := a.claim()
		a.hold(claim)
		for range 5 {
			time.Sleep(claim.TTL * 98 / 100)
			b.busy(b.claim())
			a.renew(claim, driver.Held)
		}
		time.Sleep(claim.TTL * 101 / 100)
		b.hold(b.claim())
	})
}

// Nodes that came back with older data hand over by it, in quarantine too. That is no grant,
// neither where the backend keeps it to itself, as it should, nor where it does not and the node is
// known to be in quarantine.
func TestR32_HandoffInQuarantine(t *testing.T) {
	for _, broken := range []fault{none, noticeInQuarantine} {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			c.broken = broken
			a, b := c.client(quorum.WithGuard(20*time.Second)),
				c.client(quorum.WithGuard(20*time.Second))
			granted := make(chan driver.Notice, 100)
			b.Notify(func(n driver.Notice) {
				if n.Kind == driver.Granted {
					granted <- n
				}
			})
			first := a.claim()
			a.hold(first)
			rest()
			waiter := b.queued()
			b.busy(waiter)
			time.Sleep(5 * roundTrip)
			c.do(func() {
				for _, s := range c.servers[:2] {
					s.save()
				}
			})
			c.restartWith(rolledBack, 0, 1)
			// The heartbeat tells that they are in quarantine.
			if r, err := b.Acquire(context.Background(), waiter); err == nil {
				t.Fatalf("Acquire = %v; want that a majority is in quarantine", r.State)
			}
			a.release(first, driver.Held)
			time.Sleep(5 * roundTrip)
			for i, owner := range c.holders("k")[:2] {
				if owner != waiter.Owner {
					t.Fatalf("server %d is held by %q; the case is that it has handed over",
						i, owner)
				}
			}
			if len(granted) > 0 {
				t.Errorf("servers with fault %d: a notice says that the claim was granted", broken)
			}
		})
	}
}
