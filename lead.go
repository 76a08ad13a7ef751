package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// This file is the leader's talk with the backend, from top to bottom:
//
//   - If the cohort still has a lease, the run of turns on it is over. The leader asks for a fresh
//     run (freshRun; for readers freshSpan in share.go). If it gets one, its own turn begins.
//   - Otherwise it asks for the key (ask): a request (question), a pause or a notice (sleep,
//     pushed), and the next request.
//   - That ends with a lease and the first turn on it (begin), or with an error (giveUp).

// lead talks to the backend for the cohort until the caller has the key or has to give up. On entry
// the caller leads and is a counted task (see Locker.tasks); lead ends both. start is a reading of
// the clock from before the call.
func (c *cohort) lead(ctx context.Context, a *call, start clock.Instant) (lock *Lock, err error) {
	returned := false
	defer func() {
		if !returned {
			c.unwind()
		}
		c.locker.tasks.Done()
	}()
	c.shard.mu.Lock()
	h, outageFrom := c.lease, c.outageFrom(start)
	c.shard.mu.Unlock()
	decided, begun := false, start
	if h != nil {
		if c.terms.shared { // a function value would cost each acquisition an allocation
			lock, decided, err = c.freshSpan(ctx, a, h)
		} else {
			lock, decided, err = c.freshRun(ctx, a, h)
		}
		if !decided {
			start = clock.Now()
			c.shard.mu.Lock()
			outageFrom = c.outageFrom(begun)
			c.shard.mu.Unlock()
		}
	}
	if !decided {
		lock, err = c.ask(ctx, a, start, outageFrom)
	}
	returned = true
	return lock, err
}

// freshRun is called at the end of a run of turns. It asks the backend to renew the lease, to
// reserve tokens for the next run, and to say whether another process waits. If one waits, freshRun
// yields the key to it: it releases the key (see WithCohort). decided is false if the cohort has no
// lease any more and has to ask for the key anew.
//
// If the key came out of the backend's queue, freshRun yields it without asking. Where one process
// had to wait, others mostly wait too, and the question would cost a round trip in which nobody
// works. If nobody waits after all, the cohort acquires the key again, and its next run ends with
// the question.
//
// If the fresh run is not confirmed, freshRun gives up the lease, whatever the reason, because
// nobody can say whether another process waits.
func (c *cohort) freshRun(ctx context.Context, a *call,
	h *lease) (lock *Lock, decided bool, err error) {
	l, s := c.locker, c.shard
	ok, err := h.reserve(ctx)
	if err != nil {
		s.mu.Lock()
		c.leading = false
		c.serveOrRetire()
		s.mu.Unlock()
		return nil, true, err
	}
	if !ok || c.yieldUnasked(ctx, h) {
		return nil, false, nil
	}
	claim := h.claim()
	wall := clock.Microseconds() // tokens follow it, see token.go
	claim.Token = l.highest.propose(wall)
	claim.Block = c.block(claim.Token, wall)
	start := clock.Now()
	results, err := l.request(ctx, h.renewalTime()).renew([]driver.Claim{claim})
	result, ended := one(results, err), ending(ctx)

	s.mu.Lock()
	h.settle()
	h.hear(start, result)
	now := clock.Now()
	if c.lease == h && ended == nil && result.State == driver.Held && result.Waiting {
		// Drop the lease before the release is sent, so that nobody relies on it or renews it.
		c.drop(h)
		claim = h.claim()
		s.mu.Unlock()
		c.yield(ctx, claim)
		return nil, false, nil
	}
	defer s.mu.Unlock()
	switch {
	case c.lease != h:
		return nil, false, nil // the lease has ended meanwhile, and is being cleaned up
	case result.State == driver.Held && result.Token > 0 && !result.Waiting && now < h.deadline:
		l.highest.saw(result.Token, claim.Block, wall)
		h.nextToken, h.lastToken = result.Token, result.Token+Token(claim.Block)-1
		h.confirm(start, claim.TTL)
		c.leading = false
		lock, err = c.firstTurn(a, h, now, ended)
		return lock, true, err
	}
	c.giveUpRun(h, result)
	if ended != nil {
		c.leading = false
		c.serveOrRetire()
		return nil, true, ended
	}
	return nil, false, nil
}

// yieldUnasked yields the key if it came out of the backend's queue, and reports whether it did.
// The caller has reserved the request that changes the lease.
func (c *cohort) yieldUnasked(ctx context.Context, h *lease) bool {
	s := c.shard
	s.mu.Lock()
	if c.lease != h || !h.queued {
		s.mu.Unlock()
		return false
	}
	claim := h.claim()
	c.drop(h)
	s.mu.Unlock()
	c.yield(ctx, claim)
	return true
}

// yield releases a key for which another process waits. The caller leads, and has dropped the
// claim's lease. If the release is not confirmed, or ctx ends, it goes on in the background.
func (c *cohort) yield(ctx context.Context, claim driver.Claim) {
	confirmed := false
	defer func() { // even if the backend or the context panics
		if !confirmed {
			c.locker.cleanUp(claim)
		}
	}()
	_, err := c.locker.request(ctx, requestTime(claim.TTL)).release(claim)
	confirmed = err == nil
}

// giveUpRun gives up a lease whose fresh run was not confirmed. The caller holds shard.mu and may
// raise tasks.
func (c *cohort) giveUpRun(h *lease, result driver.Result) {
	if result.State == driver.Lost {
		c.drop(h)
	} else {
		c.giveBack(h)
	}
}

// ask acquires the key at the backend. start is a reading of the clock from before the first
// request. An outage counts from outageFrom (see cohort.outageFrom).
func (c *cohort) ask(ctx context.Context, a *call, start, outageFrom clock.Instant) (*Lock, error) {
	l := c.locker
	p := c.takePending(a, outageFrom)
	r := &p.first
	if r.locker != nil {
		r = new(request) // another leader has used p.first
	}
	for ; ; r = new(request) {
		if l.closed.Load() {
			return nil, c.giveUp(ctx, a, p, ErrClosed, false)
		}
		if p.asked == 0 {
			p.asked = start
		}
		result, err := c.question(ctx, a, p, r)
		if err == nil && a.watch != nil {
			a.watch(nil)
		}

		var pause time.Duration
		switch {
		case err != nil:
			var goesOn bool
			pause, goesOn = p.missed(err, start, a, ending(ctx) != nil)
			if !goesOn || !a.wait {
				return nil, c.giveUp(ctx, a, p, err, goesOn)
			}
		case result.State == driver.Held:
			return c.begin(ctx, a, p, grant{start: start, length: p.claim.TTL, token: result.Token,
				block: p.claim.Block, queued: p.claim.Ticket != 0})
		default:
			known := c.heard(p, result, start)
			if !a.wait {
				c.giveUp(ctx, a, p, nil, false)
				return nil, &HeldError{Key: a.key, Holder: driver.ParseOwner(result.Holder),
					ExpiresIn: result.ExpiresIn}
			}
			if !known { // its place may be lost, and an old notice be under way
				p = c.replacePending(a, p)
				start = clock.Now()
				continue
			}
			l.tellWaiting(ctx, a, result)
			pause = p.pause(result, clock.Now().Sub(start), l.pushes)
		}

		notice, err := c.sleep(ctx, p, pause)
		if err != nil {
			return nil, c.giveUp(ctx, a, p, err, err != ErrClosed)
		}
		if g, ok := c.pushed(p, notice); ok {
			return c.begin(ctx, a, p, g)
		}
		start = clock.Now()
	}
}

// question asks the backend once, and returns Held, Busy or an error. r is a zero request.
func (c *cohort) question(ctx context.Context, a *call, p *pendingClaim,
	r *request) (driver.Result, error) {
	l := c.locker
	p.wall = clock.Microseconds()
	p.claim.Token, p.claim.Queue = l.highest.propose(p.wall), a.wait
	if p.claim.Block == 0 {
		p.claim.Block = c.block(p.claim.Token, p.wall)
	}
	r.begin(ctx, l, requestTime(p.claim.TTL))
	result, err := r.acquire(p.claim)
	if err != nil {
		p.noteFailure(err)
		return result, r.explain(err)
	}
	if result.State == driver.Busy || result.State == driver.Held && result.Token > 0 {
		return result, nil
	}
	err = fmt.Errorf("backend answered an acquisition with %v, token %d",
		result.State, result.Token)
	err = &driver.Error{Maybe: true, Permanent: true, Err: err}
	p.noteFailure(err)
	return result, err
}

func (l *Locker) tellWaiting(ctx context.Context, a *call, result driver.Result) {
	hook := l.config.hooks.Waiting
	if hook == nil || a.terms.scouted() {
		return
	}
	event := WaitingEvent{
		Key:       a.key,
		Holder:    driver.ParseOwner(result.Holder),
		ExpiresIn: result.ExpiresIn,
		Place:     result.Place,
		Waited:    clock.Now().Sub(a.since),
		Context:   ctx,
	}
	hook(event)
}

// sleep waits for d, or until a notice arrives, which it returns.
func (c *cohort) sleep(ctx context.Context, p *pendingClaim,
	d time.Duration) (driver.Notice, error) {
	c.countWaiting(1)
	defer c.countWaiting(-1)
	// Not a timer channel: the race detector crashes on those when two goroutines of a synctest
	// bubble touch theirs at the same time (seen with Go 1.26).
	notices := c.locker.addressees.notices(p)
	timer := time.AfterFunc(d, func() { post(notices, driver.Notice{}) })
	defer timer.Stop()
	select {
	case n := <-notices:
		return n, nil
	case <-ctx.Done():
		return driver.Notice{}, contextError(ctx)
	case <-c.locker.closing:
		return driver.Notice{}, ErrClosed
	}
}

// grant is what the backend has granted.
type grant struct {
	start  clock.Instant // when the request left; the lease counts from here
	length time.Duration
	token  Token
	block  uint64
	short  bool // the lease is to be renewed soon
	queued bool // the claim has waited in the backend's queue
}

// pushed returns the grant that a notice brings, or false if there is none that can be used. The
// grant lasts for the presence in the backend's last answer, counted from when that request was
// sent. It never lasts longer than the TTL, so that a renewal cannot shorten it.
//
// A notice cannot be used after a request without an answer, because that request may have changed
// the presence; the leader asks again. It cannot be used without renewal either, because such a
// lock needs a full lease from the start.
func (c *cohort) pushed(p *pendingClaim, n driver.Notice) (grant, bool) {
	if n.Kind != driver.Granted || n.Token == 0 || p.failed > 0 || p.presence == 0 ||
		!c.terms.renew {
		return grant{}, false
	}
	now := clock.Now()
	g := grant{
		start:  p.present,
		length: min(p.presence, c.terms.ttl),
		token:  n.Token,
		block:  min(max(n.Block, 1), p.claim.Block),
		short:  true,
		queued: true,
	}
	return g, now < g.start.Add(c.locker.config.validity(g.length))
}

// shortRenewal says when a lease from a notice is first renewed: after its length divided by
// shortRenewal. On Redis, where the presence of a waiter is three seconds, that is after 50 ms,
// which is also DefaultCohortSpan.
const shortRenewal = 60

// begin starts a lease with what the backend has granted, and gives the caller its turn. It fails
// if the validity is already over, ctx has ended, or the Locker is closed.
func (c *cohort) begin(ctx context.Context, a *call, p *pendingClaim, g grant) (*Lock, error) {
	l, s := c.locker, c.shard
	if a.wait && l.pushes {
		l.addressees.forget(p)
	}
	l.highest.saw(g.token, g.block, p.wall)
	ended := ending(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	c.leading = false
	c.pending = nil
	c.answered, c.silent = true, 0
	h := &c.firstLease
	if h.cohort != nil {
		h = new(lease)
	}
	h.cohort, h.owner, h.index, h.shared = c, p.claim.Owner, -1, c.terms.shared
	h.nextToken, h.lastToken = g.token, g.token+Token(g.block)-1
	h.confirm(g.start, g.length)
	h.queued = g.queued
	if g.short {
		// Not at once: most runs end before that, and the request for a fresh run would have to
		// wait for the answer to the renewal.
		h.renewAt = min(h.renewAt, now.Add(g.length/shortRenewal))
	}
	var err error
	switch {
	case s.closed:
		err = ErrClosed
	case now >= h.deadline:
		err = &driver.Error{Err: fmt.Errorf("granted, but the answer took %v of a lease of %v",
			now.Sub(g.start), g.length)}
	default:
		c.lease = h
		s.leases.add(h)
		return c.firstTurn(a, h, now, ended)
	}
	l.cleanUp(p.claim)
	c.serveOrRetire()
	return nil, err
}

// firstTurn starts a run on the lease. It gives the first turn to the call, and further ones to
// waiters if they share the key. If the call's context has ended, with the error ended, the first
// turn goes to the next waiter. The caller holds shard.mu and may raise tasks; nobody leads.
func (c *cohort) firstTurn(a *call, h *lease, now clock.Instant, ended error) (*Lock, error) {
	c.startRun(now)
	if ended != nil {
		c.locker.watchdog.schedule(h)
		c.serveOrRetire()
		return nil, ended
	}
	lock := c.giveTurn(a, now)
	if c.terms.shared {
		c.serve(0)
	}
	return lock, nil
}

// giveUp ends the caller's lead without a lease. It returns the error of ctx if that has ended, and
// else err. If ctx has ended and others wait, the next leader takes over the pending claim, with
// its place in the backend's queue. It does so too if goesOn is true: a single attempt has failed,
// but a waiter may try again. If the backend has failed in another way, all waiters get the same
// error.
func (c *cohort) giveUp(ctx context.Context, a *call, p *pendingClaim, err error,
	goesOn bool) error {
	s := c.shard
	if a.wait && c.locker.pushes {
		c.locker.addressees.forget(p) // before the next leader expects it
	}
	ended := ending(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.leading = false
	err = p.told(err)
	if ended != nil {
		err, goesOn = ended, true
	}
	switch {
	case goesOn && c.waiters.first != nil:
	case err != nil:
		c.abandon(p)
		for w := c.waiters.pop(); w != nil; w = c.waiters.pop() {
			w.ready <- outcome{err: err}
		}
	default:
		c.abandon(p)
	}
	c.serveOrRetire()
	return err
}

// unwind ends the lead after the backend or the caller's context has panicked, so that others can
// lead. The panic goes on.
func (c *cohort) unwind() {
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.leading {
		return
	}
	c.leading = false
	switch {
	case c.terms.shared:
		c.letGo()
	case c.lease != nil:
		c.giveBack(c.lease)
	}
	if p := c.pending; p != nil {
		c.pending = nil
		c.locker.addressees.forget(p)
		c.locker.cleanUp(p.claim) // it may have been granted
	}
	c.serveOrRetire()
}
