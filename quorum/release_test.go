package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// Calls for one key go to a node one after the other, in the order in which they were made.
func TestCallsOfOneKeyDoNotOverlap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		var nodes []driver.Backend
		for _, conn := range conns {
			nodes = append(nodes, &orderly{conn: conn, t: t, busy: make(map[string]bool)})
		}
		q, err := quorum.New(nodes, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		a := &client{Quorum: q, conns: conns, cluster: c}
		c.freeze(2)
		for range 20 {
			claim := a.claim()
			a.hold(claim)
			a.release(claim, driver.Held)
			ctx, cancel := context.WithCancel(context.Background())
			cancelled := a.claim()
			done := make(chan error)
			go func() { _, err := a.Acquire(ctx, cancelled); done <- err }()
			cancel()
			<-done
		}
		c.thaw(2)
		rest()
		c.clean("k")
	})
}

// orderly is a node that notices when two calls for one key are under way at the same time.
type orderly struct {
	*conn
	t    *testing.T
	mu   sync.Mutex
	busy map[string]bool
}

func (o *orderly) enter(key string) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy[key] {
		o.t.Errorf("two calls for %q at the same time", key)
	}
	o.busy[key] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.busy[key] = false
	}
}

func (o *orderly) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	defer o.enter(claim.Key)()
	return o.conn.Acquire(ctx, claim)
}

func (o *orderly) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	defer o.enter(claim.Key)()
	return o.conn.Release(ctx, claim)
}

// lockerOn returns a Locker on the client's Quorum, with the keys of its claims.
func lockerOn(t *testing.T, backend driver.Backend) *holdfast.Locker {
	t.Helper()
	l, err := holdfast.New(backend, holdfast.WithPrefix(""), holdfast.WithTTL(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// mustBeLost fails the test unless the release of the lock says that it was lost.
func mustBeLost(t *testing.T, lock *holdfast.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); !errors.As(err, new(*holdfast.LostError)) {
		t.Errorf("Release = %v; want that the lock was lost", err)
	}
}

// A lock is held by a majority, and its claim waits at another node. When it has lost one of the
// nodes that it held, its release says that it was lost, although nodes say that it was queued.
func TestReleaseOfALostLockThatStillWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		c.take("k", 2)
		lock, err := lockerOn(t, a.Quorum).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(roundTrip) // it is in the queue there
		c.take("k", 1)
		mustBeLost(t, lock)
	})
}

// stopping is a Quorum whose caller is stopped for a moment before its second acquisition.
type stopping struct {
	*quorum.Quorum
	calls int
	stop  func()
}

func (s *stopping) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if s.calls++; s.calls == 2 {
		s.stop()
	}
	return s.Quorum.Acquire(ctx, claim)
}

// The same holds for a lock that was handed over, and whose notice is read after a request that one
// of its nodes has not heard, so that the answer was Busy. A renewal does not change it.
func TestReleaseOfALostHandoff(t *testing.T) {
	for name, renewed := range map[string]bool{"at once": false, "renewed": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a, b := c.client(), c.client()
				a.cut(true, 2)
				holder := a.claim()
				a.hold(holder)
				c.take("k", 2)
				waiter := &stopping{Quorum: b.Quorum}
				waiter.stop = func() {
					a.release(holder, driver.Held)
					time.Sleep(2 * roundTrip) // the notices of nodes 1 and 2 arrive
					b.cut(true, 0)
				}
				lock, err := lockerOn(t, waiter).Acquire(t.Context(), "k")
				if err != nil || waiter.calls != 2 {
					t.Fatalf("%v after %d requests; the case is a notice that is read after two", err,
						waiter.calls)
				}
				b.cut(false, 0)
				if renewed {
					if err := lock.Extend(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				c.take("k", 1)
				mustBeLost(t, lock)
			})
		})
	}
}

// downAgain has node 3 count as down by the calls for another claim, though it is back.
func (c *client) downAgain(other driver.Claim) {
	c.cut(true, 2)
	for c.Status().Nodes[2].State != quorum.Down {
		c.renew(other, driver.Held)
		time.Sleep(60 * time.Millisecond)
	}
	c.cut(false, 2)
}

// A node that counts as down is left out of a release, and confirms it later: it held the claim
// until then. If the node turns out to be needed, because another is late, that counts. It counts
// too if the release was on its way when the node was needed.
func TestReleaseCountsWhatItLeftPending(t *testing.T) {
	for _, lost := range []bool{false, true} { // by node 2
		for _, late := range []time.Duration{0, 51 * time.Millisecond, 60 * time.Millisecond,
			200 * time.Millisecond, time.Hour} {
			for _, slow := range []time.Duration{0, 20 * time.Millisecond, 45 * time.Millisecond} {
				bubble(t, func(t *testing.T) {
					c := newCluster(t, 3)
					a := c.client(quorum.WithRandom(func() float64 { return 0.9 }))
					other, claim := a.claim(), a.claim()
					other.Key = "x"
					a.hold(other)
					a.hold(claim)
					rest()
					if lost {
						c.take("k", 1)
					}
					a.downAgain(other)
					c.do(func() { c.servers[0].slow, c.servers[2].slow = late, slow })
					r, err := a.Release(t.Context(), claim)
					if unknown := errors.Is(err, driver.ErrUnknown) && lost; !unknown &&
						(err != nil || r.State != driver.Held) {
						t.Errorf("node 1 %v late, node 2 lost it %v, node 3 takes %v: Release = %v, %v; "+
							"a majority held the claim", late, lost, slow, r.State, err)
					}
					c.do(func() { c.servers[0].slow, c.servers[2].slow = 0, 0 })
					time.Sleep(time.Hour)
				})
			}
		}
	}
}

// A node that counts as down hangs until after a release has been sent to it, and its answer comes
// too late. So that it does not have the claim any more, as it says to the next one, does not mean
// that it had lost the claim. Node 2 has, and node 1 does not answer: nobody can tell.
func TestReleaseAfterOneWithoutAnAnswer(t *testing.T) {
	for thaw := time.Duration(0); thaw < 125*time.Millisecond; thaw += 2 * time.Millisecond {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			a := c.client(quorum.WithRandom(func() float64 { return 0.9 }))
			other := a.claim()
			other.Key = "x"
			a.hold(other)
			lock, err := lockerOn(t, a.Quorum).Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			rest()
			c.take("k", 1)
			c.freeze(2)
			for a.Status().Nodes[2].State != quorum.Down {
				a.renew(other, driver.Held)
				time.Sleep(60 * time.Millisecond)
			}
			c.do(func() { c.servers[0].slow = time.Hour })
			time.AfterFunc(thaw, func() { c.thaw(2) })
			if err := lock.Release(t.Context()); !errors.Is(err, holdfast.ErrUnknown) {
				t.Errorf("node 3 hangs for %v: Release = %v, want ErrUnknown", thaw, err)
			}
			c.thaw(2)
			c.do(func() { c.servers[0].slow = 0 })
			time.Sleep(time.Hour)
		})
	}
}

// A release that is repeated ends with the first answers of a majority: nobody can tell whether the
// claim was held, but it is gone.
func TestRepeatedReleaseEndsWhenItIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		claim := a.claim()
		a.hold(claim)
		rest()
		c.freeze(0, 1, 2)
		if r, err := a.Release(t.Context(), claim); !errors.Is(err, driver.ErrUnknown) {
			t.Fatalf("Release = %v, %v; want ErrUnknown", r.State, err)
		}
		c.do(func() {
			for _, conn := range a.conns {
				conn.cut = true // what was sent has no answer
			}
		})
		c.thaw(0, 1, 2)
		c.do(func() {
			for _, conn := range a.conns {
				conn.cut = false
			}
		})
		if r, err := a.Release(t.Context(), claim); err != nil || r.State == driver.Held {
			t.Errorf("Release = %v, %v; want that the claim is gone", r.State, err)
		}
	})
}

// A release that a majority answers is not sent to a node that is down, until that is back.
func TestReleaseSparesANodeThatIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client(quorum.WithRandom(func() float64 { return 0.9 }))
		other, claim := a.claim(), a.claim()
		other.Key = "x"
		a.hold(other)
		a.hold(claim)
		rest()
		a.downAgain(other)
		sent := func() (n uint64) {
			c.do(func() { n = a.conns[2].made["release"] })
			return n
		}
		before := sent()
		a.release(claim, driver.Held)
		if n := sent() - before; n > 0 {
			t.Errorf("%d releases were sent to the node that is down", n)
		}
		rest()
		if n := sent() - before; n != 1 {
			t.Errorf("%d releases were sent to the node that is back; want one", n)
		}
	})
}

// A majority answers, but nobody knows whether the node that hangs held the claim.
func TestReleaseThatTooFewCanTell(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, n)
			a := c.client()
			claim := a.claim()
			a.hold(claim)
			rest()
			for i := range n - n/2 - 1 { // the others are a majority
				c.take("k", i)
			}
			c.freeze(n - 1)
			if r, err := a.Release(t.Context(), claim); !errors.Is(err, driver.ErrUnknown) {
				t.Errorf("%d nodes: Release = %v, %v; want ErrUnknown", n, r.State, err)
			}
			c.thaw(n - 1)
			time.Sleep(2 * time.Second)
		})
	}
}

// A claim that has always waited, or that was handed the key and waits since, is released as one
// that was queued.
func TestReleaseOfAClaimThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := a.inbox()
		holder, waiter := b.claim(), a.queued()
		b.hold(holder)
		rest()
		other := a.queued()
		a.busy(other)
		a.release(other, driver.Busy)
		a.busy(waiter)
		b.release(holder, driver.Held)
		if n := c.told(in, 1); n.Kind != driver.Granted {
			t.Fatalf("told %+v; the case is that the waiter is handed the key", n)
		}
		time.Sleep(c.presence) // until that grant is over
		next := b.claim()
		b.hold(next)
		rest()
		a.busy(waiter)
		a.release(waiter, driver.Busy)
		b.release(next, driver.Held)
	})
}

// take has servers hold a key for somebody else.
func (c *cluster) take(key string, servers ...int) {
	c.do(func() {
		for _, i := range servers {
			c.servers[i].give(key, "other", time.Hour)
		}
	})
}

// An acquisition that waits for its turn at a node is not sent there after its release has begun:
// its caller may have stopped waiting for that before the node answers.
func TestReleaseEndsWaitingAcquisition(t *testing.T) {
	for _, late := range []bool{false, true} {
		name := map[bool]string{false: "another call hangs",
			true: "it would have been the probe of a node that is down"}[late]
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a := c.client()
				c.freeze(0, 1, 2)
				if late { // two failures, and the first probe comes 50 to 63 ms later
					a.fail(a.queued())
					a.fail(a.queued())
					time.Sleep(30 * time.Millisecond)
				}
				sent := func() (n uint64) {
					c.do(func() { n = a.conns[0].made["acquire"] })
					return n
				}
				go a.Acquire(t.Context(), a.queued()) // which hangs for 50 ms
				time.Sleep(40 * time.Millisecond)
				before := sent()
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				claim := a.queued()
				if _, err := a.Acquire(ctx, claim); !errors.Is(err, driver.ErrUnknown) {
					t.Fatalf("Acquire: %v; want that the outcome is unknown", err)
				}
				a.Release(t.Context(), claim)
				if n := sent(); n != before {
					t.Errorf("the acquisition was sent %d times after its release had begun; want none",
						n-before)
				}
				c.thaw(0, 1, 2)
				rest()
				if owners := c.holders("k"); c.holds(claim) > 0 {
					t.Errorf("held by %v; want not by %s", owners, claim.Owner)
				}

				// A node that goes down later is still probed.
				c.freeze(0)
				for i := range 1000 {
					if i == 100 { // after some 300 ms
						before = sent()
					}
					other := a.claim()
					other.Key = fmt.Sprint("other", i)
					a.hold(other)
					a.release(other, driver.Held)
					time.Sleep(3 * time.Millisecond)
				}
				if sent() == before {
					t.Error(
						"the node that went down was sent nothing in three seconds; want a probe now and then")
				}
				c.thaw(0)
			})
		})
	}
}

// A node that answers again is told of the releases that it has missed: nothing is left behind on
// it.
func TestReleaseIsMadeGood(t *testing.T) {
	for _, fault := range []struct {
		name         string
		break_, mend func(c *cluster, a *client)
	}{
		{"frozen", func(c *cluster, a *client) {
			c.freeze(0, 1)
		}, func(c *cluster, a *client) { c.thaw(0, 1) }},
		{"cut off", func(c *cluster, a *client) {
			a.cut(true, 0, 1)
		}, func(c *cluster, a *client) { a.cut(false, 0, 1) }},
		{"restarted", func(c *cluster, a *client) {
			c.crash(0, 1)
		}, func(c *cluster, a *client) { c.restart(false, 0, 1) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				a := c.client()
				before := a.claim()
				a.hold(before)
				rest()
				fault.break_(c, a)
				a.release(before, driver.Held)
				for range 100 {
					claim := a.claim()
					a.hold(claim)
					a.release(claim, driver.Held)
					time.Sleep(20 * time.Millisecond)
				}
				for _, n := range a.Status().Nodes[:2] {
					if n.State != quorum.Down {
						t.Errorf("%s is %v; want down", n.Name, n.State)
					}
					if n.Owed > 20 {
						t.Errorf(
							"%s owes %d releases; want 20 at most: few of 100 acquisitions asked it",
							n.Name, n.Owed)
					}
				}
				fault.mend(c, a)
				time.Sleep(1500 * time.Millisecond) // until the next attempt, and a round trip
				c.clean("k")
				for _, n := range a.Status().Nodes {
					if n.Owed > 0 || n.Pending > 0 {
						t.Errorf("%s owes %d releases and has %d calls pending; want none", n.Name,
							n.Owed, n.Pending)
					}
				}
			})
		})
	}
}

// The same in real time over memhold, at every phase of an acquisition, many times.
func TestNothingLeftBehindByHungNodes(t *testing.T) {
	tries := 100
	bubble(t, func(t *testing.T) {
		m := newMemories(t, 5)
		q := m.open(t, quorum.WithGuard(0))
		defer q.Close()
		clients := m.clients[q]
		ctx := context.Background()
		for i := range tries {
			hung := []*memhold.Backend{clients[i%5], clients[(i+1)%5]}
			freeze := func() {
				for _, h := range hung {
					h.Faults().Freeze()
				}
			}
			thaw := func() {
				for _, h := range hung {
					if i%2 == 0 {
						h.Faults().ThawDropping()
					} else {
						h.Faults().Thaw()
					}
				}
			}
			claim := driver.Claim{Key: "k", Owner: driver.NewOwner(""), TTL: 30 * time.Second}
			if i%3 == 0 {
				freeze()
			}
			if r, err := q.Acquire(ctx, claim); err != nil || r.State != driver.Held {
				t.Fatalf("try %d: Acquire: %v, %v", i, r.State, err)
			}
			if i%3 == 1 {
				freeze()
			}
			if r, err := q.Release(ctx, claim); err != nil || r.State != driver.Held {
				t.Fatalf("try %d: Release: %v, %v", i, r.State, err)
			}
			if i%3 == 2 {
				freeze()
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			thaw()
			time.Sleep(1500 * time.Millisecond)
			for k, node := range m.nodes {
				if e, err := node.Inspect(ctx, "k"); err != nil || e.Holder.Owner != "" {
					t.Errorf("try %d: node %d still has the key: %v, %v", i, k, e, err)
				}
			}
		}
	})
}

// A claim is asked for again right after its nodes were cut off, so it waits behind the release
// that was sent to them and is lost. When that has failed, the nodes count as down; but they are
// needed, so they are still asked.
func TestReleaseMadeGoodSparesLaterAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		claim := a.claim()
		a.cut(true, 0, 1)
		a.fail(claim)   // and gives it back, which nodes 0 and 1 do not hear
		synctest.Wait() // the releases are on their way
		a.cut(false, 0, 1)
		if d := took(func() { a.hold(claim) }); d > 110*time.Millisecond {
			t.Errorf("it took %v; want at most twice the node timeout, 110ms", d)
		}
		time.Sleep(5 * time.Second)
		if n := c.holds(claim); n != 3 {
			t.Errorf("held on %d of 3 nodes; want all: %v", n, c.holders("k"))
		}
		a.release(claim, driver.Held)
	})
}

// A call that had to wait for its turn has a time of its own to be answered in, if its node is
// needed.
func TestCallBehindOneThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		a.cut(true, 0, 1)
		go a.Release(context.Background(), a.claim())
		synctest.Wait()
		a.cut(false, 0, 1)
		pause := func(held bool) {
			c.do(func() {
				for _, conn := range a.conns[:2] {
					if conn.held = held; !held {
						conn.resume()
					}
				}
			})
		}
		pause(true)
		time.AfterFunc(90*time.Millisecond, func() { pause(false) })
		claim := a.claim()
		if d := took(func() { a.hold(claim) }); d > 110*time.Millisecond {
			t.Errorf("it took %v; want at most twice the node timeout, 110ms", d)
		}
		a.release(claim, driver.Held)
	})
}

// Nodes may turn out to be needed one after the other: one that was left out when another fails,
// and one whose turn never came. Still, a call takes no longer than twice the node timeout.
func TestReleaseIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 4) // of which three are needed
		a := c.client()
		claim := a.claim()
		a.hold(claim)
		rest()
		c.crash(2)
		for a.Status().Nodes[2].State != quorum.Down {
			a.renew(claim, driver.Held)
			time.Sleep(time.Millisecond)
		}
		// Two calls that hang are ahead of the release on node 0, and make it count as down when
		// the release's turn comes.
		a.cut(true, 0)
		for range 2 {
			go a.Acquire(context.Background(), a.claim())
			time.Sleep(time.Millisecond)
		}
		a.cut(true, 1) // which has node 2 asked after all when it has failed
		var err error
		if d := took(func() {
			_, err = a.Release(context.Background(), claim)
		}); d > 110*time.Millisecond {
			t.Errorf("Release took %v; want at most twice the node timeout, 110ms", d)
		}
		if !errors.Is(err, driver.ErrUnknown) {
			t.Errorf("Release with three of four nodes gone: %v; want that the outcome is unknown",
				err)
		}
	})
}

// The backlog of a node that hangs is bounded: it is asked now and then, by one call at a time. The
// test goes through one outage: down, and up again.
func TestBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		var events []quorum.NodeEvent
		a := c.client(quorum.WithObserver(func(e quorum.NodeEvent) { events = append(events, e) }))
		claim := a.claim()
		a.hold(claim)
		a.release(claim, driver.Held)
		rest()
		synctest.Wait() // for the observer
		events = nil
		c.freeze(4)
		sent := func() (n uint64) {
			c.do(func() { n = a.conns[4].made["acquire"] })
			return n
		}
		before := sent()
		for range 1000 {
			claim := a.claim()
			a.hold(claim)
			a.release(claim, driver.Held)
			time.Sleep(3 * time.Millisecond)
		}
		// About 5 seconds, with a probe after 50, 100, 200, 400, 800 ms and then every second.
		if n := sent() - before; n > 20 {
			t.Errorf("the hung node was sent %d of 1000 acquisitions; want a probe now and then", n)
		}
		node := a.Status().Nodes[4]
		if node.State != quorum.Down || node.Err == nil || node.Pending > 10 {
			t.Errorf("status %+v; want down, with an error, and next to nothing pending", node)
		}
		synctest.Wait()
		if len(events) != 1 || events[0].Was != quorum.Up || events[0].Is != quorum.Down ||
			events[0].Node != "node 5" || events[0].Err == nil {
			t.Errorf("events %+v; want that node 5 went down", events)
		}
		c.thaw(4)
		for range 20 {
			claim := a.claim()
			a.hold(claim)
			a.release(claim, driver.Held)
			time.Sleep(100 * time.Millisecond)
		}
		if node := a.Status().Nodes[4]; node.State != quorum.Up || node.Err != nil ||
			node.Owed != 0 {
			t.Errorf("status %+v; want up", node)
		}
		synctest.Wait()
		if len(events) != 2 || events[1].Is != quorum.Up {
			t.Errorf("events %+v; want that node 5 came back", events)
		}
	})
}

// The breaker makes no operation fail: if the others are not enough, nodes that are down are asked,
// too.
func TestBreakerYieldsToNeed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		c.crash(0)
		for range 5 {
			claim := a.claim()
			a.hold(claim)
			a.release(claim, driver.Held)
			time.Sleep(100 * time.Millisecond)
		}
		if s := a.Status().Nodes[0].State; s != quorum.Down {
			t.Fatalf("node 1 is %v; want down", s)
		}
		// It is back, and at that moment another one goes.
		c.restart(false, 0)
		c.do(func() { c.servers[1].crash(true) })
		claim := a.claim()
		a.hold(claim)
		a.renew(claim, driver.Held)
		a.release(claim, driver.Held)
	})
}

// If a majority has released, the release is done. Otherwise its outcome is unknown.
func TestReleaseOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 5)
		c.freeze(0, 1, 2)
		_, err := a.Release(context.Background(), claim)
		var e *quorum.Error
		if !errors.Is(err, driver.ErrUnknown) || !errors.As(err, &e) || e.Got != 2 {
			t.Errorf(
				"Release with 3 of 5 hanging: %v; want an unknown outcome, with 2 nodes having released",
				err)
		}
		c.thaw(0, 1, 2)
		rest()
		c.clean("k")
	})
}

// Close lets releases reach also the nodes that were not waited for.
func TestCloseLetsStragglersEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		claim := a.claim()
		pause := func(held bool) {
			c.do(func() {
				for _, conn := range a.conns[3:] {
					if conn.held = held; !held {
						conn.resume()
					}
				}
			})
		}
		pause(true)
		a.hold(claim)
		time.AfterFunc(10*time.Millisecond, func() { pause(false) })
		// which two nodes are not told before they have answered the acquisition
		a.release(claim, driver.Held)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		c.clean("k")
		c.soon("closing with nothing under way", 0, func() { a.Close() })
	})
}

// Close is bounded, even with nodes that hang.
func TestCloseIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		claim := a.claim()
		a.hold(claim)
		c.freeze(0, 1, 2, 3, 4)
		go a.Release(context.Background(), claim)
		time.Sleep(time.Millisecond)
		if d := took(func() { a.Close() }); d > 100*time.Millisecond {
			t.Errorf("Close took %v; want at most twice the node timeout", d)
		}
		if err := a.fail(a.claim()); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire after Close: %v; want ErrUnavailable", err)
		}
	})
}

// A release that waits for its turn, at a node whose acquisition was not made, is not made either.
// The node counts as one that does not have the claim, even if it counts as down by then.
func TestReleaseWhereTheClaimNeverArrived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		other, first, claim := a.claim(), a.claim(), a.claim()
		other.Key = "x"
		a.hold(other)
		a.hold(first)
		rest()
		a.cut(true, 2)
		a.renew(other, driver.Held) // node 3 counts as down when this fails there
		time.Sleep(10 * time.Millisecond)
		a.release(first, driver.Held) // hangs at node 3 until after that
		a.hold(claim)                 // waits at node 3
		c.take("k", 1)
		a.release(claim, driver.Lost)
		a.cut(false, 2)
		rest()
	})
}
