package holdfast

import (
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

	// ErrUnknown: the request may or may not have taken effect. An acquisition that
	// fails with it is cleaned up in the background.
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

func isUnknown(err error) bool { return errors.Is(err, ErrUnknown) }
