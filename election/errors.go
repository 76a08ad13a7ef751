package election

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// Each of these is the cause of a term's end, or was found after it. Use errors.Is.
var (
	// ErrResigned: Resign ended the term. It is the cause of the term's context, and told to
	// nobody.
	ErrResigned = errors.New("resigned")

	// ErrPreferred: the leader gave up for a preferred candidate that waits (see WithPreferred). It
	// is the cause of the term's context, and told to nobody.
	ErrPreferred = errors.New("a preferred candidate waits")

	// ErrUnhealthy: the health check failed, panicked, or did not answer in time.
	ErrUnhealthy = errors.New("health check failed")

	// ErrOverdue: the function had not returned when the grace was over (see WithGrace). The lock
	// was released, and the function still runs.
	ErrOverdue = errors.New("function has not returned within the grace")
)

// errNotReleased is what Resign returns if a panic, or the end of its goroutine, has cut the
// release off.
var errNotReleased = fmt.Errorf("election: the release was cut off: %w",
	holdfast.ErrUnknown)

// errReturned is the cause of a term's context after the function has returned.
var errReturned = errors.New("the function has returned")

// TermError says what went wrong with a term. Err is a [*holdfast.LostError] or what the function
// returned, or it wraps ErrUnhealthy, ErrOverdue or the error of a release that was not confirmed.
// If Err is the error of a look for a preferred candidate, the term goes on.
type TermError struct {
	Name  string         // of the election
	Token holdfast.Token // the term's number
	Err   error          // what went wrong
}

// Error names the election, the term and the reason.
func (e *TermError) Error() string {
	return fmt.Sprintf("election: term %d of %q: %v", e.Token, e.Name, e.Err)
}

// Unwrap returns the reason.
func (e *TermError) Unwrap() error { return e.Err }

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("election: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
