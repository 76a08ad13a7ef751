package promhold

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
)

// The values of the label kind.
const (
	exclusive = "exclusive"
	shared    = "shared"
	permit    = "permit"
)

var kinds = []string{exclusive, shared, permit}

// kind tells what was acquired.
func kind(e *holdfast.AcquiredEvent) string {
	switch {
	case e.Slot >= 0:
		return permit
	case e.Shared:
		return shared
	default:
		return exclusive
	}
}

// failures are the causes of failures, and the errors by which they are found. The order counts,
// because the error of a context comes with its cause, which may be any error. Only held comes
// before these, because its error is found by its type.
var failures = []struct {
	cause string
	err   error
}{
	{"timeout", context.DeadlineExceeded},
	{"cancelled", context.Canceled},
	{"unavailable", holdfast.ErrUnavailable},
	{"unknown", holdfast.ErrUnknown},
	{"closed", holdfast.ErrClosed},
	{"invalid", holdfast.ErrInvalid},
	{held, holdfast.ErrHeld},
}

// The values of the label cause of failures that are not found by an error.
const (
	held  = "held"
	other = "other"
)

var failureCauses = func() (causes []string) {
	for _, f := range failures {
		causes = append(causes, f.cause)
	}
	return append(causes, other)
}()

// failureCause tells why an acquisition failed.
func failureCause(err error) string {
	if _, ok := err.(*holdfast.HeldError); ok {
		return held
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return f.cause
		}
	}
	return other
}

// The values of the label cause of losses.
const (
	lossLease   = "lease"
	lossMaxHold = "max_hold"
	lossClosed  = "closed"
)

var lossCauses = []string{lossLease, lossMaxHold, lossClosed}

// lossCause tells why a lock was lost, as far as the error tells programs.
func lossCause(err error) string {
	switch {
	case errors.Is(err, holdfast.ErrMaxHold):
		return lossMaxHold
	case errors.Is(err, holdfast.ErrClosed):
		return lossClosed
	default:
		return lossLease
	}
}

// The values of the label outcome of renewals.
const (
	confirmed = "confirmed"
	missed    = "missed"
	gone      = "gone"
	late      = "late"
)

var outcomes = []string{confirmed, missed, gone, late}

// outcome tells how a renewal ended.
func outcome(e *holdfast.RenewedEvent) string {
	switch {
	case e.Err == nil:
		return confirmed
	case !isLoss(e.Err):
		return missed
	case e.Margin <= 0:
		return late
	default:
		return gone
	}
}

// isLoss reports whether err is that of a lock that was lost. It is not if it wraps the loss of
// another lock, which was the cause of a context.
func isLoss(err error) bool {
	_, ok := err.(*holdfast.LostError)
	return ok
}
