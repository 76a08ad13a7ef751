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
			s.give("k", "dead", 2*c.presence)
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

// Nodes hand a key over with the token that a waiter last proposed. A node that did so before the
// waiter asked again has answered that request with a new token. Its notice of the first one comes
// late, and does not replace the answer: with the answer and one more notice, the waiter has the
// key, and need not ask.
func TestLateNoticeReplacesNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.hold(holder)
		rest()
		b.cut(true, 2)
		b.busy(waiting)
		time.Sleep(100 * time.Millisecond)
		c.do(func() { // its notice is on the way for long
			b.conns[0].cut = true
			c.servers[0].release(holder)
			b.conns[0].cut = false
		})
		late := driver.Notice{Kind: driver.Granted, Key: "k", Owner: waiting.Owner,
			Token: waiting.Token, Block: 1}
		waiting.Token += 1e9
		b.busy(waiting)
		b.conns[0].heard(late)
		c.do(func() { c.servers[1].release(holder) })
		if n := c.told(in, 1); n.Kind != driver.Granted || n.Token != waiting.Token {
			t.Errorf("told %+v; want a grant with token %d", n, waiting.Token)
		}
		b.cut(false, 2)
		b.release(waiting, driver.Held)
		a.Release(context.Background(), holder)
	})
}

// R1: what a node has granted in an answer lasts for the TTL from the request, and not from the
// answer, which may come much later. Meanwhile the waiter may have asked again, without this node,
// and counts a grant by notice from that request.
func TestR1_GrantInAnAnswerLastsFromTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, other := c.client(), c.client(), c.client()
		in := b.inbox()
		holder, waiting, first := a.claim(), b.queued(), other.queued()
		waiting.TTL, first.TTL = c.presence, c.presence
		waiting.Token += 1e9 // so that the other keys do not matter
		a.cut(true, 2)
		a.hold(holder)
		first.Ticket = 1 // it came before, and has reached only node 2
		other.cut(true, 0, 2)
		other.fail(first)
		const slow = 40 * time.Millisecond
		c.do(func() { c.servers[2].slow = slow })
		asked := time.Now()
		b.busy(waiting)
		time.Sleep(roundTrip)
		c.refuse(2)
		for _, key := range []string{"x", "y"} { // then node 3 counts as down
			claim := b.claim()
			claim.Key = key
			b.hold(claim)
		}
		c.restart(false, 2)
		time.Sleep(time.Until(asked.Add(slow - roundTrip)))
		start := time.Now()
		b.busy(waiting)
		b.cut(true, 2)
		time.Sleep(2 * roundTrip)
		a.release(holder, driver.Held)
		time.Sleep(roundTrip)
		if owners := c.holders("k"); owners[0] != waiting.Owner || owners[2] != waiting.Owner {
			t.Fatalf("held by %v; the case is that the waiter has nodes 1 and 3", owners)
		}
		for len(in) > 0 {
			if n := <-in; n.Kind == driver.Granted {
				t.Errorf("%+v; want no grant: node 3 ends it %v earlier", n, start.Sub(asked))
			}
		}
		b.cut(false, 2)
		other.cut(false, 0, 2)
		b.Release(context.Background(), waiting)
		other.Release(context.Background(), first)
	})
}

// A lock that was handed over is healed like any other, also if its waiter had asked again before
// it read that, and was answered Busy.
func TestHandoffThatIsReadAfterABusyAnswerIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.cut(true, 2)
		a.hold(holder)
		c.do(func() { // a client that died there
			s := c.servers[2]
			s.give("k", "dead", c.presence/2)
		})
		b.busy(waiting)
		a.release(holder, driver.Held)
		time.Sleep(2 * roundTrip)
		b.cut(true, 0)
		b.busy(waiting)
		if notice := <-in; notice.Kind != driver.Granted {
			t.Fatalf("notice %+v; the case is that the waiter has the key", notice)
		}
		b.cut(false, 0)
		waiting.Queue = false
		b.renew(waiting, driver.Held)
		time.Sleep(2 * c.presence) // until node 2 is free
		b.renew(waiting, driver.Held)
		rest()
		if n := c.holds(waiting); n != 3 {
			t.Errorf("held on %d of 3 nodes; want all: %v", n, c.holders("k"))
		}
		a.cut(false, 2)
		b.release(waiting, driver.Held)
	})
}

// A node that has lost its counter is healed with the token that the key was handed over with, so
// that it goes on above that.
func TestHealingGoesOnAboveHandedOverTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		in := b.inbox()
		holder, waiting := a.claim(), b.queued()
		a.hold(holder)
		waiting.Token, waiting.Block = waiting.Token+1e12, 5 // its clock is far ahead
		b.busy(waiting)
		a.release(holder, driver.Held)
		notice := c.told(in, 2)
		if notice.Kind != driver.Granted {
			t.Fatalf("notice %+v; want that %s has the key", notice, waiting.Owner)
		}
		last := notice.Token + 4
		waiting.Block = 0
		b.renew(waiting, driver.Held)
		c.restart(true, 0)
		b.renew(waiting, driver.Held)
		rest()
		c.do(func() {
			if fence := c.servers[0].fence; fence < last {
				t.Errorf("the node that was healed grants tokens above %d; want above %d",
					fence, last)
			}
		})
		b.release(waiting, driver.Held)
	})
}
