package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// RetryStrategy says how long to wait before another try. Less than a nanosecond means that there
// is none.
type RetryStrategy interface {
	NextBackoff() time.Duration // is called after each try that has failed
}

// strategy is a function that is a RetryStrategy.
type strategy func() time.Duration

func (f strategy) NextBackoff() time.Duration { return f() }

// NoRetry tries once.
func NoRetry() RetryStrategy { return LinearBackoff(0) }

// LinearBackoff waits for the same time before each try.
func LinearBackoff(backoff time.Duration) RetryStrategy {
	return strategy(func() time.Duration { return backoff })
}

// LimitRetry tries again max times at most, and waits as s says.
func LimitRetry(s RetryStrategy, max int) RetryStrategy {
	var tries atomic.Int64
	return strategy(func() time.Duration {
		if tries.Add(1) > int64(max) {
			return 0
		}
		return s.NextBackoff()
	})
}

// ExponentialBackoff waits for 4 ms, and then twice as long each time, but at least for min and, if
// max is not 0, for max at most.
func ExponentialBackoff(min, max time.Duration) RetryStrategy {
	next := time.Millisecond
	var mu sync.Mutex
	return strategy(func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		const longest = time.Millisecond << 26 // some 18 hours
		switch {
		case next == time.Millisecond:
			next = 4 * time.Millisecond
		case next < longest:
			next *= 2
		}
		switch {
		case next < min:
			return min
		case max != 0 && next > max:
			return max
		}
		return next
	})
}

// retry calls try until it is done, the strategy gives up, or ctx ends: without a deadline, after
// ttl. It returns the error of the last try that had one, or ErrNotObtained, joined with that of
// ctx if that has ended. It fails with holdfast.ErrInvalid if ctx is nil.
func retry(ctx context.Context, ttl time.Duration, s RetryStrategy,
	try func(context.Context) (done bool, err error)) error {
	if ctx == nil {
		return fmt.Errorf("redislock: %w: context is nil: use context.Background()",
			holdfast.ErrInvalid)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ttl)
		defer cancel()
	}
	last := ErrNotObtained
	for {
		done, err := try(ctx)
		if done {
			return err
		}
		if err != nil {
			last = err
		}
		backoff := s.NextBackoff()
		if backoff > 0 {
			timer := time.NewTimer(backoff)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
		switch ended := ctx.Err(); {
		case ended != nil && !errors.Is(last, ended):
			return errors.Join(last, ended)
		case ended != nil || backoff <= 0:
			return last
		}
	}
}
