package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Token is a fencing token: what [github.com/holdfast-go/holdfast.Lock.Token] returns. A token is
// from 1 to [MaxToken].
type Token = driver.Token

// MaxToken is the largest token: 2^53. JSON, Lua and a double keep every integer up to it.
const MaxToken Token = 1 << 53

// MaxResourceLen is the longest name of a resource in bytes.
const MaxResourceLen = driver.MaxKeyLen

var (
	// ErrStale says that a larger token was accepted before: the lock was lost, and another holder
	// has written. Nothing was written. Found in every [*StaleError].
	ErrStale = errors.New("stale token")

	// ErrNotFound says that what was to be written does not exist, and nothing was written. Only
	// guards that keep the token in the thing itself, such as a column of a row, return it. Other
	// guards begin with the first token that they see.
	ErrNotFound = errors.New("no such resource")

	// ErrInvalid says that a token, a resource's name or a setting has a value that is not allowed.
	// Nothing was written. It is the kernel's ErrInvalid.
	ErrInvalid = driver.ErrInvalid

	// ErrUnavailable says that the store did not serve the write, which had no effect. It is the
	// kernel's ErrUnavailable.
	ErrUnavailable = driver.ErrUnavailable

	// ErrUnknown says that the store did not tell whether it has written, for example because the
	// connection broke. It is the kernel's ErrUnknown.
	ErrUnknown = driver.ErrUnknown
)

// StaleError is a refusal. errors.Is finds [ErrStale] in it.
type StaleError struct {
	// Resource is what was to be written.
	Resource string

	// Token is the token that was refused.
	Token Token

	// Newest is the largest token that the guard has accepted; 0 means that the store did not tell.
	Newest Token
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	s := fmt.Sprintf("fence: write to %q refused: stale token %d", e.Resource, e.Token)
	if e.Newest != 0 {
		s += ", the newest is " + e.Newest.String()
	}
	return s
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Guard runs writes for the holders of a lock, and refuses those that were overtaken.
type Guard interface {
	// Do accepts the token and runs write. If a larger token was accepted for the resource, it
	// fails with [*StaleError] and does not run write. While write runs, no other write to the
	// resource runs, so an older holder that began earlier cannot overwrite a newer one. If write
	// fails, Do returns its error. Whether the token then counts as accepted depends on the guard,
	// and on whether the store has undone the write.
	//
	// Do fails with [ErrInvalid] as [Validate] does, and with the context's error if the context
	// ends before write has begun.
	Do(ctx context.Context, resource string, token Token, write func(context.Context) error) error
}

// Validate fails with [ErrInvalid] for a token that is 0 or larger than [MaxToken]. It also fails
// for the name of a resource that is empty, longer than [MaxResourceLen], or not UTF-8, or that has
// a NUL in it, which some stores cannot keep. Guards call it first.
func Validate(resource string, token Token) error {
	switch {
	case resource == "":
		return fmt.Errorf("fence: %w: the name of the resource is empty", ErrInvalid)
	case len(resource) > MaxResourceLen:
		return fmt.Errorf(
			"fence: %w: the name of the resource has %d bytes; at most %d are allowed; it begins with %.40q",
			ErrInvalid, len(resource), MaxResourceLen, resource)
	case !printable(resource):
		return fmt.Errorf(
			"fence: %w: the name of the resource is %q; allowed is UTF-8 without a NUL",
			ErrInvalid, resource)
	}
	return ValidateToken(resource, token)
}

// ValidateToken is [Validate] without the rules for names. It is for guards that find their
// resource by other means, such as the key of a row. The name is used in the error only.
func ValidateToken(resource string, token Token) error {
	if token == 0 || token > MaxToken {
		return fmt.Errorf("fence: %w: the token for %q is %s; allowed is 1 to %d", ErrInvalid,
			resource, strconv.FormatUint(uint64(token), 10), MaxToken)
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}
