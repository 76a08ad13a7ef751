package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Errors are examined with errors.Is and errors.As. Every error about a key names the key. Every
// error wraps exactly one of the following errors, or the error and the cause of a context that
// ended, with these exceptions. A [*LostError] also wraps ErrMaxHold or ErrClosed, if that is its
// reason. The errors of [Locker.Close], [LockSet.Release] and [LockSet.Extend] wrap the error of
// each key. The errors of [Locker.Do] and [Locker.DoAll] wrap what the function returned.
var (
	// ErrHeld: another acquisition holds the key. Every [*HeldError] wraps it.
	ErrHeld = errors.New("held by another")

	// ErrLost: the lock was held, and is not held any more. Every [*LostError] wraps it.
	ErrLost = errors.New("lock lost")

	// ErrMaxHold: the lock ended because it was held for as long as [WithMaxHold] allows. An error
	// that wraps ErrMaxHold wraps ErrLost as well.
	ErrMaxHold = errors.New("maximum hold reached")

	// ErrUnavailable: the backend did not serve the request, or did so too late. The request has no
	// effect.
	ErrUnavailable = driver.ErrUnavailable

	// ErrUnknown: a request may or may not have taken effect. For an acquisition that made several
	// requests, one such request is enough, even if the last one was refused. The Locker then
	// removes in the background what the acquisition may have left.
	ErrUnknown = driver.ErrUnknown

	// ErrReleased: the lock was released by its holder.
	ErrReleased = errors.New("lock released")

	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")

	// ErrInvalid: an argument or option has a value that is not allowed. Nothing was done.
	ErrInvalid = driver.ErrInvalid
)

// Holder says who holds a key, as far as the holder's owner value tells.
type Holder = driver.Owner

// HeldError says that another acquisition holds the key. It wraps ErrHeld.
type HeldError struct {
	// Key is the key that was asked for.
	Key string

	// Holder is who held the key when the backend answered. If several share the key, it is
	// the one whose lease ends last. The zero Holder means not known.
	Holder Holder

	// ExpiresIn is what remained of the holder's lease at that time; 0 means not known. A
	// live holder renews its lease, so this is not when the key becomes free.
	ExpiresIn time.Duration
}

// Error names the key, the holder and the rest of its lease.
func (e *HeldError) Error() string {
	s := "holdfast: " + strconv.Quote(e.Key) + " is held by " + e.Holder.String()
	if e.ExpiresIn > 0 {
		s += ", lease ends in " + e.ExpiresIn.Round(time.Millisecond).String() + " unless renewed"
	}
	return s
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says that a lock has ended although its holder did not release it. It wraps ErrLost,
// and also ErrMaxHold or ErrClosed if that is the reason, and no other error.
type LostError struct {
	// Key is the key of the lock.
	Key string

	// Token is the token the lock had. The protected store may have accepted it up to now.
	Token Token

	// Reason says how the lock was lost: what the backend answered, why no renewal succeeded in
	// time, ErrMaxHold, or ErrClosed. It quotes the error of a renewal but does not wrap it, so a
	// lost lock is not taken for an unavailable backend.
	Reason error
}

// Error names the key, the token and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("holdfast: lock on %q (token %d) lost: %v", e.Key, e.Token, e.Reason)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Reason }

// keyError adds the operation and the key to an error of a backend or a context.
func keyError(operation, key string, err error) error {
	return fmt.Errorf("holdfast: %s %q: %w", operation, key, err)
}

// invalid returns an error that wraps ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("holdfast: %w: "+format, append([]any{ErrInvalid}, args...)...)
}

// unsettledError is the error of an acquisition whose last request surely had no effect, while an
// earlier request may have had one. So it wraps ErrUnknown instead of ErrUnavailable, and otherwise
// all that the error of the last request wraps.
type unsettledError struct{ last error }

// afterUnknown returns the error of an acquisition that failed with err after an earlier request
// that may have taken effect. If err is the error of a context, it is returned as it is, because
// its cause may be anything.
func afterUnknown(err error) error {
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &unsettledError{err}
}

// Error says what the last request failed with.
func (e *unsettledError) Error() string {
	return fmt.Sprintf("%v: an earlier request may have taken effect; the last one failed: %v",
		ErrUnknown, e.last)
}

// Is reports whether target is ErrUnknown, or another error than ErrUnavailable that the last error
// wraps.
func (e *unsettledError) Is(target error) bool {
	return target == ErrUnknown || target != ErrUnavailable && errors.Is(e.last, target)
}

// As finds what the last error wraps. In a [*driver.Error] that it finds, Maybe is set.
func (e *unsettledError) As(target any) bool {
	if !errors.As(e.last, target) {
		return false
	}
	if t, ok := target.(**driver.Error); ok {
		maybe := **t
		maybe.Maybe = true
		*t = &maybe
	}
	return true
}

func isUnknown(err error) bool { return errors.Is(err, ErrUnknown) }
