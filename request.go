package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxRequestTime bounds a single request to the backend, however long the lease is.
const maxRequestTime = 5 * time.Second

// requestTime is the bound on one request: short against the lease, so that several fit into it (R13), but
// with a short lease not so short that a slow network can not answer.
func requestTime(ttl time.Duration) time.Duration {
	return min(max(ttl/6, min(50*time.Millisecond, ttl/2)), maxRequestTime)
}

// request is the context of one call of the backend: the caller's context, bounded by a time of its own and by
// the Locker's life. It costs one allocation, and a timer only if the backend asks for Done: that is most of
// the cost of context.WithTimeout, which a backend in memory does not need.
type request struct {
	context.Context // the caller's
	locker          *Locker
	bound           time.Duration
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context // nil until Done was asked for
	cancel context.CancelFunc
	unhook func() bool
}

func (l *Locker) request(ctx context.Context, bound time.Duration) *request {
	r := new(request)
	r.begin(ctx, l, bound)
	return r
}

// begin makes a request, which is used once, of a zero one.
func (r *request) begin(ctx context.Context, l *Locker, bound time.Duration) {
	r.Context, r.locker, r.bound, r.deadline = ctx, l, bound, clock.In(bound)
}

func (r *request) Deadline() (time.Time, bool) {
	if d, ok := r.Context.Deadline(); ok && d.Before(r.deadline) {
		return d, true
	}
	return r.deadline, true
}

func (r *request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timed == nil {
		r.timed, r.cancel = context.WithDeadline(r.Context, r.deadline)
		r.unhook = context.AfterFunc(r.locker.life, r.cancel)
	}
	return r.timed.Done()
}

func (r *request) Err() error {
	r.mu.Lock()
	timed := r.timed
	r.mu.Unlock()
	if timed != nil {
		return timed.Err()
	}
	return r.Context.Err()
}

// Value makes context.Cause and derived contexts find the timed context once there is one.
func (r *request) Value(key any) any {
	r.mu.Lock()
	timed := r.timed
	r.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return r.Context.Value(key)
}

// end frees what Done made.
func (r *request) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timed != nil {
		r.unhook()
		r.cancel()
	}
}

// explain turns what a call of the backend returned into the error the caller gets to see: the error of
// its own context if that ended, else one of the backend's two kinds. The request's own
// time bound is not the caller's doing, so context.DeadlineExceeded must not show through.
func (r *request) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case r.Context.Err() != nil:
		return contextError(r.Context)
	case r.locker.life.Err() != nil:
		return &driver.Error{Maybe: true, Err: ErrClosed}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		known := &driver.Error{Maybe: true}
		errors.As(err, &known)
		return &driver.Error{
			Node:  known.Node,
			Maybe: known.Maybe,
			Err:   fmt.Errorf("no answer within %v", r.bound),
		}
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnknown):
		return err
	default:
		return &driver.Error{Maybe: true, Err: err}
	}
}

// contextError is the error of a context that has ended, and its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
