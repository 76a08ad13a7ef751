package holdfast

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxPause is the longest a leader waits between two requests: what a lost notice costs.
const maxPause = time.Second

// pendingClaim is a claim that the leader asks for and the backend has not granted yet. It belongs
// to the leader, and outlives it: the next leader goes on with it, at its place in the queue.
type pendingClaim struct {
	// as last sent; only the proposed token, Queue and, once each, Block and Ticket change
	claim   driver.Claim
	wall    uint64             // the wall clock when it was last sent
	notices chan driver.Notice // guarded by addressees.mu; see addressees.notices
	// owner value that was last seen to hold the key; guarded by cohort.shard.mu
	holder string

	trace    bool          // the backend may know the claim
	maybe    bool          // a request may have taken effect, and none after it was answered
	asked    clock.Instant // when the first request left; 0 before
	answered clock.Instant // from when an outage counts: when a request left that was answered
	present  clock.Instant // when a request left that confirmed the place in the queue
	presence time.Duration // and for how long; 0: not queued
	failed   int           // requests in a row without an answer
	polls    int           // answers so far from a backend without queue and notices

	first request // allocated in one piece; for the leader that made it
}

// takePending returns the claim that the last leader left, or a new one. answered is from when an
// outage counts, see outage.
func (c *cohort) takePending(a *call, answered clock.Instant) *pendingClaim {
	l := c.locker
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	p := c.pending
	if p == nil {
		p = &pendingClaim{claim: driver.Claim{
			Key:   c.key,
			Owner: driver.NewOwner(a.suffix),
			TTL:   c.terms.ttl,

			Shared: c.terms.shared,
		}, answered: answered}
		c.pending = p
	}
	if a.wait && l.pushes {
		l.addressees.expect(p)
	}
	return p
}

// abandon gives up the pending claim, and removes what the backend may know of it. The caller holds
// shard.mu and may raise tasks.
func (c *cohort) abandon(p *pendingClaim) {
	c.pending = nil
	if p.trace {
		c.locker.cleanUp(p.claim)
	}
}

// replacePending gives up the pending claim for a new one, which asks for the old place in the
// queue. The caller may raise tasks.
func (c *cohort) replacePending(a *call, p *pendingClaim) *pendingClaim {
	c.locker.addressees.forget(p)
	c.shard.mu.Lock()
	c.abandon(p)
	c.shard.mu.Unlock()
	next := c.takePending(a, p.answered)
	next.claim.Ticket = p.claim.Ticket
	return next
}

// heard notes a Busy answer to a request that left at start. It reports false if the claim may have
// been granted, and that grant have expired, before the request arrived. A notice of that grant may
// come yet, and would count as a new grant: so the caller asks with another claim. While the place
// in the queue was certain there was no such grant, since a grant lasts as long as the place would
// have.
func (c *cohort) heard(p *pendingClaim, result driver.Result, start clock.Instant) (known bool) {
	c.shard.mu.Lock()
	p.holder = result.Holder
	c.answered, c.silent = true, 0
	c.shard.mu.Unlock()
	p.answered, p.failed, p.maybe = start, 0, false
	if result.Presence == 0 {
		p.presence = 0
		return true // not queued: pushed takes no notice
	}
	since, presence := p.asked, result.Presence
	if p.present != 0 {
		// A request whose answer was lost may have had the shorter presence already.
		since, presence = p.present, min(p.presence, result.Presence)
	}
	known = since == start || clock.Now() < since.Add(c.locker.config.validity(presence))
	p.presence, p.present, p.trace = result.Presence, start, true
	if p.claim.Ticket == 0 {
		// The claim can come back to its place if the backend drops it, as after an outage.
		p.claim.Ticket = result.Clock
	}
	return known
}

// outlasts reports whether the wait goes on after a request that left at start failed with err. An
// outage may last a TTL from the last answer. With no answer so far the wait ends at once, but an
// unknown outcome is asked for once more: the key may be ours.
func (p *pendingClaim) outlasts(err error, start clock.Instant) bool {
	if p.answered == 0 {
		return isUnknown(err) && p.failed == 0
	}
	return start.Sub(p.answered) < p.claim.TTL
}

// noteFailure notes what a request that failed may have left at the backend. err is the backend's
// own error: what the caller is told may be the cause of its context, which says nothing of the
// request.
func (p *pendingClaim) noteFailure(err error) {
	maybe := !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInvalid)
	p.trace, p.maybe = p.trace || maybe, p.maybe || maybe
}

// told returns what the caller hears of a request that failed with err.
func (p *pendingClaim) told(err error) error {
	if p.maybe {
		return afterUnknown(err)
	}
	return err
}

// missed notes that a request that left at start failed with err. cut says that the caller's
// context had ended. It returns the pause before the next request, and false if there is none for
// whoever waits: a single attempt is over in any case.
func (p *pendingClaim) missed(err error, start clock.Instant, a *call,
	cut bool) (pause time.Duration, goesOn bool) {
	if a.watch != nil && !cut {
		a.watch(err)
	}
	if cut || driver.Permanent(err) || a.watch == nil && !p.outlasts(err, start) {
		return 0, false
	}
	pause = backoff(p.failed)
	p.failed++
	return pause, true
}

// pause returns how long to wait before asking again. took is how long the last answer took.
func (p *pendingClaim) pause(result driver.Result, took time.Duration, pushes bool) time.Duration {
	var d time.Duration
	switch {
	case result.Presence > 0:
		// Three times in the presence: two requests may be lost before the place is.
		d = min(result.Presence/3, maxPause) - took
	case pushes:
		d = maxPause/2 + rand.N(maxPause/2)
	default:
		// Random, so that two who collided do not collide again, and longer than an acquisition
		// takes.
		const shortest, longest = 20 * time.Millisecond, 250 * time.Millisecond
		span := min(max(shortest, 4*took)<<min(p.polls, 4), longest)
		p.polls++
		d = max(span/2+rand.N(span), 2*took)
	}
	if result.ExpiresIn > 0 && result.Place <= 1 {
		// If the holder is dead, the key is free then.
		d = min(d, result.ExpiresIn+rand.N(5*time.Millisecond))
	}
	return max(d, time.Millisecond)
}
