package etcdhold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	maxOperations = 128 // in one transaction, as etcd has it unless it is told otherwise
	maxParallel   = 16  // transactions of one Renew
)

// Renew extends each claim that still holds its key, as driver.Backend describes. It takes one
// keep-alive for all claims with the same TTL, and one transaction that only reads for each 128
// claims. A claim whose terms change, or that was handed over, costs a transaction of its own.
//
// Renew fails with the error of ctx, and after Close. Any other error is in the results of the
// claims.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, cutOff(false, err)
	}
	if b.isClosed() {
		return nil, closedError()
	}
	r := &renewal{b: b, start: driver.LeaseClock(), claims: claims,
		results: make([]driver.Result, len(claims)), room: make(chan struct{}, maxParallel)}
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	stop := context.AfterFunc(b.ctx, cancel)
	defer stop()
	r.all(ctx, limited)
	if err := ctx.Err(); err != nil && r.unknown() {
		return nil, cutOff(true, err)
	}
	return r.results, nil
}

// renewal is a Renew under way.
type renewal struct {
	b       *Backend
	start   time.Duration
	claims  []driver.Claim
	results []driver.Result // each is written by one goroutine
	room    chan struct{}
	running sync.WaitGroup
}

// known is a claim that holds its key under a lease that fits, as far as this process knows.
type known struct {
	index    int
	mine     *claim
	modified int64
	lease    *lease
}

func (r *renewal) all(caller, ctx context.Context) {
	groups := make(map[class][]known)
	for i, c := range r.claims {
		if err := validate(c); err != nil {
			r.results[i].Err = err
			continue
		}
		if k, ok := r.simple(i, c); ok {
			groups[k.lease.class] = append(groups[k.lease.class], k)
			continue
		}
		r.parallel(func() { r.one(caller, i) })
	}
	for class, group := range groups {
		r.parallel(func() { r.group(caller, ctx, class, group) })
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

// unknown reports whether an outcome is missing.
func (r *renewal) unknown() bool {
	for _, x := range r.results {
		if x.State == driver.Unknown {
			return true
		}
	}
	return false
}

// simple reports whether nothing has to be written to renew the claim.
func (r *renewal) simple(i int, c driver.Claim) (known, bool) {
	mine := r.b.find(c)
	if mine == nil || c.Block > 0 {
		return known{}, false
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if mine.phase != holds || mine.modified == 0 || mine.ending || mine.lease == nil ||
		mine.lease.class != classOf(c.TTL, false) || c.Shared && !mine.record.Shared ||
		driver.LeaseClock() >= mine.deadline {
		return known{}, false
	}
	return known{i, mine, mine.modified, mine.lease}, true
}

// group renews claims of one class.
func (r *renewal) group(caller, ctx context.Context, c class, group []known) {
	longest := time.Duration(0)
	for _, k := range group {
		longest = max(longest, r.claims[k.index].TTL)
	}
	current, err := r.b.leases.ensure(ctx, c, r.start+longest)
	if err != nil {
		for _, k := range group {
			r.results[k.index].Err = err
		}
		return
	}
	defer r.b.leases.count(current, -1)
	var same []known
	for _, k := range group {
		if k.lease != current { // it is gone, or gets no more claims
			r.running.Go(func() { r.one(caller, k.index) })
			continue
		}
		same = append(same, k)
	}
	for len(same) > 0 {
		n := min(len(same), maxOperations)
		chunk := same[:n]
		r.running.Go(func() { r.check(caller, ctx, chunk) })
		same = same[n:]
	}
}

// check asks etcd whether the claims still hold their keys. Their lease was kept alive.
func (r *renewal) check(caller, ctx context.Context, chunk []known) {
	var conditions []clientv3.Cmp
	var operations []clientv3.Op
	for _, k := range chunk {
		c := r.claims[k.index]
		key := r.b.layout.names(c.Key).holder(c.Owner)
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=",
			k.modified))
		operations = append(operations, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	answer, err := r.b.kv.Txn(ctx).If(conditions...).Else(operations...).Commit()
	for i, k := range chunk {
		switch {
		case err != nil:
			// It only reads, but the lease was kept alive.
			r.b.perhapsRenewed(k.mine, r.claims[k.index].TTL)
			r.results[k.index].Err = &driver.Error{Maybe: true, Err: plain(err)}
		case answer.Succeeded:
			r.results[k.index].State = r.b.renewed(k, r.claims[k.index].TTL)
		case len(kvs(answer, i)) == 0:
			r.results[k.index].State = r.b.vanished(k)
		case kvs(answer, i)[0].ModRevision == k.modified:
			r.results[k.index].State = r.b.renewed(k, r.claims[k.index].TTL)
		default:
			r.running.Go(func() { r.one(caller, k.index) })
		}
	}
}

// renewed notes that the claim holds its key, unless it was ended meanwhile. If its time was over
// before the answer came, a call for the same key may have passed the key on since etcd looked.
func (b *Backend) renewed(k known, ttl time.Duration) driver.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims[k.mine.identity] != k.mine || k.mine.ending ||
		driver.LeaseClock() >= k.mine.deadline {
		return driver.Lost
	}
	b.extend(k.mine, ttl)
	return driver.Held
}

// perhapsRenewed has the claim last as if the request without an answer was executed.
func (b *Backend) perhapsRenewed(c *claim, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims[c.identity] != c || c.ending {
		return
	}
	c.modified = 0
	c.deadline = max(c.deadline, driver.LeaseClock()+ttl)
	b.arm(c, c.deadline) // it has no timer if it was another process's until now
}

// perhapsMoved counts the claim under the lease if the request without an answer may have moved it
// there. It does so for as long as the lease lasts. A lease that is gone is forgotten.
func (b *Backend) perhapsMoved(c *claim, x *lease, err error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		b.leases.lost(x)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !errors.Is(err, driver.ErrUnknown) || b.claims[c.identity] != c ||
		slices.Contains(c.perhaps, x) {
		return
	}
	b.leases.count(x, 1)
	c.perhaps = append(c.perhaps, x)
}

// vanished forgets a claim whose key is gone, in its turn. An acquisition of the same claim that is
// under way may have taken the key anew, and notes that when it has its answer.
func (b *Backend) vanished(k known) driver.State {
	b.turns.take(k.mine.key, func() {
		b.mu.Lock()
		same := k.mine.modified == k.modified && len(k.mine.unsettled) == 0
		b.mu.Unlock()
		if same {
			b.drop(k.mine)
		}
	})
	return driver.Lost
}

// one renews a claim by itself, in its turn.
func (r *renewal) one(caller context.Context, i int) {
	c := r.claims[i]
	result, err := r.b.inTurn(caller, c.Key, false,
		func(ctx context.Context) (driver.Result, error) { return r.b.renew(ctx, c, r.start) })
	if err != nil {
		result = driver.Result{Err: err}
	}
	r.results[i] = result
}

// renew renews a claim whose terms or lease change, or that this process does not know.
func (b *Backend) renew(ctx context.Context, c driver.Claim, start time.Duration) (driver.Result,
	error) {
	mine, fresh := b.claimOf(c)
	r, err := b.renewStep(ctx, c, mine, start)
	switch {
	case err == nil && r.State == driver.Lost && (fresh || mine.isIdle(b) || !b.waitsFor(mine)),
		fresh && err != nil && !errors.Is(err, driver.ErrUnknown):
		b.drop(mine)
	}
	return r, err
}

// waitsFor reports whether the claim is in the queue, or etcd still has to be told of its end.
func (b *Backend) waitsFor(c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.phase == waits || len(c.unsettled) > 0 || c.ending
}

func (b *Backend) renewStep(ctx context.Context, c driver.Claim, mine *claim,
	start time.Duration) (driver.Result, error) {
	b.mu.Lock()
	ending := mine.ending
	b.mu.Unlock()
	if ending {
		return driver.Result{State: driver.Lost}, nil
	}
	n := b.layout.names(c.Key)
	under, err := b.leases.ensure(ctx, classOf(c.TTL, false), start+c.TTL)
	if err != nil {
		return driver.Result{}, err
	}
	defer b.leases.count(under, -1)
	now, err := b.read(ctx, n)
	for tries := 0; err == nil; tries++ {
		if err := pause(ctx, ctx, tries); err != nil {
			return driver.Result{}, err
		}
		p := newPlan(n, now, b.dead(c.Key))
		answer := p.renew(c, under.id)
		if !p.changes() {
			return b.renewedAs(c, mine, answer, now.revision), nil
		}
		conditions, operations := p.transaction()
		done, after, err := b.commit(ctx, n, conditions, operations)
		if err != nil {
			b.perhapsRenewed(mine, c.TTL)
			b.perhapsMoved(mine, under, err)
			return driver.Result{}, err
		}
		if done {
			b.granted(c.Key, p.admit, after.revision)
			if answer.state != driver.Unknown {
				if p.again {
					b.goOn(c.Key)
				}
				return b.renewedAs(c, mine, answer, after.revision), nil
			}
		}
		now = after
	}
	return driver.Result{}, err
}

// renewedAs notes and returns the outcome of a renewal.
func (b *Backend) renewedAs(c driver.Claim, mine *claim, answer answer,
	revision int64) driver.Result {
	if answer.state != driver.Held {
		return driver.Result{State: answer.state}
	}
	if !answer.mine.put {
		revision = answer.mine.modified
	}
	b.held(mine, answer.mine, revision, c.TTL)
	r := driver.Result{State: driver.Held, Waiting: answer.waiting}
	if c.Block > 0 {
		r.Token = driver.Token(answer.mine.record.Token)
	}
	return r
}
