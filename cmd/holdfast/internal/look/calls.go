package look

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// mostCalls is how many calls of a View may be under way. That is more than any use needs. The
// limit is for a backend that does not return when a context ends: it must not get more and more
// calls.
const mostCalls = 64

// calls counts the calls of the backend that have not returned.
type calls struct{ count atomic.Int64 }

// begin counts one more, which calls end when it returns. It fails if there are too many.
func (c *calls) begin(v *View) error {
	if n := c.count.Add(1); n > mostCalls {
		c.count.Add(-1)
		return fmt.Errorf("%w: %d calls have not returned, and no more are made until one does",
			&SilentError{v.Patience}, mostCalls)
	}
	return nil
}

func (c *calls) end() { c.count.Add(-1) }

// attempts is how often a question is asked if the connection breaks. Backends give up a connection
// that says nothing for some seconds, and the patience may be longer.
const attempts = 3

// Ask calls f, which changes nothing, as Bounded does, with the patience of the View. It fails if
// too many calls of the View have not returned yet, because a backend may keep calls that nobody
// waits for any more.
func Ask[T any](ctx context.Context, v *View, f func(context.Context) (T, error)) (T, error) {
	if err := v.calls.begin(v); err != nil {
		var zero T
		return zero, err
	}
	return Bounded(ctx, v.Patience, func(ctx context.Context) (value T, err error) {
		defer v.calls.end()
		for range attempts {
			value, err = f(ctx)
			if err == nil || driver.Permanent(err) || ctx.Err() != nil {
				break
			}
		}
		return value, err
	})
}
