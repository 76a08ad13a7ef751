package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// member returns a client of the first n servers of a cluster.
func (c *cluster) member(n int, guard time.Duration, options ...quorum.Option) *client {
	c.t.Helper()
	cl := &client{conns: c.dial()[:n], cluster: c}
	return c.among(cl, guard, options...)
}

// those returns a client of those servers of a cluster, with their numbers as the name of the set.
func (c *cluster) those(guard time.Duration, servers ...int) *client {
	c.t.Helper()
	cl, all := &client{cluster: c}, c.dial()
	for _, i := range servers {
		cl.conns = append(cl.conns, all[i])
	}
	return c.among(cl, guard,
		quorum.WithSet(strings.ReplaceAll(strings.Trim(fmt.Sprint(servers), "[]"), " ", ",")))
}

func (c *cluster) among(cl *client, guard time.Duration, options ...quorum.Option) *client {
	c.t.Helper()
	q, err := quorum.New(backends(cl.conns), append(options, quorum.WithGuard(guard))...)
	if err != nil {
		c.t.Fatal(err)
	}
	cl.Quorum = q
	c.t.Cleanup(func() { q.Close() })
	return cl
}

// disagrees makes an acquisition that must fail, because the client is configured for another set
// than the nodes.
func (c *client) disagrees(want, have string) {
	c.cluster.t.Helper()
	err := c.fail(c.claim())
	var e *driver.SetError
	if !errors.As(err, &e) || !driver.Permanent(err) {
		c.cluster.t.Fatalf("%v; want a permanent error with a SetError", err)
	}
	for _, s := range []string{want, have} {
		if !strings.Contains(err.Error(), s) {
			c.cluster.t.Errorf("error %q lacks %q", err, s)
		}
	}
}

// A client that has not asked for a lock yet learns from Check that nodes belong to another set. If
// it has asked, it learns that once.
func TestCheckFindsAnotherSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		old, grown := c.member(3, time.Minute), c.member(5, time.Minute)
		const theirs, own = "belongs to 3 nodes, quorum 2, guard 1m0s",
			"configured for 5 nodes, quorum 3, guard 1m0s"
		refuses := func(says string, want ...string) {
			t.Helper()
			findings, err := grown.Check(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				if f.Code == "nodes" {
					got = append(got, strings.TrimPrefix(f.Node+": "+f.Summary, ": "))
				}
			}
			if len(got) != len(want) {
				t.Fatalf("Check finds %q; want one for each of %q", got, want)
			}
			for i, node := range want {
				if !strings.HasPrefix(got[i], node+": ") || !strings.Contains(got[i], says) ||
					!strings.Contains(got[i], theirs) {
					t.Errorf("Check finds %q; want %s, %q and %q", got[i], node, says, theirs)
				}
			}
		}
		refuses("") // the nodes know of no set yet
		first := old.claim()
		old.hold(first)
		old.release(first, driver.Held)
		refuses(own, "node 1", "node 2", "node 3")
		grown.fail(grown.claim())
		rest()
		refuses("", "node 1", "node 2", "node 3")
	})
}

// A change from 5 nodes to 7 that is rolled out over the clients does not give two holders,
// although a majority of five and one of seven need not have a node in common. The same holds for a
// change of the guard.
func TestClientsOfDifferentSets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 7)
		old := c.member(5, time.Minute)
		first := old.claim()
		old.hold(first)
		old.release(first, driver.Held)
		old.cut(true, 3, 4)
		held := old.claim()
		old.hold(held) // on 0, 1 and 2
		grown := c.member(7, time.Minute)
		grown.disagrees("7 nodes, quorum 4, guard 1m0s", "5 nodes, quorum 3, guard 1m0s")
		if n := c.holds(held); n != 3 {
			t.Errorf("held on %d nodes; want 3", n)
		}
		c.member(5, 30*time.Second).disagrees("5 nodes, quorum 3, guard 30s",
			"5 nodes, quorum 3, guard 1m0s")
		old.renew(held, driver.Held)
		old.release(held, driver.Held)
	})
}

// The operator changes the set while clients work, and no lock gets a second holder: leases of the
// old set have ended when the first of the new one is granted, and from the beginning no new one of
// the old set is.
func TestAdopt(t *testing.T) {
	const guard = 20 * time.Second
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 7)
		old := c.member(5, guard)
		held := old.claim()
		held.TTL = guard
		old.hold(held)
		start := time.Now()
		grown := c.member(7, time.Minute)
		done := make(chan error, 1)
		go func() { done <- grown.Adopt(context.Background(), 0) }()
		rest()
		old.disagrees("5 nodes, quorum 3", "being moved out of 5 nodes, quorum 3")
		grown.disagrees("7 nodes, quorum 4", "being moved out of 5 nodes, quorum 3")
		if results, err := old.Renew(context.Background(), []driver.Claim{held}); err != nil ||
			results[0].State == driver.Held {
			t.Errorf("Renew under the old set: %v, %v; want not held", results, err)
		}
		if err := <-done; err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		const lease = guard + driver.SetFresh
		const least = lease + lease/100 + 2*time.Millisecond // other clocks may be slower
		if d := time.Since(start); d < least || d > lease*103/100+time.Second {
			t.Errorf("took %v; want the guard of the old set and %v, and the drift allowance", d,
				driver.SetFresh)
		}
		grown.hold(grown.claim())
		old.disagrees("5 nodes, quorum 3", "7 nodes, quorum 4")

		// The second time there is nothing to do.
		if d := took(func() {
			if err := grown.Adopt(context.Background(), 0); err != nil {
				t.Errorf("Adopt again: %v", err)
			}
		}); d > time.Second {
			t.Errorf("the second Adopt took %v; want a second at most", d)
		}
	})
}

// A set that could go on without the nodes that are moved is not broken up. Every node has to
// answer. An adoption that was left half done goes on.
func TestAdoptRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 7)
		old := c.member(7, 0)
		first := old.claim()
		old.hold(first)
		rest()
		three := c.member(3, time.Minute)
		if err := three.Adopt(context.Background(), time.Minute); !errors.Is(err,
			quorum.ErrSetInUse) || !driver.Permanent(err) {
			t.Errorf("Adopt of 3 nodes of 7: %v; want ErrSetInUse", err)
		}
		old.renew(first, driver.Held)
		five := c.member(5, time.Minute)
		if err := five.Adopt(context.Background(), 0); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Adopt from a set without guard: %v; want ErrInvalid", err)
		}
		old.renew(first, driver.Held)
		c.crash(1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := five.Adopt(ctx, first.TTL); err == nil ||
			!strings.Contains(err.Error(), "node 2") {
			t.Errorf("Adopt without node 2: %v; want an error that names it", err)
		}
		old.renew(first, driver.Held)
		c.restart(false, 1)

		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := five.Adopt(ctx, first.TTL); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Adopt for a second: %v; want DeadlineExceeded", err)
		}
		five.disagrees("5 nodes", "moved out of 7 nodes")
		start := time.Now()
		if err := five.Adopt(context.Background(), first.TTL); err != nil {
			t.Errorf("Adopt again: %v", err)
		}
		if d := time.Since(start); d < first.TTL+driver.SetFresh {
			t.Errorf("again it took %v; want the longest TTL and %v anew", d, driver.SetFresh)
		}
		five.hold(five.claim())
	})
}

// If the longest TTL that the operator knows of is no bound at all, or the guard of the old set was
// none, Adopt waits for the longest TTL that there is.
func TestAdoptWaitsForTheLongestTTL(t *testing.T) {
	const endless = math.MaxInt64 - time.Minute
	for name, guard := range map[string]time.Duration{"as told": 0, "as the guard": endless} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				old := c.those(guard, 0, 1, 2)
				// The nodes join the set, also if they are in quarantine.
				old.Acquire(context.Background(), old.claim())
				rest()
				start := time.Now()
				if err := c.those(time.Minute, 2, 1, 0).Adopt(context.Background(),
					endless); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d < driver.MaxTTL || d > driver.MaxTTL*102/100 {
					t.Errorf("took %v; want %v and the drift allowance", d, driver.MaxTTL)
				}
			})
		})
	}
}

// A node that no client of the old set has reached may be new, and the old node in whose place it
// is may still run. The error names the node. In a set with a name there is no such doubt.
func TestAdoptBeforeAllNodesWereReached(t *testing.T) {
	const guard = 20 * time.Second
	for name, options := range map[string][]quorum.Option{"": nil,
		"blue": {quorum.WithSet("blue")}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 4)
				c.crash(1)
				old := c.member(3, guard, options...)
				first := old.claim()
				old.hold(first) // on 0 and 2
				old.release(first, driver.Held)
				rest()
				c.restart(false, 1)
				all := c.dial() // 3 takes the place of 0
				changed := c.among(&client{conns: []*conn{all[3], all[1], all[2]}, cluster: c},
					guard+time.Second, options...)
				err := changed.Adopt(context.Background(), 0)
				if name != "" {
					if err != nil {
						t.Errorf("Adopt: %v", err)
					}
					return
				}
				const want = "nodes (node 3) belong to a set of 3 nodes, quorum 2, guard 20s, " +
					"and the 2 that are not among these could go on without them " +
					"(node 1: no set; node 2: no set)"
				if !errors.Is(err, quorum.ErrSetInUse) || !strings.Contains(err.Error(), want) {
					t.Errorf("Adopt: %v; want ErrSetInUse and %q", err, want)
				}
			})
		})
	}
}

// A server that is listed twice, and did not answer when the Quorum was made, is found when it is
// to be moved. The error names it, and nothing has changed.
func TestAdoptOfOneServerTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		old := c.member(3, adoptGuard)
		first := old.claim()
		old.hold(first)
		rest()
		conns, again := c.dial(), c.dial()
		c.freeze(1)
		twice := c.among(&client{conns: []*conn{conns[0], conns[1], again[1]}, cluster: c},
			time.Minute)
		c.thaw(1)
		err := twice.Adopt(context.Background(), 0)
		if !errors.Is(err, quorum.ErrSameServer) || !driver.Permanent(err) ||
			!strings.Contains(err.Error(), "node 2 and node 3") {
			t.Errorf("Adopt: %v; want ErrSameServer for node 2 and node 3", err)
		}
		old.renew(first, driver.Held)
	})
}

// A server is put in the place of another that runs on, and some clients still have the old one. A
// majority of the old three and one of the new three have no node in common. Both nodes tell the
// sets apart by their names.
func TestClientsOfReplacedServers(t *testing.T) {
	const guard = 20 * time.Second
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4)
		old := c.those(guard, 0, 1, 2)
		first := old.claim()
		old.hold(first)
		old.release(first, driver.Held)
		rest()
		old.cut(true, 1)
		held := old.claim()
		held.TTL = guard
		old.hold(held) // on 0 and 2
		changed := c.those(guard, 0, 1, 3)
		changed.cut(true, 0)
		changed.fail(changed.claim()) // 1 is no majority, and 0 cannot be reached
		changed.cut(false, 0)
		changed.disagrees("guard 20s, set 0,1,3", "guard 20s, set 0,1,2")

		old.cut(false, 1)
		old.renew(held, driver.Held)
		until := time.Now().Add(held.TTL)
		done := make(chan error, 1)
		go func() { done <- changed.Adopt(context.Background(), 0) }()
		rest()
		old.disagrees("set 0,1,2", "being moved out of")
		if err := <-done; err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		changed.hold(changed.claim())
		if time.Now().Before(until) {
			t.Error("granted before the lease of the old set was over")
		}
		old.disagrees("set 0,1,2", "set 0,1,3")
	})
}

// An adoption that broke off after a majority had been moved goes on, to the same set or to another
// one. In the end no node remembers it.
func TestAdoptGoesOn(t *testing.T) {
	const guard = 20 * time.Second
	for name, corrected := range map[string]time.Duration{"the same set": time.Minute,
		"another guard": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				old := c.those(guard, 0, 1, 2, 3, 4)
				first := old.claim()
				old.hold(first)
				old.release(first, driver.Held)
				rest()
				target := c.member(5, time.Minute, quorum.WithSet("blue"))
				done := make(chan error, 1)
				go func() { done <- target.Adopt(context.Background(), 0) }()
				rest()
				c.crash(4)
				if err := <-done; err == nil || !strings.Contains(err.Error(), "node 5") {
					t.Fatalf("Adopt without node 5: %v; want an error that names it", err)
				}
				c.restart(false, 4)
				again := c.member(5, corrected, quorum.WithSet("blue"))
				if err := again.Adopt(context.Background(), 0); err != nil {
					t.Fatalf("Adopt again: %v", err)
				}
				claim := again.claim()
				again.hold(claim)
				again.release(claim, driver.Held)
				old.disagrees("set 0,1,2,3,4", "set blue")
				c.do(func() {
					for _, s := range c.servers {
						if s.member != again.Set() {
							t.Errorf("server %d belongs to %q; want %q", s.index,
								s.member.Text(), again.Set().Text())
						}
					}
				})
			})
		})
	}
}

// If a client with a mistyped guard was the first to ask new nodes, they are moved to the right
// guard.
func TestAdoptMendsAMistypedGuard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		old := c.those(20*time.Second, 0, 1, 2)
		first := old.claim()
		old.hold(first)
		old.release(first, driver.Held)
		rest()
		mistyped := c.member(5, 61*time.Second, quorum.WithSet("blue"))
		mistyped.disagrees("guard 1m1s", "set 0,1,2") // and 3 and 4 belong to its set now
		rest()
		right := c.member(5, time.Minute, quorum.WithSet("blue"))
		if err := right.Adopt(context.Background(), 0); err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		right.hold(right.claim())
	})
}

// A name that a server could not store, or not tell from the rest, is not allowed.
func TestSetNames(t *testing.T) {
	for _, name := range []string{"a/b", "a b", "ä", strings.Repeat("x", 4097), "a\n"} {
		if _, err := quorum.New([]driver.Backend{memhold.New()},
			quorum.WithSet(name)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%.10q: %v; want ErrInvalid", name, err)
		}
	}
}
