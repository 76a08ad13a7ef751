package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Every error about a key names it. Every error wraps exactly one of the following, or the error
// and the cause of a context that ended. There are exceptions. A [*LostError] also wraps ErrMaxHold
// or ErrClosed, if that is its reason. The errors of [Locker.Close], [LockSet.Release] and
// [LockSet.Extend] wrap that of each key, and those of [Locker.Do] and [Locker.DoAll] what the
// function returned. Use errors.Is and errors.As.
var (
	// ErrHeld: another acquisition holds the key. Found in every [*HeldError].
	ErrHeld = errors.New("held by another")

	// ErrLost: the lock was held and is no longer. Found in every [*LostError].
	ErrLost = errors.New("lock lost")

	// ErrMaxHold: the lock ended because it was held for as long as [WithMaxHold] allows. An
	// error that wraps it wraps ErrLost as well.
	ErrMaxHold = errors.New("maximum hold reached")

	// ErrUnavailable: the backend did not serve the request, or too late to count. Nothing comes
	// of it.
	ErrUnavailable = driver.ErrUnavailable

	// ErrUnknown: the request may or may not have taken effect. An acquisition that fails with it
	// is cleaned up in the background. It is the error also if only an earlier request of the
	// acquisition may have, and the last one was refused.
	ErrUnknown = driver.ErrUnknown

	// ErrReleased: the lock was released by its holder.
	ErrReleased = errors.New("lock released")

	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")

	// ErrInvalid: an argument or option has a value that is not allowed. Nothing was done.
	ErrInvalid = driver.ErrInvalid
)

// Holder says who holds a key, as far as its owner value tells.
type Holder = driver.Owner

// HeldError says that another acquisition holds the key. errors.Is finds ErrHeld in it.
type HeldError struct {
	// Key is the key that was asked for.
	Key string

	// Holder is who held it when the backend answered; of several that share it, the one whose
	// lease ends last. Its zero value means not known.
	Holder Holder

	// ExpiresIn is what remained of the holder's lease then; 0 means not known. A live
	// holder renews its lease, so this is not when the key becomes free.
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

// LostError says that a lock is no longer held though its holder did not release it.
// errors.Is finds ErrLost in it, and ErrMaxHold or ErrClosed if that is the reason; nothing else.
type LostError struct {
	// Key is the key of the lock.
	Key string

	// Token is the token the lock had. The protected store may have accepted it up to now.
	Token Token

	// Reason says how the lock was lost: what the backend answered, why no renewal
	// succeeded in time, ErrMaxHold, or ErrClosed. It does not wrap the error of a
	// renewal: a lost lock is not a backend that is unavailable.
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
// earlier one may have. The caller must not hear that nothing comes of it. errors.Is and errors.As
// find all that the last error wraps, but ErrUnknown instead of ErrUnavailable.
type unsettledError struct{ last error }

// afterUnknown returns the error of an acquisition that failed with err after a request that may
// have taken effect. The end of a context stays what it is, with a cause that may be anything.
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

// Is reports whether target is ErrUnknown, or something else than a kind that the last error wraps.
func (e *unsettledError) Is(target error) bool {
	return target == ErrUnknown || target != ErrUnavailable && errors.Is(e.last, target)
}

// As finds what the last error wraps; a [*driver.Error] says that the request may have taken
// effect.
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
