// Package guard keeps the newest token of resources in stores that a shell script can name: Redis,
// and a directory of this machine. Stores in databases are in package sqlguard, because their
// drivers make each start of a program slower.
package guard

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/fence"
)

// Store keeps the largest token that was accepted for each resource. Its methods fail with
// ErrInvalid, ErrUnavailable and ErrUnknown of package fence, and with the store's own errors.
// After any error but ErrUnknown, nothing was changed.
type Store interface {
	// Init makes what the store needs, unless it is there.
	Init(ctx context.Context) error

	// Advance accepts the token for the resource. It fails with *fence.StaleError when a larger one
	// was accepted, and with ErrMissing when Init was never called.
	Advance(ctx context.Context, resource string, token fence.Token) error

	// Newest returns the largest token that was accepted for the resource; 0 if none was. It fails
	// with ErrMissing when Init was never called.
	Newest(ctx context.Context, resource string) (fence.Token, error)

	// Close lets go of the store.
	Close() error
}

// ErrMissing says that what Init makes is not there.
var ErrMissing = errors.New("the guard was never set up here: call holdfast fence init first")
