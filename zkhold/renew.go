package zkhold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxParallel bounds the requests for single claims of one Renew at a time.
	maxParallel = 32

	// maxChecks bounds the bytes of a transaction that looks at nodes. ZooKeeper takes a megabyte,
	// but each server keeps its last 500 transactions in memory, for others that come back, in
	// about four times their bytes.
	maxChecks = 20 << 10

	// nameSize is at least what a check has besides the path of the slot.
	nameSize = 100
)

// checked is how many nodes one transaction looks at.
func (b *Backend) checked() int { return max(1, maxChecks/(len(b.slotPath("000"))+nameSize)) }

// Renew extends each claim that still holds its key, as driver.Backend describes. For each hundred
// claims or so, fewer if the root is long, it takes a transaction, which changes nothing. If the
// node of one of them is gone, it takes a request for each of the hundred, which only reads. A
// claim whose terms change, or that was handed over, costs a transaction of its own.
//
// Renew fails with the error of ctx or of the timeout, and after Close. Any other error is in the
// results of the claims.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, cutOff(false, err)
	}
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	r := &renewal{b: b, ctx: limited, start: driver.LeaseClock(), claims: claims,
		results: make([]driver.Result, len(claims)), room: make(chan struct{}, maxParallel)}
	switch err := b.await(limited, r.all); {
	case err == nil:
		return r.results, nil
	case limited.Err() != nil:
		return nil, b.session.cutOff(true, limited.Err(), keysOf(claims)...)
	default:
		return nil, err
	}
}

func keysOf(claims []driver.Claim) []string {
	keys := make([]string, len(claims))
	for i, c := range claims {
		keys[i] = c.Key
	}
	return keys
}

// await runs f in the background and waits for it, or until ctx ends, and returns the error of ctx
// then. The client of ZooKeeper knows no contexts.
func (b *Backend) await(ctx context.Context, f func()) error {
	done := make(chan struct{})
	if !b.spawn(func() { defer close(done); f() }) {
		return closedError()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// renewal is a Renew under way.
type renewal struct {
	b       *Backend
	ctx     context.Context
	start   time.Duration
	claims  []driver.Claim
	results []driver.Result // each is written by one goroutine
	room    chan struct{}
	running sync.WaitGroup
}

// known is a claim that holds its key by a node of the session, as far as this process knows.
type known struct {
	index int
	mine  *claim
	node  string
}

func (r *renewal) all() {
	nodes := r.b.names()
	var simple []known
	for i, c := range r.claims {
		if err := r.b.validate(c); err != nil {
			r.results[i].Err = err
			continue
		}
		if k, ok := r.simple(i, c, nodes); ok {
			simple = append(simple, k)
			continue
		}
		r.parallel(func() { r.one(i) })
	}
	for some := range slices.Chunk(simple, r.b.checked()) {
		r.running.Go(func() { r.together(nodes.id, some) })
	}
	r.running.Wait()
}

func (r *renewal) parallel(f func()) {
	r.running.Go(func() {
		r.room <- struct{}{}
		defer func() { <-r.room }()
		f()
	})
}

// simple reports whether nothing has to be written to renew the claim.
func (r *renewal) simple(i int, c driver.Claim, nodes names) (known, bool) {
	mine := r.b.find(c)
	if mine == nil || c.Block > 0 {
		return known{}, false
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if mine.phase != holds || mine.doubtful || mine.ending || !nodes.ours(mine.node) ||
		c.Shared && !mine.shared || driver.LeaseClock() >= mine.deadline {
		return known{}, false
	}
	return known{i, mine, mine.node}, true
}

// together renews claims of one session by a transaction in which a majority agrees that their
// nodes are there. The client cannot read many nodes in one request.
func (r *renewal) together(id int64, simple []known) {
	err := r.b.checkAll(id, simple)
	// Who may not read a node may still ask whether it is there, which spoils no other claim.
	each := conflict(err) || errors.Is(err, zk.ErrNoAuth)
	if each {
		err = nil // what is read from now on is not older than that answer
	}
	if err == nil {
		longest, keys := time.Duration(0), make([]string, 0, len(simple))
		for _, k := range simple {
			longest = max(longest, r.claims[k.index].TTL)
			keys = append(keys, k.mine.key)
		}
		err = r.b.outlast(id, r.start+longest, r.start+r.b.timeout, keys...)
	}
	for _, k := range simple {
		switch {
		case err != nil:
			r.failed(k, err)
		case each: // which of them are gone, each read tells
			r.parallel(func() { r.check(id, k) })
		default:
			r.results[k.index].State = r.b.renewed(k, r.claims[k.index].TTL)
		}
	}
}

// checkAll has a transaction look whether the nodes are there. It fails as a conflict if one is
// not. The nodes have names of the session, and only that session can have made them while it is
// the current one.
func (b *Backend) checkAll(id int64, all []known) error {
	checks := make([]any, len(all))
	for i, k := range all {
		path := b.slotPath(b.slotOf(k.mine.key)) + "/" + k.node
		checks[i] = &zk.CheckVersionRequest{Path: path, Version: -1}
	}
	sent := driver.LeaseClock()
	if _, err := b.client.Multi(checks...); err != nil {
		return err
	}
	b.session.answered(id, sent, true)
	return nil
}

// failed notes that the session may have been kept alive, and so the claim.
func (r *renewal) failed(k known, err error) {
	r.b.doubt(k.mine, r.claims[k.index].TTL)
	r.results[k.index].Err = r.b.ours(&driver.Error{Maybe: true, Err: err})
}

// check asks ZooKeeper whether the claim still holds its key.
func (r *renewal) check(id int64, k known) {
	c := r.claims[k.index]
	there, stat, err := r.b.client.Exists(r.b.slotPath(r.b.slotOf(c.Key)) + "/" + k.node)
	switch {
	case err != nil:
		r.failed(k, err)
	case there && stat.EphemeralOwner == id:
		r.results[k.index].State = r.b.renewed(k, c.TTL)
	default:
		r.results[k.index].State = r.b.vanished(k)
	}
}

// renewed notes that the claim holds its key, unless it was ended meanwhile. If its time was over
// before the answer came, a call for the same key may have passed the key on since ZooKeeper
// looked.
func (b *Backend) renewed(k known, ttl time.Duration) driver.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims[k.mine.identity] != k.mine || k.mine.ending || k.mine.node != k.node ||
		driver.LeaseClock() >= k.mine.deadline {
		return driver.Lost
	}
	b.extend(k.mine, ttl)
	return driver.Held
}

// vanished forgets a claim whose node is gone.
func (b *Backend) vanished(k known) driver.State {
	b.mu.Lock()
	same := k.mine.node == k.node && !k.mine.doubtful
	b.mu.Unlock()
	if same {
		b.drop(k.mine)
	}
	return driver.Lost
}

// one renews a claim by itself, in its turn.
func (r *renewal) one(i int) {
	c := r.claims[i]
	result, err := r.b.inTurn(r.ctx, c.Key, false,
		func(ctx context.Context) (driver.Result, error) { return r.b.renew(ctx, c, r.start) })
	if err != nil {
		result = driver.Result{Err: err}
	}
	r.results[i] = result
}

// renew renews a claim whose terms or node change, or that this process does not know.
func (b *Backend) renew(ctx context.Context, c driver.Claim, start time.Duration) (driver.Result,
	error) {
	mine, fresh := b.claimOf(c)
	r, err := b.renewAlone(ctx, c, mine, start)
	if fresh && mine.isIdle(b) {
		b.drop(mine)
	}
	return r, err
}

func (b *Backend) renewAlone(ctx context.Context, c driver.Claim, mine *claim,
	start time.Duration) (driver.Result, error) {
	b.mu.Lock()
	ending := mine.ending
	b.mu.Unlock()
	if ending {
		return driver.Result{State: driver.Lost}, nil
	}
	for tries := 0; ; tries++ {
		if err := pause(ctx, tries); err != nil {
			return driver.Result{}, cutOff(false, err)
		}
		p, nodes, err := b.plan(c.Key, "", true)
		if err != nil {
			return driver.Result{}, err
		}
		answer := p.renew(c)
		if p.changed {
			done, err := b.commit(p, nodes.id)
			if errors.Is(err, driver.ErrUnknown) {
				b.doubt(mine, c.TTL)
			}
			if err != nil {
				return driver.Result{}, err
			}
			if !done {
				continue
			}
			b.tellOurs(p, nodes, c.Key)
		}
		return b.renewedAs(c, mine, p, nodes, answer, start)
	}
}

// renewedAs notes and returns the outcome of a renewal.
func (b *Backend) renewedAs(c driver.Claim, mine *claim, p *plan, nodes names, answer answer,
	start time.Duration) (driver.Result, error) {
	if answer.state != driver.Held {
		if find(p.Waiters, c.Owner) < 0 {
			b.drop(mine)
		}
		return driver.Result{State: answer.state}, nil
	}
	b.held(mine, answer.mine, c.TTL)
	if err := b.outlast(nodes.id, start+c.TTL, start+b.timeout, c.Key); err != nil {
		return driver.Result{}, &driver.Error{Maybe: true, Err: err}
	}
	r := driver.Result{State: driver.Held}
	if c.Block > 0 {
		r.Token, r.Waiting = driver.Token(answer.mine.Token), answer.waiting
	}
	return r, nil
}
