package look

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

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

// silence is the longest time in which the backend said nothing.
type silence struct{ longest atomic.Int64 }

// since notes a wait for an answer that began at a time and has ended.
func (s *silence) since(began time.Time) { s.Note(time.Since(began)) }

// Note notes a wait for an answer.
func (s *silence) Note(waited time.Duration) {
	for old := s.longest.Load(); int64(waited) > old; old = s.longest.Load() {
		s.longest.CompareAndSwap(old, int64(waited))
	}
}

// Silence returns the longest wait for an answer since it was last called.
func (s *silence) Silence() time.Duration { return time.Duration(s.longest.Swap(0)) }

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
	defer v.since(time.Now())
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
