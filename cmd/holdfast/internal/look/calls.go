package look

import (
	"context"
	"fmt"
	"sync/atomic"
)

// mostCalls is how many calls of a View may be under way. It is more than any use needs: a backend
// that does not keep to the end of a context must not be given ever more calls to keep.
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

// Ask calls f as Bounded does, with the patience of the View, unless too many calls of it have not
// returned yet: a backend may keep those that nobody waits for any more.
func Ask[T any](ctx context.Context, v *View, f func(context.Context) (T, error)) (T, error) {
	if err := v.calls.begin(v); err != nil {
		var zero T
		return zero, err
	}
	return Bounded(ctx, v.Patience, func(ctx context.Context) (T, error) {
		defer v.calls.end()
		return f(ctx)
	})
}
