package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

const adoptGuard = 20 * time.Second

// named returns a client of those servers of a cluster, as the set with that name.
func (c *cluster) named(name string, servers ...int) *client {
	c.t.Helper()
	cl, all := &client{cluster: c}, c.dial()
	for _, i := range servers {
		cl.conns = append(cl.conns, all[i])
	}
	return c.among(cl, adoptGuard, quorum.WithSet(name))
}

// serves has the client take and release a lock, so that servers without a set join its set.
func (c *client) serves() {
	c.cluster.t.Helper()
	claim := c.claim()
	c.hold(claim)
	c.release(claim, driver.Held)
	rest()
}

// adopting starts an adoption, which is in its wait when adopting returns.
func (c *client) adopting() <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Adopt(context.Background(), 0) }()
	rest()
	return done
}

// live returns the sets for which a majority of their servers takes part. Called with net.mu held.
func (c *cluster) live() (live []driver.Set) {
	votes := make(map[driver.Set]int)
	for _, s := range c.servers {
		if set := s.member.Plain(); s.member.Admits(set) && set.Nodes > 0 {
			if votes[set]++; votes[set] == set.Quorum {
				live = append(live, set)
			}
		}
	}
	return live
}

// oneLive checks that no two sets have a majority.
func (c *cluster) oneLive() {
	c.t.Helper()
	c.do(func() {
		if live := c.live(); len(live) > 1 {
			c.t.Errorf("two sets have a majority of their servers at once: %v", live)
		}
	})
}

// texts is what the servers remember.
func (c *cluster) texts() string {
	var texts []string
	c.do(func() {
		for _, s := range c.servers {
			texts = append(texts, s.member.Text())
		}
	})
	return strings.Join(texts, " ")
}

// Two operators adopt at once. One replaces server 2 by server 3, and the other takes that back, in
// another order. The first one loses its way to server 1 at the end of its wait. By then, what the
// second one has read of the servers is out of date, so it must not go on.
func TestAdoptionTakenBackMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4)
		old := c.named("old", 0, 1, 2)
		old.serves()
		changed := c.named("new", 0, 1, 3)
		back := c.named("old", 2, 1, 0)
		changed.cut(true, 0, 1)
		changed.fail(changed.claim()) // server 3 is of the new set
		changed.cut(false, 0, 1)
		first := changed.adopting()
		second := back.adopting()
		changed.cut(true, 1)
		if err := <-first; err == nil ||
			!strings.Contains(err.Error(), "is being moved by another change of its set") {
			t.Errorf("the first adoption: %v; want an error that says that there is another one",
				err)
		}
		if err := <-second; err != nil {
			t.Errorf("the second adoption: %v", err)
		}
		c.oneLive()
		changed.cut(false, 1)
		if r, err := old.Acquire(context.Background(), old.claim()); err == nil &&
			r.State == driver.Held {
			if r, err := changed.Acquire(context.Background(), changed.claim()); err == nil &&
				r.State == driver.Held {
				t.Errorf("two clients hold the key at once; the servers belong to %s", c.texts())
			}
		}
	})
}

// An adoption that was taken back, and that is late because it was stopped by Control-Z or waits
// for longer, does not end the wait of a later adoption to the same set.
func TestLateAdoptionEndsNoWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const longest = time.Minute
		c := newCluster(t, 4)
		unguarded := func(name string, servers ...int) *client {
			cl, all := &client{cluster: c}, c.dial()
			for _, i := range servers {
				cl.conns = append(cl.conns, all[i])
			}
			return c.among(cl, 0, quorum.WithSet(name))
		}
		old, changed := unguarded("old", 0, 1, 2), unguarded("new", 0, 1, 3)
		old.serves()
		first, again := make(chan error, 1), make(chan error, 1)
		go func() { first <- changed.Adopt(context.Background(), longest) }()
		rest()
		if err := old.Adopt(context.Background(), time.Second); err != nil {
			t.Fatalf("taking it back: %v", err)
		}
		time.Sleep(longest * 3 / 4)
		held := old.claim()
		held.TTL = longest
		old.cut(true, 0)
		old.hold(held) // on 1 and 2
		until := time.Now().Add(held.TTL * 98 / 100)
		go func() { again <- changed.Adopt(context.Background(), longest) }()
		if err := <-first; err == nil {
			t.Error("the late adoption succeeded; want an error")
		}
		for time.Now().Before(until) {
			if r, err := changed.Acquire(context.Background(), changed.claim()); err == nil &&
				r.State == driver.Held {
				t.Fatalf("granted %v before the lease of the old set is over", time.Until(until))
			}
			rest()
		}
		if err := <-again; err != nil {
			t.Errorf("Adopt: %v", err)
		}
	})
}

// While an adoption waits, a server that stays loses its data, and a client of the old set makes it
// belong to the old set again. With the server that is left out it would be a majority, so no
// server may take part for the new set.
func TestAdoptionFindsThatAServerForgot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4)
		old := c.named("old", 0, 1, 2)
		old.serves()
		changed := c.named("new", 0, 1, 3)
		changed.cut(true, 0, 1)
		changed.fail(changed.claim())
		changed.cut(false, 0, 1)
		done := changed.adopting()
		c.restart(true, 1)
		// The error is about the quarantine.
		_, _ = old.Acquire(context.Background(), old.claim())
		err := <-done
		if err == nil ||
			!strings.Contains(err.Error(),
				"node 2 now belongs to a set of 3 nodes, quorum 2, guard 20s, set old") {
			t.Errorf("Adopt: %v; want an error that says what has become of node 2", err)
		}
		c.oneLive()
		if err := changed.Adopt(context.Background(), 0); err != nil {
			t.Errorf("Adopt again: %v", err)
		}
		changed.serves()
		c.oneLive()
	})
}

// An adoption that broke off in its wait is taken back, or replaced by one to a third set. That set
// leaves out the server that did not answer.
func TestBrokenAdoption(t *testing.T) {
	for name, back := range map[string][]int{"old": {0, 1, 2}, "third": {0, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 4)
				c.named("old", 0, 1, 2).serves()
				changed := c.named("new", 0, 1, 3)
				done := changed.adopting()
				changed.cut(true, 1)
				if err := <-done; err == nil || !strings.Contains(err.Error(), "node 2") {
					t.Fatalf("Adopt: %v; want an error that names node 2", err)
				}
				var live []driver.Set
				c.do(func() { live = c.live() })
				if len(live) > 0 {
					t.Fatalf("a set has a majority; want none: %s", c.texts())
				}
				k := c.named(name, back...)
				if err := k.Adopt(context.Background(), 0); err != nil {
					t.Fatalf("Adopt: %v; the servers belong to %s", err, c.texts())
				}
				k.serves()
				c.oneLive()
			})
		})
	}
}

// An adoption breaks off after its wait, when the first server is ready for the new set, or takes
// part for it. It can always go on. It is taken back, or replaced, only if enough servers say that
// they are of the new set.
func TestAdoptionBrokenInTheEnd(t *testing.T) {
	others := map[string][]int{"old": {0, 1, 2}, "third": {0, 2, 3}, "new": {0, 1, 3}}
	for when, breaks := range map[string]func(have, want driver.Set) bool{
		"ready":       func(have, want driver.Set) bool { return have.Plain() == want },
		"taking part": driver.Set.Admits,
	} {
		for name, servers := range others {
			t.Run(when+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := newCluster(t, 4)
					c.named("old", 0, 1, 2).serves()
					changed := c.named("new", 0, 1, 3)
					c.do(func() {
						c.moved = func() {
							if breaks(c.servers[0].member, changed.Set()) {
								changed.conns[1].cut = true
							}
						}
					})
					if err := changed.Adopt(context.Background(), 0); err == nil ||
						!strings.Contains(err.Error(), "node 2") {
						t.Fatalf("Adopt: %v; want an error that names node 2", err)
					}
					k := c.named(name, servers...)
					err := k.Adopt(context.Background(), 0)
					c.oneLive()
					if when == "ready" && name != "new" {
						if !errors.Is(err, quorum.ErrSetInUse) {
							t.Errorf("Adopt: %v; want ErrSetInUse", err)
						}
						return
					}
					if err != nil {
						t.Fatalf("Adopt: %v; the servers belong to %s", err, c.texts())
					}
					k.serves()
				})
			})
		}
	}
}

// Servers that are new to a set are a majority of it, and take part first. By then the others say
// that they are of the set. So an adoption that takes them back, and knows nothing of the new ones,
// is refused.
func TestAdoptionOfMoreNewServersThanOld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 6)
		old := c.named("old", 0, 1, 2)
		old.serves()
		changed := c.named("new", 3, 4, 5, 0, 1)
		back := make(chan error, 1)
		c.do(func() {
			c.moved = func() {
				if c.servers[3].member.Admits(changed.Set()) && c.servers[4].slow == 0 {
					c.servers[4].slow = time.Second / 2
					go func() { back <- old.Adopt(context.Background(), 0) }()
				}
			}
		})
		if err := changed.Adopt(context.Background(), 0); err != nil {
			t.Errorf("Adopt: %v", err)
		}
		if err := <-back; !errors.Is(err, quorum.ErrSetInUse) {
			t.Errorf("taking it back: %v; want ErrSetInUse", err)
		}
		c.oneLive()
	})
}

// One of three servers is dead for good, and another one loses its data while the third is moved.
// The adoption says so. The next one is refused until a client of the old set has asked the server
// that forgot, which joins that set again.
func TestAdoptionOfServerThatForgets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4)
		old := c.named("old", 0, 1, 2)
		old.serves()
		c.crash(2)
		changed := c.named("new", 0, 1, 3)
		done := changed.adopting()
		c.restart(true, 0)
		if err := <-done; !errors.Is(err, driver.ErrUnknown) ||
			!strings.Contains(err.Error(), "node 1 has lost its data") {
			t.Errorf("Adopt: %v; want that node 1 has lost its data", err)
		}
		time.Sleep(adoptGuard)
		if err := changed.Adopt(context.Background(), 0); !errors.Is(err, quorum.ErrSetInUse) ||
			!strings.Contains(err.Error(), "nodes (node 2) belong to a set of 3 nodes") ||
			!strings.Contains(err.Error(), "(node 1: no set; node 3: no set)") {
			t.Errorf("Adopt again: %v; want ErrSetInUse, and what each node belongs to", err)
		}
		old.fail(old.claim())
		rest()
		if err := changed.Adopt(context.Background(), 0); err != nil {
			t.Fatalf("Adopt when the old set knows node 1 again: %v; the servers belong to %s",
				err, c.texts())
		}
		changed.serves()
	})
}

// A server comes back with data from before the move. Nodes do not know which others were in that
// set, so it is not moved again before it was emptied. The others go on.
func TestAdoptionOfServerWithOlderData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4)
		old := c.named("old", 0, 1, 2)
		old.serves()
		changed := c.named("new", 0, 1, 3)
		if err := changed.Adopt(context.Background(), 0); err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		c.do(func() { c.servers[0].member = old.Set() })
		if err := changed.Adopt(context.Background(), 0); !errors.Is(err, quorum.ErrSetInUse) ||
			!strings.Contains(err.Error(), "nodes (node 1) belong to a set of 3 nodes") {
			t.Errorf("Adopt: %v; want ErrSetInUse, and that it is for node 1", err)
		}
		changed.serves()
		c.restart(true, 0)
		if err := changed.Adopt(context.Background(), 0); err != nil {
			t.Fatalf("Adopt of the server when it is empty: %v", err)
		}
		c.crash(1)
		time.Sleep(adoptGuard)
		changed.serves()
	})
}

// Whatever is adopted, by whom and when, and wherever it breaks off: no two sets have a majority at
// the same time, and when a set has one, the leases of the set before have ended.
func TestAdoptionsAtOnce(t *testing.T) {
	sets := map[string][]int{"a": {0, 1, 2}, "b": {0, 1, 3}, "c": {0, 2, 3}, "d": {1, 2, 4},
		"e": {0, 1, 2, 3}, "f": {0, 1, 2, 3, 4}, "g": {3, 4, 5, 0, 1}}
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	moves := 0
	for seed := range seeds {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 6)
			draw := rand.New(rand.NewPCG(seed, 0))
			c.named("a", sets["a"]...).serves()
			last := make(map[driver.Set]time.Time) // when each set had a majority last
			var before []driver.Set                // which have had one up to now
			watch := func() {
				live := c.live()
				for _, set := range live {
					for other, at := range last {
						if gone := time.Since(at); other != set && gone < adoptGuard+
							driver.SetFresh {
							t.Errorf("seed %d: %v has a majority %v after %v", seed, set,
								gone, other)
						}
					}
				}
				for _, set := range slices.Concat(live, before) {
					last[set] = time.Now()
				}
				if len(live) == 1 && !slices.Equal(live, before) {
					moves++
				}
				before = live
			}
			c.do(func() { c.moved = watch; watch() })
			pause := func(most time.Duration) {
				time.Sleep(time.Duration(draw.Int64N(int64(most))))
			}
			var done []chan error
			for range 6 {
				pause(45 * time.Second)
				name := string(rune('a' + draw.IntN(len(sets))))
				servers := slices.Clone(sets[name])
				draw.Shuffle(len(servers), func(i, j int) {
					servers[i], servers[j] = servers[j], servers[i]
				})
				k := c.named(name, servers...)
				breaks, server := time.Duration(draw.Int64N(int64(90*time.Second))),
					draw.IntN(len(servers))
				if draw.IntN(2) == 0 { // in the middle of its steps
					breaks = (adoptGuard+driver.SetFresh)*101/100 +
						time.Duration(draw.Int64N(int64(20*roundTrip)))
				}
				cut, end := draw.IntN(2) == 0, make(chan error, 1)
				done = append(done, end)
				go func() { end <- k.Adopt(context.Background(), 0) }()
				time.AfterFunc(breaks, func() { k.cut(cut, server) })
			}
			for _, end := range done {
				<-end
			}
			c.oneLive()
			if t.Failed() {
				t.Fatalf("seed %d: %s", seed, c.texts())
			}
		})
	}
	if moves < int(seeds)/4 {
		t.Errorf("a set got a majority %d times in %d histories; want it in a quarter of them at least",
			moves, seeds)
	}
}
