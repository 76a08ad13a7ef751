package memhold

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// indexAbove is the length above which a queue finds its waiters by a map. Below it, a search
// through the list is faster.
const indexAbove = 32

// queue is the queued claims of one key, which comments here call its waiters. It is guarded by
// memory.mu.
type queue struct {
	key     string
	waiters []*queuedClaim          // in the order in which they will be served
	index   map[string]*queuedClaim // by owner value; nil for a short queue

	// soonest is not after the end of any waiter's presence. Until then no waiter is dead.
	soonest clock.Instant

	// timer fires at the latest when the holder's lease ends, at `at` while armed.
	timer *time.Timer
	armed bool
	at    clock.Instant
}

// queuedClaim is a claim that waits for the key.
type queuedClaim struct {
	owner  string
	ticket uint64
	until  clock.Instant // end of its presence
	token  driver.Token  // proposed
	block  uint64
	shared bool
	client *Backend // gets the notice
}

// order compares by ticket, then by owner value.
func (w *queuedClaim) order(ticket uint64, owner string) int {
	return cmp.Or(cmp.Compare(w.ticket, ticket), cmp.Compare(w.owner, owner))
}

func (q *queue) find(owner string) *queuedClaim {
	if q.index != nil {
		return q.index[owner]
	}
	for _, w := range q.waiters {
		if w.owner == owner {
			return w
		}
	}
	return nil
}

// position returns where the waiter is, or would be.
func (q *queue) position(w *queuedClaim) int {
	i, _ := slices.BinarySearchFunc(q.waiters, w, func(x, w *queuedClaim) int {
		return x.order(w.ticket, w.owner)
	})
	return i
}

func (q *queue) insert(w *queuedClaim) {
	if len(q.waiters) == 0 {
		q.soonest = w.until
	}
	q.soonest = min(q.soonest, w.until)
	q.waiters = slices.Insert(q.waiters, q.position(w), w)
	switch {
	case q.index != nil:
		q.index[w.owner] = w
	case len(q.waiters) > indexAbove:
		q.index = make(map[string]*queuedClaim, 2*indexAbove)
		for _, w := range q.waiters {
			q.index[w.owner] = w
		}
	}
}

func (q *queue) remove(w *queuedClaim) {
	i := q.position(w)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	delete(q.index, w.owner)
}

// first returns the first live waiter, and drops the dead ones before it. It returns nil if none is
// alive.
func (q *queue) first(now clock.Instant) *queuedClaim {
	for len(q.waiters) > 0 && now >= q.waiters[0].until {
		q.remove(q.waiters[0])
	}
	if len(q.waiters) == 0 {
		return nil
	}
	return q.waiters[0]
}

// behind reports whether every live waiter comes after the claim. A nil queue has none.
func (q *queue) behind(claim *driver.Claim, now clock.Instant) bool {
	if q == nil {
		return true
	}
	if q.prune(now); len(q.waiters) == 0 {
		return true
	}
	return claim.Queue && claim.Ticket > 0 && q.find(claim.Owner) == nil &&
		q.waiters[0].order(claim.Ticket, claim.Owner) > 0
}

// pop removes and returns the first live waiter, and drops the dead ones before it. It
// returns nil if none is alive.
func (q *queue) pop(now clock.Instant) *queuedClaim {
	for i, w := range q.waiters {
		q.waiters[i] = nil
		delete(q.index, w.owner)
		if now < w.until {
			if i+1 == len(q.waiters) {
				q.waiters = q.waiters[:0]
			} else {
				// The waiters are not moved to the front, so a long queue is not copied each time.
				q.waiters = q.waiters[i+1:]
			}
			return w
		}
	}
	q.waiters = q.waiters[:0]
	return nil
}

// prune drops every waiter that is no longer present.
func (q *queue) prune(now clock.Instant) {
	if now < q.soonest {
		return
	}
	live := q.waiters[:0]
	for _, w := range q.waiters {
		if now >= w.until {
			delete(q.index, w.owner)
			continue
		}
		if len(live) == 0 {
			q.soonest = w.until
		}
		q.soonest = min(q.soonest, w.until)
		live = append(live, w)
	}
	clear(q.waiters[len(live):])
	q.waiters = live
}

func (q *queue) disarm() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.armed = false
}
