package etcdhold

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// identity names a claim.
type identity struct{ key, owner string }

// phase says where a claim is, as far as this process knows.
type phase uint8

const (
	unclear phase = iota
	waits
	holds
)

// claim is a claim that this Backend has made, from its first request on. Its lease of etcd may be
// kept alive for other claims, so this process ends the claim when its own time is over.
type claim struct {
	identity

	// Guarded by Backend.mu:
	phase     phase
	modified  int64         // revision of the holder's key; 0 if it is not known
	queued    int64         // revision in which it was last found in the queue
	record    record        // of the holder
	lease     *lease        // of the holder or the waiter; nil if it is not known
	unsettled []*lease      // under which a request may still arrive
	buried    []*lease      // of these: those that have a tombstone
	perhaps   []*lease      // to which a renewal without an answer may have moved it
	deadline  time.Duration // by the lease clock
	ending    bool          // its time is over, or it is released: it is never renewed again
	watched   bool          // it counts for the watch of its key
	asked     time.Duration // by the lease clock: when a waiter proposed its token
	timer     *time.Timer
	due       time.Duration // when the timer fires
	failures  int           // to end it
}

// claimOf returns the claim, and makes it if there is none. Nothing ends the claim until it is
// settled.
func (b *Backend) claimOf(c driver.Claim) (mine *claim, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := identity{c.Key, c.Owner}
	if mine := b.claims[id]; mine != nil {
		return mine, false
	}
	mine = &claim{identity: id, deadline: driver.LeaseClock() + c.TTL + b.timeout}
	b.claims[id] = mine
	return mine, true
}

// find returns the claim, or nil.
func (b *Backend) find(c driver.Claim) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claims[identity{c.Key, c.Owner}]
}

// dead returns a function that reports whether a party is a claim of this Backend whose time is
// over. Other processes need not know that: if this process cannot end the claim, etcd does.
func (b *Backend) dead(key string) func(*party) bool {
	now := driver.LeaseClock()
	return func(p *party) bool {
		if b.leases.find(p.lease) == nil {
			return false
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		mine := b.claims[identity{key, p.owner}]
		return mine == nil || now >= mine.deadline
	}
}

// under moves the claim to the lease. Called with mu held.
func (b *Backend) under(c *claim, x *lease) {
	if c.lease != x {
		b.leases.count(x, 1)
		b.leases.count(c.lease, -1)
		c.lease = x
	}
}

// held notes that the claim holds its key.
func (b *Backend) held(c *claim, p *party, revision int64, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.phase, c.modified, c.record, c.ending = holds, revision, p.record, false
	b.under(c, b.leases.find(p.lease))
	b.unwatch(c)
	b.extend(c, ttl)
}

// leasesOfHolders returns the leases under which a claim may hold its key.
func (b *Backend) leasesOfHolders() map[*lease]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make(map[*lease]bool)
	for _, c := range b.claims {
		if c.phase != waits && c.lease != nil {
			held[c.lease] = true
		}
	}
	return held
}

// waiting notes that the claim is in the queue.
func (b *Backend) waiting(c *claim, p *party, revision int64, presence time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.phase == holds && c.modified > revision {
		b.extend(c, presence)
		return // a notice was faster than the answer
	}
	if p.put || c.phase != waits {
		c.asked = driver.LeaseClock()
		c.record = p.record
	}
	c.phase, c.modified, c.queued, c.ending = waits, 0, revision, false
	b.under(c, b.leases.find(p.lease))
	b.watch(c)
	b.extend(c, presence)
}

// outdated reports whether a waiter's record has to be written again. The tokens that a waiter
// proposes follow its clock, so only a jump counts. After a release without an answer the record is
// written as well, so that the release finds another one if it arrives late.
func (b *Backend) outdated(c *claim, asks driver.Claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	passed := driver.LeaseClock() - c.asked + time.Second
	return c.ending || asks.Block != c.record.Block ||
		uint64(asks.Token) > c.record.Token+uint64(passed.Microseconds())
}

// unsettle notes that a request for the claim may still arrive, under that lease.
func (b *Backend) unsettle(c *claim, x *lease, ttl time.Duration) {
	b.leases.retire(x)
	b.mu.Lock()
	defer b.mu.Unlock()
	c.modified = 0
	if c.phase == holds {
		c.phase = unclear
	}
	b.leases.count(x, 1)
	c.unsettled = append(c.unsettled, x)
	b.extend(c, ttl)
}

// settled forgets that requests for the claim may arrive under the lease, which is gone.
func (b *Backend) settled(c *claim, x *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.buried = slices.DeleteFunc(c.buried, func(other *lease) bool { return other == x })
	for i, other := range c.unsettled {
		if other == x {
			c.unsettled = append(c.unsettled[:i:i], c.unsettled[i+1:]...)
			b.leases.count(x, -1)
			return
		}
	}
}

// drop forgets the claim.
func (b *Backend) drop(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims[c.identity] != c {
		return
	}
	delete(b.claims, c.identity)
	if c.timer != nil {
		c.timer.Stop()
	}
	b.unwatch(c)
	b.leases.count(c.lease, -1)
	for _, x := range slices.Concat(c.unsettled, c.perhaps) {
		b.leases.count(x, -1)
	}
	c.lease, c.unsettled, c.buried, c.perhaps = nil, nil, nil, nil
}

// extend has the claim end after d. Called with mu held.
func (b *Backend) extend(c *claim, d time.Duration) {
	c.deadline, c.failures = driver.LeaseClock()+d, 0
	b.arm(c, c.deadline)
}

// arm sets the timer that looks at the claim at that time. A timer that is due earlier stays: it
// finds the claim renewed, which is cheaper than to move it with every renewal. Called with mu
// held.
func (b *Backend) arm(c *claim, at time.Duration) {
	if c.timer != nil && c.due <= at {
		return
	}
	b.rearm(c, at)
}

func (b *Backend) rearm(c *claim, at time.Duration) {
	if b.closed {
		return
	}
	c.due = at
	wait := max(time.Millisecond, at-driver.LeaseClock())
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, func() { b.fire(c) })
	} else {
		c.timer.Reset(wait)
	}
}

// fire ends the claim in its turn if its time is over.
func (b *Backend) fire(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.claims[c.identity] != c {
		return
	}
	if !c.ending && driver.LeaseClock() < c.deadline {
		b.rearm(c, c.deadline)
		return
	}
	b.turns.take(c.key, func() { b.end(c) })
}

// end ends the claim if its time is over, and tries again later if that fails.
func (b *Backend) end(c *claim) {
	b.mu.Lock()
	over := c.ending || driver.LeaseClock() >= c.deadline
	if b.closed || b.claims[c.identity] != c || !over {
		if !b.closed && b.claims[c.identity] == c {
			b.rearm(c, c.deadline)
		}
		b.mu.Unlock()
		return
	}
	c.ending = true
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.ctx, b.timeout) // other calls for the key wait for it
	defer cancel()
	if _, err := b.release(ctx, c, true); err == nil {
		return // it is dropped
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.failures++
	b.rearm(c, driver.LeaseClock()+min(time.Second<<min(c.failures, 5), 30*time.Second))
}

// abandon has the claim ended in the background, because its release has failed.
func (b *Backend) abandon(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims[c.identity] == c {
		c.ending, c.modified = true, 0
		b.arm(c, driver.LeaseClock()+time.Second)
	}
}

// granted notes that claims of the key were let in, and tells those that are ours.
func (b *Backend) granted(key string, admitted []*party, revision int64) {
	for _, p := range admitted {
		x := b.leases.find(p.lease)
		if x == nil {
			continue
		}
		b.mu.Lock()
		c := b.claims[identity{key, p.owner}]
		// A notice that is late may be of a grant that was over when the claim queued again.
		tell := c != nil && c.phase != holds && !c.ending && revision > c.queued
		if tell {
			c.phase, c.modified, c.record = holds, revision, p.record
			b.under(c, x)
			b.unwatch(c)
		}
		b.mu.Unlock()
		if tell {
			b.tell(driver.Notice{Kind: driver.Granted, Key: key, Owner: p.owner,
				Token: driver.Token(p.record.Token), Block: p.record.Block})
		}
	}
}
