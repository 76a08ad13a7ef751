package redishold_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// A server that stands still for longer than a waiter counts as present has lost all waiters. Those
// that come back have the places that they had, whoever comes back first.
func TestWaitersKeepTheirOrderOverAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	watcher := open(t, server.URL())
	lock, err := newLocker(t, watcher).Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	queue := func(b *redishold.Backend) (owners []string) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		entry, _ := b.Inspect(ctx, "lock:k")
		for _, w := range entry.Waiters {
			owners = append(owners, w.Owner)
		}
		return owners
	}
	const waiters = 6
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range waiters {
		locker := newLocker(t, open(t, server.URL()))
		all.Go(func() {
			lock, err := locker.Acquire(ctx, "k")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := lock.Release(ctx); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		testserver.Eventually(t, "the waiter is queued", func() error {
			n := len(queue(watcher))
			return testserver.Not(n == i+1, "%d", n)
		})
	}
	before := queue(watcher)
	server.Freeze()
	elapse(t, protocol.Presence)
	server.Thaw()
	testserver.Eventually(t, "all have come back", func() error {
		now := queue(watcher)
		back := len(now) == waiters && !slices.ContainsFunc(now, func(owner string) bool {
			return slices.Contains(before, owner)
		})
		return testserver.Not(back, "%d of %d; before: %q; now: %q", len(now), waiters, before, now)
	})
	if err := lock.Release(ctx); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if !slices.IsSorted(order) {
		t.Errorf("served in the order %v", order)
	}
}
