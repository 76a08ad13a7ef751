package memhold

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// minSweep is the number of keys from which on sweep looks for keys whose lease has run out.
const minSweep = 1024

// maxSpare bounds how many entries, and how many queues, are kept for reuse.
const maxSpare = 64

// memory is what all clients share: who holds which key, and who waits for it.
//
// Locks are taken in this order: line.mu, then memory.mu; subscriber.mu, then line.mu. None of
// them is held while a subscriber of another client is called.
type memory struct {
	mu sync.Mutex

	// keys has an entry for every key that is held or waited for, and for some whose lease has run
	// out. No timer watches a key without waiters, so a key whose lease has run out is found when
	// somebody asks for it, or when the map has doubled (sweepAt). peak is the map's largest size
	// since it was made.
	keys    map[string]*entry
	peak    int
	sweepAt int

	spare       []*entry
	spareQueues []*queue

	// fence is the largest token granted. All keys share it. So the tokens of one key rise faster,
	// which harms nobody, and a released key leaves nothing behind.
	fence driver.Token

	// ticket is the last one given to a claim that had none.
	ticket uint64

	presence time.Duration
	clients  []*Backend // those not closed

	identity string
	set      driver.Set    // which it belongs to; zero: none yet
	forgot   bool          // the memory was restarted without its data,
	forgotAt clock.Instant // then

	// outbox holds notices that are not delivered yet, in order. delivered is an empty one for
	// reuse.
	outbox     []delivery
	delivered  []delivery
	delivering bool
}

// entry is a key that is held or waited for.
type entry struct {
	owner   string // the holder; empty if nobody holds the key
	expires clock.Instant
	token   driver.Token // the first of the holder's latest block; 0 for a foreign holder
	queue   *queue       // nil if nobody waits

	// sharers are the claims that share the key. The last has the longest lease, and is the holder.
	// nil: one claim holds the key alone, or none does.
	sharers []sharer
}

// add makes an entry for a key that has none.
func (m *memory) add(key string, now clock.Instant) *entry {
	if len(m.keys) >= m.sweepAt {
		m.sweep(now)
	}
	var e *entry
	if n := len(m.spare); n > 0 {
		e, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		e = new(entry)
	}
	m.keys[key] = e
	m.peak = max(m.peak, len(m.keys))
	return e
}

// remove drops the entry of a key that is neither held nor waited for.
func (m *memory) remove(key string, e *entry) {
	delete(m.keys, key)
	*e = entry{}
	if len(m.spare) < maxSpare {
		m.spare = append(m.spare, e)
	}
	// Go's maps do not shrink. The removals before a copy pay for it.
	if m.peak > minSweep && len(m.keys) < m.peak/8 {
		keys := make(map[string]*entry, len(m.keys))
		maps.Copy(keys, m.keys)
		m.keys, m.peak = keys, len(keys)
		m.sweepAt = max(minSweep, 2*len(keys))
	}
}

// sweep removes the keys whose lease has run out. It waits until the map has doubled, so it costs
// each added key a constant.
func (m *memory) sweep(now clock.Instant) {
	for key, e := range m.keys {
		m.settle(key, e, now, "")
		if e.free() {
			// Not by remove, which may replace the map.
			delete(m.keys, key)
		}
	}
	m.sweepAt = max(minSweep, 2*len(m.keys))
}

// free reports whether nobody holds or waits for the key. It is exact after settle.
func (e *entry) free() bool { return e.owner == "" && e.queue == nil }

// settle ends leases that have run out, and passes a key that nobody holds to the first live
// waiter. Afterwards the key is held, or it is free and nobody waits. If it is shared, no claim
// that would share it is first in its queue. Every call begins with settle, so what happens does
// not depend on whether a timer was in time.
func (m *memory) settle(key string, e *entry, now clock.Instant, asker string) {
	e.expire(now)
	switch {
	case e.owner == "" || now >= e.expires:
		m.pass(key, e, now, asker)
	case e.shared():
		m.letIn(key, e, now, asker)
	}
}

// pass takes the key from its holder and grants it to the first live waiter. If that one shares,
// pass also grants the key to those behind it that share.
func (m *memory) pass(key string, e *entry, now clock.Instant, asker string) {
	e.owner, e.token, e.expires, e.sharers = "", 0, 0, nil
	if e.queue == nil {
		return
	}
	w := e.queue.pop(now)
	if w != nil {
		m.admit(key, e, w, asker)
	}
	if e.shared() {
		m.letIn(key, e, now, asker)
	} else {
		m.tend(e, now)
	}
}

// tend drops a queue that has become empty, and sets the timer of any other.
func (m *memory) tend(e *entry, now clock.Instant) {
	if len(e.queue.waiters) > 0 {
		m.arm(e, now)
		return
	}
	e.queue.disarm()
	if e.queue.index = nil; len(m.spareQueues) < maxSpare && cap(e.queue.waiters) <= indexAbove {
		m.spareQueues = append(m.spareQueues, e.queue)
	}
	e.queue = nil
}

// awaited reports whether a live claim waits for the key.
func (m *memory) awaited(e *entry, now clock.Instant) bool {
	if e.queue == nil {
		return false
	}
	e.queue.prune(now)
	m.tend(e, now)
	return e.queue != nil
}

// newQueue makes an empty queue for a key.
func (m *memory) newQueue(key string) *queue {
	if n := len(m.spareQueues); n > 0 {
		q := m.spareQueues[n-1]
		m.spareQueues = m.spareQueues[:n-1]
		q.key = key
		return q
	}
	return &queue{key: key}
}

// draw takes block tokens from the fence and returns the first.
func (m *memory) draw(proposed driver.Token, block uint64) driver.Token {
	token := max(m.fence+1, proposed)
	m.fence = token + driver.Token(max(block, 1)) - 1
	return token
}

// arm sets the timer that passes the key on when the holder's lease ends. For a shared key, the
// timer is also due when the first waiter may be dead, because those behind it may be let in then.
// A timer that is due earlier stays: it finds the lease renewed and is set again. That is cheaper
// than to move it with every renewal.
func (m *memory) arm(e *entry, now clock.Instant) {
	q, at := e.queue, e.expires
	if e.shared() && len(q.waiters) > 0 {
		at = min(at, q.waiters[0].until)
	}
	if len(m.clients) == 0 || q.armed && q.at <= at {
		return
	}
	q.armed, q.at = true, at
	wait := max(1, at.Sub(now)) // never a timer that is due: see DESIGN.md
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, func() { m.fire(q) })
	} else {
		q.timer.Reset(wait)
	}
}

// The timer of a queue calls fire. If it comes late, when the queue was dropped or serves another
// key, it finds nothing to do.
func (m *memory) fire(q *queue) {
	now := clock.Now()
	m.mu.Lock()
	key := q.key
	e := m.keys[key]
	if e == nil || e.queue != q || len(m.clients) == 0 {
		m.mu.Unlock()
		return
	}
	q.armed = false
	m.settle(key, e, now, "")
	if e.queue != nil {
		// The holder may renew for ever while all waiters are dead. Then this ends the queue.
		e.queue.prune(now)
		m.tend(e, now)
	}
	if e.free() {
		m.remove(key, e)
	}
	m.unlock()
}

// unlock unlocks mu and delivers the notices in the outbox.
func (m *memory) unlock() {
	deliver := len(m.outbox) > 0 && !m.delivering
	if deliver {
		m.delivering = true
	}
	m.mu.Unlock()
	if deliver {
		m.deliver()
	}
}
