package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// oursPermits is the driver of permits of a semaphore.
const oursPermits = "holdfast-permits"

const (
	permits   = 16 // of a semaphore
	perPermit = 4  // goroutines for each permit, where they compete
)

// semaphores returns the scenarios about permits.
func semaphores(p plan) []*scenario {
	return []*scenario{{
		name:    "permit-latency",
		title:   fmt.Sprintf("uncontended acquire and release of one of %d permits", permits),
		drivers: []string{oursPermits, ours}, floor: ours,
		measure: pairs(load{1, p.warm, p.counted}),
		metrics: []metric{{"p50", "us", -1, 1}, {"p99", "us", -1, 1}, {"allocs", "/pair", -1, 1},
			{"commands", "/pair", -1, 1}, {"inner", "/pair", -1, 1}, serverTime, clientTime},
		goals: []goal{ratioGoal("p50 at most 1.2 x the exclusive pair", "p50", oursPermits, ours,
			atMost, 1.2)},
	}, {
		name: "permits",
		title: fmt.Sprintf("one process, %d goroutines, %d permits beside %d keys, nothing to do inside",
			permits*perPermit, permits, permits),
		drivers: []string{oursPermits, ours}, floor: ours, measure: permitsHere,
		metrics: []metric{{"locks", "/s", 1, 0}, {"jain", "", 1, 3}, {"p50", "us", -1, 1},
			{"p99", "us", -1, 1}, {"max", "us", -1, 0}},
		goals: []goal{ratioGoal(
			fmt.Sprintf("at least 0.9 x %d keys with as many goroutines", permits), "locks",
			oursPermits, ours, atLeast, 0.9)},
	}}
}

// permitsBy returns an opener of the driver that opener opens, for permits.
func permitsBy(opener func(context.Context, site, time.Duration) (*locker, error)) func(
	context.Context, site, time.Duration) (*locker, error) {
	return func(ctx context.Context, at site, lease time.Duration) (*locker, error) {
		l, err := opener(ctx, at, lease)
		if err != nil {
			return nil, err
		}
		l.acquire = func(ctx context.Context, key string) (held, error) {
			lock, err := l.ours.Acquire(ctx, key, holdfast.WithPermits(permits))
			return held{lock: lock}, err
		}
		return l, nil
	}
}

// permitsHere measures goroutines of this process that take turns on the permits of a semaphore.
// With a driver that has no permits they take turns on as many keys, with as many goroutines each.
func permitsHere(ctx context.Context, e *env, name string) (sample, error) {
	key := e.key()
	c := newCircle(permits*perPermit, permits)
	for i := range c.keys {
		c.keys[i] = key
		if name != oursPermits {
			c.keys[i] = fmt.Sprintf("%s/%d", key, i%permits)
		}
	}
	c.place = func(i int, h held) int { return i % permits }
	if name == oursPermits {
		c.place = func(_ int, h held) int { return h.lock.(*holdfast.Lock).Slot() }
	}
	return e.takeTurns(ctx, name, c)
}
