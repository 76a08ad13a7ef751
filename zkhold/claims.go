package zkhold

import (
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

// claim is a claim that this Backend has made, from its first request on. Its node lives as long as
// the session, so this process ends it when its own time is over.
type claim struct {
	identity

	// Guarded by Backend.mu:
	phase    phase
	node     string // its name; empty if it is not known
	shared   bool
	block    uint64        // of a waiter
	token    uint64        // that a waiter has proposed
	asked    time.Duration // when it proposed that, by the lease clock
	doubtful bool          // a request for it had no answer
	ending   bool          // its time is over, or it is released: it is never renewed again
	followed string        // the node that is watched
	deadline time.Duration // by the lease clock
	timer    *time.Timer
	due      time.Duration // when the timer fires
	failures int           // to end it
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
// over. Other processes need not know that: if this process cannot end the claim, ZooKeeper does.
func (b *Backend) dead(key string, nodes namer) func(*party) bool {
	now := driver.LeaseClock()
	return func(p *party) bool {
		if !nodes.made(p.Node) {
			return false
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		mine := b.claims[identity{key, unescape(p.Owner)}]
		return mine == nil || now >= mine.deadline
	}
}

// held notes that the claim holds its key.
func (b *Backend) held(c *claim, p *party, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.phase, c.node, c.shared, c.doubtful, c.ending = holds, p.Node, p.Shared, false, false
	b.extend(c, ttl)
}

// waiting notes that the claim is in the queue.
func (b *Backend) waiting(c *claim, p *party, presence time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.phase == holds && c.node == p.Node {
		b.extend(c, presence)
		return // a notice was faster than the answer
	}
	if c.phase != waits || c.node != p.Node || c.token != p.Token {
		c.asked, c.token, c.block = driver.LeaseClock(), p.Token, p.Block
	}
	c.phase, c.node, c.doubtful, c.ending = waits, p.Node, false, false
	b.follow(c)
	b.extend(c, presence)
}

// outdated reports whether a waiter's party has to be written again. The tokens that a waiter
// proposes follow its clock, so only a jump counts.
func (b *Backend) outdated(c *claim, asks driver.Claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	passed := driver.LeaseClock() - c.asked + time.Second
	return c.phase == waits && (asks.Block != c.block ||
		uint64(asks.Token) > c.token+uint64(passed.Microseconds()))
}

// doubt notes that nobody knows whether a request for the claim was executed. The claim then lasts
// as if it was.
func (b *Backend) doubt(c *claim, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims[c.identity] != c || c.ending {
		return
	}
	c.doubtful = true
	c.deadline = max(c.deadline, driver.LeaseClock()+ttl)
	b.arm(c, c.deadline)
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
	if b.closed || b.claims[c.identity] != c {
		b.mu.Unlock()
		return
	}
	if !c.ending && driver.LeaseClock() < c.deadline {
		b.rearm(c, c.deadline)
		b.mu.Unlock()
		return
	}
	c.ending = true
	b.mu.Unlock()
	if _, err := b.release(c, true); err == nil {
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
		c.ending, c.doubtful = true, true
		b.arm(c, driver.LeaseClock()+time.Second)
	}
}

// granted notes that the claim that queued with that node was let in, and tells it.
func (b *Backend) granted(id identity, node string, g grant) {
	b.mu.Lock()
	c := b.claims[id]
	// A late notice may be of a grant that was over when the claim queued again. Then the claim has
	// another node.
	tell := c != nil && c.phase == waits && c.node == node && !c.ending
	if tell {
		c.phase = holds
		// Whether it shares the key is not known, so the next renewal looks.
		c.doubtful = true
	}
	b.mu.Unlock()
	if tell {
		b.tell(driver.Notice{Kind: driver.Granted, Key: id.key, Owner: id.owner,
			Token: driver.Token(g.Token), Block: g.Block})
	}
}
