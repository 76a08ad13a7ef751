package holdfast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxBatch is how many leases one request to the backend renews.
const maxBatch = 1000

// renewable reports whether the watchdog is to renew the lease. It does not renew a lease on which
// all locks are in limbo. It does renew a lease without locks, because a goroutine is asking for a
// fresh run on it. The caller holds shard.mu.
func (h *lease) renewable() bool {
	if !h.cohort.terms.renew {
		return false
	}
	for l := h.locks.first; l != nil; l = l.next {
		if l.err == nil {
			return true
		}
	}
	return h.locks.first == nil
}

// slack returns how long before it is due a lease may be renewed.
func (h *lease) slack() time.Duration { return h.cohort.terms.ttl / 30 }

// renew sends renewals in batches, in parallel, so that a slow batch does not delay the others. All
// leases of a batch have the same time bound, so a long lease does not get the bound of a short
// one.
func (w *watchdog) renew(leases []*lease) {
	for len(leases) > 0 {
		bound := leases[0].bound
		n := 1
		for i := 1; i < len(leases) && n < maxBatch; i++ {
			if leases[i].bound == bound {
				leases[n], leases[i] = leases[i], leases[n]
				n++
			}
		}
		batch := leases[:n:n]
		leases = leases[n:]
		s := batch[0].cohort.shard
		s.mu.Lock()
		if !s.closed {
			w.locker.tasks.Go(func() { w.renewBatch(batch, bound) })
		}
		s.mu.Unlock()
	}
}

// renewalTime returns the time bound of a request that changes the lease. After a handoff the lease
// is short, so the bound is short too, to leave time for another request.
func (h *lease) renewalTime() time.Duration { return requestTime(h.length) }

func (w *watchdog) renewBatch(batch []*lease, bound time.Duration) {
	claims := make([]driver.Claim, len(batch))
	for i, h := range batch {
		claims[i] = h.claim()
	}
	// Read before the request is sent: the validity of all leases counts from here.
	start := clock.Now()
	r := w.locker.request(context.Background(), bound)
	results, err := r.renew(claims)
	now := clock.Now()
	if err == nil && len(results) != len(claims) {
		err = fmt.Errorf("backend gave %d results for %d claims", len(results), len(claims))
	}
	for i, h := range batch {
		result := driver.Result{Err: err}
		if err == nil {
			result = results[i]
		}
		result.Err = r.explain(result.Err)
		w.renewed(h, start, now, claims[i], result)
	}
}

// renewed applies the outcome of a renewal that was sent at start and answered at now. The
// watchdog, a holder or a leader may have sent it. The error in result has been through explain.
// renewed returns nil, a LostError, or the reason why the outcome is not known.
func (w *watchdog) renewed(h *lease, start, now clock.Instant, claim driver.Claim,
	result driver.Result) error {
	l, c := w.locker, h.cohort
	s := c.shard
	s.mu.Lock()
	h.settle()
	if h.gone {
		s.mu.Unlock()
		return nil // the code that ended the lease has also seen to the key
	}
	h.hear(start, result)
	margin := h.deadline.Sub(now)
	event := RenewedEvent{Key: l.userKey(c.name()), Took: now.Sub(start), Margin: margin,
		Slot: c.slot()}
	if lock := h.locks.first; lock != nil {
		event.Token = lock.token
	}
	missed := false
	var tell func()
	var err error
	switch {
	case margin <= 0:
		// The answer came after the old deadline, so it is too late, whatever it says.
		err = event.loss(h.expired())
		tell = c.expire(h)
	case result.State == driver.Held:
		h.confirm(start, c.terms.ttl)
		h.shared = claim.Shared
		if !c.terms.gate {
			l.counters.renewed.Add(1)
		}
		w.schedule(h)
	case result.State == driver.Lost:
		err = event.loss(errKeyGone)
		tell = c.loseLease(h, errKeyGone)
	default:
		if err = result.Err; err == nil {
			err = &driver.Error{Maybe: true, Err: fmt.Errorf("backend answered a renewal with %v",
				result.State)}
		}
		h.err, missed = err, true
		h.renewAt = now.Add(h.length/60 + rand.N(h.length/30))
		if !c.terms.gate {
			l.counters.renewalsMissed.Add(1)
		}
		w.schedule(h)
	}
	event.Err = err
	if tell == nil {
		s.mu.Unlock()
		if missed { // a loss is logged for each lock that is lost
			l.warn("holdfast: renewal missed", "key", event.Key, "margin", margin, "error", err)
		}
		c.observeRenewal(event)
		return err
	}
	c.tellLoss(tell, event)
	s.mu.Unlock()
	return err
}

// tellLoss has another goroutine tell of the end of a lease, and then of the renewal that found it.
// The caller may have other leases, or another lock on this one, which must not wait for that. It
// is no part of renewed: what a closure refers to is allocated for each renewal.
func (c *cohort) tellLoss(tell func(), event RenewedEvent) {
	c.locker.tellApart(func() {
		defer c.observeRenewal(event) // even if a context ends the goroutine
		tell()
	})
}

// observeRenewal calls the hook for renewals, unless the lease is a gate, which is
// no lock of a user.
func (c *cohort) observeRenewal(event RenewedEvent) {
	if hook := c.locker.config.hooks.Renewed; hook != nil && !c.terms.gate {
		hook(event)
	}
}

// extend renews the lease for a holder, unless the lease is gone.
func (c *cohort) extend(ctx context.Context, h *lease) error {
	if ok, err := h.reserve(ctx); !ok {
		return err
	}
	_, err := c.renew(ctx, h, h.claim())
	return err
}

// renew makes one renewal for a goroutine that has reserved it. It returns the backend's answer and
// the error of renewed.
func (c *cohort) renew(ctx context.Context, h *lease,
	claim driver.Claim) (driver.Result, error) {
	returned := false
	defer func() {
		if !returned { // the backend or the context panicked: the watchdog goes on renewing
			c.shard.mu.Lock()
			defer c.shard.mu.Unlock()
			h.settle()
			if !h.gone {
				c.locker.watchdog.schedule(h)
			}
		}
	}()
	start := clock.Now()
	r := c.locker.request(ctx, h.renewalTime())
	results, err := r.renew([]driver.Claim{claim})
	now := clock.Now()
	result := one(results, err)
	result.Err = r.explain(result.Err) // it calls the caller's context, so not under the mutex
	returned = true
	return result, c.locker.watchdog.renewed(h, start, now, claim, result)
}

// one returns the result of a batch of one claim.
func one(results []driver.Result, err error) driver.Result {
	switch {
	case err != nil:
		return driver.Result{Err: err}
	case len(results) != 1:
		return driver.Result{Err: fmt.Errorf("backend gave %d results for 1 claim", len(results))}
	}
	return results[0]
}
