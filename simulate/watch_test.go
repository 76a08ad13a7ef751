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

// asker is who asks for permits on some terms. In each Locker they are in one list.
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

// release is the last of a slot.
type release struct {
	asker
	at time.Duration
}

// fewTrips is more than it takes, in fair weather, until a scout that sets out has every slot that
// is free, or until one that comes free is taken, even if the scout's turn ends just then and
// another one gets the gate.
func (p *plan) fewTrips() time.Duration {
	d := 100*p.delay + 20*time.Millisecond + p.blocks()
	if p.redis || p.presence < time.Second {
		// The next poll: on Redis requests are in one connection, in order; and a short presence
		// may end on the way, so that notices do not count.
		d += 2 * time.Second
	}
	return d
}

// watch looks in fair weather, as long as anybody works, that nobody waits for a permit while
// another one is free: for no longer than the span of WithCohort and a few round trips. The nodes
// of a quorum may each be free or not, so there it does not look.
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

// unused checks that a slot is not free for long while somebody waits for long. The span counts
// only for who was not there yet when the slot was released on the same terms in the same Locker:
// a waiter in the list has it brought. If that one gives up just then, the slot is left to the
// scout; so this is looked at only where nobody gives up. Nor where a release may have a context
// that has ended: it is made in the background, so who was brought the slot may find it taken yet.
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
