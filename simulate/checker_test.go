package simulate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// The invariants, which are looked at in every step of every history:
//
//	exclusion  at no time are two locks on a key valid, unless both share it
//	backing    while a lock is valid, a majority of nodes keeps its key for it until its deadline
//	slots      a permit has a slot below the number of permits that was asked for
//	permits    no more are valid at one time than the largest number that a process knows
//	context    nothing is granted after the end of the acquisition's context
//	tokens     larger than those of every acquisition that was complete before theirs began, and no
//	           other's, unless both share the key; of a semaphore for each slot
//	deadline   a loss is told no later than the deadline, Done first, contexts with it, whatever
//	           hooks do
//	liveness   when the faults have ended, every waiter is served within a bound, and a free key
//	           is acquired
//	debris     soon after the last release, long before a TTL has passed, the backend knows of
//	           nothing any more
//	close      Close returns within its bound, and with nil only if it left nothing behind
//	errors     every error is of exactly one kind
//	sets       a set has ended exactly if one of its locks has, and its channel and context with it
//	attempts   an Acquire of a lock is not told of the unknown outcome of another's single attempt
//	panic      nobody panics who was not told to
//	pace       nobody calls the backend again and again without a pause

// keyState is what the checker knows of a key: of a lock, a slot or a gate, or of a semaphore,
// which is held only in its slots.
type keyState struct {
	name  string
	index int // see keyIndex

	slots  []*keyState // of a semaphore
	orders []*keyState // of a semaphore: gates, and the key of the scouts
	of     *keyState   // the semaphore of a slot

	// excused is the time, since the start of the history, until which an assumption does not hold
	// for the key. Until left, the backend may have what nobody releases any more: a Close has said
	// so, a process has died, or a clean-up got no answer for a TTL and has given up.
	excused, left atomicDuration

	// refused is the time until which the backend may have what it has refused to release, for
	// good.
	refused atomicDuration

	used     atomicDuration // of a slot: when it was last seen to be taken, or released
	taken    atomicDuration // and when the backend last granted it to one that asked
	released release        // guarded by mu; zero if nobody has to hear of it any more

	waits map[*waiting]bool // of a semaphore

	mu        *sync.Mutex // shared by the slots of a semaphore
	open      []*grip     // granted, and not yet being released
	completed uint64      // the largest token of an acquisition that is complete and was exclusive
	shared    uint64      // and of one that shares the key

	seen map[uint64]bool // the tokens that were given, and whether to a writer
}

type atomicDuration struct{ d atomic.Int64 }

func (a *atomicDuration) Load() time.Duration { return time.Duration(a.d.Load()) }

func (a *atomicDuration) raise(to time.Duration) {
	for old := a.d.Load(); int64(to) > old &&
		!a.d.CompareAndSwap(old, int64(to)); old = a.d.Load() {
	}
}

// litter reports whether the backend may have what nobody wants any more.
func (h *history) litter(k *keyState) bool {
	return h.now() < max(k.excused.Load(), k.left.Load(), k.refused.Load())
}

// grip is a lock, as the checker sees it.
type grip struct {
	lock   *holdfast.Lock
	key    *keyState
	worker *worker
	asker  asker // of a permit
	open   bool  // guarded by key.mu
	shared bool  // others may have the key as well; guarded by key.mu
	reads  bool  // that is known for sure; for the worker alone

	// the latest deadline that was seen, on the lease clock since the start; guarded by key.mu
	promised time.Duration
	over     bool // it was seen after its deadline; guarded by key.mu
}

// valid reports whether the lock says of itself that it is.
func (g *grip) valid() bool { return g.lock.Deadline().After(time.Now()) }

// user is the key as users name it.
func (k *keyState) user() *keyState {
	if k.of != nil {
		return k.of
	}
	return k
}

// floors returns what the token of an acquisition that begins now must exceed, for each slot.
func (k *keyState) floors(shared bool) (floors []uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.held() {
		floor := s.completed
		if !shared {
			floor = max(floor, s.shared)
		}
		floors = append(floors, floor)
	}
	return floors
}

// granted checks a lock that was just granted. floor is the key's floor from when its acquisition
// began.
func (h *history) granted(g *grip, floor uint64) {
	token := uint64(g.lock.Token())
	k := g.key
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.now() >= k.excused.Load() {
		if writer, twice := k.seen[token]; twice && (writer || !g.shared) {
			h.violate("tokens", "%s: token %d was given twice", k.name, token)
		}
		if token <= floor {
			h.violate("tokens", "%s: token %d, but %d was complete before", k.name, token, floor)
		}
	}
	if !g.valid() && h.now() != time.Duration(h.suspendedAt.Load()) && byClock(g.lock.Err()) {
		h.violate("deadline", "%s: token %d was granted after its deadline", k.name, token)
	}
	k.seen[token] = !g.shared
	if g.shared {
		k.shared = max(k.shared, token)
	} else {
		k.completed = max(k.completed, token)
	}
	g.open = true
	k.open = append(k.open, g)
	k.used.raise(h.now())
	k.released = release{} // it was handed over; g may keep it until its lease ends
	h.alone(k)
	h.few(k)
}

// few checks that there are no more valid permits of a semaphore than it has. The caller holds
// k.mu, of a slot.
func (h *history) few(k *keyState) {
	if k.of == nil {
		return
	}
	valid := 0
	for _, s := range k.of.slots {
		if h.now() < s.excused.Load() {
			return
		}
		for _, g := range s.open {
			if g.valid() {
				valid++
			}
		}
	}
	if valid > len(k.of.slots) {
		h.violate("permits", "%s: %d permits of %d are valid", k.of.name, valid, len(k.of.slots))
	}
}

// byClock reports whether err is a loss by the clock, not by the backend, a maximum hold or a
// Close.
func byClock(err error) bool {
	var lost *holdfast.LostError
	return errors.As(err, &lost) && strings.Contains(lost.Reason.Error(), " ended")
}

// downgrading notes that from now on the lock counts as one that shares the key, whatever comes of
// the request.
func (h *history) downgrading(g *grip) {
	g.key.mu.Lock()
	defer g.key.mu.Unlock()
	h.alone(g.key)
	g.shared = true
}

// alone checks that only one lock on the key is valid, or several that share it. The caller holds
// k.mu.
func (h *history) alone(k *keyState) {
	if len(k.open) < 2 || h.now() < k.excused.Load() {
		return
	}
	var valid *grip
	for _, g := range k.open {
		if !g.valid() {
			continue
		}
		if valid != nil && !(valid.shared && g.shared) {
			now := time.Now()
			h.violate("exclusion",
				"%s: process %d holds token %d for another %v, and process %d token %d for another %v",
				k.name,
				valid.worker.proc.id, valid.lock.Token(), valid.lock.Deadline().Sub(now),
				g.worker.proc.id, g.lock.Token(), g.lock.Deadline().Sub(now))
			return
		}
		valid = g
	}
}

// outlived notes which locks are after their deadlines: they never become valid again.
func (k *keyState) outlived() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.open {
		g.over = g.over || !g.valid()
	}
}

// look checks a lock that is held, at any moment.
func (h *history) look(g *grip) {
	g.key.mu.Lock()
	h.alone(g.key)
	if g.over && g.valid() {
		h.violate("deadline", "%s: token %d is valid again after its deadline", g.key.name,
			g.lock.Token())
	}
	h.promises(g)
	g.key.mu.Unlock()
	h.backed(g)
	now := time.Now()
	if d := g.lock.Deadline(); d.Before(now) && !h.late() {
		select {
		case <-g.lock.Done():
		default:
			h.violate("deadline", "%s: token %d is not told to be lost %v after its deadline",
				g.key.name, g.lock.Token(), now.Sub(d))
		}
	}
}

// promises checks that a deadline which was seen once does not move back while the lock is held.
// The caller holds g.key.mu.
func (h *history) promises(g *grip) {
	suspends := h.suspends.Load()
	deadline := clock.Now().Sub(h.began) + time.Until(g.lock.Deadline())
	if h.suspends.Load() != suspends {
		return
	}
	// Err ends a lock that is over, so it is called only if necessary: a Locker has to find out by
	// itself.
	if deadline < g.promised && g.lock.Err() == nil {
		h.violate("deadline", "%s: token %d: the deadline has moved back by %v", g.key.name,
			g.lock.Token(), g.promised-deadline)
	}
	g.promised = max(g.promised, deadline)
}

// letGo takes the lock out, before its release begins. It reports false if somebody else did.
func (h *history) letGo(g *grip) bool {
	k := g.key
	k.mu.Lock()
	defer k.mu.Unlock()
	if !g.open {
		return false
	}
	h.alone(k)
	k.used.raise(h.now())
	k.released = release{}
	if g.lock.Err() == nil { // else its lease may be over, and there is nothing to hand over
		k.released = release{g.asker, h.now()}
	}
	g.open = false
	for i, other := range k.open {
		if other == g {
			k.open[i] = k.open[len(k.open)-1]
			k.open = k.open[:len(k.open)-1]
			break
		}
	}
	return true
}

// kinds counts of which of the documented kinds an error is.
func kinds(err error) (n int, ofContext bool) {
	for _, kind := range []error{
		holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrUnavailable, holdfast.ErrUnknown,
		holdfast.ErrReleased, holdfast.ErrClosed, holdfast.ErrInvalid,
	} {
		if errors.Is(err, kind) {
			n++
		}
	}
	ofContext = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if ofContext {
		n++
	}
	return n, ofContext
}

// refusal checks the error of a call with a context.
func (h *history) refusal(what string, ctx context.Context, err error) {
	n, ofContext := kinds(err)
	var lost *holdfast.LostError
	switch {
	case errors.As(err, &lost):
		h.lostError(lost)
	case n != 1:
		h.violate("errors", "%s: of %d kinds: %v", what, n, err)
	case ofContext && ctx.Err() == nil:
		h.violate("errors", "%s: of a context, though the caller's has not ended: %v", what, err)
	}
}

// lostError checks the error of a lock that was lost.
func (h *history) lostError(err error) {
	for _, kind := range []error{
		holdfast.ErrUnavailable, holdfast.ErrUnknown, holdfast.ErrReleased, holdfast.ErrHeld,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			h.violate("errors", "the loss of a lock is also %q: %v", kind, err)
			return
		}
	}
}
