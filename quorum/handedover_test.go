package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// R1: a waiter is handed the key by two nodes of three, and asks before it has read that. One of
// the two is cut off from it just then, and the third is another's, so the answer is Busy. The
// waiter reads the notice after it, and counts the grant from that request, as package driver says.
// The node that is cut off counts from the request before.
func TestR1_HandoffThatIsReadAfterABusyAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, other := c.client(), c.client(), c.client()
		in := b.inbox()
		holder, waiting, first := a.claim(), b.queued(), other.queued()
		a.cut(true, 2)
		a.hold(holder)
		c.do(func() { // a client that died there
			s := c.servers[2]
			s.keys["k"] = &simKey{owner: "dead", expires: s.now() + 2*c.presence}
		})
		first.Ticket = 1 // it came before, and has reached only this node
		other.cut(true, 0, 1)
		other.fail(first)
		b.busy(waiting)
		c.do(func() { c.servers[2].keys["k"].expires = c.servers[2].now() + c.presence })
		time.Sleep(c.presence / 2)
		other.fail(first)
		a.release(holder, driver.Held)
		time.Sleep(2 * roundTrip)
		b.cut(true, 0)
		start := time.Now()
		result, err := b.Acquire(context.Background(), waiting)
		notice := <-in
		if notice.Kind != driver.Granted {
			t.Fatalf("notice %+v; the case is that the waiter has the key", notice)
		}
		if err != nil || result.State != driver.Busy {
			t.Fatalf("Acquire = %v, %v; the case is that another has the third node", result.State, err)
		}
		valid := start.Add(result.Presence - result.Presence/100 - 2*time.Millisecond)
		other.cut(false, 0, 1)
		for time.Now().Before(valid) {
			if r, err := other.Acquire(context.Background(), first); err == nil &&
				r.State == driver.Held && time.Now().Before(valid) {
				t.Fatalf("another client holds the key %v before the end of the grant: %v",
					time.Until(valid), c.holders("k"))
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}
