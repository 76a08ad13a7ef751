package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/itest/history"
)

// collect takes several keys at once, or a single one of them, until ctx ends. It pauses in
// between: a check can tell that sets wait for each other only while nobody has their keys.
func (c *client) collect(ctx context.Context, number int) {
	next := c.Turns(number)
	for ctx.Err() == nil {
		draw := next()
		t := terms{wait: between(draw, 0, c.Wait), work: between(draw, 0, c.Work),
			acquire: c.locker.Acquire}
		if draw.IntN(10) == 0 { // it needs renewals
			t.work = between(draw, 0, 20*c.Work)
		}
		if draw.IntN(8) == 0 {
			t.options = append(t.options, holdfast.WithoutRenewal())
		}
		if draw.IntN(4) == 0 {
			if c.Sharing && draw.IntN(2) == 0 {
				t.share()
			}
			c.take(ctx, draw, c.Grouped[draw.IntN(len(c.Grouped))], t)
		} else {
			c.takeAll(ctx, draw, c.some(draw), t)
		}
		pause(ctx, between(draw, 0, c.TTL/5))
	}
}

// some draws two or more keys, in any order.
func (c *client) some(draw *rand.Rand) (keys []string) {
	for _, i := range draw.Perm(len(c.Grouped))[:2+draw.IntN(len(c.Grouped)-1)] {
		keys = append(keys, c.Grouped[i])
	}
	return keys
}

// takeAll makes one acquisition of several keys. Each key has a number of its own in the history.
func (c *client) takeAll(ctx context.Context, draw *rand.Rand, keys []string, t terms) {
	asked, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()

	first := int(c.ops.Add(int64(len(keys)))) - len(keys) + 1
	each := func(r history.Record) {
		for i := range keys {
			r.Op = first + i
			c.log.Add(r)
		}
	}
	shared := make([]bool, len(keys))
	var together []string
	until := history.Now() + int64(t.wait)
	for i, key := range keys {
		if shared[i] = c.Sharing && draw.IntN(3) == 0; shared[i] {
			together = append(together, key)
		}
		c.log.Add(history.Record{Kind: history.Ask, Op: first + i, Key: key, Set: first,
			Shared: shared[i], Until: until})
	}
	if together != nil {
		t.options = append(t.options, holdfast.WithSharedKeys(together...))
	}
	acquire := c.locker.AcquireAll
	if draw.IntN(6) == 0 {
		acquire = c.locker.TryAcquireAll
	}
	set, err := acquire(asked, keys, t.options...)
	if err != nil {
		each(history.Record{Kind: history.Refuse, Err: class(err)})
		if asked.Err() == nil {
			c.rest(ctx, draw, err)
		}
		return
	}
	var all []*holding
	var ends []func()
	for i, key := range keys {
		lock := set.Lock(key)
		if lock == nil {
			c.log.Add(history.Record{Kind: history.Violation, Name: "sets",
				Err: fmt.Sprintf("%s/%d has no lock on %s, which it asked for", c.Client, first,
					key)})
			continue
		}
		h := c.holding(first+i, lock, shared[i])
		c.log.Add(history.Record{Kind: history.Grant, Op: h.op, Key: key,
			Token: uint64(lock.Token()), Until: h.until})
		all, ends = append(all, h), append(ends, c.watch(h.op, lock))
	}
	c.holdAll(draw, set, all, t.work)
	for _, end := range ends {
		end()
	}

	each(history.Record{Kind: history.Release, Until: history.Now() + int64(c.TTL)})
	release, end := context.WithTimeout(context.Background(), c.TTL)
	defer end()
	err = set.Release(release)
	each(history.Record{Kind: history.Released, Err: class(err)})
}

// holdAll works with the locks of a set in turn, as long as all of them are held.
func (c *client) holdAll(draw *rand.Rand, set *holdfast.LockSet, all []*holding,
	work time.Duration) {
	for _, h := range all {
		if !h.use(true) {
			return
		}
	}
	for end := time.Now().Add(work); set.Err() == nil && time.Now().Before(end); {
		for _, h := range all {
			h.extended()
		}
		if !all[draw.IntN(len(all))].use(false) {
			return
		}
		time.Sleep(between(draw, 0, min(work/3, c.Work)))
	}
}
