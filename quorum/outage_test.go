package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// refuse has servers refuse connections.
func (c *cluster) refuse(servers ...int) {
	c.do(func() {
		for _, i := range servers {
			c.servers[i].crash(true)
		}
	})
}

// If the majority that is missing surely had no effect, the Quorum gives back what the minority
// granted. The caller has nothing to clean up: not after an attempt, and after a wait its release
// needs no majority.
func TestR17_SureFailureLeavesNothingToTheCaller(t *testing.T) {
	for _, queue := range []bool{false, true} {
		t.Run(fmt.Sprintf("queue %v", queue), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 5)
				a := c.client()
				c.refuse(0, 1, 2)
				claim := a.claim()
				claim.Queue = queue
				if err := a.fail(claim); !queue && !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Acquire: %v; want that it had no effect", err)
				}
				if queue {
					c.soon("releasing", 1, func() {
						if r, err := a.Release(context.Background(), claim); err != nil ||
							r.State == driver.Held {
							t.Errorf(
								"Release of a claim that three of five nodes never saw: %v, %v; want not held",
								r.State, err)
						}
					})
				}
				time.Sleep(roundTrip)
				c.clean("k")
				for _, n := range a.Status().Nodes {
					if n.Owed > 0 {
						t.Errorf("%s owes %d releases of a claim that it has never seen; want none",
							n.Name, n.Owed)
					}
				}
			})
		})
	}
}

// A caller that learns that its claim surely had no effect does not come back with it, even if the
// claim would have queued.
func TestSureFailureIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		c.refuse(0, 1, 2)
		if err := a.fail(a.queued()); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire: %v; want that it had no effect", err)
		}
		if keys, claims := a.Remembered(); keys != 0 || claims != 0 {
			t.Errorf("%d keys and %d claims are remembered; want none", keys, claims)
		}
	})
}

// A node that has not answered yet when the others have refused may answer that the claim waits
// there, or has the key. So a Locker that gives up has it removed.
func TestR17_NodeThatHangsWhileOthersRefuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		l, err := holdfast.New(a.Quorum, holdfast.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		c.refuse(1, 2)
		c.freeze(0)
		if lock, err := l.Acquire(t.Context(), "k"); !errors.Is(err, holdfast.ErrUnknown) {
			t.Errorf(
				"Acquire of a Locker with two nodes gone and one that hangs: %v, %v; want an unknown outcome",
				lock, err)
		}
		claim := a.queued()
		if err := a.fail(claim); !errors.Is(err, driver.ErrUnknown) {
			t.Errorf(
				"Acquire of a claim that queues, with two nodes gone and one that hangs: %v; want an unknown outcome",
				err)
		}
		a.Release(t.Context(), claim)
		rest()
		c.thaw(0)
		c.restart(false, 1, 2)
		time.Sleep(3 * time.Second) // until the releases have been made good
		c.clean("k")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// If the claim may have reached a node, a release that the node does not confirm has an unknown
// outcome.
func TestReleaseOfWhatMayBeThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		held := a.claim()
		a.hold(held)
		rest()
		c.refuse(0, 1, 2)
		if _, err := a.Release(context.Background(), held); !errors.Is(err, driver.ErrUnknown) {
			t.Errorf(
				"Release of a lock with three of five nodes gone: %v; want that the outcome is unknown",
				err)
		}
		// A second request that fails does not make the nodes forget the first.
		again := a.claim()
		c.restart(false, 0, 1, 2)
		time.Sleep(2 * time.Second) // until it has been made good
		a.hold(again)
		rest()
		c.refuse(0, 1, 2)
		a.fail(again)
		rest()
		owed := 0
		for _, n := range a.Status().Nodes {
			owed += n.Owed
		}
		if owed < 3 {
			t.Errorf("%d releases are owed; want at least one by each of three nodes", owed)
		}
		c.restart(false, 0, 1, 2)
		time.Sleep(2 * time.Second)
		c.clean("k")
	})
}

// A Locker on a Quorum without a majority fails at once, says so node by node, and has nothing to
// close.
func TestLockerWithoutMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client(quorum.WithNames("n1", "n2", "n3", "n4", "n5"))
		l, err := holdfast.New(a.Quorum)
		if err != nil {
			t.Fatal(err)
		}
		c.refuse(0, 1, 2)
		for what, acquire := range map[string]func(context.Context, string,
			...holdfast.AcquireOption) (*holdfast.Lock, error){
			"Acquire": l.Acquire, "TryAcquire": l.TryAcquire,
		} {
			c.soon(what, 50, func() {
				_, err := acquire(context.Background(), "k")
				if !errors.Is(err, holdfast.ErrUnavailable) &&
					!errors.Is(err, holdfast.ErrUnknown) {
					t.Errorf("%s: %v; want unavailable", what, err)
				}
				var e *quorum.Error
				if !errors.As(err, &e) || e.Need != 3 || len(e.Nodes) != 5 ||
					strings.Count(err.Error(), "; ") != 4 || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v; want an Error in one line with all of 5 nodes, 3 needed",
						what, err)
				}
			})
		}
		c.soon("closing the Locker", 10, func() { l.Close() })
	})
}

// An error names each node once, even if the node's own error names it too.
func TestErrorNamesNodesOnce(t *testing.T) {
	e := quorum.NodeError{Node: "10.0.0.1:6379", Err: &driver.Error{Node: "10.0.0.1:6379",
		Err: errors.New("connection refused")}}
	if got, want := e.Error(),
		"10.0.0.1:6379: backend unavailable: connection refused"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// The status and the observer show a node that refuses permanently: like one that is down, it costs
// fault tolerance.
func TestRefusingNodeIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		conns := c.dial()
		var events []quorum.NodeEvent
		q, err := quorum.New([]driver.Backend{&deniedNode{conns[0]}, conns[1], conns[2]},
			quorum.WithGuard(0), quorum.WithObserver(func(e quorum.NodeEvent) {
				if e.Node == "node 1" {
					events = append(events, e)
				}
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		a := &client{Quorum: q, conns: conns, cluster: c}
		for range 3 {
			claim := a.claim()
			a.hold(claim)
			a.release(claim, driver.Held) // which that node does answer
			rest()
			if n := a.Status().Nodes[0]; n.State != quorum.Refusing || n.Err == nil ||
				!strings.Contains(n.Err.Error(), "wrong password") {
				t.Errorf("status %+v; want refusing, with the reason", n)
			}
		}
		synctest.Wait() // for the observer
		if len(events) != 1 || events[0].Is != quorum.Refusing || events[0].Err == nil {
			t.Errorf("events %+v; want one, that it refuses", events)
		}
	})
}

// A majority answers after the node timeout, but while the error is being made. Its grants have
// been given back already, and the error says so. A claim that queues was not given back, and is
// held.
func TestMajorityAfterTheNodeTimeout(t *testing.T) {
	for _, queue := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			a := c.client()
			a.deaf()
			claim := a.claim()
			claim.Queue = queue
			pause := func(held bool) {
				c.do(func() {
					for _, conn := range a.conns {
						if conn.held = held; !held {
							conn.resume()
						}
					}
				})
			}
			pause(true)
			time.AfterFunc(60*time.Millisecond, func() { pause(false) })
			if queue {
				a.hold(claim)
				a.release(claim, driver.Held)
				return
			}
			if err := a.fail(claim); !strings.Contains(err.Error(),
				"3 of 3 nodes agreed, 2 needed: some of them after the node timeout") {
				t.Errorf("Acquire: %v; want that they were late", err)
			}
			rest()
			c.clean("k")
		})
	}
}

// A node that was down is asked when its answer is missing, before an acquisition fails: also if
// another claim holds the key, so that no majority of grants is possible any more.
func TestNodeThatIsBackTellsWhoHoldsTheKey(t *testing.T) {
	for _, queue := range []bool{false, true} {
		t.Run(fmt.Sprintf("queue %v", queue), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, _, _ := held(t, 3)
				b := c.client()
				c.freeze(0)
				for range 10 { // until it counts as down, and is seldom asked
					b.busy(b.claim())
					time.Sleep(100 * time.Millisecond)
				}
				c.thaw(0)
				c.freeze(2)
				claim := b.claim()
				claim.Queue = queue
				b.busy(claim)
				c.thaw(2)
			})
		})
	}
}
