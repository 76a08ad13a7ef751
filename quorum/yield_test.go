package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// overtaken is a connection on which a renewal that yields, or a release, is sent late, so that
// later renewals overtake it, as package driver allows.
type overtaken struct {
	*conn
	by atomic.Int64 // nanoseconds
}

func (o *overtaken) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if d := time.Duration(o.by.Load()); d > 0 {
		time.Sleep(d)
	}
	return o.conn.Release(ctx, claim)
}

func (o *overtaken) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if d := time.Duration(o.by.Load()); d > 0 && claims[0].Yield {
		time.Sleep(d)
	}
	return o.conn.Renew(ctx, claims)
}

// mustWait asks for a claim until another one's validity has ended, as the kernel counts it from
// the start of its renewal. It must not be granted before.
func (c *client) mustWait(claim driver.Claim, start time.Time, holder driver.Claim) {
	c.cluster.t.Helper()
	valid := start.Add(holder.TTL - holder.TTL/100 - 2*time.Millisecond)
	for time.Now().Before(valid) {
		if r, err := c.Acquire(context.Background(), claim); err == nil &&
			r.State == driver.Held && time.Now().Before(valid) {
			c.cluster.t.Fatalf("another holds the key %v before its holder's validity ends: %v",
				time.Until(valid), c.cluster.holders(claim.Key))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A majority has renewed a claim that would have yielded, and one node is late with that. The node
// passes the key on after it has answered the next renewal: that answer must not count.
func TestR1_LateYieldIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		late := &overtaken{conn: conns[2]}
		q, err := quorum.New([]driver.Backend{conns[0], conns[1], late}, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		a, b := &client{Quorum: q, conns: conns, cluster: c}, c.client()
		t.Cleanup(func() { q.Close() })
		claim, waiting := a.claim(), b.queued()
		claim.TTL, waiting.TTL = time.Second, time.Second
		a.hold(claim)
		time.Sleep(100 * time.Millisecond)

		late.by.Store(int64(40 * time.Millisecond)) // within the node timeout
		run := claim
		run.Yield, run.Block = true, 3
		a.renew(run, driver.Held)
		b.busy(waiting)
		time.Sleep(30 * time.Millisecond)
		a.cut(true, 0)
		start := time.Now()
		// By Extend, or by the watchdog.
		results, err := a.Renew(context.Background(), []driver.Claim{claim})
		if err != nil {
			t.Fatal(err)
		}
		if results[0].State != driver.Held {
			return // who is not told that it holds the key does not use it
		}
		b.mustWait(waiting, start, claim)
		b.Release(context.Background(), waiting)
		a.Release(context.Background(), claim)
	})
}

// A claim got one node of three, gave it back, and then got the others. The node is late with the
// release, and a renewal overtakes it: that answer must not count, as the node frees the key then.
func TestR1_LateReleaseIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, other := c.client(), c.client()
		conns := c.dial()
		late := &overtaken{conn: conns[2]}
		q, err := quorum.New([]driver.Backend{conns[0], conns[1], late}, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		b := &client{Quorum: q, conns: conns, cluster: c}
		before, claim, waiting := a.claim(), b.claim(), other.queued()
		claim.TTL, waiting.TTL = time.Second, time.Second
		a.cut(true, 2)
		a.hold(before)

		late.by.Store(int64(40 * time.Millisecond)) // within the node timeout
		b.busy(claim)
		time.Sleep(2 * roundTrip) // node 2 was asked to release it
		a.release(before, driver.Held)
		b.hold(claim)
		other.busy(waiting)
		time.Sleep(20 * time.Millisecond)
		b.cut(true, 0)
		start := time.Now()
		results, err := b.Renew(context.Background(), []driver.Claim{claim})
		if err != nil {
			t.Fatal(err)
		}
		if results[0].State == driver.Held {
			other.mustWait(waiting, start, claim)
		}
		other.Release(context.Background(), waiting)
		b.Release(context.Background(), claim)
	})
}

// A node that was late to release a claim counts again when it has answered what came after.
func TestAnsweredReleaseIsAVoteAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		before, claim := a.claim(), b.claim()
		a.cut(true, 2)
		a.hold(before)
		c.do(func() { c.servers[2].slow = 20 * time.Millisecond })
		b.busy(claim)
		time.Sleep(2 * roundTrip)
		a.release(before, driver.Held)
		b.hold(claim)
		b.cut(true, 0)
		b.renew(claim, driver.Unknown) // the release is still on its way
		rest()
		b.renew(claim, driver.Held)
		b.cut(false, 0)
		b.release(claim, driver.Held)
	})
}

// A node whose answer to a yield was late counts again: it has done what it was asked to.
func TestAnsweredYieldIsAVoteAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		run := claim
		run.Yield, run.Block = true, 3
		c.do(func() { c.servers[2].slow = 20 * time.Millisecond })
		a.renew(run, driver.Held)
		a.cut(true, 0)
		a.renew(claim, driver.Unknown) // its answer is still on the way
		rest()
		a.renew(claim, driver.Held)
		a.cut(false, 0)
		a.release(claim, driver.Held)
	})
}

// A request to yield that a node never answered may take effect at any time. The other nodes are
// enough.
func TestUnansweredYieldIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, a, claim := held(t, 3)
		run := claim
		run.Yield, run.Block = true, 3
		a.cut(true, 2)
		a.renew(run, driver.Held)
		rest()
		a.cut(false, 2)
		a.renew(claim, driver.Held)
		a.cut(true, 0)
		a.renew(claim, driver.Unknown)
		a.cut(false, 0)
		a.release(claim, driver.Held)
	})
}

// yield has a renew a claim that would yield, of which node 2 does not hear for 40 ms, and then
// has b wait for the key.
func (o *overtaken) yield(a, b *client, claim, waiting driver.Claim) {
	o.by.Store(int64(40 * time.Millisecond)) // within the node timeout
	claim.Yield, claim.Block = true, 3
	a.renew(claim, driver.Held)
	b.busy(waiting)
	time.Sleep(30 * time.Millisecond)
}

// A claim may be renewed of which the Quorum knows nothing: another one acquired it, or it was not
// renewed by a majority for so long that it was forgotten. Its requests to yield count all the
// same.
func TestR1_LateYieldOfAnUnknownClaim(t *testing.T) {
	for _, test := range []struct {
		name   string
		forget func(a, b *client, claim driver.Claim) *client
	}{
		{"acquired before a restart", func(_, b *client, claim driver.Claim) *client {
			b.hold(claim)
			return b
		}},
		{"forgotten", func(a, _ *client, claim driver.Claim) *client {
			a.hold(claim)
			a.slow(60 * time.Millisecond) // too late to count
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				a.renew(claim, driver.Unknown)
			}
			a.slow(0)
			a.crowd()
			return a
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				conns := c.dial()
				late := &overtaken{conn: conns[2]}
				q, err := quorum.New([]driver.Backend{conns[0], conns[1], late},
					quorum.WithGuard(0))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { q.Close() })
				a, b := &client{Quorum: q, conns: conns, cluster: c}, c.client()
				claim, waiting := a.claim(), b.queued()
				claim.TTL, waiting.TTL = time.Second, time.Second
				before := test.forget(a, c.client(), claim)
				late.yield(a, b, claim, waiting)
				if n := a.Yielding(); n != 1 {
					t.Errorf("%d claims have requests to yield without an answer; want 1", n)
				}
				a.cut(true, 0)
				a.renew(claim, driver.Unknown) // and not held: node 2 passes the key on
				a.cut(false, 0)
				before.Release(context.Background(), claim)
				b.Release(context.Background(), waiting)
			})
		})
	}
}

// Who asks for a claim that it has does not get it confirmed by a node that may pass it on yet.
func TestR1_LateYieldIsNoVoteForAnAcquisition(t *testing.T) {
	for _, queue := range []bool{false, true} {
		t.Run(fmt.Sprint("queue=", queue), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				conns := c.dial()
				late := &overtaken{conn: conns[2]}
				q, err := quorum.New([]driver.Backend{conns[0], conns[1], late},
					quorum.WithGuard(0))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { q.Close() })
				a, b := &client{Quorum: q, conns: conns, cluster: c}, c.client()
				claim, waiting := a.claim(), b.queued()
				claim.TTL, waiting.TTL = time.Second, time.Second
				a.hold(claim)
				time.Sleep(100 * time.Millisecond)
				late.yield(a, b, claim, waiting)
				a.cut(true, 0)
				claim.Queue = queue
				r, err := a.Acquire(context.Background(), claim)
				if r.State == driver.Held || err == nil {
					t.Errorf("Acquire = %v, %v; want an error", r.State, err)
				}
				rest()
				a.cut(false, 0)
				a.Release(context.Background(), claim)
				b.Release(context.Background(), waiting)
			})
		})
	}
}

// Nor does such a node count for a waiter that one of the others tells of a grant: here two of them
// have lost the claim to another since.
func TestR1_LateYieldIsNoVoteForAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		late := &overtaken{conn: conns[2]}
		q, err := quorum.New([]driver.Backend{conns[0], conns[1], late}, quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		a := &client{Quorum: q, conns: conns, cluster: c}
		claim := a.claim()
		a.hold(claim)
		time.Sleep(100 * time.Millisecond)
		late.by.Store(int64(40 * time.Millisecond))
		run := claim
		run.Yield, run.Block = true, 3
		a.renew(run, driver.Held)
		c.do(func() {
			for _, s := range c.servers[:2] {
				s.keys["k"].owner = "another"
			}
		})
		claim.Queue, claim.Token = true, a.now()
		a.busy(claim)
		var grants atomic.Int64
		stop := q.Notify(func(n driver.Notice) {
			if n.Kind == driver.Granted {
				grants.Add(1)
			}
		})
		rest := 2 * roundTrip
		time.Sleep(rest)
		c.do(func() { c.servers[0].pass("k", c.servers[0].keys["k"], "") })
		time.Sleep(rest)
		if n := grants.Load(); n != 0 {
			t.Errorf("%d notices of a grant by one node and one that may yield yet; want 0", n)
		}
		stop()
		a.Release(context.Background(), claim)
	})
}

// slow has all servers answer later.
func (c *client) slow(by time.Duration) {
	c.cluster.do(func() {
		for _, s := range c.cluster.servers {
			s.slow = by
		}
	})
}

// crowd holds so many keys that the only claim so far, whose lease has surely ended, is forgotten.
func (c *client) crowd() {
	c.cluster.t.Helper()
	const some, most = 256, 10000
	for n := 0; n < most; n += some {
		var done sync.WaitGroup
		for i := range some {
			claim := c.claim()
			claim.Key = fmt.Sprint("crowd", n+i)
			done.Go(func() { c.hold(claim) })
		}
		done.Wait()
		if _, claims := c.Remembered(); claims == n+some {
			return
		}
	}
	c.cluster.t.Fatalf("the claim is remembered beside %d others", most)
}

// What a node never answered keeps renewals looking for it until the claim has ended: by its
// release, or with its last lease.
func TestUnansweredYieldEndsWithItsClaim(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(a *client, claim driver.Claim)
	}{
		{"released", func(a *client, claim driver.Claim) {
			a.Release(context.Background(), claim) // one node cannot be reached
		}},
		{"lost", func(a *client, claim driver.Claim) {
			a.cluster.do(func() {
				for _, s := range a.cluster.servers {
					s.keys["k"].owner = ""
				}
			})
			a.renew(claim, driver.Lost)
		}},
		{"ran out", func(a *client, claim driver.Claim) {
			other := a.claim()
			other.Key = "other"
			a.hold(other)
			time.Sleep(claim.TTL / 2)
			a.renew(claim, driver.Held) // which moves the end
			for range 9 {
				time.Sleep(claim.TTL / 5)
				a.renew(other, driver.Held)
			}
			if n := a.Yielding(); n != 1 {
				a.cluster.t.Errorf("%d claims have requests to yield without an answer "+
					"before the last lease has surely ended; want 1", n)
			}
			time.Sleep(claim.TTL / 2)
			a.renew(other, driver.Held)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, a, claim := held(t, 3)
				run := claim
				run.Yield, run.Block = true, 3
				a.cut(true, 2)
				a.renew(run, driver.Held)
				rest()
				if n := a.Yielding(); n != 1 {
					t.Errorf("%d claims have requests to yield without an answer; want 1", n)
				}
				test.end(a, claim)
				if n := a.Yielding(); n != 0 {
					t.Errorf("%d claims have requests to yield without an answer after theirs "+
						"has ended; want 0", n)
				}
			})
		})
	}
}

// Answers bring the count down, also of nodes that surely did nothing, and a late one does not
// touch the count of a later claim.
func TestAnsweredYieldsAreNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		run := claim
		run.Yield, run.Block = true, 3
		for range 3 {
			a.renew(run, driver.Held)
		}
		rest()
		if n := a.Yielding(); n != 0 {
			t.Errorf("%d claims have requests to yield without an answer after all answered; "+
				"want 0", n)
		}
		c.do(func() { c.servers[1].crash(true) }) // it refuses
		a.renew(run, driver.Held)
		rest()
		if n := a.Yielding(); n != 0 {
			t.Errorf("%d claims have requests to yield without an answer after one node refused; "+
				"want 0", n)
		}
	})
}
