package redsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

var (
	// ErrFailed: the lock was not acquired, because the context ended or no majority answered. The
	// reason is wrapped too.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrExtendFailed: the lock was not extended. The reason is wrapped too.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired: the lock had ended when it was to be unlocked.
	ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")
)

// ErrTaken says that somebody else holds the lock or, from Extend, that the caller does not hold
// it. It wraps the error of Holdfast: a [*holdfast.HeldError] says who holds the lock. Errors are
// pointers to an ErrTaken.
type ErrTaken struct {
	Nodes []int // the server's place among the pools; empty with several

	err error
}

// Error says that the lock is taken.
func (e ErrTaken) Error() string {
	return fmt.Sprintf("lock already taken, locked nodes: %v", e.Nodes)
}

// Unwrap returns the error of Holdfast.
func (e ErrTaken) Unwrap() error { return e.err }

// ErrNodeTaken exists only so that programs compile. Nothing returns it.
type ErrNodeTaken struct {
	Node int // the server's place among the pools
}

// Error says which server has refused.
func (e ErrNodeTaken) Error() string { return fmt.Sprintf("node #%d: lock already taken", e.Node) }

// RedisError says that the only server gave no answer that counts. Err wraps
// holdfast.ErrUnavailable, holdfast.ErrUnknown, or why the context has ended. Errors are pointers
// to a RedisError.
type RedisError struct {
	Node int   // the server's place among the pools
	Err  error // what went wrong
}

// Error names the server.
func (e RedisError) Error() string { return fmt.Sprintf("node #%d: %v", e.Node, e.Err) }

// Unwrap returns what went wrong.
func (e RedisError) Unwrap() error { return e.Err }

// taken returns the error for a lock that somebody else holds, or that its holder has lost.
func (m *Mutex) taken(err error) error {
	e := &ErrTaken{err: err}
	if len(m.redsync.pools) == 1 {
		e.Nodes = []int{0}
	}
	return e
}

// noAnswer returns the error for servers that did not answer. kind is ErrFailed or ErrExtendFailed.
func (m *Mutex) noAnswer(kind, err error) error {
	if len(m.redsync.pools) == 1 {
		return &RedisError{Err: err}
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// refusal returns the error of the last try.
func (m *Mutex) refusal(err error) error {
	if errors.Is(err, holdfast.ErrHeld) {
		return m.taken(err)
	}
	return m.noAnswer(ErrFailed, err)
}

// hopeless reports whether another try would fail as well.
func hopeless(ctx context.Context, err error) bool {
	if e := ctx.Err(); e != nil && errors.Is(err, e) {
		return false // the cause of ctx, which err wraps as well, may be of another lock
	}
	return errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, holdfast.ErrClosed)
}

// hasEnded reports whether err, with which an Extend or a release of the lock has failed, says that
// the lock has ended.
func hasEnded(lock *holdfast.Lock, err error) bool {
	// Not errors.Is: the cause of the context may be the end of another lock.
	reason := lock.Err()
	_, lost := reason.(*holdfast.LostError)
	return lost || err == reason
}

// ended returns the error for a context that has ended.
func ended(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrFailed, context.Cause(ctx))
}
