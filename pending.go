package holdfast

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxPause is the longest pause of a leader between two requests. If a notice is lost, that is what
// it costs.
const maxPause = time.Second

// pendingClaim is a claim that the leader asks for and the backend has not granted yet. When a
// leader gives up, the next one goes on with the claim, at its place in the queue.
//
// If the backend has a queue, it keeps the claim there for some time after each request that asks
// for it: the presence, which is in its answer. So the leader asks again before that is over.
type pendingClaim struct {
	// as last sent; only the proposed token and Queue change, and Block and Ticket once each
	claim   driver.Claim
	wall    uint64             // the wall clock when it was last sent, for tokens
	notices chan driver.Notice // guarded by addressees.mu; see addressees.notices
	// the owner value of the last known holder of the key; guarded by cohort.shard.mu
	holder string

	trace  bool          // the backend may know the claim
	maybe  bool          // a request may have taken effect, and no later one was answered
	denied bool          // it was to queue, and an answer said that it does not
	asked  clock.Instant // when the first request was sent; 0: none was
	// the time from which an outage counts (see cohort.outageFrom), or when the last request that
	// was answered was sent; 0: the backend has never answered
	outageFrom clock.Instant
	present    clock.Instant // when the last request that found the claim queued was sent
	presence   time.Duration // what that request was answered; 0: not queued
	failed     int           // requests in a row without an answer
	polls      int           // answers so far from a backend without queue and notices

	first request // of the leader that made the claim; it saves an allocation
}

// takePending returns the claim that the last leader left, or a new one. An outage counts from
// outageFrom (see cohort.outageFrom).
func (c *cohort) takePending(a *call, outageFrom clock.Instant) *pendingClaim {
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
		}, outageFrom: outageFrom}
		c.pending = p
	}
	if a.wait && l.pushes {
		l.addressees.expect(p)
	}
	return p
}

// abandon gives up the pending claim, and has it removed at the backend if the backend may know it.
// The caller holds shard.mu and may raise tasks.
func (c *cohort) abandon(p *pendingClaim) {
	c.pending = nil
	if p.trace {
		c.locker.cleanUp(p.claim)
	}
}

// replacePending gives up the pending claim and returns a new one, which asks for the old place in
// the queue. The caller may raise tasks.
func (c *cohort) replacePending(a *call, p *pendingClaim) *pendingClaim {
	c.locker.addressees.forget(p)
	c.shard.mu.Lock()
	c.abandon(p)
	c.shard.mu.Unlock()
	next := c.takePending(a, p.outageFrom)
	next.claim.Ticket = p.claim.Ticket
	return next
}

// heard notes a Busy answer to a request that was sent at start. It reports false if the claim may
// have been granted and that grant may have expired before the request arrived. Then a notice of
// the old grant may still come and would be taken for a new grant, so the caller asks with another
// claim. It does so too if the claim waits and an earlier answer said that it does not: it may
// have waited before that. heard reports true if the claim was certainly in the queue all the time:
// a grant lasts at least as long as the place in the queue would have.
func (c *cohort) heard(p *pendingClaim, result driver.Result, start clock.Instant) (known bool) {
	c.shard.mu.Lock()
	p.holder = result.Holder
	c.answered, c.silent = true, 0
	c.shard.mu.Unlock()
	p.outageFrom, p.failed, p.maybe = start, 0, false
	if result.Presence == 0 {
		p.presence, p.denied = 0, p.denied || p.claim.Queue
		return true // the claim is not queued, so pushed ignores notices
	}
	since, presence := p.asked, result.Presence
	if p.present != 0 {
		// An earlier request, whose answer was lost, may already have had the shorter presence.
		since, presence = p.present, min(p.presence, result.Presence)
	}
	known = since == start || clock.Now() < since.Add(c.locker.config.validity(presence))
	p.presence, p.present, p.trace = result.Presence, start, true
	if p.claim.Ticket == 0 && result.Clock > 0 {
		// The claim can come back to its place if the backend drops it, as after an outage. Its
		// first request may have queued it, even if that had no answer.
		waited := uint64(start.Sub(p.asked) / time.Microsecond)
		p.claim.Ticket = result.Clock - min(waited, result.Clock-1)
	}
	return known && !p.denied
}

// outlasts reports whether the wait goes on after a request that was sent at start has failed with
// err. It goes on until a TTL has passed since the last answer. If there never was an answer, the
// wait ends at once. But if the first request may have taken effect, the leader asks once more,
// because it may have the key.
func (p *pendingClaim) outlasts(err error, start clock.Instant) bool {
	if p.outageFrom == 0 {
		return isUnknown(err) && p.failed == 0
	}
	return start.Sub(p.outageFrom) < p.claim.TTL
}

// noteFailure notes whether a request that failed may have left something at the backend. err is
// the backend's own error, and not the one that the caller gets: that may be the cause of a
// context, which says nothing about the request.
func (p *pendingClaim) noteFailure(err error) {
	maybe := !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInvalid)
	p.trace, p.maybe = p.trace || maybe, p.maybe || maybe
}

// told returns the error that the caller gets after a request has failed with err.
func (p *pendingClaim) told(err error) error {
	if p.maybe {
		return afterUnknown(err)
	}
	return err
}

// missed notes that a request that was sent at start has failed with err. cut says whether the
// caller's context had ended. missed returns the pause before the next request, and whether a
// waiter goes on. A single attempt ends in any case.
func (p *pendingClaim) missed(err error, start clock.Instant, a *call,
	cut bool) (pause time.Duration, goesOn bool) {
	if a.watch != nil && !cut {
		a.watch(err)
	}
	// If the outcome of a single attempt is unknown, those who wait behind it ask themselves: the
	// key may be theirs, and they were promised more than one attempt.
	leavesOpen := !a.wait && isUnknown(err)
	if cut || driver.Permanent(err) ||
		a.watch == nil && !leavesOpen && !p.outlasts(err, start) {
		return 0, false
	}
	pause = backoff(p.failed)
	p.failed++
	return pause, true
}

// pause returns how long to wait before the next request. took is how long the last request took.
func (p *pendingClaim) pause(result driver.Result, took time.Duration, pushes bool) time.Duration {
	var d time.Duration
	switch {
	case result.Presence > 0:
		// Three times in the presence, so the place survives the loss of two requests.
		d = min(result.Presence/3, maxPause) - took
	case pushes:
		d = maxPause/2 + rand.N(maxPause/2)
	default:
		// Random, so that two leaders that have collided do not collide again, and longer than an
		// acquisition takes.
		const shortest, longest = 20 * time.Millisecond, 250 * time.Millisecond
		span := min(max(shortest, 4*took)<<min(p.polls, 4), longest)
		p.polls++
		d = max(span/2+rand.N(span), 2*took)
	}
	if result.ExpiresIn > 0 && result.Place <= 1 {
		// If the holder is dead, the key becomes free then.
		d = min(d, result.ExpiresIn+rand.N(5*time.Millisecond))
	}
	return max(d, time.Millisecond)
}
