package quorum

import (
	"context"
	"time"
)

// grace is how much longer than a call's bound it is waited for. The call returns at its bound, if its
// backend keeps the contract; nobody depends on that.
func grace(bound time.Duration) time.Duration { return bound / 10 }

// timed returns a context for calls, and a function that ends it and those before it.
func (q *Quorum) timed(bound time.Duration, before context.CancelFunc) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(q.base, bound)
	if before == nil {
		return ctx, cancel
	}
	return ctx, func() { cancel(); before() }
}

// await waits until done is closed. From time to time it calls expire, which says when to do so next. It returns the error of
// ctx if that ends before.
func await(ctx context.Context, done <-chan struct{}, expire func() time.Duration) error {
	select {
	case <-done:
		return nil
	default:
	}
	timer := time.NewTimer(expire())
	defer timer.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			select {
			case <-done:
				return nil // decided in time; this goroutine was late
			default:
				return ctx.Err()
			}
		case <-timer.C:
			timer.Reset(expire())
		}
	}
}
