package driver

import (
	"errors"
	"strings"
)

var (
	// ErrUnavailable: the backend did not serve the request, and there is nothing to undo.
	ErrUnavailable = errors.New("backend unavailable")

	// ErrUnknown: the request may or may not have taken effect. After an Acquire the claim may hold
	// the key: ask again with the same owner value, or release it.
	ErrUnknown = errors.New("outcome unknown")

	// ErrInvalid: a claim or an option has a value that this backend does not allow. Nothing was
	// done, and the same call will fail again.
	ErrInvalid = errors.New("invalid")
)

// Error says that a backend could not give an answer. It wraps exactly one of ErrUnavailable,
// ErrUnknown and ErrInvalid, and also Err.
type Error struct {
	// Node names the server, as its operator would, and contains no secret. It is empty if there is
	// only one server.
	Node string

	// Maybe says that the request may have taken effect (ErrUnknown). Otherwise it had no effect
	// (ErrUnavailable).
	Maybe bool

	// Permanent says that asking again does not help until somebody changes something, such as a
	// wrong password, a read-only server or a missing permission. It ends a wait at once.
	Permanent bool

	// Invalid says that the caller asked for something that is not allowed (ErrInvalid), such as a
	// key that is too long or a TTL over the guard. It implies Permanent, and excludes Maybe.
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

// Permanent reports whether err wraps an [*Error] that is permanent or invalid: asking again does
// not help.
func Permanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Permanent || e.Invalid)
}
