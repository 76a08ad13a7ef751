package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// Three processes contend for one key for 20 seconds. Their clocks differ by much more than the
// time for which they hold it, and the nodes' clocks by hours. None of them suffers: they get the
// key equally often, within a tenth.
func TestClientClocksCostNoTurns(t *testing.T) {
	for _, skews := range [][]time.Duration{
		{-2 * time.Second, 0, 2 * time.Second},
		{0, 0, 30 * time.Second},
		{-time.Hour, 0, 0},
	} {
		t.Run(fmt.Sprint(skews), func(t *testing.T) {
			turns := contend(t, skews)
			total := 0
			for _, n := range turns {
				total += n
			}
			for i, n := range turns {
				if share := total / len(turns); total < 300 || n < share*9/10 || n > share*11/10 {
					t.Errorf(
						"the process whose clock is %v ahead had %d turns of %d; want about %d",
						skews[i], n, total, share)
				}
			}
		})
	}
}

func contend(t *testing.T, skews []time.Duration) []int {
	turns := make([]int, len(skews))
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.do(func() {
			for i, s := range c.servers {
				s.setClock(time.Duration(i)*time.Hour, 1)
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var done sync.WaitGroup
		for i, skew := range skews {
			a := c.client(quorum.WithClock(func() uint64 {
				return uint64(time.Now().Add(skew).UnixMicro())
			}))
			l, err := holdfast.New(a.Quorum, holdfast.WithPrefix(""))
			if err != nil {
				t.Fatal(err)
			}
			done.Go(func() {
				defer l.Close()
				for ctx.Err() == nil {
					lock, err := l.Acquire(ctx, "k")
					if err != nil {
						return
					}
					turns[i]++
					time.Sleep(20 * time.Millisecond)
					if err := lock.Release(context.Background()); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
		done.Wait()
	})
	return turns
}

// The ticket is the time on the median node when the claim began to wait, to within the round trip
// in which the nodes were heard. The client's own clock does not matter, even if it is set in the
// meantime or later.
func TestTicketIsTheNodesTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.do(func() {
			for i, s := range c.servers {
				s.setClock(time.Duration(i)*time.Hour, 1)
			}
		})
		skew := 30 * time.Second
		holder := c.client()
		a := c.client(quorum.WithClock(func() uint64 {
			return uint64(time.Now().Add(skew).UnixMicro())
		}))
		held := holder.claim()
		held.TTL = time.Hour
		holder.hold(held)
		rest()
		a.busy(a.queued())
		rest()
		for _, wait := range []time.Duration{0, 100 * time.Second} {
			time.Sleep(wait)
			skew = -skew
			waiter := a.queued()
			now := c.servers[2].now()
			a.busy(waiter)
			time.Sleep(5 * roundTrip)
			c.do(func() {
				for _, s := range c.servers {
					for _, w := range s.keys["k"].queue {
						if w.owner != waiter.Owner {
							continue
						}
						if late := time.Duration(
							w.ticket)*time.Microsecond - now; late < -roundTrip ||
							late > roundTrip {
							t.Errorf("server %d has a ticket %v after the claim began to wait",
								s.index, late)
						}
					}
				}
			})
			a.release(waiter, driver.Busy)
		}
		synctest.Wait()
	})
}

// The first answer to a waiter tells its ticket, with which it can come back to its place: also if
// that is raised over the ticket of another waiter. Later answers tell the nodes' clock.
func TestWaiterIsToldItsTicket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		holder, a := c.client(), c.client()
		held := holder.claim()
		holder.hold(held)
		a.busy(a.queued())
		rest()
		waiters, told := []driver.Claim{a.queued(), a.queued()}, make([]uint64, 2)
		var both sync.WaitGroup
		for i, waiter := range waiters { // at one moment
			both.Go(func() { told[i] = a.busy(waiter).Clock })
		}
		both.Wait()
		time.Sleep(roundTrip)
		c.do(func() {
			for i, waiter := range waiters {
				for _, w := range c.servers[0].keys["k"].queue {
					if w.owner == waiter.Owner && w.ticket != told[i] {
						t.Errorf("told %d; want the ticket, which is %d", told[i], w.ticket)
					}
				}
			}
		})
		time.Sleep(c.presence / 2)
		shown := c.servers[0].now()
		clock := time.Duration(a.busy(waiters[0]).Clock) * time.Microsecond
		if late := clock - shown; late > 0 || late < -c.presence/50 {
			t.Errorf("told a clock that is %v ahead of the nodes'", late)
		}
		holder.release(held, driver.Held)
	})
}

// A slow request, such as the first one while a connection is made, makes no ticket too late: a
// waiter that came first does not get a place behind later ones.
func TestSlowRequestMakesNoTicketLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		holder, a := c.client(), c.client()
		held := holder.claim()
		held.TTL = time.Hour
		holder.hold(held)
		rest()
		c.freeze(0, 1, 2, 3, 4)
		time.AfterFunc(20*roundTrip, func() { c.thaw(0, 1, 2, 3, 4) })
		a.busy(a.queued())
		rest()
		waiter := a.queued()
		now := c.servers[0].now()
		a.busy(waiter)
		rest()
		c.wantTickets(waiter.Owner, now)
	})
}

// A reading of a node's clock no longer counts when the clock has been set, back or forward.
func TestTicketFollowsNodesClocksThatAreSet(t *testing.T) {
	for _, jump := range []time.Duration{-30 * time.Minute, 30 * time.Minute} {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3)
			holder, a := c.client(), c.client()
			held := holder.claim()
			held.TTL = 10 * time.Hour
			holder.hold(held)
			rest()
			a.busy(a.queued())
			rest()
			c.do(func() {
				for _, s := range c.servers {
					s.setClock(jump, 1)
				}
			})
			a.busy(a.queued())
			rest()
			waiter := a.queued()
			now := c.servers[0].now()
			a.busy(waiter)
			rest()
			c.wantTickets(waiter.Owner, now)
		})
	}
}

// wantTickets checks that every server has the waiter, with a ticket of that time or one that is
// earlier by the way of an answer.
func (c *cluster) wantTickets(owner string, since time.Duration) {
	c.t.Helper()
	c.do(func() {
		for _, s := range c.servers {
			placed := false
			for _, w := range s.keys["k"].queue {
				if w.owner != owner {
					continue
				}
				placed = true
				if late := time.Duration(w.ticket)*time.Microsecond - since; late < -roundTrip ||
					late > 0 {
					c.t.Errorf("server %d has a ticket %v after the claim began to wait",
						s.index, late)
				}
			}
			if !placed {
				c.t.Errorf("server %d does not have the waiter", s.index)
			}
		}
	})
}
