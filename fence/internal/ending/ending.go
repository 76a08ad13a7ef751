// Package ending says why a context has ended, for all guards alike.
package ending

import (
	"context"
	"errors"
	"fmt"
)

// Of returns the error of the context if it has ended, together with its cause, which may tell of a
// lost lock; or nil.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
