package quorum_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// Node 3 granted an earlier attempt, gives that back, and its answer takes long. The attempt that
// gets the key leaves the node out. When node 2 has lost the key and the lock is released, that
// answer is still on its way. It says that node 3 held the earlier attempt's claim until then, and
// nothing of the lock.
func TestReleaseDoesNotCountThatOfAnEarlierAttempt(t *testing.T) {
	unknown := 0
	for pause := time.Duration(0); pause < 20*time.Millisecond; pause += 250 * time.Microsecond {
		bubble(t, func(t *testing.T) {
			c, a, other, claim := refusedByTwo(t)
			c.do(func() {
				c.applied = func([]string) {
					if c.servers[2].keys["k"] != nil {
						c.servers[2].slow = 40 * time.Millisecond // from its next answer on
					}
				}
			})
			a.busy(claim)
			time.Sleep(roundTrip) // the release has taken effect
			c.do(func() {
				c.applied = nil
				for _, s := range c.servers[:2] {
					delete(s.keys, "k")
				}
			})
			a.downBy(other)
			c.do(func() {
				c.servers[2].slow = 0
				delete(c.servers[0].keys, "x")
			})
			a.hold(claim)
			a.renew(other, driver.Held) // so node 3 is needed, and up
			if up := a.Status().Nodes[2].State; up != quorum.Up {
				t.Fatal(up)
			}
			c.do(func() { delete(c.servers[1].keys, "k") })
			time.Sleep(pause)
			r, err := a.Release(t.Context(), claim)
			if err == nil && r.State == driver.Held {
				t.Errorf("after %v: Release = held; one node of three held the claim", pause)
			}
			if errors.Is(err, driver.ErrUnknown) {
				unknown++
			}
			time.Sleep(time.Hour)
			c.clean("k")
		})
	}
	t.Logf("%d releases were unknown", unknown)
}

// refusedByTwo returns a cluster of three nodes of which the first two refuse the claim. A call for
// the other claim, which is held, fails after 10 ms.
func refusedByTwo(t *testing.T) (c *cluster, a *client, other, claim driver.Claim) {
	c = newCluster(t, 3)
	a = c.client(quorum.WithRandom(func() float64 { return 0.9 }))
	other, claim = a.claim(), a.claim()
	other.Key, other.TTL = "x", 100*time.Millisecond
	a.hold(other)
	c.take("k", 0, 1)
	return c, a, other, claim
}

// downBy has node 3 count as down by two calls for a claim that fail after 10 ms.
func (c *client) downBy(other driver.Claim) {
	c.cluster.t.Helper()
	for range 2 {
		c.renew(other, driver.Held)
		time.Sleep(11 * time.Millisecond)
	}
	if s := c.Status().Nodes[2].State; s != quorum.Down {
		c.cluster.t.Fatal(s)
	}
}

// Node 3 grants an earlier attempt, gives that back, and hangs before that has an effect. The next
// attempt waits there, gets the key from nodes 1 and 2, and was not sent to node 3 when the lock is
// released. So node 3 has had the claim until then, and what it says is no proof of a loss. Node 2
// has lost it.
func TestReleaseAfterAnEarlierAttemptThatHangs(t *testing.T) {
	for hang := time.Millisecond; hang < 20*time.Millisecond; hang += time.Millisecond {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			a := c.client(quorum.WithRandom(func() float64 { return 0.9 }))
			l := lockerOn(t, a.Quorum)
			c.do(func() {
				c.servers[0].crash(true)
				c.servers[1].crash(true)
				c.applied = func([]string) {
					if k := c.servers[2].keys["k"]; k != nil && k.owner != "" {
						c.servers[2].frozen, c.applied = true, nil
					}
				}
			})
			time.AfterFunc(20*time.Millisecond, func() { c.restart(false, 0, 1) })
			lock, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(roundTrip)
			c.do(func() { delete(c.servers[1].keys, "k") })
			hung := c.holders("k")[2] != ""
			time.AfterFunc(hang, func() { c.thaw(2) })
			err = lock.Release(t.Context())
			if lost := new(holdfast.LostError); hung && errors.As(err, &lost) {
				t.Errorf("node 3 hangs for %v: Release = %v; two of three held the key until then", hang,
					err)
			}
			time.Sleep(time.Hour)
			c.clean("k")
		})
	}
}

// Node 3 hangs, and counts as down when the turn of an attempt and of its release comes. So no
// release was sent to it before that of the lock, and what it says is true of the lock.
func TestReleaseAfterOneThatWasNotSent(t *testing.T) {
	for pause := time.Duration(0); pause < 20*time.Millisecond; pause += time.Millisecond {
		bubble(t, func(t *testing.T) {
			c, a, other, claim := refusedByTwo(t)
			c.crash(2)
			a.busy(claim) // node 3 does not answer, nor does it get the release
			a.downBy(other)
			c.do(func() {
				delete(c.servers[0].keys, "k")
				delete(c.servers[1].keys, "k")
			})
			a.hold(claim)
			time.Sleep(30 * time.Millisecond) // the call that hangs has ended
			c.restart(false, 2)
			c.do(func() { delete(c.servers[1].keys, "k") })
			sent := func() (n uint64) {
				c.do(func() { n = a.conns[2].made["release"] })
				return n
			}
			before := sent()
			time.Sleep(pause)
			if sent() > before {
				return // it has got that of the attempt
			}
			r, err := a.Release(t.Context(), claim)
			if sent() > before && (err != nil || r.State == driver.Held) {
				t.Errorf("after %v: Release = %v, %v; want lost", pause, r.State, err)
			}
			time.Sleep(time.Hour)
			c.clean("k")
		})
	}
}

// Node 3 grants an earlier attempt, whose release still waits there for its turn when the lock is
// released. So it is sent after that, and finds what the lock's own release would find.
func TestReleaseAfterOneThatWaits(t *testing.T) {
	said := make(map[string]int)
	for pause := time.Duration(0); pause < 15*time.Millisecond; pause += time.Millisecond {
		bubble(t, func(t *testing.T) {
			c, a, other, claim := refusedByTwo(t)
			a.busy(claim)
			time.Sleep(2 * roundTrip)
			c.do(func() { c.servers[2].slow = 47 * time.Millisecond })
			a.busy(claim) // node 3 has granted it, and its answer takes long
			a.downBy(other)
			c.do(func() {
				c.servers[2].slow = 0
				delete(c.servers[0].keys, "k")
				delete(c.servers[1].keys, "k")
				delete(c.servers[0].keys, "x")
			})
			a.hold(claim)
			a.renew(other, driver.Held) // so node 3 is needed, and up
			c.do(func() { delete(c.servers[1].keys, "k") })
			time.Sleep(pause)
			r, err := a.Release(t.Context(), claim)
			said[fmt.Sprint(r.State, " ", err)]++
			time.Sleep(time.Hour)
			c.clean("k")
		})
	}
	if len(said) != 1 || said["held <nil>"] == 0 {
		t.Errorf("Release said %v; want held, as nodes 1 and 3 have had the claim until then", said)
	}
}

// Node 3 grants an earlier attempt, and hangs when it is to give that back. The next attempt gets
// the key from nodes 1 and 2, and its request hangs at node 3, too, until the lock is released.
// Then another takes the key at node 3 before the request has its turn. So node 3 has had the claim
// until then, and its refusal is no proof of a loss. Node 2 has lost it.
func TestReleaseAfterWhichAnAttemptIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, _, claim := refusedByTwo(t)
		node := c.servers[2]
		owner := func() (owner string) {
			if k := node.keys["k"]; k != nil {
				owner = k.owner
			}
			return owner
		}
		c.do(func() { c.applied = func([]string) { node.frozen = owner() == claim.Owner } })
		a.busy(claim)
		c.do(func() {
			delete(c.servers[0].keys, "k")
			delete(c.servers[1].keys, "k")
		})
		a.hold(claim)
		time.Sleep(70 * time.Millisecond) // the release has had its time, and the request not yet
		c.do(func() {
			delete(c.servers[1].keys, "k")
			c.applied = func([]string) {
				if owner() == "" {
					node.give("k", "another", time.Minute)
				}
			}
		})
		if n := c.holds(claim); n != 2 {
			t.Fatalf("%d nodes hold the claim; want 2", n)
		}
		time.AfterFunc(1, func() { c.thaw(2) })
		if r, err := a.Release(t.Context(), claim); !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("Release = %v, %v; want unknown, as two of three held the key until then",
				r.State, err)
		}
		time.Sleep(time.Hour)
		c.clean("k")
	})
}
