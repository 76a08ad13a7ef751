package memhold

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Shares implements driver.Sharer: it returns true.
func (b *Backend) Shares() bool { return true }

// sharer is one of the claims that share a key.
type sharer struct {
	owner   string
	expires clock.Instant
	token   driver.Token // the first of its latest block
}

// shared reports whether the key is held by claims that share it.
func (e *entry) shared() bool { return len(e.sharers) > 0 }

// sharer returns where the owner is among those that share the key, or -1.
func (e *entry) sharer(owner string) int {
	return slices.IndexFunc(e.sharers, func(s sharer) bool { return s.owner == owner })
}

// share lets a claim share the key. If it shares the key already, share replaces its lease and
// token.
func (e *entry) share(s sharer) {
	if i := e.sharer(s.owner); i >= 0 {
		e.sharers = slices.Delete(e.sharers, i, i+1)
	}
	i, _ := slices.BinarySearchFunc(e.sharers, s.expires, func(other sharer, at clock.Instant) int {
		if other.expires <= at {
			return -1
		}
		return 1
	})
	e.sharers = slices.Insert(e.sharers, i, s)
	e.follow()
}

// leave ends an owner's share, if it has one.
func (e *entry) leave(owner string) {
	if i := e.sharer(owner); i >= 0 {
		e.sharers = slices.Delete(e.sharers, i, i+1)
		e.follow()
	}
}

// expire ends the shares whose lease is over.
func (e *entry) expire(now clock.Instant) {
	over := 0
	for over < len(e.sharers) && e.sharers[over].expires <= now {
		over++
	}
	if over > 0 {
		e.sharers = slices.Delete(e.sharers, 0, over)
		e.follow()
	}
}

// follow makes the holder of the entry the one that shares the key for longest.
func (e *entry) follow() {
	var last sharer
	if n := len(e.sharers); n > 0 {
		last = e.sharers[n-1]
	} else {
		e.sharers = nil
	}
	e.owner, e.expires, e.token = last.owner, last.expires, last.token
}

// letIn grants a shared key to the shared claims that are first in its queue.
func (m *memory) letIn(key string, e *entry, now clock.Instant, asker string) {
	if e.queue == nil {
		return
	}
	for w := e.queue.first(now); w != nil && w.shared; w = e.queue.first(now) {
		e.queue.remove(w)
		m.admit(key, e, w, asker)
	}
	m.tend(e, now)
}

// admit grants the key to a waiter that was taken out of the queue, for what remains of its
// presence. The waiter gets a notice unless it is the asker, which gets an answer.
func (m *memory) admit(key string, e *entry, w *queuedClaim, asker string) {
	token := m.draw(w.token, w.block)
	if w.shared {
		e.share(sharer{w.owner, w.until, token})
	} else {
		e.owner, e.expires, e.token = w.owner, w.until, token
	}
	if w.owner != asker {
		m.notify(w.client, driver.Notice{Kind: driver.Granted, Key: key, Owner: w.owner,
			Token: token, Block: w.block})
	}
}

// renewShared is renew for a key that is shared.
func (m *memory) renewShared(e *entry, claim *driver.Claim, now clock.Instant) driver.Result {
	e.expire(now)
	if e.sharer(claim.Owner) < 0 {
		return driver.Result{State: driver.Lost}
	}
	m.letIn(claim.Key, e, now, "")
	s := e.sharers[e.sharer(claim.Owner)]
	s.expires = now.Add(claim.TTL)
	result := driver.Result{State: driver.Held}
	if claim.Block > 0 {
		s.token = m.draw(claim.Token, claim.Block)
		result.Token = s.token
	}
	e.share(s)
	if e.queue != nil {
		m.tend(e, now)
	}
	result.Waiting = claim.Block > 0 && m.awaited(e, now)
	return result
}
