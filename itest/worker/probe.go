package main

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/itest/history"
)

// probe acquires each key once, and all permits of each semaphore at once, all of them side by
// side. It allows for the time that a lost lease and a quarantine may still take.
func (c *client) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.TTL+c.Guard+c.Patience)
	defer cancel()
	var all sync.WaitGroup
	for _, key := range c.Keys {
		all.Go(func() { c.try(ctx, key, terms{}, func() {}) })
	}
	for _, key := range c.Semaphores {
		var t terms
		t.permit(c.Permits)
		var together sync.WaitGroup
		together.Add(c.Permits)
		for range c.Permits {
			all.Go(func() {
				c.try(ctx, key, t, func() {
					together.Done()
					together.Wait()
				})
			})
		}
	}
	all.Wait()
}

// try tries to acquire a key until it is granted or ctx ends, calls meet, and releases the key.
func (c *client) try(ctx context.Context, key string, t terms, meet func()) {
	op := int(c.ops.Add(1))
	c.log.Add(history.Record{Kind: history.Ask, Op: op, Key: key, Permits: t.permits})
	lock, err := c.locker.Acquire(ctx, key, t.options...)
	for err != nil && ctx.Err() == nil {
		// A backend that was not reached yet, or that is in quarantine, ends a wait at once.
		pause(ctx, c.TTL/20)
		lock, err = c.locker.Acquire(ctx, key, t.options...)
	}
	if err != nil {
		c.log.Add(history.Record{Kind: history.Refuse, Op: op, Err: err.Error()})
		meet()
		return
	}
	h := c.holding(op, lock, false)
	c.log.Add(history.Record{Kind: history.Grant, Op: op, Key: keyOf(lock),
		Token: uint64(lock.Token()), Until: h.until})
	meet()
	h.extended()
	c.log.Add(history.Record{Kind: history.Release, Op: op})
	c.log.Add(history.Record{Kind: history.Released, Op: op, Err: class(lock.Release(ctx))})
}
