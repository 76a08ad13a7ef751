package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/stores"
)

// goOn is the order to write after the read. Any other order is to end.
const goOn = "on"

// storeBound is how long a store has for an answer. The machine may be busy.
const storeBound = 2 * time.Minute

// guard takes turns on one key until it is ordered to end. In each it acquires the lock, reads a
// counter in every guarded store, says so, and waits for the order to go on, whatever happens
// meanwhile. Then it writes, without another look at its lock.
func (c *client) guard(orders <-chan string) error {
	opened, err := stores.Open(*c.Stores)
	if err != nil {
		return err
	}
	next := c.Turns(0)
	for ended := false; !ended; {
		draw := next()
		select {
		case <-orders:
			ended = true
			continue
		case <-time.After(between(draw, 0, c.TTL/2)):
		}
		// A lease that is not renewed ends at its deadline, so a history knows when.
		t := terms{wait: c.Wait, acquire: c.locker.Acquire,
			options: []holdfast.AcquireOption{holdfast.WithoutRenewal()}}
		t.with = func(op int, lock *holdfast.Lock) {
			var all reads
			all.enter(c, op, lock, opened)
			fmt.Println("read", lock.Token(), all.whole())
			ended = <-orders != goOn
			all.write(c, op, lock, 1+uint64(draw.Uint32()))
			fmt.Println("wrote", lock.Token(), all.whole())
		}
		c.take(context.Background(), draw, c.Keys[0], t)
	}
	return stores.Close(opened)
}

// reads are what was read in all stores.
type reads []read

// read is what was read in one store.
type read struct {
	store   stores.Named
	entered bool // the guard has accepted it
	value   uint64
	twin    uint64
	counted bool // the twin was read
}

// enter reads all counters, in all stores side by side.
func (r *reads) enter(c *client, op int, lock *holdfast.Lock, opened []stores.Named) {
	*r = make(reads, len(opened))
	var all sync.WaitGroup
	for i, s := range opened {
		all.Go(func() { (*r)[i] = c.enter(op, lock, s) })
	}
	all.Wait()
}

// whole reports whether every guard has accepted it.
func (r *reads) whole() bool {
	for _, one := range *r {
		if !one.entered {
			return false
		}
	}
	return true
}

// write adds more to the counters that were read, and one to their twins. more is different each
// time, so it is known whose write is there.
func (r *reads) write(c *client, op int, lock *holdfast.Lock, more uint64) {
	var all sync.WaitGroup
	for _, one := range *r {
		if one.entered {
			all.Go(func() { c.writeTo(op, lock, one, more) })
		}
	}
	all.Wait()
}

func (c *client) enter(op int, lock *holdfast.Lock, s stores.Named) (r read) {
	r.store = s
	answer := c.ask(history.Enter, op, s, func(ctx context.Context) (err error) {
		r.value, err = s.Enter(ctx, lock.Key(), lock.Token())
		return err
	})
	answer.Value = r.value
	c.log.Add(answer)
	r.entered = answer.Outcome == history.Accepted
	r.counted = c.past(s, func(ctx context.Context) (err error) {
		r.twin, err = s.Twin(ctx, lock.Key())
		return err
	})
	return r
}

func (c *client) writeTo(op int, lock *holdfast.Lock, r read, more uint64) {
	answer := c.ask(history.Write, op, r.store, func(ctx context.Context) error {
		return r.store.Write(ctx, lock.Key(), lock.Token(), r.value+more)
	})
	answer.Value = r.value + more
	if r.counted && c.past(r.store, func(ctx context.Context) error {
		return r.store.SetTwin(ctx, lock.Key(), r.twin+1)
	}) {
		answer.Twin = r.twin + 1
	}
	c.log.Add(answer)
}

// ask asks a guard, and returns the record of its answer.
func (c *client) ask(kind history.Kind, op int, s stores.Named,
	do func(context.Context) error) history.Record {
	ctx, cancel := context.WithTimeout(context.Background(), storeBound)
	defer cancel()
	r := history.Record{Kind: kind, At: history.Now(), Op: op, Name: s.Name}
	err := do(ctx)
	r.Until, r.Outcome = history.Now(), history.Accepted
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		r.Outcome, r.Newest = history.Refused, uint64(stale.Newest)
	case err != nil:
		r.Outcome, r.Err = history.Failed, err.Error()
	}
	return r
}

// past does something without a guard, which fails only if the machine is busy. It reports whether
// it was done.
func (c *client) past(s stores.Named, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeBound)
	defer cancel()
	start := history.Now()
	err := do(ctx)
	if err != nil && history.Now()-start < int64(history.Slow) {
		c.log.Add(history.Record{Kind: history.Violation, Name: "guards",
			Err: fmt.Sprintf("%s: the twin without a guard: %v", s.Name, err)})
	}
	return err == nil
}
