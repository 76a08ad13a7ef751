package simulate

import (
	"time"
)

// waiting is a call of Acquire for a permit, while it lasts.
type waiting struct {
	permits int // it knows of
	since   time.Duration
}

// waits notes that somebody waits for a permit, until the function that it returns is called.
func (h *history) waits(k *keyState, permits int) func() {
	if permits == 0 {
		return func() {}
	}
	w := &waiting{permits: permits, since: h.now()}
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
// of a quorum may each be free or not, so there it does not look. Nor does it during a rollout: one
// who knows of few permits may have the gate, while another one waits behind it who knows of more.
func (h *history) watch(finished <-chan struct{}) {
	if !h.has(fair) || h.has(rollouts) || h.nodes > 1 {
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

// unused checks that a slot is not free for long while somebody waits for long.
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
	for w := range k.waits {
		if wait := now - w.since; w.permits > slot && wait > h.span+trips {
			h.violate("liveness", "%s was free for %v while somebody waited for %v; the span is %v",
				s.name, free, wait, h.span)
			return
		}
	}
}
