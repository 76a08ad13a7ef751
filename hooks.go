package holdfast

import (
	"context"
	"time"
)

// Hooks observe a Locker. Nil hooks are skipped.
//
// The hooks of one [WithHooks] are called one after the other, on a goroutine of their own, a
// moment after the event. Events that one goroutine caused are told in order. When Lost is called,
// Done is closed and contexts have ended.
//
// A hook that blocks delays the other hooks of the same WithHooks. It delays no lock, no log and no
// other observer. At most 10,000 events wait for it. Further ones are dropped, and the log says so.
// A hook that panics is logged. A hook may call the Locker, Close included. Events from before
// Close may still be told after it.
//
// Some events have the context that the caller gave to the acquisition. It is there for its values,
// such as the span of a trace. It may have ended by the time the hook is called, and says nothing
// about the lock.
type Hooks struct {
	// Acquired: an acquisition succeeded. Nested ones (see [Locker.Acquire]) are not reported. Of
	// several keys at once, each is told when all are held.
	Acquired func(AcquiredEvent)

	// Refused: an acquisition failed, for whatever reason. Of several keys at once one event is
	// told, for the key that could not be had.
	Refused func(RefusedEvent)

	// Waiting: the backend answered a waiting acquisition that the key is held. Of all goroutines
	// of a Locker that wait for a key on the same terms, one asks for all. Who waits for a permit
	// is told of once, with the holder of one slot.
	Waiting func(WaitingEvent)

	// Renewed: the watchdog, Extend or Downgrade asked for a renewal, with this outcome; or a
	// reader asked whether a writer waits, which renews the lease too (see Sharing in the package
	// documentation).
	Renewed func(RenewedEvent)

	// Lost: a lock was lost.
	Lost func(LostEvent)

	// HandedOver: a release passed the key to another goroutine of the Locker, in memory.
	HandedOver func(HandedOverEvent)

	// Released: a lock was released by its holder, in memory or at the backend, or by a Release
	// after its maximum hold.
	Released func(ReleasedEvent)
}

// AcquiredEvent describes a successful acquisition.
type AcquiredEvent struct {
	Key     string        // as the caller named it
	Token   Token         // the lock's
	Granted time.Time     // when; of several keys at once, each at its own time
	Waited  time.Duration // from the call to the grant
	Local   bool          // the key was handed over, or shared, in memory
	Shared  bool          // others may hold the key as well, see WithShared
	Slot    int           // the permit's, see Lock.Slot; -1 for a lock

	Context context.Context // the caller's, for its values
}

// RefusedEvent describes an acquisition that failed.
type RefusedEvent struct {
	Key    string        // as the caller named it
	Waited time.Duration // from the call to the refusal
	Err    error         // what the caller gets

	Context context.Context // the caller's, for its values; nil if it gave none
}

// WaitingEvent describes an answer to an acquisition that waits.
type WaitingEvent struct {
	Key       string        // as the caller named it
	Holder    Holder        // zero if not known
	ExpiresIn time.Duration // what remains of the holder's lease; 0 if not known
	Place     int           // place in the backend's queue, 1 being next; 0 if it keeps none
	// since the asking goroutine called Acquire; of several keys at once, since it waits for this
	// one
	Waited time.Duration

	Context context.Context // of the goroutine that asks, for its values
}

// RenewedEvent describes the outcome of one renewal.
type RenewedEvent struct {
	Key    string        // as the caller named it
	Token  Token         // the lock's, or that of one of those that share it; 0 if none was in use
	Took   time.Duration // from the request to its answer
	Margin time.Duration // validity left when the renewal was answered, before it counted
	Slot   int           // the permit's, see Lock.Slot; -1 for a lock
	// nil if renewed; a *LostError if the backend no longer has it, or answered too late; else it
	// is tried again
	Err error
}

func (e *RenewedEvent) loss(reason error) error {
	return &LostError{Key: e.Key, Token: e.Token, Reason: reason}
}

// LostEvent describes a loss.
type LostEvent struct {
	Key  string        // as the caller named it
	Held time.Duration // from the grant
	Err  *LostError    // with token and reason
	Slot int           // the permit's, see Lock.Slot; -1 for a lock
}

// HandedOverEvent describes a local handoff.
type HandedOverEvent struct {
	Key     string // as the caller named it
	Token   Token  // of the lock that was released
	Turns   int    // how many turns the run has had
	Waiting int    // goroutines of this Locker that still wait for the key
	Slot    int    // the permit's, see Lock.Slot; -1 for a lock
}

// ReleasedEvent describes a release.
type ReleasedEvent struct {
	Key   string        // as the caller named it
	Token Token         // the lock's
	Held  time.Duration // from the grant
	Local bool          // the backend was not asked: other goroutines go on with the lease
	Err   error         // what Release returned
	Slot  int           // the permit's, see Lock.Slot; -1 for a lock
}

// on returns hooks that only have the observer call h.
func (h Hooks) on(o *observer) Hooks {
	return Hooks{
		Acquired:   later(o, h.Acquired),
		Refused:    later(o, h.Refused),
		Waiting:    later(o, h.Waiting),
		Renewed:    later(o, h.Renewed),
		Lost:       later(o, h.Lost),
		HandedOver: later(o, h.HandedOver),
		Released:   later(o, h.Released),
	}
}

func later[Event any](o *observer, hook func(Event)) func(Event) {
	if hook == nil {
		return nil
	}
	return func(e Event) { o.tell(func() { hook(e) }) }
}

// and returns hooks that call those of h and of more, neither of which block or panic.
func (h Hooks) and(more Hooks) Hooks {
	return Hooks{
		Acquired:   both(h.Acquired, more.Acquired),
		Refused:    both(h.Refused, more.Refused),
		Waiting:    both(h.Waiting, more.Waiting),
		Renewed:    both(h.Renewed, more.Renewed),
		Lost:       both(h.Lost, more.Lost),
		HandedOver: both(h.HandedOver, more.HandedOver),
		Released:   both(h.Released, more.Released),
	}
}

func both[Event any](first, second func(Event)) func(Event) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(e Event) {
		first(e)
		second(e)
	}
}
