package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// This file has what is special to shared locks. Any number of locks rest on the lease of a shared
// cohort. A goroutine that comes within the span joins in memory. After the span one goroutine
// leads, and asks whether another claim waits. If no claim waits, the next span begins. If one
// does, the cohort lets the lease go and makes a new claim, which waits at the backend behind the
// others. So a writer gets its turn however many readers come.

// errNoSharing says that the backend has no shared claims.
var errNoSharing = fmt.Errorf("%w: WithShared: the backend cannot share keys (driver.Sharer): "+
	"only exclusive locks are allowed", ErrInvalid)

// shares reports whether the backend grants shared claims.
func shares(backend driver.Backend) bool {
	b, ok := backend.(driver.Sharer)
	return ok && b.Shares()
}

// exclusive reports whether the lease is certainly exclusive, now and for its next turn. After a
// Downgrade has asked the backend, it may be shared. The caller holds shard.mu.
func (c *cohort) exclusive(h *lease) bool { return !c.terms.shared && c.lease == h }

// join gives the call a turn on the cohort's lease. It returns nil if no turn may begin on the
// lease. The caller holds shard.mu; the cohort is shared and nobody leads.
func (c *cohort) join(a *call) *Lock {
	now := clock.Now()
	if a.since == 0 {
		a.since = now
	}
	if !c.mayGiveTurn(now) {
		return nil
	}
	return c.giveTurn(a, now)
}

// asksForSpan reports whether a goroutine is asking for a fresh span of the lease. That goroutine
// keeps the lease even if no lock rests on it. The caller holds shard.mu.
func (c *cohort) asksForSpan(h *lease) bool { return c.leading && c.lease == h }

// freshSpan is called when the span of a shared lease is over, or little of the lease is left. It
// asks the backend whether another claim waits. If no claim waits, the request has renewed the
// lease, and the caller joins it together with all waiters of the cohort. If a claim waits, or
// there is no answer, the cohort lets the lease go; then decided is false, and the cohort has to
// ask for the key anew.
func (c *cohort) freshSpan(ctx context.Context, a *call,
	h *lease) (lock *Lock, decided bool, err error) {
	l, s := c.locker, c.shard
	var result driver.Result
	ok, err := h.reserve(ctx)
	if ok {
		claim := h.claim()
		wall := clock.Microseconds()
		claim.Token = l.highest.propose(wall)
		claim.Block = c.block(claim.Token, wall) // or it is not told who waits
		if result, err = c.renew(ctx, h, claim); err == nil && result.State == driver.Held {
			l.highest.saw(result.Token, claim.Block, wall)
		}
	}
	ended := ending(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	switch {
	case c.lease != h || !ok:
	case err != nil || result.Waiting:
		c.letGo()
	default:
		h.queued = false
		c.startRun(now)
	}
	switch {
	case ended == nil && c.mayGiveTurn(now):
		c.leading = false
		lock = c.giveTurn(a, now)
		c.serve(0)
		return lock, true, nil
	case ended == nil:
		c.letGo()
		return nil, false, nil
	}
	c.leading = false
	c.serveOrRetire()
	return nil, true, ended
}

// letGo lets the lease go: no more turns begin on it. If locks rest on it, it is renewed for them,
// and the last of them releases it. The caller holds shard.mu and may raise tasks.
func (c *cohort) letGo() {
	switch h := c.lease; {
	case h == nil:
	case h.locks.first == nil:
		c.giveBack(h)
	default:
		c.lease, c.silent = nil, h.silent
	}
}

// Downgrade turns an exclusive lock into a shared one, as [WithShared] gets it. The key is not
// released in between, so no writer can change what this holder has written. The Lock, its Token,
// its contexts and its nested locks stay as they are. Others that share the key may then hold it
// too, and shared waiters are let in if it is their turn in the backend's queue. If the lock is
// already shared, Downgrade does nothing. To make the lock exclusive again, release it and acquire
// it anew.
//
// On success the lease was renewed too, to the full TTL. Downgrade fails with a [*LostError] if the
// lock is lost, and with ErrReleased if it was released. It fails with ErrInvalid, and nothing has
// changed, if ctx is nil, the backend cannot share keys, the lock is a permit, or it is a nested
// one: the code that has the outermost lock counts on being alone, so only that lock can be
// downgraded. It fails with ErrUnavailable, ErrUnknown or the error of ctx if there is no answer.
// The lock is then still held, and renewed if it was before. But others may share the key or may
// still be kept out: nobody knows which. So call Downgrade again, or release the lock. ctx bounds
// the wait for the answer.
//
// Once Downgrade has asked the backend, whatever the answer, the release of this lock does not hand
// the key over in memory, and a nested acquisition without WithShared fails with ErrInvalid.
func (l *Lock) Downgrade(ctx context.Context) error {
	l = l.self()
	c := l.cohort
	switch {
	case ctx == nil:
		return invalid("context is nil for %q: use context.Background()", l.Key())
	case c.terms.permits > 0:
		return invalid("%q: a permit cannot be downgraded: nobody shares its slot", l.Key())
	case !shares(c.locker.backend):
		return keyError("downgrade", l.Key(), errNoSharing)
	}
	h, err := l.current()
	if err != nil {
		return err
	}
	c.shard.mu.Lock()
	shared := h.shared
	c.shard.mu.Unlock()
	switch {
	case shared:
		return nil
	case l.root != nil:
		return invalid("%q: a nested lock cannot be downgraded: downgrade the outermost", l.Key())
	case ctx.Err() != nil:
		return keyError("downgrade", l.Key(), contextError(ctx))
	}
	err = c.downgrade(ctx, l, h)
	if ended := l.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return keyError("downgrade", l.Key(), err)
	}
	return nil
}

// downgrade has the backend share the lease, if it is still the lock's. Before it asks, the cohort
// lets the lease go, because no exclusive turn may begin on it any more, whatever the answer.
func (c *cohort) downgrade(ctx context.Context, l *Lock, h *lease) error {
	if ok, err := h.reserve(ctx); !ok {
		return err
	}
	s := c.shard
	s.mu.Lock()
	if l.lease != h || l.err != nil || h.shared {
		// While this call waited, the lock was released, lost or downgraded, and the lease may
		// have passed to the next turn.
		if !h.gone {
			h.settle()
			c.locker.watchdog.schedule(h)
		}
		s.mu.Unlock()
		return nil
	}
	claim := h.claim()
	claim.Shared = true
	if c.lease == h { // not the second time
		c.letGo()
		c.serveOrRetire()
	}
	s.mu.Unlock()
	_, err := c.renew(ctx, h, claim)
	return err
}
