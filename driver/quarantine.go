package driver

import (
	"context"
	"fmt"
	"time"
)

// Guarder is a Backend whose server may lose all of its data, or the latest part of it, in a
// restart. After a restart the backend refuses claims for as long as a forgotten lease may still
// run. This is known as a delayed restart.
type Guarder interface {
	// Guard sets how long the backend refuses claims after its server has started. Until the server
	// has been up for that long, Acquire and Renew fail with an error that has a [*QuarantineError]
	// in it. A claim with a TTL longer than the guard fails with ErrInvalid. Release is always
	// served. A guard of 0 switches the quarantine off. Call Guard before the first claim.
	//
	// Every restart counts, even if nobody was connected at the time. So does everything else that
	// may have cost the server its data, such as a time as a replica. The server's present settings
	// do not matter, because they say nothing about the run before. Only the operator can exempt a
	// server, by an option of the backend, which promises that the server has always stored every
	// change before it answered.
	//
	// A server in quarantine may have older data, and may hand over a key that another client
	// holds. So its notices do not count either. A backend delivers a Granted notice only if, in
	// the same run of the server, the server has answered an Acquire of that claim with Busy and a
	// presence, and would have served another one when it sent the notice. A queue from an earlier
	// run proves nothing. In place of any other Granted notice, the backend delivers a Freed notice
	// with the same owner value, or none.
	Guard(guard time.Duration)
}

// QuarantineError says that a server serves no claims yet, because it restarted, lost its data, or
// is new. It is inside an [*Error] that is not permanent and says ErrUnavailable.
type QuarantineError struct {
	Remaining time.Duration // until the server serves claims
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

// Limited is a Backend that does not allow every TTL. The kernel calls it for the TTL of a new
// Locker, and for an acquisition that has a TTL of its own, before it sends any request.
type Limited interface {
	// CheckTTL returns nil if the backend allows claims with this TTL, and otherwise an error that
	// wraps ErrInvalid and says why. It asks no server.
	CheckTTL(ttl time.Duration) error
}

// Identifier is a Backend that can tell which server it talks to.
type Identifier interface {
	// Identity returns a value that is different for any two servers, and for a server before and
	// after a restart. An error follows the rules of the package.
	Identity(ctx context.Context) (string, error)
}

// Versioner is a Backend that can tell which version its server has.
type Versioner interface {
	// Version returns the version that the server had when it last answered Identity, such as
	// 7.0.15, or the empty string if it has never answered. It asks no server.
	Version() string
}
