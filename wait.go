package holdfast

import (
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxPause is the longest a waiter goes without asking the backend: what a lost wake-up costs.
const maxPause = time.Second

// waiter is a goroutine that waits for its Locker's cohort, not for the backend.
type waiter struct {
	asker asker
	ready chan verdict // has room for the one verdict

	// Guarded by cohort.shard.mu:
	prev, next *waiter
	queued     bool
}

// verdict ends a waiter's wait: with a lock, with the order to lead, or with an error.
type verdict struct {
	lock *Lock
	lead bool
	err  error
}

// waiterPool saves a channel for each wait. Each Locker has its own, because channels must not
// wander between the bubbles of package synctest.
type waiterPool struct{ pool sync.Pool }

func (p *waiterPool) get(a *asker) *waiter {
	w, _ := p.pool.Get().(*waiter)
	if w == nil {
		w = &waiter{ready: make(chan verdict, 1)}
	}
	w.asker = *a
	return w
}

// put takes the waiter back. Its channel is empty and nobody else knows it any more.
func (p *waiterPool) put(w *waiter) {
	w.asker = asker{}
	p.pool.Put(w)
}

// waiterList is the order in which the waiters of a cohort asked. Guarded by cohort.shard.mu.
type waiterList struct {
	first, last *waiter
	length      int
}

func (l *waiterList) push(w *waiter) {
	w.prev, w.next, w.queued = l.last, nil, true
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.length++
}

func (l *waiterList) pop() *waiter {
	w := l.first
	if w != nil {
		l.remove(w)
	}
	return w
}

// remove reports whether w was in the list.
func (l *waiterList) remove(w *waiter) bool {
	if !w.queued {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	l.length--
	return true
}

// all yields the waiters in order; the one yielded may be removed.
func (l *waiterList) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for w := l.first; w != nil; {
			next := w.next
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

// pending is an acquisition that the backend has not granted yet. It belongs to the leader.
type pending struct {
	key     string
	owner   string
	claim   driver.Claim       // as it was last asked for
	notices chan driver.Notice // guarded by grants.mu; see grants.notices
	holder  string             // owner value that was last seen to hold the key; guarded by cohort.shard.mu

	trace    bool          // the backend may know of it
	asked    clock.Instant // when the first request left; 0 before
	answered clock.Instant // when a request left that was answered; 0 before the first
	present  clock.Instant // when a request left that confirmed the place in the queue
	presence time.Duration // and for how long; 0: not queued
	failed   int           // requests in a row without an answer
	polls    int

	first request // of the leader that made it
}

// takePending returns the acquisition that the last leader left, or a new one.
func (c *cohort) takePending(a *asker) *pending {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.pending == nil {
		c.pending = &pending{key: c.key, owner: driver.NewOwner(a.terms.suffix)}
	}
	if a.wait && c.locker.pushes {
		c.locker.grants.expect(c.pending)
	}
	return c.pending
}

// replacePending gives the leader's acquisition up for a new one. The caller is allowed to raise tasks.
func (c *cohort) replacePending(a *asker, p *pending) *pending {
	c.locker.grants.forget(p)
	p.abandon(c.locker)
	c.shard.mu.Lock()
	c.pending = nil
	c.shard.mu.Unlock()
	return c.takePending(a)
}

// abandon removes what the backend may know of the acquisition. The caller is allowed to raise tasks.
func (p *pending) abandon(l *Locker) {
	if p.trace {
		l.abandon(p.claim)
	}
}

// heard notes a busy answer to a request that left at start. It reports false if the acquisition may have been granted
// and have run out before that request arrived: the notice of that grant may still be on its way, and would be taken
// for one that follows this answer. While the place in the queue was certain there was no such grant, since a grant lasts
// for as long as the place would have.
func (c *cohort) heard(p *pending, result driver.Result, start clock.Instant) (known bool) {
	c.shard.mu.Lock()
	p.holder = result.Holder
	c.shard.mu.Unlock()
	p.answered, p.failed = start, 0
	if result.Presence == 0 {
		p.presence = 0
		return true // notices of grants are not taken
	}
	since, span := p.asked, result.Presence
	if p.present != 0 {
		since, span = p.present, p.presence
	}
	known = since == start || clock.Now() < since.Add(c.locker.config.validity(span))
	p.presence, p.present, p.trace = result.Presence, start, true
	return known
}

// outlasts reports whether the wait goes on after a request that left at start and brought err. An
// outage is waited out for a TTL from the last answer. Without any answer so far it ends the wait at once; except that
// an unknown outcome is asked for once more, since the key may be ours.
func (p *pending) outlasts(err error, a *asker, start clock.Instant) bool {
	if p.answered == 0 {
		return isUnknown(err) && p.failed == 0
	}
	return start.Sub(p.answered) < a.terms.ttl
}

// pause is how long to wait before asking again, after an answer that took this long.
func (p *pending) pause(result driver.Result, took time.Duration, pushes bool) time.Duration {
	var d time.Duration
	switch {
	case result.Presence > 0:
		// Three times in the span: two requests may be lost before the place is.
		d = min(result.Presence/3, maxPause) - took
	case pushes:
		d = maxPause/2 + rand.N(maxPause/2)
	default:
		// Random, so that two who collided do not collide again (R21), and longer than an acquisition takes (R22).
		const shortest, longest = 20 * time.Millisecond, 250 * time.Millisecond
		span := min(max(shortest, 4*took)<<min(p.polls, 4), longest)
		p.polls++
		d = max(span/2+rand.N(span), 2*took)
	}
	if result.ExpiresIn > 0 && result.Place <= 1 {
		// If the holder is dead this is when it matters.
		d = min(d, result.ExpiresIn+rand.N(5*time.Millisecond))
	}
	return max(d, time.Millisecond)
}

// backoff is the random pause after the nth failure in a row, counted from 0.
func backoff(n int) time.Duration {
	span := min(50*time.Millisecond<<min(n, 5), maxPause)
	return span/2 + rand.N(span/2)
}

// grants knows the acquisitions that wait for a notice, by owner value.
type grants struct {
	mu      sync.Mutex
	waiting map[string]*pending
}

// expect has notices for the acquisition delivered. It comes before the first request, since a grant may overtake the answer.
func (g *grants) expect(p *pending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = make(map[string]*pending)
	}
	g.waiting[p.owner] = p
}

// notices returns the channel on which the acquisition is told. Most are granted before anybody asks for it.
func (g *grants) notices(p *pending) chan driver.Notice {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.channel()
}

func (g *grants) forget(p *pending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, p.owner)
}

// deliver passes a notice on. It never blocks: one notice is enough to make the leader ask.
func (g *grants) deliver(n driver.Notice) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n.Owner != "" {
		if p := g.waiting[n.Owner]; p != nil {
			tell(p.channel(), n)
		}
		return
	}
	for _, p := range g.waiting {
		if p.key == n.Key {
			tell(p.channel(), n)
		}
	}
}

// channel makes it if there is none. The caller holds grants.mu.
func (p *pending) channel() chan driver.Notice {
	if p.notices == nil {
		p.notices = make(chan driver.Notice, 1)
	}
	return p.notices
}

// tell keeps the latest notice, except that a grant is not displaced by a hint.
func tell(notices chan driver.Notice, n driver.Notice) {
	for {
		select {
		case notices <- n:
			return
		default:
		}
		select {
		case old := <-notices:
			if old.Kind == driver.Granted && n.Kind != driver.Granted {
				n = old
			}
		default:
		}
	}
}
