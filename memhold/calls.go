package memhold

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// maxToken bounds proposed tokens and blocks: tokens have to stay exact in JSON.
const maxToken = 1 << 53

// renewChunk is how many claims are renewed before others get a turn at the memory.
const renewChunk = 512

// Acquire asks once for the claim, as driver.Backend describes. A busy claim with Queue set is
// queued and present for the presence, or for its TTL if that is shorter. Acquire fails with
// ErrUnavailable when ctx has ended, after Close, in quarantine, and under another set (see
// [Backend.Join]). It fails with ErrInvalid for a claim that is not allowed. ErrUnknown comes only
// from [Faults].
func (b *Backend) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return driver.Result{}, &driver.Error{Err: err}
	}
	if err := validate(&claim); err != nil {
		return driver.Result{}, err
	}
	if b.faulty.Load() {
		return b.line.acquire(ctx, claim)
	}
	return b.acquire(&claim)
}

func (b *Backend) acquire(claim *driver.Claim) (driver.Result, error) {
	now := clock.Now()
	m := b.memory
	m.mu.Lock()
	if err := b.refuse(claim, now); err != nil {
		m.mu.Unlock()
		return driver.Result{}, err
	}
	result := m.acquire(b, claim, now)
	m.unlock()
	return result, nil
}

func (m *memory) acquire(b *Backend, claim *driver.Claim, now clock.Instant) driver.Result {
	e := m.keys[claim.Key]
	if e == nil {
		e = m.add(claim.Key, now)
	} else {
		m.settle(claim.Key, e, now, claim.Owner)
	}
	mine := e.sharer(claim.Owner) >= 0
	switch {
	case claim.Shared && (e.owner == "" || mine || e.shared() && e.queue.behind(claim, now)):
		token := m.draw(claim.Token, claim.Block)
		e.share(sharer{claim.Owner, now.Add(claim.TTL), token})
		if e.queue != nil {
			m.arm(e, now)
		}
		return driver.Result{State: driver.Held, Token: token}
	case !e.shared() && (e.owner == "" || e.owner == claim.Owner):
		e.owner, e.expires = claim.Owner, now.Add(claim.TTL)
		e.token = m.draw(claim.Token, claim.Block)
		if e.queue != nil {
			m.arm(e, now) // the TTL may be shorter than what was left
		}
		return driver.Result{State: driver.Held, Token: e.token}
	}

	return m.busy(b, claim, e, claim.Queue && !mine, now)
}

// busy returns the answer to a claim that does not get the key. If the claim is in the queue, its
// presence is renewed. If not, it enters the queue if enters is true.
func (m *memory) busy(b *Backend, claim *driver.Claim, e *entry, enters bool,
	now clock.Instant) driver.Result {
	result := driver.Result{State: driver.Busy, Holder: e.owner, ExpiresIn: e.expires.Sub(now)}
	var w *queuedClaim
	if e.queue != nil {
		e.queue.prune(now)
		w = e.queue.find(claim.Owner)
	}
	if w == nil && !enters {
		if e.queue != nil {
			m.tend(e, now)
		}
		return result
	}
	result.Presence, result.Clock = min(m.presence, claim.TTL), clock.Microseconds()
	until := now.Add(result.Presence)
	if w != nil {
		w.until, w.token, w.block, w.client = until, claim.Token, claim.Block, b
		// A request with a shorter TTL than the last can bring the end of the presence forward.
		e.queue.soonest = min(e.queue.soonest, until)
		m.arm(e, now)
	} else {
		if e.queue == nil {
			e.queue = m.newQueue(claim.Key)
		}
		w = &queuedClaim{owner: claim.Owner, ticket: claim.Ticket, until: until, token: claim.Token,
			block: claim.Block, shared: claim.Shared, client: b}
		if w.ticket == 0 {
			// The ticket is always above the last one. The wall clock may stand still or be set
			// back, and that must not change the order of arrival.
			m.ticket = max(m.ticket+1, clock.Microseconds())
			w.ticket = m.ticket
		}
		e.queue.insert(w)
		m.arm(e, now)
	}
	result.Place = e.queue.position(w) + 1
	return result
}

// Renew extends each claim that still holds its key, as driver.Backend describes. It fails as
// [Backend.Acquire] does, for the whole batch. The result of a single claim that is not allowed is
// Unknown with ErrInvalid.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.Error{Err: err}
	}
	if b.faulty.Load() {
		return b.line.renew(ctx, claims)
	}
	return b.renew(claims)
}

func (b *Backend) renew(claims []driver.Claim) ([]driver.Result, error) {
	results := make([]driver.Result, len(claims))
	m := b.memory
	for done := 0; ; {
		now := clock.Now()
		m.mu.Lock()
		if err := b.refuse(nil, now); err != nil && done == 0 {
			m.mu.Unlock()
			return nil, err
		}
		for n := 0; n < renewChunk && done < len(claims); n++ {
			m.renew(b, &claims[done], &results[done], now)
			done++
		}
		m.unlock()
		if done == len(claims) {
			return results, nil
		}
	}
}

func (m *memory) renew(b *Backend, claim *driver.Claim, result *driver.Result, now clock.Instant) {
	if err := validate(claim); err != nil {
		result.Err = err
		return
	}
	if b.guard > 0 && claim.TTL > b.guard {
		result.Err = overGuard(claim.TTL, b.guard)
		return
	}
	e := m.keys[claim.Key]
	if e != nil && e.shared() {
		*result = m.renewShared(e, claim, now)
		return
	}
	if e == nil || e.owner != claim.Owner || now >= e.expires {
		// Settling an expired key is left to its timer, or to the next call for it.
		result.State = driver.Lost
		return
	}
	e.expires = now.Add(claim.TTL)
	if e.queue != nil {
		m.arm(e, now)
	}
	result.State = driver.Held
	if claim.Block > 0 {
		e.token = m.draw(claim.Token, claim.Block)
		result.Token = e.token
	}
	if claim.Shared { // held alone until now
		e.share(sharer{e.owner, e.expires, e.token})
		m.letIn(claim.Key, e, now, "")
	}
	result.Waiting = claim.Block > 0 && m.awaited(e, now)
}

// Release frees the key or leaves its queue, as driver.Backend describes. It fails with
// ErrUnavailable when ctx has ended and after Close. ErrUnknown comes only from [Faults].
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return driver.Result{}, &driver.Error{Err: err}
	}
	if b.faulty.Load() {
		return b.line.release(ctx, claim)
	}
	return b.release(&claim)
}

func (b *Backend) release(claim *driver.Claim) (driver.Result, error) {
	now := clock.Now()
	m := b.memory
	m.mu.Lock()
	if b.closed {
		m.mu.Unlock()
		return driver.Result{}, errClosed()
	}
	result := m.release(claim, now)
	m.unlock()
	return result, nil
}

func (m *memory) release(claim *driver.Claim, now clock.Instant) driver.Result {
	e := m.keys[claim.Key]
	if e == nil {
		return driver.Result{State: driver.Lost}
	}
	state := driver.Lost
	e.expire(now)
	switch {
	case e.sharer(claim.Owner) >= 0:
		state = driver.Held
		e.leave(claim.Owner)
		m.settle(claim.Key, e, now, "")
	case !e.shared() && e.owner == claim.Owner && now < e.expires:
		state = driver.Held
		m.pass(claim.Key, e, now, "")
	default:
		// The claim is removed before the key is settled. Otherwise the key could be granted to the
		// claim that leaves.
		if e.queue != nil {
			e.queue.prune(now)
			if w := e.queue.find(claim.Owner); w != nil {
				e.queue.remove(w)
				state = driver.Busy
			}
		}
		m.settle(claim.Key, e, now, "")
		if e.queue != nil {
			m.tend(e, now)
		}
	}
	if e.free() {
		m.remove(claim.Key, e)
	}
	return driver.Result{State: state}
}

// refuse returns why the client may not claim now, or nil. For a batch claim is nil, because its
// claims are looked at one by one.
func (b *Backend) refuse(claim *driver.Claim, now clock.Instant) error {
	if b.closed {
		return errClosed()
	}
	if err := b.disagrees(); err != nil {
		return err
	}
	if b.guard > 0 {
		return b.quarantine(claim, now)
	}
	return nil
}

func errClosed() error { return &driver.Error{Err: errBackendClosed} }

type constError string

func (e constError) Error() string { return string(e) }

const errBackendClosed = constError("memhold: backend closed")

// validate checks what the kernel promises of a claim, as a backend on a server would have to.
func validate(claim *driver.Claim) error {
	switch {
	case len(claim.Key) == 0 || len(claim.Key) > driver.MaxKeyLen:
		return refused("key of %d bytes: must have 1 to %d", len(claim.Key), driver.MaxKeyLen)
	case claim.Owner == "":
		return refused("empty owner value")
	case claim.TTL < time.Millisecond:
		return refused("TTL %v: must be at least %v", claim.TTL, time.Millisecond)
	case claim.TTL > driver.MaxTTL:
		return refused("TTL %v: must be at most %v", claim.TTL, driver.MaxTTL)
	case claim.Token >= maxToken || claim.Block >= maxToken:
		return refused("token %d with block %d: must be less than 2^53", claim.Token, claim.Block)
	}
	return nil
}

func refused(format string, args ...any) error {
	return &driver.Error{Invalid: true, Err: fmt.Errorf("memhold: "+format, args...)}
}
