package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// errKeyGone is the reason of a loss that the backend has reported.
var errKeyGone = errors.New("the backend no longer has it: it expired or was removed")

// lease is a grant of the backend under one owner value, with its renewals and the locks that rest
// on it: at most one lock, or any number if the lease is shared.
//
// Its cohort refers to it as long as turns may begin on it. After the cohort has let it go (see
// letGo), no more turns begin on it. It is renewed for the locks that it still has, and the last of
// them releases it.
//
// At most one request that changes a lease is under way: a renewal by the watchdog, an Extend, a
// Downgrade, or the question for a fresh run. Of two such requests, nobody could say which took
// effect last. A request that was cut off may still take effect, but before any later one. Only a
// renewal may be overtaken, where that does no harm (see the rules in package driver).
type lease struct {
	cohort *cohort
	owner  string

	// Guarded by cohort.shard.mu:
	locks lockList      // the locks that rest on the lease, held or in limbo
	limit clock.Instant // the earliest end of a maximum hold; 0: no lock has one
	// how long the last grant lasts: the TTL, or less after a handoff by the backend
	length               time.Duration
	nextToken, lastToken Token // the tokens that are left
	// when the first request since the last answer was sent; 0: the last request was answered
	silent   clock.Instant
	deadline clock.Instant // the end of the validity
	renewAt  clock.Instant // when the watchdog renews the lease
	asking   bool          // a request that changes the lease is under way
	gone     bool          // the lease has ended
	// the claim has waited in the backend's queue, and no answer since has said that nobody waits
	queued bool
	// as the backend has confirmed; only the request that was reserved may change it
	shared bool
	// how long the watchdog's next renewal may take; only the watchdog reads it
	bound   time.Duration
	settled chan struct{} // closed when asking ends; nil unless somebody waits for that
	err     error         // of the last renewal, if it was not confirmed; or why the lease is lost

	// Guarded by watchdog.mu:
	early time.Duration // how long before it is due the watchdog may renew the lease
	index int           // in the heap; -1 if the lease is not there

	prev, later *lease // in shard.leases
}

func (h *lease) claim() driver.Claim {
	return driver.Claim{Key: h.cohort.key, Owner: h.owner, TTL: h.cohort.terms.ttl,
		Shared: h.shared}
}

// limitBy notes the maximum hold of a lock on the lease, if it has one. It reports whether this
// lock is the first to reach its maximum hold. The caller holds shard.mu.
func (h *lease) limitBy(l *Lock) (first bool) {
	limit, ok := l.limit()
	if first = ok && (h.limit == 0 || limit < h.limit); first {
		h.limit = limit
	}
	return first
}

// confirm notes that the backend has granted a request that was sent at start: the lease lasts for
// length from then. The caller holds shard.mu.
func (h *lease) confirm(start clock.Instant, length time.Duration) {
	h.silent, h.length = 0, length
	h.deadline = start.Add(h.cohort.locker.config.validity(length))
	h.renewAt = start.Add(length / 3)
	h.err = nil
}

// hear notes the answer to a request that was sent at start, or that there was no answer. The
// caller holds shard.mu.
func (h *lease) hear(start clock.Instant, result driver.Result) {
	switch {
	case result.State != driver.Unknown:
		h.silent = 0
	case h.silent == 0:
		h.silent = start
	}
}

// reserve waits until no request that changes the lease is under way, and reserves the next one for
// the caller. The caller ends it with settle. reserve reports false if the lease is gone, and fails
// with the error of ctx if that ends first.
func (h *lease) reserve(ctx context.Context) (bool, error) {
	s := h.cohort.shard
	for {
		s.mu.Lock()
		if h.gone || !h.asking {
			there := !h.gone
			h.asking = true
			s.mu.Unlock()
			return there, nil
		}
		if h.settled == nil {
			h.settled = make(chan struct{})
		}
		settled := h.settled
		s.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return false, contextError(ctx)
		}
	}
}

// settle notes that the request that changes the lease has ended. The caller holds shard.mu.
func (h *lease) settle() {
	h.asking = false
	if h.settled != nil {
		close(h.settled)
		h.settled = nil
	}
}

// expired returns the reason of a loss by the clock. It does not wrap the error of the last
// renewal, because errors.Is must find ErrLost and not ErrUnavailable.
func (h *lease) expired() error {
	switch {
	case h.err != nil:
		return fmt.Errorf("its validity ended before a renewal was confirmed: %v", h.err)
	case h.cohort.terms.renew:
		return errors.New("its validity ended before a renewal was confirmed")
	default:
		return errors.New("its lease ended")
	}
}

// lockList is an intrusive list, with the latest lock first.
type lockList struct{ first *Lock }

func (l *lockList) add(k *Lock) {
	k.next = l.first
	if k.next != nil {
		k.next.prev = k
	}
	l.first = k
}

func (l *lockList) remove(k *Lock) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}

// leaseList is an intrusive list.
type leaseList struct{ first *lease }

func (l *leaseList) add(h *lease) {
	h.later = l.first
	if h.later != nil {
		h.later.prev = h
	}
	l.first = h
}

func (l *leaseList) remove(h *lease) {
	if h.prev != nil {
		h.prev.later = h.later
	} else {
		l.first = h.later
	}
	if h.later != nil {
		h.later.prev = h.prev
	}
	h.prev, h.later = nil, nil
}
