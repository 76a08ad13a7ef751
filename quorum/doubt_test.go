package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// overtaken is a connection on which a release is sent late, so that later renewals overtake it, as
// package driver allows.
type overtaken struct {
	*conn
	by *atomic.Int64 // nanoseconds
}

func (o overtaken) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if d := time.Duration(o.by.Load()); d > 0 {
		time.Sleep(d)
	}
	return o.conn.Release(ctx, claim)
}

// clientOf returns a client whose last connection is what node makes of it.
func (c *cluster) clientOf(node func(*conn) driver.Backend) *client {
	c.t.Helper()
	conns := c.dial()
	nodes, last := backends(conns), len(conns)-1
	nodes[last] = node(conns[last])
	q, err := quorum.New(nodes, quorum.WithGuard(0))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { q.Close() })
	return &client{Quorum: q, conns: conns, cluster: c}
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

// renewsBefore has a claim get one node of three, give it back, and then get the others. The node
// is late with the release: node makes its connection, with the delay. asked waits for what has
// become of the release. Then the claim is renewed on that node and one of the others, which must
// not count: the node frees the key when it carries out the release.
func renewsBefore(t *testing.T, delay time.Duration,
	node func(*conn, *atomic.Int64) driver.Backend, asked func(*client)) {
	c := newCluster(t, 3)
	a, other := c.client(), c.client()
	var by atomic.Int64
	b := c.clientOf(func(conn *conn) driver.Backend { return node(conn, &by) })
	before, claim, waiting := a.claim(), b.claim(), other.queued()
	claim.TTL, waiting.TTL = time.Second, time.Second
	a.cut(true, 2)
	a.hold(before)

	by.Store(int64(delay))
	b.busy(claim)
	asked(b)
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
	by.Store(0)
	other.Release(context.Background(), waiting)
	b.Release(context.Background(), claim)
	rest() // for what still waits behind the late release
}

// A node that is late with a release has no vote on a renewal that overtakes it.
func TestR1_LateReleaseIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		renewsBefore(t, 40*time.Millisecond, // within the node timeout
			func(conn *conn, by *atomic.Int64) driver.Backend { return overtaken{conn, by} },
			func(*client) { time.Sleep(2 * roundTrip) })
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

// curt is a connection that answers the first call, and not some of those after it.
type curt struct {
	*conn
	heard bool // the first answer has come
	more  int
}

func (c *curt) answer(ctx context.Context, r driver.Result, err error) (driver.Result, error) {
	if !c.heard || c.more == 0 {
		c.heard = true
		return r, err
	}
	c.more--
	<-ctx.Done()
	return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
}

func (c *curt) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := c.conn.Acquire(ctx, claim)
	return c.answer(ctx, r, err)
}

func (c *curt) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := c.conn.Release(ctx, claim)
	return c.answer(ctx, r, err)
}

// A claim was given back and asked for again, and a node has answered neither. The node counts
// again after a renewal, so that another node may be lost then.
func TestNodeThatAnsweredNoReleaseIsAskedAgain(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				c.presence = 0 // so that a claim that queues is given back
				a := c.client()
				b := c.clientOf(func(conn *conn) driver.Backend {
					return &curt{conn: conn, more: 2}
				})
				before, claim := a.claim(), b.queued()
				claim.Shared = shared
				a.hold(before)
				b.busy(claim)
				a.release(before, driver.Held)
				b.hold(claim)
				rest()
				if n := c.holds(claim); n != 3 {
					t.Fatalf("held on %d of 3 nodes; want all", n)
				}
				claim.Queue = false
				b.renew(claim, driver.Held)
				rest()
				if n := b.Doubts(); n != 0 {
					t.Errorf("%d claims are in doubt after a renewal; want none", n)
				}
				c.crash(0)
				b.renew(claim, driver.Held)
				b.release(claim, driver.Held)
			})
		})
	}
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

func (refusing) Release(context.Context, driver.Claim) (driver.Result, error) {
	return driver.Result{}, &driver.Error{Permanent: true, Err: errors.New("no permission")}
}

// A release that a node will never take no longer counts once its claim is forgotten.
func TestDoubtsEndWithTheirClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.clientOf(func(conn *conn) driver.Backend { return refusing{conn} })
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
	by   *atomic.Int64 // nanoseconds
}

func (u unanswered) after(ctx context.Context, by time.Duration,
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

func (u unanswered) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return u.after(ctx, 0, func() (driver.Result, error) {
		return u.conn.Acquire(context.WithoutCancel(ctx), claim)
	})
}

func (u unanswered) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	return u.after(ctx, time.Duration(u.by.Load()), func() (driver.Result, error) {
		return u.conn.Release(context.WithoutCancel(ctx), claim)
	})
}

// A release that a node has not answered in time may still take effect. It does not matter that the
// claim was asked for again since.
func TestR1_UnansweredReleaseIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		renewsBefore(t, 200*time.Millisecond, // longer than the node timeout
			func(conn *conn, by *atomic.Int64) driver.Backend {
				turn := make(chan struct{}, 1)
				turn <- struct{}{}
				return unanswered{conn, turn, by}
			},
			func(b *client) {
				for b.Status().Nodes[2].Owed == 0 { // until the release has failed
					time.Sleep(time.Millisecond)
				}
			})
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
		c.do(func() { c.servers[0].crash(true) }) // it refuses at once, so node 3 is asked at once
		a.renew(claim, driver.Unknown)            // node 3 is still owed a release
		a.Release(context.Background(), claim)
	})
}

// scripted is a node whose renewals are answered by a function. If released is not nil, a release
// waits for renewed, and then closes released.
type scripted struct {
	*memhold.Backend
	renew             func() ([]driver.Result, error)
	renewed, released chan struct{}
}

func (s *scripted) Renew(context.Context, []driver.Claim) ([]driver.Result, error) {
	return s.renew()
}

func (s *scripted) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if s.released == nil {
		return s.Backend.Release(ctx, claim)
	}
	<-s.renewed
	result, err := s.Backend.Release(ctx, claim)
	close(s.released)
	return result, err
}

// Which releases may take effect yet is looked up before the nodes are asked to renew: a node may
// carry out the renewal and then the release, and answer the release first, while that is looked up
// for many claims. This is in real time, because in fake time nothing happens meanwhile.
func TestR1_ReleaseDuringARenewalIsNoVote(t *testing.T) {
	claims := make([]driver.Claim, 20_000)
	for k := range claims {
		claims[k] = driver.Claim{Key: strconv.Itoa(k), Owner: "o", TTL: time.Hour, Token: 1}
	}
	claim := claims[len(claims)-1]
	held := func() ([]driver.Result, error) {
		results := make([]driver.Result, len(claims))
		for k := range results {
			results[k].State = driver.Held
		}
		return results, nil
	}
	refused := func() ([]driver.Result, error) { return nil, &driver.Error{Err: errSimRefused} }
	for range 8 {
		late := &scripted{Backend: memhold.New(), renewed: make(chan struct{}),
			released: make(chan struct{})}
		answers, err := held()
		late.renew = func() ([]driver.Result, error) {
			close(late.renewed)
			<-late.released
			return answers, err
		}
		q, err := quorum.New([]driver.Backend{late, &scripted{Backend: memhold.New(), renew: held},
			&scripted{Backend: memhold.New(), renew: refused}}, quorum.WithGuard(0),
			quorum.WithNodeTimeout(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		for _, call := range []func(context.Context, driver.Claim) (driver.Result, error){
			q.Acquire, q.Release, q.Acquire} {
			if r, err := call(t.Context(), claim); err != nil || r.State != driver.Held {
				t.Fatalf("%v, %v; want held", r.State, err)
			}
		}
		results, err := q.Renew(t.Context(), claims)
		if err != nil {
			t.Fatal(err)
		}
		if r := results[len(claims)-1]; r.State == driver.Held {
			t.Error("held, with the vote of a node that has carried out a release since")
		}
	}
}
