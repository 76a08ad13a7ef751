package holdfast

import "time"

// Hooks are called on what a Locker does; nil ones are not. They run on the goroutine that
// does it, outside all locks of the Locker: they may call it, and must not block. They may run
// concurrently.
type Hooks struct {
	// Acquired: an acquisition succeeded. Nested ones (see [Locker.Acquire]) are not reported.
	Acquired func(AcquiredEvent)

	// Refused: an acquisition failed, for whatever reason.
	Refused func(RefusedEvent)

	// Waiting: a waiter was told by the backend that it has to wait, or to wait on. Of
	// all goroutines of a Locker that wait for a key, one asks for all.
	Waiting func(WaitingEvent)

	// Renewed: the watchdog or Extend asked for a renewal, with this outcome.
	Renewed func(RenewedEvent)

	// Lost: a lock was lost.
	Lost func(LostEvent)

	// HandedOver: a release passed the key to another goroutine of the Locker, in memory.
	HandedOver func(HandedOverEvent)

	// Released: a lock was released by its holder, in memory or at the backend.
	Released func(ReleasedEvent)
}

// AcquiredEvent describes a successful acquisition.
type AcquiredEvent struct {
	Key    string        // as the caller named it
	Token  Token         // the lock's
	Waited time.Duration // from the call to the grant
	Local  bool          // the key was handed over in memory
}

// RefusedEvent describes an acquisition that failed.
type RefusedEvent struct {
	Key    string        // as the caller named it
	Waited time.Duration // from the call to the refusal
	Err    error         // what the caller gets
}

// WaitingEvent describes a wait.
type WaitingEvent struct {
	Key       string        // as the caller named it
	Holder    Holder        // zero if not known
	ExpiresIn time.Duration // what remains of the holder's lease; 0 if not known
	Place     int           // place in the backend's queue, 1 being next; 0 if it keeps none
	Waited    time.Duration // since the asking goroutine called Acquire
}

// RenewedEvent describes the outcome of one renewal.
type RenewedEvent struct {
	Key    string        // as the caller named it
	Token  Token         // the lock's; 0 if none was in use
	Took   time.Duration // from the request to its answer
	Margin time.Duration // validity left when the renewal was answered, before it counted
	Err    error         // nil if renewed; a *LostError if the backend no longer has it; else it is tried again
}

// LostEvent describes a loss.
type LostEvent struct {
	Key  string        // as the caller named it
	Held time.Duration // from the grant
	Err  *LostError    // with token and reason
}

// HandedOverEvent describes a local handoff.
type HandedOverEvent struct {
	Key     string // as the caller named it
	Token   Token  // of the lock that was released
	Turns   int    // how many turns the run has had
	Waiting int    // goroutines of this Locker that still wait for the key
}

// ReleasedEvent describes a release.
type ReleasedEvent struct {
	Key   string        // as the caller named it
	Token Token         // the lock's
	Held  time.Duration // from the grant
	Local bool          // the key was handed over in memory
	Err   error         // nil, or why it is not known that the backend freed the key
}
