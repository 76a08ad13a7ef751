package quorum_test

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// releaseHeld releases a claim that holds the key since that time. The answer must be Held if a
// majority of servers held the claim until the release, and must not be if they did not. If the
// network repeats requests, a server may hold the claim until the first copy and answer the second.
func (w *worker) releaseHeld(c driver.Claim, since time.Time) {
	r, err := w.release(c)
	if err != nil {
		return // nobody knows
	}
	net := w.h.net
	net.mu.Lock()
	servers := make(map[int]bool)
	for _, f := range net.freed[c.Owner] {
		if !f.at.Before(since) {
			servers[f.server] = true
		}
	}
	net.mu.Unlock()
	n, need, repeats := len(servers), len(w.conns)/2+1, w.h.weather.repeat > 0
	if said := r.State == driver.Held; said != (n >= need) && (said || !repeats) {
		w.h.violate("release: %s: %v; %d servers held it until then, and a majority is %d", c.Owner,
			r.State, n, need)
	}
}
