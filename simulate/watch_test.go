package simulate

import (
	"time"
)

// waiting is a call of Acquire for a permit, while it lasts.
type waiting struct {
	asker
	permits int // it knows of
	since   time.Duration
}

// asker says who asks for permits on which terms. Each Locker has one list for all that are equal.
type asker struct {
	life *life
	wish uint64 // see worker.wish
}

// waits notes that somebody waits for a permit, until the function that it returns is called.
func (h *history) waits(k *keyState, who asker, permits int) func() {
	if permits == 0 {
		return func() {}
	}
	w := &waiting{asker: who, permits: permits, since: h.now()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waits == nil {
		k.waits = make(map[*waiting]bool)
	}
	k.waits[w] = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.waits, w)
	}
}

// release is the last release of a slot.
type release struct {
	asker
	at time.Duration
}

// fewTrips returns more than it takes, in fair weather, until a scout that starts has every slot
// that is free, or until a slot that becomes free is taken, even if the scout's turn ends just then
// and another one gets the gate.
func (p *plan) fewTrips() time.Duration {
	d := 100*p.delay + 20*time.Millisecond + p.blocks()
	if p.redis || p.presence < time.Second {
		// The next poll: on Redis requests are in one connection, in order; and a short presence
		// may end on the way, so that notices do not count.
		d += 2 * time.Second
	}
	return d
}

// In fair weather, as long as anybody works, watch checks that nobody waits for a permit while one
// is free, for longer than the span of WithCohort and a few round trips. It does not look on a
// quorum, where a slot may be free on some nodes only.
func (h *history) watch(finished <-chan struct{}) {
	if !h.has(fair) || h.nodes > 1 {
		return
	}
	trips := h.fewTrips()
	for !within(max(trips/10, 5*time.Millisecond), finished) {
		for _, k := range h.keyed {
			for slot, s := range k.slots {
				h.unused(k, s, slot, trips)
			}
		}
	}
}

// unused checks that a slot is not free for long while somebody waits for long. If a waiter was in
// the list when the slot was released on the same terms in the same Locker, the slot is handed to
// it, without the span. This is not checked if callers give up: the slot is left to the scout if
// the waiter gives up just then. Nor is it checked if a release may have a context that has ended:
// such a release is made in the background, so the waiter may still find the slot taken.
func (h *history) unused(k, s *keyState, slot int, trips time.Duration) {
	now := h.now()
	if len(holders(h.stack.inspect(s.name)[0])) > 0 {
		s.used.raise(now)
		return
	}
	free := now - s.used.Load()
	if free <= trips {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	brings := !h.redis && h.turns > 1 && !h.has(impatience) && !h.has(oddReleases) &&
		s.taken.Load() < s.released.at
	for w := range k.waits {
		wait := now - w.since
		switch {
		case w.permits <= slot:
		case min(wait, free) > h.span+trips:
			h.violate("liveness", "%s was free for %v while somebody waited for %v; the span is %v",
				s.name, free, wait, h.span)
		case brings && w.asker == s.released.asker && s.released.at-w.since > trips:
			h.violate("liveness", "%s was free for %v, but not brought to one who waited for %v",
				s.name, free, wait)
		}
	}
}
