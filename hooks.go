package holdfast

import (
	"context"
	"time"
)

// Hooks observe a Locker. Nil hooks are skipped.
//
// Each [WithHooks] has a goroutine of its own. It calls the hooks one after the other, a moment
// after each event. Events that one goroutine caused are reported in order. When Lost is called,
// the lock's Done is closed and its contexts have ended. So Lost may come after Released, if a lock
// was released after its maximum hold while contexts still ended. If a lock is lost at once, as
// when Close comes with it, Lost may come before Acquired.
//
// A hook that blocks delays the other hooks of the same WithHooks. It does not delay locks, the log
// or other hooks. At most 10,000 events wait for it; further events are dropped, and the log says
// so. A panic of a hook is logged. A hook may call methods of the Locker, including Close. Events
// from before Close may be reported after it.
//
// Some events have the context that the caller passed to the acquisition, for the sake of its
// values, such as the span of a trace. This context may have ended when the hook is called, and
// says nothing about the lock.
type Hooks struct {
	// Acquired: an acquisition succeeded. Nested acquisitions are not reported (see
	// [Locker.Acquire]). For several keys, there is an event for each key, when all are held.
	Acquired func(AcquiredEvent)

	// Refused: an acquisition failed, for whatever reason. For several keys, there is one event,
	// for the key that could not be acquired.
	Refused func(RefusedEvent)

	// Waiting: an acquisition waits, and the backend has answered that the key is held. If several
	// goroutines of a Locker wait for a key on the same terms, one of them asks for all, and only
	// its acquisition is reported. An acquisition that waits for a permit is reported once, with
	// the holder of one slot.
	Waiting func(WaitingEvent)

	// Renewed: a renewal was answered, or failed. It was automatic, or made by Extend or Downgrade.
	// A reader that asks whether a writer waits also renews the lease (see Sharing in the package
	// documentation).
	Renewed func(RenewedEvent)

	// Lost: a lock was lost. What AcquireAll loses while it waits for another key does not count:
	// no caller has got it. A call gives its lock back at once if its context has just ended, or if
	// it has another permit. If the lock is lost at that moment, there is Lost without Acquired.
	Lost func(LostEvent)

	// HandedOver: a release passed the key to another goroutine of the Locker in memory.
	HandedOver func(HandedOverEvent)

	// Released: a holder released a lock, in memory or at the backend, perhaps after its maximum
	// hold.
	Released func(ReleasedEvent)
}

// AcquiredEvent describes a successful acquisition.
type AcquiredEvent struct {
	Key     string        // as the caller named it
	Token   Token         // the lock's
	Granted time.Time     // when the lock was granted, even if other keys of the call came later
	Waited  time.Duration // from the call to the grant
	Local   bool          // the backend was not asked: the key was handed over or shared in memory
	Shared  bool          // the lock is shared, see WithShared
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
	Holder    Holder        // the zero Holder means not known
	ExpiresIn time.Duration // what remains of the holder's lease; 0 means not known
	Place     int           // place in the backend's queue, where 1 is next; 0 means no queue
	// since the goroutine that asks called Acquire; for several keys, since it waits for this one
	Waited time.Duration

	Context context.Context // of the goroutine that asks, for its values
}

// RenewedEvent describes the outcome of one renewal.
type RenewedEvent struct {
	Key    string        // as the caller named it
	Token  Token         // of the lock, or of one of those on the lease; 0 if there is none
	Took   time.Duration // from the request to its answer
	Margin time.Duration // what was left of the old validity when the answer came
	Slot   int           // the permit's, see Lock.Slot; -1 for a lock
	// nil if the lease was renewed; a *LostError if it is lost; otherwise the lease goes on to its
	// deadline, and the next renewal comes soon, unless WithoutRenewal was given
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
	Turns   int    // how many goroutines have had the key in a row (see WithCohort)
	Waiting int    // goroutines of this Locker that still wait for the key
	Slot    int    // the permit's, see Lock.Slot; -1 for a lock
}

// ReleasedEvent describes a release.
type ReleasedEvent struct {
	Key   string        // as the caller named it
	Token Token         // the lock's
	Held  time.Duration // from the grant
	Local bool          // the backend was not asked: other goroutines have the lease
	Err   error         // what Release returned
	Slot  int           // the permit's, see Lock.Slot; -1 for a lock
}

// on returns hooks that only queue a call of h with the observer.
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

// and returns hooks that call those of h and then those of more. None of them may block or panic.
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
