package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waiters that were cut off from the nodes for longer than their presence queue again under other
// owner values, and at their old places: an outage does not change their order, as DESIGN.md says.
func TestOutageDoesNotChangeTheOrder(t *testing.T) {
	for name, cut := range map[string][]int{"of the first": {0}, "of all": {0, 1, 2, 3, 4},
		"of the first three": {2, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				l := newLine(t, c)
				rest()
				for _, i := range cut {
					l.waiter[i].cut(true, 0, 1, 2)
				}
				time.Sleep(3 * c.presence)
				for _, i := range cut {
					l.waiter[i].cut(false, 0, 1, 2)
					time.Sleep(50 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				l.mustKeepOrder(t)
			})
		})
	}
}

// A waiter that was handed the key, and is answered Busy because a node is cut off, asks with
// another owner value when the presence that it was told is over. It asks for its old place, which
// the first answer has told, and gets the key before those who came later.
func TestPlaceUnderAnotherOwnerValue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, d := c.client(), c.client(), c.client()
		in := b.inbox()
		holder, waiting, later := a.claim(), b.queued(), d.queued()
		a.cut(true, 2)
		a.hold(holder)
		c.do(func() { // a client that died there
			s := c.servers[2]
			s.give("k", "dead", time.Minute)
		})
		first := b.busy(waiting)
		rest := c.presence / 2
		time.Sleep(rest)
		d.busy(later)
		a.release(holder, driver.Held)
		time.Sleep(roundTrip)
		if len(in) == 0 {
			t.Fatalf("held by %v; the case is that the waiter was handed the key", c.holders("k"))
		}
		b.cut(true, 0)
		if r := b.busy(waiting); r.Presence > c.presence-rest {
			t.Errorf("present for %v; want what is left of the grant, %v", r.Presence,
				c.presence-rest)
		}
		b.cut(false, 0)
		again := b.queued()
		again.Ticket = first.Clock
		time.Sleep(5 * roundTrip)
		if r := b.busy(again); r.Place > 2 {
			t.Errorf("place %d; want one before those who came later", r.Place)
		}
		b.release(waiting, driver.Held)
		if n := c.told(in, 2); n.Kind != driver.Granted || n.Owner != waiting.Owner {
			t.Errorf("told %+v; the case is that it was handed the key", n)
		}
		if n := c.told(in, 1); n.Kind != driver.Granted || n.Owner != again.Owner {
			t.Errorf("told %+v; want that %s has the key: %v", n, again.Owner, c.holders("k"))
		}
		a.cut(false, 2)
		b.release(again, driver.Held)
		d.Release(context.Background(), later)
	})
}

// A later answer tells a waiter the time, with which it finds its place as the kernel does: also if
// the first request had no answer, or its answer says nothing of the nodes' clocks yet.
func TestLaterAnswerTellsThePlace(t *testing.T) {
	for name, test := range map[string]struct {
		new bool // the client has heard of no clock before
		// the waiter's first request
		ask func(c *cluster, b *client, waiting driver.Claim)
	}{
		"the first request is not answered": {
			ask: func(c *cluster, b *client, waiting driver.Claim) {
				c.freeze(0, 1, 2)
				b.fail(waiting)
				c.thaw(0, 1, 2)
			}},
		"the client's first request is not answered": {new: true,
			ask: func(c *cluster, b *client, waiting driver.Claim) {
				c.freeze(0, 1, 2)
				b.fail(waiting)
				c.thaw(0, 1, 2)
			}},
		"the client's first request is granted by a node": {new: true,
			ask: func(c *cluster, b *client, waiting driver.Claim) {
				b.cut(true, 1)
				if r := b.busy(waiting); r.Presence == 0 || r.Clock != 0 {
					c.t.Fatalf("present for %v at %d; the case is that no clock is known",
						r.Presence, r.Clock)
				}
				b.cut(false, 1)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a, b, d := c.client(), c.client(), c.client()
				a.cut(true, 2)
				a.hold(a.claim())
				if !test.new {
					first := b.queued()
					b.busy(first)
					b.release(first, driver.Busy)
				}
				rest()
				waiting, later := b.queued(), d.queued()
				asked := time.Now()
				test.ask(c, b, waiting)
				time.Sleep(c.presence / 5)
				d.busy(later)
				time.Sleep(c.presence / 5)
				again := b.queued()
				waited := uint64(time.Since(asked) / time.Microsecond)
				again.Ticket = b.busy(waiting).Clock - waited
				b.release(waiting, driver.Busy)
				time.Sleep(roundTrip)
				b.busy(again)
				time.Sleep(roundTrip)
				c.do(func() {
					queue := c.servers[0].keys["k"].queue
					if len(queue) != 2 || queue[0].owner != again.Owner {
						t.Errorf("%s waits behind those who came later: %v", again.Owner,
							c.describeLocked("k"))
					}
				})
			})
		})
	}
}
