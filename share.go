package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// What is special to shared locks. A shared cohort has a lease on which any number of locks rest.
// Whoever comes within the span joins in memory. Then one goroutine leads and asks whether another
// claim waits. If none does, the next span begins. If one does, the cohort lets the lease go, and
// has a claim of its own again: that waits at the backend behind others, so a writer gets its turn
// however many readers come.

// errNoSharing says that the backend has no shared claims.
var errNoSharing = fmt.Errorf("%w: WithShared: the backend cannot share keys (driver.Sharer): "+
	"only exclusive locks are allowed", ErrInvalid)

// shares reports whether the backend grants shared claims.
func shares(backend driver.Backend) bool {
	b, ok := backend.(driver.Sharer)
	return ok && b.Shares()
}

// alone reports whether the lease is surely exclusive, now and for its next turn. Once a Downgrade
// was asked for it is not. The caller holds shard.mu.
func (c *cohort) alone(h *lease) bool { return !c.terms.shared && c.lease == h }

// join gives a turn on the lease that is there to a call that shares it. It returns nil if the
// lease may not begin one. The caller holds shard.mu; the cohort is shared and nobody leads.
func (c *cohort) join(a *call) *Lock {
	now := clock.Now()
	if a.since == 0 {
		a.since = now
	}
	if !c.mayPass(now) {
		return nil
	}
	return c.giveTurn(a, now)
}

// asksForSpan reports whether a goroutine asks for a fresh span of the lease. That one keeps the
// lease, also without locks. The caller holds shard.mu.
func (c *cohort) asksForSpan(h *lease) bool { return c.leading && c.lease == h }

// freshSpan asks the backend, when the span of a shared lease is over or little of the lease is
// left, whether another claim waits. If not, that has renewed the lease, and the caller joins it
// with all who wait here. decided is false if the cohort has let the lease go, since somebody waits
// or nobody can say, and has to ask for the key anew.
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
	case ended == nil && c.mayPass(now):
		c.leading = false
		lock = c.giveTurn(a, now)
		c.serve()
		return lock, true, nil
	case ended == nil:
		c.letGo()
		return nil, false, nil
	}
	c.leading = false
	c.serveOrRetire()
	return nil, true, ended
}

// letGo has the lease begin no more turns. It lives on for the locks that rest on it, and goes with
// the last of them. The caller holds shard.mu and may raise tasks.
func (c *cohort) letGo() {
	switch h := c.lease; {
	case h == nil:
	case h.locks.first == nil:
		c.giveBack(h)
	default:
		c.lease, c.silent = nil, h.silent
	}
}

// Downgrade turns an exclusive lock into a shared one, as [WithShared] gets it, with nobody in
// between: what was written before is what this holder goes on reading. Token, handle, contexts and
// nested locks stay. Others that share the key may then hold it as well, and those that wait for it
// are let in as the backend's queue has it. If the lock is shared already, Downgrade does nothing.
// There is no way back but to release, and acquire again.
//
// On success the lease was renewed too, to the full TTL. Downgrade fails with a [*LostError] if the
// lock is lost, and with ErrReleased if it was released. It fails with ErrInvalid, and nothing has
// changed, if ctx is nil, the backend cannot share keys, the lock is a permit, or it is a nested
// one: only the outermost is downgraded, since who has that counts on it. It fails with
// ErrUnavailable, ErrUnknown or the error of ctx if there is no answer. The lock is then still
// held, until its deadline, but the holder must not count on being alone any more, nor on others
// being let in: call Downgrade again, or release the lock. ctx bounds the wait for the answer.
//
// Once the backend was asked, whatever the answer, no goroutine of this Locker gets the key handed
// over by this lock's release, and a nested acquisition without WithShared is refused.
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
	if err := l.Err(); err != nil {
		return err
	}
	s := c.shard
	s.mu.Lock()
	if err := l.ended(); err != nil {
		s.mu.Unlock()
		return err
	}
	h := l.outermost().lease
	shared := h.shared
	s.mu.Unlock()
	switch {
	case shared:
		return nil
	case l.root != nil:
		return invalid("%q: a nested lock cannot be downgraded: downgrade the outermost", l.Key())
	case ctx.Err() != nil:
		return keyError("downgrade", l.Key(), contextError(ctx))
	}
	err := c.downgrade(ctx, l, h)
	if ended := l.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return keyError("downgrade", l.Key(), err)
	}
	return nil
}

// downgrade has the backend share the lease, if it is still the lock's. First the cohort lets it
// go: whatever the answer, no turn that is to be exclusive may begin on it.
func (c *cohort) downgrade(ctx context.Context, l *Lock, h *lease) error {
	if ok, err := h.reserve(ctx); !ok {
		return err
	}
	s := c.shard
	s.mu.Lock()
	if l.lease != h || l.err != nil || h.shared {
		// Released, lost or downgraded while this one waited; the lease may be the next one's.
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
