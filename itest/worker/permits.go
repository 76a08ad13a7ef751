package main

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/itest/history"
)

// queue takes permits until ctx ends. It pauses in between: at times, more permits have to be free
// than goroutines ask for.
func (c *client) queue(ctx context.Context, number int) {
	next := c.Turns(number)
	for ctx.Err() == nil {
		draw := next()
		t := c.turn(draw)
		t.permit(c.Permits)
		c.take(ctx, draw, c.Semaphores[draw.IntN(len(c.Semaphores))], t)
		pause(ctx, between(draw, 0, c.TTL/10))
	}
}

// permit makes the terms those of one of so many permits.
func (t *terms) permit(permits int) {
	t.permits = permits
	t.options = append(t.options, holdfast.WithPermits(permits))
}

// keyOf returns the key of a lock, or of its slot if it is a permit. That is the resource for a
// guard.
func keyOf(lock *holdfast.Lock) string {
	if slot := lock.Slot(); slot >= 0 {
		return history.SlotKey(lock.Key(), slot)
	}
	return lock.Key()
}
