package driver

import (
	"errors"
	"strings"
)

var (
	// ErrUnavailable: the backend did not serve the request, and the caller has nothing to undo.
	ErrUnavailable = errors.New("backend unavailable")

	// ErrUnknown: the request may or may not have taken effect. For an Acquire, treat
	// the claim as maybe held: ask again with the same owner value, or release it.
	ErrUnknown = errors.New("outcome unknown")

	// ErrInvalid: a claim or an option has a value that this backend does not allow. Nothing was
	// done. The same call will fail again.
	ErrInvalid = errors.New("invalid")
)

// Error is how a backend reports that it could not give an answer. errors.Is finds
// exactly one of ErrUnavailable, ErrUnknown and ErrInvalid in it, and everything in Err.
type Error struct {
	// Node names the server, as its operator would; never with a secret in it. Empty if
	// there is only one to think of.
	Node string

	// Maybe says that the request may have taken effect (ErrUnknown); otherwise nothing
	// is left of it (ErrUnavailable).
	Maybe bool

	// Permanent says that asking again will not help before somebody changes
	// something: wrong password, read-only server, missing permission. It ends a wait at once.
	Permanent bool

	// Invalid says that the caller asked for something that is not allowed (ErrInvalid): a key that
	// is too long, a TTL over the guard. It implies Permanent, and excludes Maybe.
	Invalid bool

	// Err is the cause, in the words of the server or the client library.
	Err error
}

// Error joins node, kind and cause.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Node != "" {
		b.WriteString(e.Node)
		b.WriteString(": ")
	}
	b.WriteString(e.kind().Error())
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Is reports whether target is the error's kind.
func (e *Error) Is(target error) bool { return target == e.kind() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) kind() error {
	switch {
	case e.Invalid:
		return ErrInvalid
	case e.Maybe:
		return ErrUnknown
	default:
		return ErrUnavailable
	}
}

// Permanent reports whether err says that asking again will not help.
func Permanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Permanent || e.Invalid)
}
