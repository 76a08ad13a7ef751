package promhold

import "sync"

// maxQueued bounds each map of queuedLeases. They forget everything rather than grow further: then
// some margins are counted that should not be.
const maxQueued = 10_000

// queuedLeases knows the leases of a Locker that came out of the backend's queue and were not
// renewed yet. Such a lease lasts for what is left of the waiter's presence, which is less than a
// TTL, and the first renewal makes it a whole one. So the margin of that renewal means nothing.
//
// Events do not tell where a lease came from. A lease counts as queued if the backend said before
// that the acquisition waits. That may leave out the first margin of a lease that was not queued.
type queuedLeases struct {
	mu      sync.Mutex
	waiting map[string]struct{} // keys
	fresh   map[permitKey]struct{}
}

// permitKey is a key, or one permit of it.
type permitKey struct {
	key  string
	slot int
}

func newQueuedLeases() *queuedLeases {
	return &queuedLeases{waiting: make(map[string]struct{}), fresh: make(map[permitKey]struct{})}
}

// waits notes that an acquisition of the key waits at the backend.
func (q *queuedLeases) waits(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxQueued {
		clear(q.waiting)
	}
	q.waiting[key] = struct{}{}
}

// refused notes that an acquisition of the key does not wait any more. If others do, the backend
// says so again.
func (q *queuedLeases) refused(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, key)
}

// acquired notes that the backend granted the key.
func (q *queuedLeases) acquired(key string, slot int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.waiting[key]; !ok {
		return
	}
	if slot < 0 { // others may still wait: each waiter for a permit is told once
		delete(q.waiting, key)
	}
	if len(q.fresh) >= maxQueued {
		clear(q.fresh)
	}
	q.fresh[permitKey{key, slot}] = struct{}{}
}

// renewed reports whether this was the first renewal of a lease that was queued for.
func (q *queuedLeases) renewed(key string, slot int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.fresh[permitKey{key, slot}]
	delete(q.fresh, permitKey{key, slot})
	return ok
}

// ended notes that the lease is over.
func (q *queuedLeases) ended(key string, slot int) { q.renewed(key, slot) }
