// Package ending says why a context has ended, for all guards alike.
package ending

import (
	"context"
	"errors"
	"fmt"
)

// Of returns nil if the context has not ended. Otherwise it returns the context's error together
// with its cause, which may tell of a lost lock.
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
