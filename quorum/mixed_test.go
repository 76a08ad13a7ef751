package quorum_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// If a majority of the nodes has a queue, waiters are served in the order in which they came, and
// ask no more often than others do: whichever nodes answer first.
func TestMajorityWithAQueueKeepsTheOrder(t *testing.T) {
	for name, presences := range map[string][]time.Duration{
		"3 nodes": {time.Second, 0, time.Second},
		"5 nodes": {time.Second, 0, time.Second, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, len(presences))
				c.presences = presences
				a := c.client()
				holder := a.claim()
				holder.TTL = time.Minute
				a.hold(holder)
				var mu sync.Mutex
				var served []int
				var all sync.WaitGroup
				var waiters []*client
				for i := range 5 {
					w := c.client()
					waiters = append(waiters, w)
					l, err := holdfast.New(w.Quorum, holdfast.WithPrefix(""))
					if err != nil {
						t.Fatal(err)
					}
					all.Go(func() {
						defer l.Close()
						lock, err := l.Acquire(context.Background(), "k")
						if err != nil {
							t.Errorf("waiter %d: %v", i, err)
							return
						}
						mu.Lock()
						served = append(served, i)
						mu.Unlock()
						if err := lock.Release(context.Background()); err != nil {
							t.Errorf("waiter %d: %v", i, err)
						}
					})
					time.Sleep(100 * time.Millisecond)
				}
				const span = 20 * time.Second
				time.Sleep(span)
				c.do(func() {
					for i, w := range waiters {
						if n := w.conns[0].made["acquire"]; n > 65 {
							t.Errorf("waiter %d has asked %d times in %v", i, n, span)
						}
					}
				})
				a.release(holder, driver.Held)
				all.Wait()
				if !slices.IsSorted(served) {
					t.Errorf("served in the order %v; want that in which they came", served)
				}
			})
		})
	}
}

// A node that hangs delays no answer to a waiter that queues on a majority of the others.
func TestHungNodeDelaysNoWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.presences = []time.Duration{0, time.Second, time.Second, time.Second, time.Second}
		a := c.client()
		a.hold(a.claim())
		rest()
		c.freeze(4)
		for range 20 {
			b := c.client()
			c.soon("the answer to a waiter", 2, func() {
				if r := b.busy(b.queued()); r.Presence == 0 {
					t.Error("a waiter does not queue, and a majority of the nodes has a queue")
				}
			})
		}
		c.thaw(4)
	})
}
