// Package guard keeps the newest token of resources in stores that a shell script can name: Redis,
// and a directory of this machine. Package sqlguard has those in databases, whose drivers take
// their time at the start of each program that has them.
package guard

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/fence"
)

// Store keeps the largest token that was accepted for each resource. Its methods fail with
// ErrInvalid, ErrUnavailable and ErrUnknown of package fence, and with the store's own errors, all
// of which but ErrUnknown say that nothing was changed.
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
