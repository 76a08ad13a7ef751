package driver

import (
	"context"
	"fmt"
	"time"
)

// Guarder is a Backend whose server may lose all or the last of its data in a restart. The backend
// can then take no part for as long as a forgotten lease may still run (delayed restart).
type Guarder interface {
	// Guard has the backend refuse Acquire and Renew, with a [*QuarantineError] in the error, until
	// its server has been up for the guard. A claim with a TTL over the guard is refused as
	// invalid. Release is always served. 0 switches the quarantine off. Call it before the first
	// claim.
	//
	// Every restart counts, also one that happened while nobody was connected. So does everything
	// else that may have cost the server its data, for example a time as a replica. The server's
	// present settings exempt it from nothing: they say nothing about the run before. Only the
	// operator can exempt a server, by an option of the backend, which says that the server has
	// always stored every change before it answered.
	//
	// A server in quarantine may have older data, and may hand over a key that another client
	// holds. So its notices do not count either. A backend delivers a Granted notice only if, in
	// the same run, the server has answered an Acquire of that claim with Busy and a presence, and
	// would have served another one when it sent the notice. A queue from an earlier run proves
	// nothing. Instead of any other Granted notice the backend delivers a Freed one with the same
	// owner value, or none.
	Guard(guard time.Duration)
}

// QuarantineError says that a server takes no part yet: it restarted, lost its data, or is new.
// errors.As finds it inside an [*Error] that is not permanent and says ErrUnavailable.
type QuarantineError struct {
	Remaining time.Duration // until the server takes part
	// the reason, if it may not be a restart: "it is new, was restarted, or has lost its data"
	Reason string
}

// Error says for how long, and the reason if there is one.
func (e *QuarantineError) Error() string {
	text := fmt.Sprintf("in restart quarantine for another %v", e.Remaining.Round(time.Millisecond))
	if e.Reason != "" {
		text += ", as " + e.Reason
	}
	return text
}

// Limited is a Backend that does not allow every TTL. The kernel asks it before anything else: for
// the TTL of a new Locker, and for the TTL of an acquisition that has its own.
type Limited interface {
	// CheckTTL returns nil if the backend allows claims with this TTL. Otherwise it returns an
	// error that says ErrInvalid and why. It asks no server.
	CheckTTL(ttl time.Duration) error
}

// Identifier is a Backend that can tell which server it talks to.
type Identifier interface {
	// Identity returns a value that differs between any two servers, and between a
	// server before and after a restart. An error follows the rules of the package.
	Identity(ctx context.Context) (string, error)
}

// Versioner is a Backend that can tell which version its server has.
type Versioner interface {
	// Version returns the version, 7.0.15 for example, that the server had when it last answered
	// Identity; empty if it never has. It asks no server.
	Version() string
}
