package zkhold

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxToken bounds proposed tokens and blocks: tokens have to stay exact in JSON.
const maxToken = 1 << 53

// validate checks what the kernel promises of a claim.
func (b *Backend) validate(c driver.Claim) error {
	switch {
	case len(c.Key) == 0 || len(c.Key) > driver.MaxKeyLen:
		return invalid("key of %d bytes: must have 1 to %d", len(c.Key), driver.MaxKeyLen)
	case c.Owner == "":
		return invalid("empty owner value")
	case c.Token >= maxToken || c.Block >= maxToken:
		return invalid("token %d with block %d: must be less than 2^53", c.Token, c.Block)
	}
	return b.CheckTTL(c.TTL)
}

// result is what a call gives, written by the goroutine that makes it.
type result struct {
	driver.Result
	err error
}

// inTurn makes a call in its turn, and returns its result, or an error if ctx or the timeout ends
// before. The client of ZooKeeper knows no contexts. So the turn still lasts until it has its
// answer or has lost its connection, and the next one comes after it.
func (b *Backend) inTurn(ctx context.Context, key string, must bool,
	call func(context.Context) (driver.Result, error)) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return driver.Result{}, cutOff(false, err)
	}
	if b.isClosed() {
		return driver.Result{}, closedError()
	}
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	r := &result{err: closedError()} // unless it is run
	begun, err := b.turns.do(limited, key, must, func() {
		if b.ctx.Err() == nil {
			r.Result, r.err = call(limited)
		}
	})
	if err != nil {
		return driver.Result{}, b.session.cutOff(begun, err, key)
	}
	return r.Result, b.ours(r.err)
}

// ours replaces an error that comes from Close.
func (b *Backend) ours(err error) error {
	var e *driver.Error
	if err == nil || b.ctx.Err() == nil || !errors.As(err, &e) {
		return err
	}
	return &driver.Error{Maybe: e.Maybe, Err: errClosed}
}

// Acquire asks once for the claim, as driver.Backend describes. A busy claim with Queue set is
// queued, and present for the presence, or for its TTL if that is shorter. ctx ends the call, but
// what was sent still takes effect, and later calls for the key come after it.
//
// Acquire fails with ErrInvalid for a claim that is not allowed, for example with a TTL that is
// longer than the session keeps. It fails with ErrUnknown if the answer did not come or the session
// is not sure to last, and otherwise with ErrUnavailable.
func (b *Backend) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if err := b.validate(c); err != nil {
		return driver.Result{}, err
	}
	start := driver.LeaseClock()
	return b.inTurn(ctx, c.Key, false, func(limited context.Context) (driver.Result, error) {
		mine, fresh := b.claimOf(c)
		a := &acquisition{b: b, mine: mine, Claim: c, start: start,
			presence: min(b.presence, c.TTL)}
		r, err := a.run(limited)
		if fresh && mine.isIdle(b) {
			b.drop(mine)
		}
		return r, err
	})
}

// acquisition is an Acquire under way.
type acquisition struct {
	b    *Backend
	mine *claim
	driver.Claim
	start    time.Duration
	presence time.Duration
}

// isIdle reports whether ZooKeeper has nothing of the claim, now or later.
func (c *claim) isIdle(b *Backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.phase == unclear && !c.doubtful
}

func (a *acquisition) run(ctx context.Context) (driver.Result, error) {
	// If the claim is known, the call likely changes nothing. Then what it reads has to be new. To
	// begin with a read that may be old would cost one more, and no more than that.
	synced := !a.mine.isIdle(a.b)
	w := want{Claim: a.Claim, at: uint64(time.Now().UnixMicro()),
		refresh: a.b.outdated(a.mine, a.Claim)}
	for tries := 0; ; tries++ {
		if err := pause(ctx, tries); err != nil {
			return driver.Result{}, cutOff(false, err)
		}
		p, nodes, err := a.b.plan(a.Key, "", synced)
		if err != nil {
			return driver.Result{}, err
		}
		answer := p.acquire(w)
		if !p.changed && !synced {
			synced = true // what was read may be old
			continue
		}
		if p.changed {
			done, err := a.b.commit(p, nodes.id)
			if err != nil {
				return driver.Result{}, a.failed(err)
			}
			if !done {
				synced = true
				continue
			}
			a.b.tellOurs(p, nodes, a.Key)
		}
		return a.finish(p, nodes, answer)
	}
}

// failed notes what an error of the transaction means.
func (a *acquisition) failed(err error) error {
	if errors.Is(err, driver.ErrUnknown) {
		a.b.doubt(a.mine, a.TTL)
	}
	return err
}

// finish notes and returns the outcome, when it is sure that the session lasts as long as the
// outcome says.
func (a *acquisition) finish(p *plan, nodes names, answer answer) (driver.Result, error) {
	lasts := a.TTL
	switch {
	case answer.state == driver.Held:
		a.b.held(a.mine, answer.mine, a.TTL)
	case answer.mine != nil:
		lasts = a.presence
		a.b.waiting(a.mine, answer.mine, a.presence)
	default:
		if find(p.Holders, a.Owner) < 0 {
			a.b.drop(a.mine)
		}
		return a.busy(p, answer), nil
	}
	if err := a.b.outlast(nodes.id, a.start+lasts, a.start+a.b.timeout, a.Key); err != nil {
		return driver.Result{}, a.failed(writeFailed(err))
	}
	if answer.state == driver.Held {
		return driver.Result{State: driver.Held, Token: driver.Token(answer.mine.Token)}, nil
	}
	return a.busy(p, answer), nil
}

// busy describes the lock for a claim that does not hold the key.
func (a *acquisition) busy(p *plan, answer answer) driver.Result {
	r := driver.Result{State: driver.Busy}
	if n := len(p.Holders); n > 0 {
		r.Holder = unescape(byLease(p.Holders)[n-1].Owner)
	}
	if answer.mine != nil {
		r.Presence = a.presence
		r.Place = find(p.Waiters, a.Owner) + 1
	}
	return r
}

// plan begins a plan on the slot of a key, which it reads unless it is likely to be as this Backend
// has left it. The owner is whose claim is to end; empty for an acquisition.
func (b *Backend) plan(key, owner string, synced bool) (p *plan, nodes names, err error) {
	nodes = b.names()
	var s *slot
	if !synced {
		s = b.recall.take(b.slotPath(b.slotOf(key)), owner, nodes.ours)
	}
	if s == nil {
		s, err = b.look(key, synced)
	}
	if err != nil {
		return nil, names{}, err
	}
	return newPlan(s, key, b.dead(key, nodes), nodes), nodes, nil
}

// tellOurs tells those claims of this Backend that the plan has let in. Their watches tell it too,
// later by what a server takes to notify.
func (b *Backend) tellOurs(p *plan, nodes names, key string) {
	for _, x := range p.admit {
		if nodes.ours(x.Node) {
			b.granted(identity{key, unescape(x.Owner)}, x.Node, grant{x.Token, x.Block})
		}
	}
}

// pause waits a little after several attempts that others have overtaken, and fails if ctx has
// ended.
func pause(ctx context.Context, tries int) error {
	if tries > 3 {
		timer := time.NewTimer(time.Duration(rand.Int64N(int64(time.Millisecond) << min(tries, 6))))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Release frees the key or leaves its queue, as driver.Backend describes. ctx ends the call, not
// its effect. If ctx ends or the call fails, the release goes on in the background until the claim
// is gone. Release fails with ErrUnknown if the answer did not come, and otherwise with
// ErrUnavailable.
func (b *Backend) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if len(c.Key) == 0 || len(c.Key) > driver.MaxKeyLen || c.Owner == "" {
		return driver.Result{}, b.validate(c)
	}
	return b.inTurn(ctx, c.Key, true, func(context.Context) (driver.Result, error) {
		mine := b.find(c)
		if mine == nil {
			return b.release(&claim{identity: identity{c.Key, c.Owner}}, false)
		}
		r, err := b.release(mine, false)
		if err != nil {
			b.abandon(mine)
		}
		return r, err
	})
}

// release ends the claim, and forgets it if that succeeds. late says that the claim ends because
// its time is over. Then a claim that another process has taken over stays.
func (b *Backend) release(c *claim, late bool) (driver.Result, error) {
	limited, cancel := context.WithTimeout(b.ctx, b.timeout) // other calls for the key wait for it
	defer cancel()
	synced := false
	for tries := 0; ; tries++ {
		if err := pause(limited, tries); err != nil {
			return driver.Result{}, &driver.Error{Err: errCrowded}
		}
		p, nodes, err := b.plan(c.key, c.owner, synced)
		if err != nil {
			return driver.Result{}, err
		}
		if late && p.takenOver(c.owner) {
			b.drop(c)
			return driver.Result{State: driver.Lost}, nil
		}
		answer := p.release(c.owner)
		if !p.changed && !synced {
			// What was read may be old, even on a leader, which may have been replaced. Nobody
			// would come back for what is left.
			if err := b.prove(); err != nil {
				return driver.Result{}, readFailed(err)
			}
			synced = true
			continue
		}
		if p.changed {
			done, err := b.commit(p, nodes.id)
			if err != nil {
				return driver.Result{}, err
			}
			if !done {
				synced = true
				continue
			}
			b.tellOurs(p, nodes, c.key)
		}
		b.drop(c)
		return driver.Result{State: answer.state}, nil
	}
}

// takenOver reports whether the owner's node was made by another Backend.
func (p *plan) takenOver(owner string) bool {
	for _, parties := range [][]*party{p.Holders, p.Waiters} {
		if i := find(parties, owner); i >= 0 {
			return !p.nodes.made(parties[i].Node)
		}
	}
	return false
}
