package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxRequestTime bounds a single request to the backend, however long the lease is.
const maxRequestTime = 5 * time.Second

// requestTime is the bound on one request: short against the lease, so that several fit into it,
// but not so short that a slow network cannot answer.
func requestTime(ttl time.Duration) time.Duration {
	return min(max(ttl/6, min(50*time.Millisecond, ttl/2)), maxRequestTime)
}

// request is the context of one call of the backend: the caller's context, bounded by a time of its
// own and by the Locker's life. It costs one allocation, and a timer only if the backend asks for
// Done: that is most of the cost of context.WithTimeout, which a backend in memory does not need.
type request struct {
	context.Context // the caller's
	locker          *Locker
	bound           time.Duration
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context // nil until Done was asked for
	cancel context.CancelFunc
	unhook func() bool
	ended  bool
}

func (l *Locker) request(ctx context.Context, bound time.Duration) *request {
	r := new(request)
	r.begin(ctx, l, bound)
	return r
}

// begin fills in a zero request. A request is used once.
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
	switch {
	case r.timed != nil:
	case r.ended: // a backend that asks too late must not leave a timer behind
		r.timed, r.cancel = context.WithCancel(r.Context)
		r.cancel()
	default:
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

// acquire, renew, release and inspect make the one call of the backend, and end the request, also
// if the backend panics: the Locker goes on.
func (r *request) acquire(claim driver.Claim) (driver.Result, error) {
	defer r.end()
	return r.locker.backend.Acquire(r, claim)
}

func (r *request) renew(claims []driver.Claim) ([]driver.Result, error) {
	defer r.end()
	return r.locker.backend.Renew(r, claims)
}

func (r *request) release(claim driver.Claim) (driver.Result, error) {
	defer r.end()
	return r.locker.backend.Release(r, claim)
}

func (r *request) inspect(backend driver.Inspector, key string) (driver.Entry, error) {
	defer r.end()
	return backend.Inspect(r, key)
}

// end frees what Done made.
func (r *request) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.timed != nil {
		r.unhook()
		r.cancel()
	}
}

// backoff is the random pause after the nth failure in a row, counted from 0.
func backoff(n int) time.Duration {
	span := min(50*time.Millisecond<<min(n, 5), maxPause)
	return span/2 + rand.N(span/2)
}

// explain turns the error of a call of the backend into the caller's: the error of the caller's
// context if that ended, else one that wraps ErrUnavailable, ErrUnknown or ErrInvalid. The
// request's own time bound is not the caller's doing, so context.DeadlineExceeded must not show
// through.
func (r *request) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case r.Context.Err() != nil:
		return contextError(r.Context)
	case r.locker.life.Err() != nil:
		// Not ErrClosed as well: an error is of one kind.
		return &driver.Error{Maybe: true, Err: errors.New("no answer before the Locker was closed")}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		known := &driver.Error{Maybe: true}
		errors.As(err, &known)
		return &driver.Error{
			Node:  known.Node,
			Maybe: known.Maybe,
			Err:   fmt.Errorf("no answer within %v%s", r.bound, diagnosis(known.Err)),
		}
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnknown), errors.Is(err, ErrInvalid):
		return err
	default:
		return &driver.Error{Maybe: true, Err: err}
	}
}

// diagnosis is what a backend says about why it did not answer, beyond that its context ended.
func diagnosis(err error) string {
	switch err {
	case nil, context.DeadlineExceeded, context.Canceled:
		return ""
	default:
		return ": " + err.Error()
	}
}

// ending is the error of the context if it has ended, or nil. It is not called under a mutex: a
// caller's own kind of context may ask a Lock.
func ending(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return contextError(ctx)
}

// contextError is the error of a context that has ended, and its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
