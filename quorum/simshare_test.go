package quorum_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// simSharer is one of the claims that share a key of a simulated server.
type simSharer struct {
	owner   string
	expires time.Duration // by the server's clock
	token   driver.Token
}

// Shares makes conn a driver.Sharer.
func (c *conn) Shares() bool { return true }

// shared reports whether the key is held by claims that share it.
func (k *simKey) shared() bool { return len(k.sharers) > 0 }

// sharer returns where the owner is among those that share the key, or -1.
func (k *simKey) sharer(owner string) int {
	return slices.IndexFunc(k.sharers, func(s simSharer) bool { return s.owner == owner })
}

// share lets a claim share the key, or replaces what it has.
func (k *simKey) share(s simSharer) {
	if i := k.sharer(s.owner); i >= 0 {
		k.sharers = slices.Delete(k.sharers, i, i+1)
	}
	k.sharers = append(k.sharers, s)
	slices.SortStableFunc(k.sharers, func(a, b simSharer) int {
		return cmp.Compare(a.expires, b.expires)
	})
	k.follow()
}

// leave ends an owner's share.
func (k *simKey) leave(owner string) {
	k.sharers = slices.DeleteFunc(k.sharers, func(s simSharer) bool { return s.owner == owner })
	k.follow()
}

// expire ends the shares whose lease is over, also if the clock is set back later.
func (k *simKey) expire(now time.Duration) {
	if k.shared() {
		k.sharers = slices.DeleteFunc(k.sharers, func(s simSharer) bool { return now >= s.expires })
		k.follow()
	}
}

// follow makes the owner of the key the one that shares it for longest.
func (k *simKey) follow() {
	var last simSharer
	if n := len(k.sharers); n > 0 {
		last = k.sharers[n-1]
	} else {
		k.sharers = nil
	}
	k.owner, k.expires, k.token = last.owner, last.expires, last.token
}

// order compares by ticket, then by owner value.
func (w *simWaiter) order(ticket uint64, owner string) int {
	return cmp.Or(cmp.Compare(w.ticket, ticket), cmp.Compare(w.owner, owner))
}

// behind reports whether all waiters come after the claim. They are alive.
func (k *simKey) behind(claim *driver.Claim) bool {
	if len(k.queue) == 0 {
		return true
	}
	waits := slices.ContainsFunc(k.queue, func(w *simWaiter) bool { return w.owner == claim.Owner })
	return claim.Queue && claim.Ticket > 0 && !waits &&
		k.queue[0].order(claim.Ticket, claim.Owner) > 0
}

// letIn grants a shared key to the shared claims that are first in its queue.
func (s *server) letIn(key string, k *simKey, asker string) {
	now := s.now()
	for len(k.queue) > 0 && (k.queue[0].shared || now >= k.queue[0].until) {
		w := k.queue[0]
		if k.queue = k.queue[1:]; now < w.until {
			s.admit(key, k, w, asker)
		}
	}
}

// renewShared is renew for a claim that shares its key.
func (s *server) renewShared(claim driver.Claim, k *simKey) driver.Result {
	s.letIn(claim.Key, k, "")
	o := k.sharers[k.sharer(claim.Owner)]
	o.expires = s.now() + claim.TTL
	result := driver.Result{State: driver.Held}
	if claim.Block > 0 {
		if s.net.broken == deafToRaise {
			o.token = max(claim.Token, o.token)
		} else {
			o.token = s.draw(claim.Key, claim.Token, claim.Block)
		}
		result.Token = o.token
		result.Waiting = len(k.queue) > 0
	}
	k.share(o)
	return result
}
