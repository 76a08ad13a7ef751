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

// requestTime returns the time bound of a single request. It is short compared with the lease, so
// that several requests fit into it, but long enough for a slow network.
func requestTime(ttl time.Duration) time.Duration {
	return min(max(ttl/6, min(50*time.Millisecond, ttl/2)), maxRequestTime)
}

// request is one request to the backend, as the context that the backend gets. It ends with the
// caller's context, after a time of its own, or with the Locker's life. It costs one allocation. It
// makes a timer only if the backend calls Done, because the timer is most of the cost of
// context.WithTimeout and a backend in memory does not need it.
type request struct {
	callerContext
	locker   *Locker
	bound    time.Duration
	deadline time.Time

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
	case r.ended: // a backend that calls Done too late must not leave a timer behind
		r.timed, r.cancel = context.WithCancel(r.parent())
		r.cancel()
	default:
		r.timed, r.cancel = context.WithDeadline(r.parent(), r.deadline)
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

// Value lets context.Cause and derived contexts find the timed context, once there is one.
func (r *request) Value(key any) any {
	r.mu.Lock()
	timed := r.timed
	r.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return r.Context.Value(key)
}

// acquire, renew, release and inspect call the backend and end the request, even if the backend
// panics, because the Locker goes on after a panic.
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

// backoff returns a random pause after the nth failure in a row, counted from 0.
func backoff(n int) time.Duration {
	span := min(50*time.Millisecond<<min(n, 5), maxPause)
	return span/2 + rand.N(span/2)
}

// explain turns the error of a request to the backend into one for the caller: the error of the
// caller's context if that has ended, and otherwise an error that wraps ErrUnavailable, ErrUnknown
// or ErrInvalid. If a time bound was reached that is not the caller's, of the request or of the
// backend's client, the error does not wrap context.DeadlineExceeded, because the caller's context
// has not ended.
func (r *request) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case r.callerContext.Err() != nil:
		return contextError(r.Context)
	case r.locker.life.Err() != nil:
		// This does not wrap ErrClosed as well, because an error wraps only one of ours.
		return &driver.Error{Maybe: true, Err: errors.New("no answer before the Locker was closed")}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		known := &driver.Error{Maybe: true, Err: err}
		errors.As(err, &known)
		told := *known
		told.Err = fmt.Errorf("no answer %s%s", r.patience(), diagnosis(known.Err))
		return &told
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnknown), errors.Is(err, ErrInvalid):
		return err
	default:
		return &driver.Error{Maybe: true, Err: err}
	}
}

// patience returns how long there was no answer, for an error. A client may give up before the
// request's own time bound; the Locker does not know after how long.
func (r *request) patience() string {
	if !clock.Reached(r.deadline) {
		return "before the backend's client gave up"
	}
	return fmt.Sprintf("within %v", r.bound)
}

// diagnosis returns what the backend says about why it did not answer, unless it says only that its
// context has ended.
func diagnosis(err error) string {
	switch err {
	case nil, context.DeadlineExceeded, context.Canceled:
		return ""
	default:
		return ": " + err.Error()
	}
}

// ending returns the error of the context if it has ended, or nil. It must not be called under a
// mutex, because a caller's own kind of context may call a Lock.
func ending(ctx context.Context) error {
	if (callerContext{ctx}).Err() == nil {
		return nil
	}
	return contextError(ctx)
}

// callerContext is a caller's context. If that is of the caller's own kind and ends without an
// error, callerContext has one: package context ends the process if the parent of a context has
// ended and has none.
type callerContext struct{ context.Context }

func (c callerContext) Err() error {
	err := c.Context.Err()
	if err == nil {
		select {
		case <-c.Context.Done():
			return context.Canceled
		default:
		}
	}
	return err
}

// hookedContext is a callerContext with an AfterFunc of its own, which package context calls.
type hookedContext struct {
	*callerContext
	afterFuncer
}

type afterFuncer interface{ AfterFunc(func()) func() bool }

// parent returns the context from which others are derived.
func (c *callerContext) parent() context.Context {
	if hooks, ok := c.Context.(afterFuncer); ok {
		return hookedContext{c, hooks}
	}
	return c
}

// contextError returns an error that wraps the error and the cause of a context that has ended.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil { // without an error, the call would count as a success
		return context.Canceled
	}
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
