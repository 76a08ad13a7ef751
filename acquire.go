package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// errGone is the reason of a loss that the backend reports.
var errGone = errors.New("the backend no longer has it: it expired or was removed")

// terms are the options of one acquisition.
type terms struct {
	ttl     time.Duration
	maxHold time.Duration
	renew   bool
	suffix  string // of the owner value
}

// asker is one call of Acquire.
type asker struct {
	key   string // as the caller named it
	terms terms
	since clock.Instant
	wait  bool // Acquire, not TryAcquire
}

func (l *Locker) terms(options []AcquireOption) (terms, error) {
	if len(options) == 0 {
		return terms{l.config.ttl, l.config.maxHold, l.config.renew, l.suffix}, nil
	}
	c := l.config
	for _, o := range options {
		if o == nil {
			return terms{}, invalid("option nil: leave it out")
		}
		o.applyToAcquire(&c)
	}
	if err := c.validate(); err != nil {
		return terms{}, err
	}
	t := terms{c.ttl, c.maxHold, c.renew, l.suffix}
	if c.label != l.config.label {
		t.suffix = driver.OwnerSuffix(c.label)
	}
	return t, nil
}

// acquire is Acquire, and without wait TryAcquire.
func (l *Locker) acquire(ctx context.Context, key string, wait bool, options []AcquireOption) (*Lock, error) {
	a := asker{key: key, since: clock.Now(), wait: wait}
	full, err := l.fullKey(key)
	if err == nil {
		a.terms, err = l.terms(options)
	}
	if err != nil {
		return l.refused(&a, err)
	}
	if ctx.Err() != nil {
		return l.refused(&a, keyError("acquire", key, contextError(ctx)))
	}
	if lock := l.nested(ctx, full); lock != nil {
		return lock, nil
	}
	lock, local, err := l.enter(ctx, full, &a)
	if err != nil {
		var held *HeldError
		if !errors.As(err, &held) {
			err = keyError("acquire", key, err)
		}
		return l.refused(&a, err)
	}
	l.counters.acquired.Add(1)
	if hook := l.config.hooks.Acquired; hook != nil {
		hook(AcquiredEvent{Key: key, Token: lock.token, Waited: lock.granted.Sub(a.since), Local: local})
	}
	return lock, nil
}

func (l *Locker) refused(a *asker, err error) (*Lock, error) {
	l.counters.refused.Add(1)
	if hook := l.config.hooks.Refused; hook != nil {
		hook(RefusedEvent{Key: a.key, Waited: clock.Now().Sub(a.since), Err: err})
	}
	return nil, err
}

// enter joins the cohort of the key, or founds it and leads.
func (l *Locker) enter(ctx context.Context, full string, a *asker) (lock *Lock, local bool, err error) {
	s := l.shard(full)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, false, ErrClosed
	}
	c := s.keys[full]
	if c == nil {
		c = &cohort{locker: l, shard: s, key: full, leading: true}
		if l.config.turns > 1 {
			s.keys[full] = c
		}
		l.tasks.Add(1)
		s.mu.Unlock()
		lock, err = c.ask(ctx, a, a.since)
		return lock, false, err
	}
	if !a.wait {
		defer s.mu.Unlock()
		return nil, false, c.heldError(a)
	}
	w := l.pool.get(a)
	c.waiters.push(w)
	s.mu.Unlock()

	l.counters.waiting.Add(1)
	v := c.wait(ctx, w)
	l.counters.waiting.Add(-1)
	switch {
	case v.lead:
		lock, err = c.lead(ctx, a)
		return lock, false, err
	default:
		return v.lock, true, v.err
	}
}

// wait waits for the waiter's verdict, or for ctx.
func (c *cohort) wait(ctx context.Context, w *waiter) verdict {
	select {
	case v := <-w.ready:
		c.locker.pool.put(w)
		return v
	case <-ctx.Done():
	}
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.waiters.remove(w) {
		c.locker.pool.put(w)
		return verdict{err: contextError(ctx)}
	}
	// The verdict came first, but the caller is told that it gave up. So what it was given goes on to the next waiter.
	v := <-w.ready
	c.locker.pool.put(w)
	switch {
	case v.lock != nil:
		c.returnTurn(v.lock)
	case v.lead:
		c.leading = false
		c.retire()
		c.locker.tasks.Done()
	}
	return verdict{err: contextError(ctx)}
}

// returnTurn takes back a turn that nobody has seen. Its token stays unused. The caller holds shard.mu.
func (c *cohort) returnTurn(l *Lock) {
	if l.err != nil {
		return // lost in the meantime
	}
	l.err = (*releasedError)(l)
	l.hold = nil
	c.lock = nil
	c.locker.counters.held.Add(-1)
	c.retire()
}

// heldError is what a TryAcquire gets that finds the cohort at work. The caller holds shard.mu.
func (c *cohort) heldError(a *asker) error {
	e := &HeldError{Key: a.key}
	switch {
	case c.hold != nil:
		e.Holder = driver.ParseOwner(c.hold.owner)
		e.ExpiresIn = max(0, c.hold.deadline.Sub(clock.Now()))
	case c.pending != nil:
		e.Holder = driver.ParseOwner(c.pending.holder)
	}
	return e
}

// lead talks to the backend for the cohort until the caller has the key, or has to give up. The
// cohort is leading, and the caller counted as a task, which ends with it.
func (c *cohort) lead(ctx context.Context, a *asker) (*Lock, error) {
	c.shard.mu.Lock()
	h := c.hold
	c.shard.mu.Unlock()
	if h != nil {
		if lock, err, decided := c.freshRun(ctx, a, h); decided {
			c.locker.tasks.Done()
			return lock, err
		}
	}
	return c.ask(ctx, a, clock.Now())
}

// freshRun asks the backend, at the end of a run of turns, for a fresh lease and tokens for the next run, unless
// another process waits: then the key goes there in the same step (see WithCohort). It reports false
// if the cohort has no lease any more and has to ask for the key anew.
func (c *cohort) freshRun(ctx context.Context, a *asker, h *hold) (lock *Lock, err error, decided bool) {
	l, s := c.locker, c.shard
	claim := driver.Claim{
		Key:   c.key,
		Owner: h.owner,
		TTL:   a.terms.ttl,
		Token: l.highest.propose(),
		Block: c.block(),
		Yield: true,
	}
	start := clock.Now()
	r := l.request(ctx, requestTime(a.terms.ttl))
	results, err := l.backend.Renew(r, []driver.Claim{claim})
	r.end()
	result := one(results, err)

	s.mu.Lock()
	defer s.mu.Unlock()
	if c.hold != h {
		return nil, nil, false // it ran out meanwhile, and is being cleaned up
	}
	now := clock.Now()
	deadline := start.Add(l.config.validity(a.terms.ttl))
	switch {
	case result.State == driver.Held && now < h.deadline && now < deadline && result.Token > 0:
		l.highest.saw(result.Token, claim.Block)
		h.next, h.last = result.Token, result.Token+Token(claim.Block)-1
		h.deadline, h.renewAt = deadline, start.Add(a.terms.ttl/3)
		h.ttl, h.lease, h.renew, h.missed = a.terms.ttl, a.terms.ttl, a.terms.renew, 0
		c.leading = false
		c.run(now)
		if ctx.Err() != nil {
			c.retire()
			return nil, contextError(ctx), true
		}
		return c.turn(a, now), nil, true
	case ctx.Err() != nil:
		// Whether it yielded is for the next leader to find out; the lease stays as it is until then.
		c.leading = false
		c.retire()
		return nil, contextError(ctx), true
	default:
		c.drop()
		if result.State != driver.Yielded && result.State != driver.Lost {
			l.abandon(claim)
		}
		return nil, nil, false
	}
}

// ask acquires the key at the backend. start is a reading of the clock from before. The caller is counted as a task, which ends here.
func (c *cohort) ask(ctx context.Context, a *asker, start clock.Instant) (*Lock, error) {
	l := c.locker
	defer l.tasks.Done()
	p := c.takePending(a)
	r := &p.first
	if r.locker != nil {
		r = new(request) // it was another leader's
	}
	for ; ; r = new(request) {
		claim := driver.Claim{
			Key:   c.key,
			Owner: p.owner,
			TTL:   a.terms.ttl,
			Token: l.highest.propose(),
			Block: c.block(),
			Queue: a.wait,
		}
		p.claim = claim
		if p.asked == 0 {
			p.asked = start
		}
		r.begin(ctx, l, requestTime(a.terms.ttl))
		result, err := l.backend.Acquire(r, claim)
		r.end()
		err = r.explain(err)
		if err == nil && (result.State == driver.Held && result.Token == 0 || result.State != driver.Held && result.State != driver.Busy) {
			err = &driver.Error{Maybe: true, Permanent: true, Err: fmt.Errorf("backend answered an acquisition with %v, token %d", result.State, result.Token)}
		}

		var pause time.Duration
		switch {
		case err != nil:
			p.trace = p.trace || !errors.Is(err, ErrUnavailable)
			if !a.wait || ctx.Err() != nil || driver.Permanent(err) || !p.outlasts(err, a, start) {
				return nil, c.giveUp(ctx, a, p, err)
			}
			pause = backoff(p.failed)
			p.failed++
		case result.State == driver.Held:
			return c.begin(ctx, a, p, grant{start, a.terms.ttl, result.Token, start.Add(a.terms.ttl / 3)})
		default:
			known := c.heard(p, result, start)
			if !a.wait {
				c.giveUp(ctx, a, p, nil)
				return nil, &HeldError{Key: a.key, Holder: driver.ParseOwner(result.Holder), ExpiresIn: result.ExpiresIn}
			}
			if !known {
				p = c.replacePending(a, p)
				start = clock.Now()
				continue
			}
			if hook := l.config.hooks.Waiting; hook != nil {
				hook(WaitingEvent{
					Key:       a.key,
					Holder:    driver.ParseOwner(result.Holder),
					ExpiresIn: result.ExpiresIn,
					Place:     result.Place,
					Waited:    clock.Now().Sub(a.since),
				})
			}
			pause = p.pause(result, clock.Now().Sub(start), l.pushes)
		}

		var notice driver.Notice
		notice, err = c.sleep(ctx, p, pause)
		if err != nil {
			return nil, c.giveUp(ctx, a, p, err)
		}
		// A grant lasts as long as the presence that the backend was last heard to count, from when that was asked for. It is
		// renewed in the background at once. Who is not renewed needs the full lease first, and asks for it.
		if notice.Kind == driver.Granted && notice.Token > 0 && p.presence > 0 && a.terms.renew {
			if now := clock.Now(); now < p.present.Add(l.config.validity(p.presence)) {
				return c.begin(ctx, a, p, grant{p.present, p.presence, notice.Token, now})
			}
		}
		start = clock.Now()
	}
}

// sleep waits until it is time to ask again, or a notice says so.
func (c *cohort) sleep(ctx context.Context, p *pending, d time.Duration) (driver.Notice, error) {
	c.locker.counters.waiting.Add(1)
	defer c.locker.counters.waiting.Add(-1)
	// Not a timer channel: the race detector crashes on those when two goroutines of a synctest bubble touch theirs at the
	// same time (seen with Go 1.26).
	notices := c.locker.grants.notices(p)
	timer := time.AfterFunc(d, func() { tell(notices, driver.Notice{}) })
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
	start   clock.Instant // when the request left that the lease counts from
	lease   time.Duration
	token   Token
	renewAt clock.Instant
}

// begin takes the key into use that the backend has granted, and gives the caller its turn; unless the
// lease is over already (R18), or the caller or the Locker is gone.
func (c *cohort) begin(ctx context.Context, a *asker, p *pending, g grant) (*Lock, error) {
	l, s := c.locker, c.shard
	if a.wait && l.pushes {
		l.grants.forget(p)
	}
	l.highest.saw(g.token, c.block())
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	c.leading = false
	c.pending = nil
	h := &c.firstHold
	if h.cohort != nil {
		h = new(hold)
	}
	h.cohort, h.owner, h.ttl, h.lease, h.renew, h.index = c, p.owner, a.terms.ttl, g.lease, a.terms.renew, -1
	h.next, h.last = g.token, g.token+Token(c.block())-1
	h.deadline, h.renewAt = g.start.Add(l.config.validity(g.lease)), g.renewAt
	var err error
	switch {
	case s.closed:
		err = ErrClosed
	case now >= h.deadline:
		err = &driver.Error{Err: fmt.Errorf("granted, but the answer took %v of a lease of %v", now.Sub(g.start), g.lease)}
	default:
		c.start(h)
		c.run(now)
		if ctx.Err() == nil {
			return c.turn(a, now), nil
		}
		c.retire()
		return nil, contextError(ctx)
	}
	l.abandon(p.claim)
	c.retire()
	return nil, err
}

// giveUp ends the leader's acquisition for the reason err, and returns it. If the caller gave up and others wait,
// the acquisition goes on to them, with its place in the backend's queue. If the backend failed, it failed them too.
func (c *cohort) giveUp(ctx context.Context, a *asker, p *pending, err error) error {
	s := c.shard
	if a.wait && c.locker.pushes {
		c.locker.grants.forget(p) // before the next leader expects it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.leading = false
	c.pending = nil
	switch {
	case ctx.Err() != nil:
		if c.waiters.first != nil {
			c.pending = p
		} else {
			p.abandon(c.locker)
		}
		err = contextError(ctx)
	case err != nil:
		p.abandon(c.locker)
		for w := range c.waiters.all() {
			if w.asker.terms.ttl == a.terms.ttl {
				c.waiters.remove(w)
				w.ready <- verdict{err: err}
			}
		}
	}
	c.retire()
	return err
}
