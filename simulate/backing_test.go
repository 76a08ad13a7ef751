package simulate

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// backed checks what exclusion rests on: while a lock is valid, a majority of nodes keeps its key
// for one owner value until its deadline. Two locks that are valid at one time are rarely seen,
// since somebody else must ask at the right moment.
func (h *history) backed(g *grip) {
	suspends, rest := h.suspends.Load(), time.Until(g.lock.Deadline())
	if rest <= 0 {
		return
	}
	backing, most := make(map[string]int), 0
	entries := h.stack.inspect(g.key.name)
	for _, e := range entries {
		for _, p := range holders(e) {
			if p.ExpiresIn >= rest {
				backing[p.Owner]++
				most = max(most, backing[p.Owner])
			}
		}
	}
	// All of this is looked at after the nodes, so that what ends meanwhile is no violation.
	if most > h.stack.size()/2 || h.suspends.Load() != suspends || h.now() < g.key.excused.Load() {
		return
	}
	g.key.mu.Lock()
	open := g.open
	g.key.mu.Unlock()
	if open && g.valid() && g.lock.Err() == nil {
		h.violate("backing",
			"%s: token %d is valid for another %v, and %d of %d nodes keep its key as long: %v",
			g.key.name, g.lock.Token(), rest, most, h.stack.size(), kept(entries))
	}
}

// kept lists who holds the key at each node.
func kept(entries []driver.Entry) (all [][]driver.Party) {
	for _, e := range entries {
		all = append(all, holders(e))
	}
	return all
}
