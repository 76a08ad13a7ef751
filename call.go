package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// terms are the TTL, whether the lease is renewed, whether it is shared, and of how many permits it
// is one. Acquisitions of one key on the same terms use one lease, in turns or together.
// Acquisitions on other terms queue at the backend, as another process would. So a lease keeps its
// terms while a cohort refers to it: a Downgrade has the cohort let it go first.
type terms struct {
	ttl    time.Duration
	renew  bool // the watchdog renews it
	shared bool // others may hold the key as well, if they share it

	permits int  // of the semaphore whose slot the key is; 0: the key is not a slot
	gate    bool // the key is a gate or the scouts' key, see scout.go
}

// call is one call of Acquire or TryAcquire.
type call struct {
	key     string // as the caller named it
	terms   terms
	maxHold time.Duration
	suffix  string        // of the owner value
	since   clock.Instant // when the call began; 0: a shared call that has not read the clock yet
	wait    bool          // Acquire, not TryAcquire
	ofSet   bool          // for one key of a set

	// set by the scout (see scout.go), which goes on whatever fails: called with the error of each
	// request, or nil
	watch func(error)

	// an earlier claim of this call, which was given up, may have been granted
	maybe bool

	sharedKeys []string // of a set: the keys that are shared; nil: WithSharedKeys was not given
}

// configs keeps configs for reuse. A call with options applies them to one of its own.
var configs = sync.Pool{New: func() any { return new(config) }}

// call returns a call with the caller's options. It fails with ErrInvalid.
func (l *Locker) call(key string, wait bool, options []AcquireOption) (call, error) {
	a := call{key: key, wait: wait}
	c := &l.config
	if len(options) > 0 {
		own := configs.Get().(*config)
		defer configs.Put(own)
		*own = l.config
		for i, o := range options {
			if o == nil {
				return a, nilOption(i)
			}
			o.applyToAcquire(own)
		}
		if err := own.validate(); err != nil {
			return a, err
		}
		if err := takes(l.backend, own); err != nil {
			return a, keyError("acquire", key, err)
		}
		c = own
	}
	a.terms = terms{ttl: c.ttl, renew: c.renew, shared: c.shared,
		permits: c.permits}
	if !a.terms.shared {
		a.since = clock.Now() // for a reader that joins, this would double the cost of the call
	}
	a.sharedKeys = c.sharedKeys
	a.maxHold, a.suffix = c.maxHold, l.suffix
	if c.label != l.config.label {
		a.suffix = driver.OwnerSuffix(c.label)
	}
	return a, nil
}

// takes returns an error if the backend does not allow the TTL, or has to share keys and cannot.
func takes(backend driver.Backend, c *config) error {
	if (c.shared || len(c.sharedKeys) > 0) && !shares(backend) {
		return errNoSharing
	}
	if b, ok := backend.(driver.Limited); ok {
		return b.CheckTTL(c.ttl)
	}
	return nil
}

// acquire is Acquire if wait is set, else TryAcquire.
func (l *Locker) acquire(ctx context.Context, key string, wait bool,
	options []AcquireOption) (*Lock, error) {
	a, err := l.call(key, wait, options)
	var full string
	if err == nil {
		full, err = l.keyOf(ctx, &a)
	}
	if err != nil {
		return l.refused(ctx, &a, err)
	}
	switch lock, err := l.nested(ctx, full, &a); {
	case err != nil:
		return l.refused(ctx, &a, err)
	case lock != nil:
		return lock, nil
	}
	var lock *Lock
	var local bool
	if a.terms.permits > 0 {
		lock, local, err = l.permit(ctx, full, &a)
	} else {
		lock, local, err = l.enter(ctx, full, &a)
	}
	if err != nil {
		if a.maybe {
			err = afterUnknown(err)
		}
		// Not errors.As: the cause of a context may be another lock's HeldError.
		if _, ok := err.(*HeldError); !ok {
			err = keyError("acquire", key, err)
		}
		return l.refused(ctx, &a, err)
	}
	l.counters.acquired.Add(1)
	if hook := l.config.hooks.Acquired; hook != nil {
		event := AcquiredEvent{Key: key, Token: lock.token, Granted: clock.Time(lock.granted),
			Waited: lock.granted.Sub(a.since), Local: local, Shared: a.terms.shared,
			Slot: lock.Slot(), Context: ctx}
		hook(event)
	}
	if l.log.logger != nil {
		return lock.newHandle(), nil
	}
	return lock, nil
}

// keyOf returns the full key of a call for one key. It fails with ErrInvalid if something is not
// allowed, and with the error of ctx if that has ended.
func (l *Locker) keyOf(ctx context.Context, a *call) (full string, err error) {
	if a.terms.permits > 0 {
		full, err = l.fullSemaphoreKey(a.key)
	} else {
		full, err = l.fullKey(a.key)
	}
	switch {
	case err != nil:
		return "", err
	case ctx == nil:
		return "", invalid("context is nil for %q: use context.Background()", a.key)
	case a.sharedKeys != nil:
		return "", invalid("WithSharedKeys(%s) for %q alone: use WithShared",
			quoted(a.sharedKeys), a.key)
	case ctx.Err() != nil:
		return "", keyError("acquire", a.key, contextError(ctx))
	}
	return full, nil
}

// refused counts and reports a call that failed with err, and returns what the call returns.
func (l *Locker) refused(ctx context.Context, a *call, err error) (*Lock, error) {
	l.counters.refused.Add(1)
	if hook := l.config.hooks.Refused; hook != nil {
		event := RefusedEvent{Key: a.key, Err: err, Context: ctx}
		if a.since != 0 {
			event.Waited = clock.Now().Sub(a.since)
		}
		hook(event)
	}
	return nil, err
}

// enter joins the cohort of the key and the terms. If there is none, it makes one and leads it.
func (l *Locker) enter(ctx context.Context, full string,
	a *call) (lock *Lock, local bool, err error) {
	s := l.shard(full)
	done := ctx.Done() // not under the mutex: a caller's own kind of context may call a Lock
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, false, ErrClosed
	}
	c := s.find(full, a.terms)
	leads := true
	switch {
	case c == nil:
		c = &cohort{locker: l, shard: s, key: full, terms: a.terms}
		if l.config.turns > 1 {
			s.add(c)
		}
	case !a.terms.shared:
		leads = false
	case !c.leading:
		if lock = c.join(a); lock != nil {
			s.mu.Unlock()
			return lock, true, nil
		}
	case a.wait:
		leads = false
	default: // a single attempt does not wait for the leader's answer
		c = &cohort{locker: l, shard: s, key: full, terms: a.terms}
	}
	if a.since == 0 {
		a.since = clock.Now()
	}
	if leads {
		c.startLead()
		s.mu.Unlock()
		lock, err = c.lead(ctx, a, a.since)
		return lock, false, err
	}
	if !a.wait {
		defer s.mu.Unlock()
		return nil, false, c.heldError(a)
	}
	w := l.pool.get(a)
	c.waiters.push(w)
	s.mu.Unlock()

	o := c.wait(ctx, done, w)
	if o.lead {
		lock, err = c.lead(ctx, a, clock.Now())
		return lock, false, err
	}
	return o.lock, true, o.err
}

// wait returns the waiter's outcome, or the error of ctx when ctx ends. done is the channel of ctx.
func (c *cohort) wait(ctx context.Context, done <-chan struct{}, w *waiter) outcome {
	c.countWaiting(1)
	defer c.countWaiting(-1)
	select {
	case o := <-w.ready:
		c.locker.pool.put(w)
		return o
	case <-done:
	}
	c.withdraw(w)
	// Last, and not under the mutex: a caller's own kind of context may call a Lock, or panic.
	return outcome{err: contextError(ctx)}
}

// withdraw removes a waiter whose caller has given up. If the waiter already has an outcome, or is
// about to get it (see handOver), its turn or its lead passes to the next waiter.
func (c *cohort) withdraw(w *waiter) {
	s := c.shard
	defer c.locker.pool.put(w)
	s.mu.Lock()
	waits := c.waiters.remove(w)
	s.mu.Unlock()
	if waits {
		return
	}
	o := <-w.ready // not under the mutex: its sender may have to wait for a processor
	s.mu.Lock()
	defer s.mu.Unlock()
	o.refuse(c)
}

// heldError returns the error of a TryAcquire that finds the key taken by the cohort. The caller
// holds shard.mu.
func (c *cohort) heldError(a *call) error {
	e := &HeldError{Key: a.key}
	switch {
	case c.lease != nil:
		e.Holder = driver.ParseOwner(c.lease.owner)
		e.ExpiresIn = max(0, c.lease.deadline.Sub(clock.Now()))
	case c.pending != nil:
		e.Holder = driver.ParseOwner(c.pending.holder)
	}
	return e
}
