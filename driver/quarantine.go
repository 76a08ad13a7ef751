package driver

import (
	"context"
	"fmt"
	"time"
)

// Guarded is a Backend whose server may lose its memory in a restart, and which can sit
// out the time in which a forgotten lease may still be running (R32, delayed restart).
type Guarded interface {
	// Guard has the backend refuse Acquire and Renew, with a [*QuarantineError] in the error,
	// until its server has been up for the guard, unless the server can not have
	// forgotten anything. A claim with a TTL over the guard is refused as a
	// permanent error. Release is always served. 0 switches the quarantine off. Call it
	// before the first claim.
	Guard(guard time.Duration)
}

// QuarantineError says that a server restarted recently and takes no part yet. It is found
// by errors.As inside an [*Error] that is not permanent and says ErrUnavailable.
type QuarantineError struct {
	Remaining time.Duration // until the server takes part
}

// Error says for how long.
func (e *QuarantineError) Error() string {
	return fmt.Sprintf("in restart quarantine for another %v", e.Remaining.Round(time.Millisecond))
}

// Identified is a Backend that can tell which server it talks to.
type Identified interface {
	// Identity returns a value that differs between any two servers, and between a
	// server before and after a restart. An error follows the rules of the package.
	Identity(ctx context.Context) (string, error)
}

// Versioned is a Backend that can tell which version its server has.
type Versioned interface {
	// Version returns the version, 7.0.15 for example, that the server had when it answered Identity
	// last; empty if it has not. It asks nobody.
	Version() string
}
