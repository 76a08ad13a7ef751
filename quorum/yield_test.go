package quorum_test

import (
	"context"
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
		valid := start.Add(claim.TTL - claim.TTL/100 - 2*time.Millisecond) // as the kernel counts
		for time.Now().Before(valid) {
			if r, err := b.Acquire(context.Background(), waiting); err == nil &&
				r.State == driver.Held && time.Now().Before(valid) {
				t.Fatalf("another holds the key %v before its holder's validity ends: %v",
					time.Until(valid), c.holders("k"))
			}
			time.Sleep(5 * time.Millisecond)
		}
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
			valid := start.Add(claim.TTL - claim.TTL/100 - 2*time.Millisecond)
			for time.Now().Before(valid) {
				if r, err := other.Acquire(context.Background(), waiting); err == nil &&
					r.State == driver.Held && time.Now().Before(valid) {
					t.Fatalf("another holds the key %v before its holder's validity ends: %v",
						time.Until(valid), c.holders("k"))
				}
				time.Sleep(5 * time.Millisecond)
			}
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
