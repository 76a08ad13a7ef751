package quorum_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// overtaken is a connection on which a release is sent late, so that later renewals overtake it, as
// package driver allows.
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

// mustWait asks for a claim until another one's validity has ended, as the kernel counts it from
// the start of its renewal. It must not be granted before.
func (c *client) mustWait(claim driver.Claim, start time.Time, holder driver.Claim) {
	c.cluster.t.Helper()
	valid := start.Add(holder.TTL - holder.TTL/100 - 2*time.Millisecond)
	for time.Now().Before(valid) {
		if r, err := c.Acquire(context.Background(), claim); err == nil &&
			r.State == driver.Held && time.Now().Before(valid) {
			c.cluster.t.Fatalf("another client holds the key %v before its holder's validity ends: %v",
				time.Until(valid), c.cluster.holders(claim.Key))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A claim got one node of three, gave it back, and then got the others. The node is late with the
// release, and a renewal overtakes it. That answer must not count, because the node frees the key
// then.
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

// The count of claims in doubt rises with a release, and is 0 again when all nodes have answered.
// While it is not 0, each renewal looks at each of its claims.
func TestDoubtsAreCountedAsLongAsTheyLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		other := a.claim()
		other.Key = "other"
		a.hold(other)
		mustBe := func(want int, when string) {
			t.Helper()
			if n := a.Doubts(); n != want {
				t.Errorf("%d claims are in doubt %s; want %d", n, when, want)
			}
		}
		mustBe(0, "while they are held")
		c.do(func() { c.servers[2].slow = 20 * time.Millisecond })
		a.release(claim, driver.Held)
		mustBe(1, "while a node has not answered the release")
		rest()
		mustBe(0, "when it has")
		c.do(func() { c.servers[2].slow = 0; c.servers[1].crash(true) })
		a.release(other, driver.Held)
		mustBe(1, "while a node is down")
		c.do(func() { c.servers[1].restart(forgotten) })
		time.Sleep(5 * time.Second)
		mustBe(0, "when the node is back")
	})
}

// refusing is a connection to a node that refuses releases for good.
type refusing struct{ *conn }

func (*refusing) Release(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, &driver.Error{Permanent: true, Err: errors.New("no permission")}
}

// A release that a node will never take no longer counts once its claim is forgotten.
func TestDoubtsEndWithTheirClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		q, err := quorum.New([]driver.Backend{conns[0], conns[1], &refusing{conns[2]}},
			quorum.WithGuard(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		a := &client{Quorum: q, conns: conns, cluster: c}
		claim := a.claim()
		a.hold(claim)
		rest()
		a.release(claim, driver.Held)
		rest()
		if _, claims := a.Remembered(); claims != 0 || a.Doubts() != 0 {
			t.Errorf("%d claims are remembered and %d in doubt; want none", claims, a.Doubts())
		}
	})
}

// unanswered is a connection on which a release is sent late, and what comes after it waits for
// that, but for renewals. Calls end with their contexts.
type unanswered struct {
	*conn
	turn chan struct{} // has an element while nothing waits
	by   atomic.Int64  // nanoseconds
}

func (u *unanswered) after(ctx context.Context, by time.Duration,
	call func() (driver.Result, error)) (driver.Result, error) {
	type answer struct {
		result driver.Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		<-u.turn
		time.Sleep(by)
		r, err := call()
		u.turn <- struct{}{}
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
		return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
	}
}

func (u *unanswered) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return u.after(ctx, 0, func() (driver.Result, error) {
		return u.conn.Acquire(context.WithoutCancel(ctx), claim)
	})
}

func (u *unanswered) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return u.after(ctx, time.Duration(u.by.Load()), func() (driver.Result, error) {
		return u.conn.Release(context.WithoutCancel(ctx), claim)
	})
}

// A release that a node has not answered in time may still take effect. It does not matter that the
// claim was asked for again since.
func TestR1_UnansweredReleaseIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, other := c.client(), c.client()
		conns := c.dial()
		late := &unanswered{conn: conns[2], turn: make(chan struct{}, 1)}
		late.turn <- struct{}{}
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

		late.by.Store(int64(200 * time.Millisecond)) // longer than the node timeout
		b.busy(claim)
		for q.Status().Nodes[2].Owed == 0 { // until the release has failed
			time.Sleep(time.Millisecond)
		}
		a.release(before, driver.Held)
		b.hold(claim)
		other.busy(waiting)
		b.cut(true, 0)
		start := time.Now()
		results, err := b.Renew(context.Background(), []driver.Claim{claim})
		if err != nil {
			t.Fatal(err)
		}
		if results[0].State == driver.Held {
			other.mustWait(waiting, start, claim)
			t.Error("the renewal counts a node that has not answered a release")
		}
		late.by.Store(0)
		other.Release(context.Background(), waiting)
		b.Release(context.Background(), claim)
		rest() // for what still waits behind the late release
	})
}

// A node that was down when a claim was released gets the release when it is back. Until then its
// answers to renewals do not count, though the claim was asked for again at the other nodes.
func TestR1_PendingReleaseIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		a.cut(true, 2)
		for a.Status().Nodes[2].State != quorum.Down {
			a.renew(claim, driver.Held)
			time.Sleep(time.Millisecond)
		}
		a.release(claim, driver.Held)
		a.hold(claim)
		if n := c.holds(claim); n != 3 {
			t.Fatalf("held on %d of 3 nodes; want all, node 3 from before the release", n)
		}
		a.cut(false, 2)
		a.cut(true, 0)
		a.renew(claim, driver.Unknown) // node 3 is still owed a release
		a.Release(context.Background(), claim)
	})
}
