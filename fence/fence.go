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

// MaxToken is the largest token: 2^53. Up to there every integer survives JSON, Lua and a double.
const MaxToken Token = 1 << 53

// MaxResourceLen is the longest name of a resource in bytes.
const MaxResourceLen = driver.MaxKeyLen

var (
	// ErrStale says that a larger token was accepted before: the lock was lost, and another holder
	// has written. Nothing was written. Found in every [*StaleError].
	ErrStale = errors.New("stale token")

	// ErrNotFound says that what was to be written is not there, and nothing was written. It is an
	// error only of guards that keep the token in the thing itself, such as a column of a row;
	// others begin with the first token that they see.
	ErrNotFound = errors.New("no such resource")

	// ErrInvalid says that a token, a resource's name or a setting has a value that is not allowed.
	// Nothing was written. It is the kernel's ErrInvalid.
	ErrInvalid = driver.ErrInvalid

	// ErrUnavailable says that the store did not serve the write, which had no effect. It is the
	// kernel's ErrUnavailable.
	ErrUnavailable = driver.ErrUnavailable

	// ErrUnknown says that the store did not tell whether it has written, for one because the
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
	// Do runs write, unless a token larger than the given one was accepted for the resource: then
	// it fails with [*StaleError] without running it. While write runs, no other write to the
	// resource does, so that who began before cannot overwrite who came later. Do accepts the token
	// when it begins. If write fails, Do returns its error; whether the token counts as accepted
	// then depends on the guard, and on whether the store has undone the write.
	//
	// It fails with [ErrInvalid] as [Validate] does, and with the context's error if that ends
	// before write was begun.
	Do(ctx context.Context, resource string, token Token, write func(context.Context) error) error
}

// Validate fails with [ErrInvalid] for a token that is 0 or larger than [MaxToken], and for a
// resource whose name is empty, longer than [MaxResourceLen], not UTF-8, or has a NUL in it, which
// some stores cannot keep. Guards call it first.
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

// ValidateToken is [Validate] without its rules for names, for guards that find their resource by
// other means, such as the key of a row. The name is for the error only.
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
