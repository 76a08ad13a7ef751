package etcdhold

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// maxToken bounds proposed tokens and blocks: tokens have to stay exact in JSON.
const maxToken = 1 << 53

// validate checks what the kernel promises of a claim.
func validate(c driver.Claim) error {
	switch {
	case len(c.Key) == 0 || len(c.Key) > driver.MaxKeyLen:
		return invalid("key of %d bytes: must have 1 to %d", len(c.Key), driver.MaxKeyLen)
	case c.Owner == "":
		return invalid("empty owner value")
	case c.TTL > driver.MaxTTL:
		return invalid("TTL %v: must be at most %v", c.TTL, driver.MaxTTL)
	case c.Token >= maxToken || c.Block >= maxToken:
		return invalid("token %d with block %d: must be less than 2^53", c.Token, c.Block)
	}
	return checkTTL(c.TTL)
}

// result is what a call gives, written by the goroutine that makes it.
type result struct {
	driver.Result
	err error
}

// inTurn makes a call in its turn, and returns its result, or an error if ctx ends before.
func (b *Backend) inTurn(ctx context.Context, key string, must bool,
	call func(context.Context) (driver.Result, error)) (driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return driver.Result{}, cutOff(false, err)
	}
	if b.isClosed() {
		return driver.Result{}, closedError()
	}
	r := &result{err: closedError()} // unless it is run
	begun, err := b.turns.do(ctx, key, must, func() {
		limited, cancel := context.WithTimeout(b.ctx, b.timeout)
		defer cancel()
		r.Result, r.err = call(limited)
	})
	if err != nil {
		return driver.Result{}, cutOff(begun, err)
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
// Acquire fails with ErrInvalid for a claim that is not allowed, for example with a TTL below
// MinTTL. It fails with ErrUnknown if the answer did not come, and otherwise with ErrUnavailable.
func (b *Backend) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if err := validate(c); err != nil {
		return driver.Result{}, err
	}
	start := driver.LeaseClock()
	return b.inTurn(ctx, c.Key, false, func(limited context.Context) (driver.Result, error) {
		return b.acquire(ctx, limited, c, start)
	})
}

// acquisition is an Acquire under way.
type acquisition struct {
	b     *Backend
	names names
	mine  *claim
	want
	start                time.Duration
	presence             time.Duration
	holdUnder, waitUnder *lease
	used                 []*lease // each counts the acquisition as a claim
}

// acquire makes the acquisition. caller is the caller's context.
func (b *Backend) acquire(caller, ctx context.Context, c driver.Claim,
	start time.Duration) (driver.Result, error) {
	mine, fresh := b.claimOf(c)
	a := &acquisition{b: b, names: b.layout.names(c.Key), mine: mine, want: want{Claim: c,
		at: uint64(time.Now().UnixMicro())}, start: start, presence: min(b.presence, c.TTL)}
	r, err := a.run(caller, ctx)
	for _, x := range a.used {
		b.leases.count(x, -1)
	}
	if fresh && mine.isIdle(b) && (err != nil || r.State != driver.Held && r.Presence == 0) {
		b.drop(mine)
	}
	return r, err
}

// isIdle reports whether etcd has nothing of the claim, now or later.
func (c *claim) isIdle(b *Backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.phase == unclear && len(c.unsettled) == 0
}

func (a *acquisition) run(caller, ctx context.Context) (driver.Result, error) {
	now, err := a.begin(ctx)
	if err != nil {
		return driver.Result{}, err
	}
	for tries := 0; ; tries++ {
		if now == nil {
			token, after, err := a.take(ctx)
			if err != nil {
				return driver.Result{}, err
			}
			if token > 0 {
				return driver.Result{State: driver.Held, Token: driver.Token(token)}, nil
			}
			if now = after; now == nil { // its lease was gone
				continue
			}
		}
		if err := pause(caller, ctx, tries); err != nil {
			return driver.Result{}, err
		}
		r, after, err := a.step(ctx, now)
		if err != nil || r.State != driver.Unknown {
			return r, err
		}
		now = after
	}
}

// step plans once what to do, and does it. If the acquisition has not ended then, step returns the
// state to go on with.
func (a *acquisition) step(ctx context.Context, now *state) (r driver.Result, after *state,
	err error) {
	p := newPlan(a.names, now, a.b.dead(a.Key))
	answer := p.acquire(a.want)
	if lacks, err := a.equip(ctx, answer); lacks || err != nil {
		return driver.Result{}, now, err
	}
	if !p.changes() {
		return a.busy(now, answer), nil, nil
	}
	done, after, err := a.commit(ctx, p, answer)
	switch {
	case err != nil:
		return driver.Result{}, nil, err
	case done && !p.again:
		return a.finish(answer, after), nil, nil
	case after == nil:
		after, err = a.b.read(ctx, a.names)
	}
	return driver.Result{}, after, err
}

// begin finds the leases that the acquisition will need, and reads the state of the lock if it is
// likely to be needed.
func (a *acquisition) begin(ctx context.Context) (*state, error) {
	a.b.mu.Lock()
	queued := a.mine.phase == waits
	a.b.mu.Unlock()
	if !queued {
		return nil, nil
	}
	if err := a.needWait(ctx); err != nil {
		return nil, err
	}
	a.refresh = a.b.outdated(a.mine, a.Claim)
	return a.b.read(ctx, a.names)
}

func (a *acquisition) needWait(ctx context.Context) (err error) {
	a.waitUnder, err = a.b.leases.ensure(ctx, classOf(a.presence, true), a.start+a.presence)
	if err == nil {
		a.wait, a.used = a.waitUnder.id, append(a.used, a.waitUnder)
	}
	return err
}

func (a *acquisition) needHold(ctx context.Context) (err error) {
	a.holdUnder, err = a.b.leases.ensure(ctx, classOf(a.TTL, false), a.start+a.TTL)
	if err == nil {
		a.hold, a.used = a.holdUnder.id, append(a.used, a.holdUnder)
	}
	return err
}

// equip finds the lease that the answer lacks.
func (a *acquisition) equip(ctx context.Context, answer answer) (lacked bool, err error) {
	switch {
	case answer.needsLease:
		return true, a.needWait(ctx)
	case answer.state == driver.Held && a.hold == 0:
		return true, a.needHold(ctx)
	}
	return false, nil
}

// take takes a key that nobody has, in one step, and returns its token. If somebody has the key,
// take returns the state. If the acquisition's lease was gone, the state is nil.
func (a *acquisition) take(ctx context.Context) (token uint64, after *state, err error) {
	if err := a.needHold(ctx); err != nil {
		return 0, nil, err
	}
	token = max(uint64(a.Token), 1)
	h := &party{owner: a.Owner, key: a.names.holder(a.Owner), lease: a.hold, record: record{
		Token: token, Block: a.Block, Shared: a.Shared, TTL: a.TTL.Milliseconds()}}
	from, end := a.names.claimRange()
	revision, after, err := a.b.execute(ctx, a.names, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "=", 0),
		clientv3.Compare(clientv3.Value(a.names.tokens), "<", digits(token)),
		missing(a.names.tombstone(a.hold, a.Owner)),
	},
		clientv3.OpPut(h.key, h.record.String(), clientv3.WithLease(a.hold)),
		clientv3.OpPut(a.names.tokens, digits(token+max(a.Block, 1)-1)),
	)
	if err != nil {
		return 0, nil, a.failed(a.holdUnder, err)
	}
	if revision == 0 {
		return 0, after, nil
	}
	a.b.held(a.mine, h, revision, a.TTL)
	return token, nil, nil
}

// failed returns what an error of a transaction under the lease means. nil means that the lease was
// gone and nothing was done.
func (a *acquisition) failed(under *lease, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		a.b.leases.lost(under)
		return nil
	case errors.Is(err, driver.ErrUnknown):
		a.b.unsettle(a.mine, under, a.TTL)
	}
	return err
}

// commit executes the plan. after is nil if its lease was gone.
func (a *acquisition) commit(ctx context.Context, p *plan, answer answer) (done bool, after *state,
	err error) {
	under := a.holdUnder
	if answer.state != driver.Held {
		under = a.waitUnder
	}
	if answer.mine != nil && answer.mine.put {
		p.absent = append(p.absent, a.names.tombstone(under.id, a.Owner))
	}
	conditions, operations := p.transaction()
	done, after, err = a.b.commit(ctx, a.names, conditions, operations)
	if err == nil {
		if done {
			a.b.granted(a.Key, p.admit, after.revision)
		}
		return done, after, nil
	}
	if under == nil || answer.mine == nil || !answer.mine.put {
		return false, nil, err // nothing of the claim itself was in it
	}
	if err = a.failed(under, err); err == nil {
		// What was asked for goes on under another lease.
		if answer.state == driver.Held {
			err = a.needHold(ctx)
		} else {
			err = a.needWait(ctx)
		}
	}
	return false, nil, err
}

// finish notes and returns the outcome of a plan that was executed.
func (a *acquisition) finish(answer answer, after *state) driver.Result {
	if answer.state == driver.Held {
		a.b.held(a.mine, answer.mine, after.revision, a.TTL)
		return driver.Result{State: driver.Held, Token: driver.Token(answer.mine.record.Token)}
	}
	return a.busy(after, answer)
}

// busy describes the state for a claim that does not hold the key, and notes that it waits.
func (a *acquisition) busy(now *state, answer answer) driver.Result {
	p := newPlan(a.names, now, a.b.dead(a.Key))
	r := driver.Result{State: driver.Busy}
	if n := len(p.holders); n > 0 {
		r.Holder = p.holders[n-1].owner
	}
	if answer.mine == nil {
		return r
	}
	r.Presence = a.presence
	a.b.waiting(a.mine, answer.mine, now.revision, a.presence)
	// Only waiters from before can be dead, because our own place may be new.
	for i, w := range p.waiters {
		if w.owner == a.Owner {
			r.Place = i + 1
		}
	}
	return r
}

// pause waits a little after several attempts that others have overtaken, and fails if a context
// has ended.
func pause(caller, ctx context.Context, tries int) error {
	if tries > 3 {
		timer := time.NewTimer(time.Duration(rand.Int64N(int64(time.Millisecond) << min(tries, 6))))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-caller.Done():
		}
	}
	if err := caller.Err(); err != nil {
		return cutOff(false, err)
	}
	if err := ctx.Err(); err != nil {
		return cutOff(false, err)
	}
	return nil
}

// Release frees the key or leaves its queue, as driver.Backend describes. ctx ends the call, not
// its effect. If ctx ends or the call fails, the release goes on in the background until the claim
// is gone. Release fails with ErrUnknown if the answer did not come, and otherwise with
// ErrUnavailable.
func (b *Backend) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if len(c.Key) == 0 || len(c.Key) > driver.MaxKeyLen || c.Owner == "" {
		return driver.Result{}, validate(c)
	}
	return b.inTurn(ctx, c.Key, true, func(limited context.Context) (driver.Result, error) {
		mine := b.find(c)
		if mine == nil {
			return b.release(limited, &claim{identity: identity{c.Key, c.Owner}}, false)
		}
		r, err := b.release(limited, mine, false)
		if err != nil {
			b.abandon(mine)
		}
		return r, err
	})
}

// release ends the claim, and forgets it if that succeeds. late says that the claim ends because
// its time is over. Then a claim that another process has taken over stays.
func (b *Backend) release(ctx context.Context, c *claim, late bool) (driver.Result, error) {
	n := b.layout.names(c.key)
	now, r, err := b.releaseAtOnce(ctx, n, c)
	for tries := 0; err == nil && r.State == driver.Unknown; tries++ {
		if err = pause(ctx, ctx, tries); err != nil {
			break
		}
		if now == nil {
			if now, err = b.read(ctx, n); err != nil {
				break
			}
		}
		now, r, err = b.releaseStep(ctx, n, c, now, late)
	}
	if err != nil {
		return driver.Result{}, err
	}
	b.drop(c)
	return r, nil
}

// releaseAtOnce frees the key in one step if nobody waits. If somebody waits, it returns the state.
// It does not try if the claim has waited itself: then others are likely to wait, and etcd writes
// even a refused transaction to its log, which costs more than a look first.
func (b *Backend) releaseAtOnce(ctx context.Context, n names, c *claim) (*state, driver.Result,
	error) {
	b.mu.Lock()
	simple := c.phase == holds && c.modified > 0 && c.queued == 0 && len(c.unsettled) == 0 &&
		driver.LeaseClock() < c.deadline
	modified := c.modified
	b.mu.Unlock()
	if !simple {
		return nil, driver.Result{}, nil
	}
	from, end := n.waiterRange()
	key := n.holder(c.owner)
	revision, now, err := b.execute(ctx, n, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", modified),
		clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "=", 0),
	}, clientv3.OpDelete(key))
	if err != nil {
		return nil, driver.Result{}, err
	}
	if revision != 0 {
		return nil, driver.Result{State: driver.Held}, nil
	}
	return now, driver.Result{}, nil
}

// releaseStep tries once to end the claim. The result is Unknown if others were faster.
func (b *Backend) releaseStep(ctx context.Context, n names, c *claim, now *state,
	late bool) (*state, driver.Result, error) {
	if late && b.takenOver(now, c.owner) {
		return now, driver.Result{State: driver.Lost}, nil
	}
	stones, leases := b.stones(n, c)
	if len(stones) > maxStones {
		after, err := b.putStones(ctx, n, c, stones, leases)
		return after, driver.Result{}, err
	}
	p := newPlan(n, now, b.dead(c.key))
	answer := p.release(c.owner, stones)
	if !p.changes() {
		return now, driver.Result{State: answer.state}, nil
	}
	conditions, operations := p.transaction()
	done, after, err := b.commit(ctx, n, conditions, operations)
	if err != nil {
		return nil, driver.Result{}, b.unlessGone(ctx, c, leases, err)
	}
	if !done {
		return after, driver.Result{}, nil
	}
	b.granted(c.key, p.admit, after.revision)
	if p.again {
		if answer.state != driver.Unknown && answer.state != driver.Lost {
			b.goOn(c.key)
			return after, driver.Result{State: answer.state}, nil
		}
		return after, driver.Result{}, nil
	}
	return after, driver.Result{State: answer.state}, nil
}

// goOn lets in the waiters for which one transaction had no room.
func (b *Backend) goOn(key string) {
	b.turns.take(key, func() {
		ctx, cancel := context.WithTimeout(b.ctx, b.timeout)
		defer cancel()
		// Nobody has this claim: its release only settles the key.
		b.release(ctx, &claim{identity: identity{key: key}}, false)
	})
}

// takenOver reports whether the owner's key is under the lease of another process.
func (b *Backend) takenOver(now *state, owner string) bool {
	for _, parties := range [][]*party{now.holders, now.waiters} {
		if i := find(parties, owner); i >= 0 {
			return b.leases.find(parties[i].lease) == nil
		}
	}
	return false
}

// putStones puts tombstones of a claim that has too many of them for the transaction that ends it.
// A call that has failed many times without an answer leaves as many leases behind.
func (b *Backend) putStones(ctx context.Context, n names, c *claim, stones []stone,
	leases []*lease) (*state, error) {
	many := min(len(stones), maxAlone)
	_, operations := (&plan{state: new(state), stones: stones[:many]}).transaction()
	_, after, err := b.commit(ctx, n, nil, operations)
	if err != nil {
		return nil, b.unlessGone(ctx, c, leases[:many], err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.buried = append(c.buried, leases[:many]...)
	return after, nil
}

// unlessGone returns the error of a transaction under the leases; nil if some of them were gone.
func (b *Backend) unlessGone(ctx context.Context, c *claim, leases []*lease, err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) && len(leases) > 0 {
		return b.bury(ctx, c, leases)
	}
	return err
}

// stones returns the tombstones that a claim has yet to leave behind for requests that may still
// arrive.
func (b *Backend) stones(n names, c *claim) (stones []stone, leases []*lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range c.unsettled {
		if slices.Contains(c.buried, x) {
			continue
		}
		stones = append(stones, stone{x.id, n.tombstone(x.id, c.owner)})
		leases = append(leases, x)
	}
	return stones, leases
}

// bury finds out which of the leases are gone. No request arrives under these any more.
func (b *Backend) bury(ctx context.Context, c *claim, leases []*lease) error {
	for _, x := range leases {
		_, err := b.leases.ask(ctx, x.id)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			b.leases.lost(x)
			b.settled(c, x)
		case err != nil:
			return failure(err)
		}
	}
	return nil
}
