package quorum_test

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Two holders are rarely seen: somebody else must ask at the right moment, and reach the right
// servers. So the simulation also checks, after each step of a server, what exclusion rests on:
// while a claim is valid, a majority of servers keeps the key for it until its deadline. For tokens
// it is that a majority will draw only larger ones.

// backed checks this for the claims that are valid. Called with net.mu held.
func (h *history) backed(keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.backedLocked(key)
	}
}

func (h *history) backedLocked(key string) {
	now, valid := clock.Now(), h.valid[key][:0]
	for _, hd := range h.valid[key] {
		if hd.ended || now >= hd.deadline {
			continue
		}
		backing := 0
		for _, s := range h.net.servers {
			if s.backs(key, hd, hd.deadline.Sub(now)) {
				backing++
			}
		}
		if backing < h.need() {
			h.violateLocked(
				"backing: %s (shared %v) holds %q for another %v, and %d of %d servers keep it as long%s",
				hd.owner, hd.shared, key, hd.deadline.Sub(now), backing, h.nodes,
				h.net.describeLocked(key))
			continue // once is enough
		}
		valid = append(valid, hd)
	}
	h.valid[key] = valid
}

func (h *history) need() int { return h.nodes/2 + 1 }

// backs reports whether the server keeps the key for the claim for that long.
func (s *server) backs(key string, hd *hold, rest time.Duration) bool {
	k := s.keys[key]
	if k == nil {
		return false
	}
	until := k.expires
	if i := k.sharer(hd.owner); i >= 0 {
		if until = k.sharers[i].expires; !hd.shared {
			return false
		}
	} else if k.owner != hd.owner {
		return false
	}
	return until-s.now() >= time.Duration(float64(rest)*s.rate)
}

// acknowledged checks that a majority draws only larger tokens from now on. Called with h.mu and
// net.mu held.
func (h *history) acknowledged(key string, hd *hold, last driver.Token) {
	n := 0
	for _, s := range h.net.servers {
		if s.fence >= last {
			n++
		}
	}
	if n < h.need() {
		h.violateLocked("backing: %s has token %d of %q, and %d of %d servers draw larger ones",
			hd.owner, last, key, n, h.nodes)
	}
}
