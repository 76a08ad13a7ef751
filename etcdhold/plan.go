package etcdhold

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// etcd takes 128 operations in a transaction. Each of them has two that look.
const (
	// maxTouched bounds how many dead parties one transaction removes, and how many waiters it lets
	// in. Each of these is also removed from the queue.
	maxTouched = 40

	// maxStones bounds the tombstones of a transaction that does other things too, and maxAlone
	// those of one that does nothing else.
	maxStones = 2
	maxAlone  = 100
)

// plan is what one call changes about a lock. It starts from a state that was read. It becomes a
// transaction that is executed only if what it relies on has not changed.
type plan struct {
	names
	*state
	removed []*party // which are in etcd and are to go
	admit   []*party // whom it lets in out of the queue
	stones  []stone

	first, last uint64 // tokens that it takes; 0 if none

	free    bool     // it lets somebody in where it saw no holder
	strict  bool     // it relies on what it saw of the queue
	anchors []*party // it relies on them being there
	steady  []*party // it relies on them being as they are
	absent  []string // keys that must not be there
	again   bool     // there is more to do than fits into one transaction
}

// stone is a tombstone that is to be put.
type stone struct {
	lease clientv3.LeaseID
	key   string
}

// newPlan returns a plan for the state without its dead parties.
func newPlan(n names, s *state, dead func(*party) bool) *plan {
	copied := *s
	p := &plan{names: n, state: &copied}
	gone := func(x *party) bool {
		if !dead(x) {
			return false
		}
		p.removed = append(p.removed, x)
		return true
	}
	p.holders = slices.DeleteFunc(slices.Clone(s.holders), gone)
	p.waiters = slices.DeleteFunc(slices.Clone(s.waiters), gone)
	return p
}

// crowded reports whether there are too many dead for one transaction. Then it changes the plan to
// one that removes some of them.
func (p *plan) crowded() bool {
	if len(p.removed) <= maxTouched {
		return false
	}
	p.removed, p.again = p.removed[:maxTouched], true
	return true
}

func (p *plan) shared() bool { return len(p.holders) > 0 && p.holders[0].record.Shared }

// draw takes tokens, and returns the first.
func (p *plan) draw(proposed, block uint64) uint64 {
	token := max(p.counter, p.last) + 1
	token = max(token, proposed)
	if p.first == 0 {
		p.first = token
	}
	p.last = token + max(block, 1) - 1
	return token
}

// settle passes a key that nobody holds to the first waiter, and lets in waiters that may share it.
func (p *plan) settle() {
	if len(p.holders) == 0 && len(p.waiters) > 0 {
		p.free = true
		p.letIn(p.waiters[0])
		p.strict = p.strict || p.shared() // a newcomer may share it, too
	}
	for p.shared() && len(p.waiters) > 0 && p.waiters[0].record.Shared {
		p.strict = true
		if len(p.admit) >= maxTouched {
			p.again = true
			return
		}
		p.letIn(p.waiters[0])
	}
}

// letIn makes the first waiter a holder, under its own lease.
func (p *plan) letIn(w *party) {
	p.removed, p.waiters = append(p.removed, w), p.waiters[1:]
	h := &party{owner: w.owner, key: p.holder(w.owner), lease: w.lease, put: true, record: record{
		Token: p.draw(w.record.Token, w.record.Block), Block: w.record.Block,
		Shared: w.record.Shared, TTL: w.record.TTL}}
	p.admit = append(p.admit, h)
	p.hold(h)
}

// hold adds a holder, or replaces the one with its owner value.
func (p *plan) hold(h *party) {
	if i := find(p.holders, h.owner); i >= 0 {
		h.created, h.modified = p.holders[i].created, p.holders[i].modified
		p.holders[i] = h
		return
	}
	p.holders = append(p.holders, h)
}

// want is what an acquisition needs to know.
type want struct {
	driver.Claim
	hold clientv3.LeaseID // the lease of a holder
	wait clientv3.LeaseID // the lease of a waiter; 0 if there is none yet
	at   uint64           // our clock in microseconds
	// refresh says that the waiter's record is out of date.
	refresh bool
}

// answer is what a plan gives if it is executed.
type answer struct {
	state driver.State
	mine  *party // the claim's own key; nil if it has none

	// needsLease says that the claim has to queue, for which it needs a lease first.
	needsLease bool
	waiting    bool // for Renew
}

// acquire plans an acquisition.
func (p *plan) acquire(w want) answer {
	if p.crowded() {
		return answer{}
	}
	before := len(p.holders)
	p.settle()
	if p.again {
		return answer{}
	}
	if len(p.removed) > 0 {
		p.block()
	}
	mine := find(p.holders, w.Owner) >= 0
	if p.admits(w, mine) {
		p.free = p.free || before == 0
		p.strict = p.strict || w.Shared && !mine
		return answer{state: driver.Held, mine: p.grant(w)}
	}
	if len(p.removed) > 0 {
		p.anchor() // otherwise perhaps nobody is left whose release passes the key on
	}
	return p.queue(w, mine && p.shared())
}

// admits reports whether the claim may hold the key. mine says that it holds the key already.
func (p *plan) admits(w want, mine bool) bool {
	if p.shared() {
		return w.Shared && (mine || p.behind(w))
	}
	return mine || len(p.holders) == 0
}

// behind reports whether every waiter comes after the claim.
func (p *plan) behind(w want) bool {
	if len(p.waiters) == 0 {
		return true
	}
	return w.Queue && w.Ticket > 0 && find(p.waiters, w.Owner) < 0 &&
		p.waiters[0].compare(w.Ticket, w.Owner) > 0
}

// grant gives the claim the key, or fresh tokens if it has it.
func (p *plan) grant(w want) *party {
	if i := find(p.waiters, w.Owner); i >= 0 {
		p.removed = append(p.removed, p.waiters[i])
		p.waiters = slices.Delete(p.waiters, i, i+1)
	}
	p.anchor()
	h := &party{owner: w.Owner, key: p.holder(w.Owner), lease: w.hold, put: true, record: record{
		Token: p.draw(uint64(w.Token), w.Block), Block: w.Block, Shared: w.Shared,
		TTL: w.TTL.Milliseconds()}}
	if i := find(p.holders, w.Owner); i >= 0 {
		h.record.Shared = p.holders[i].record.Shared
	}
	p.hold(h)
	p.admit = slices.DeleteFunc(p.admit, func(a *party) bool { return a.owner == w.Owner })
	return h
}

// anchor has the plan rely on one holder that stays. As long as that one holds the key, no other
// claim gets it alone.
func (p *plan) anchor() {
	for _, h := range p.holders {
		if h.created != 0 && !h.put {
			p.anchors = append(p.anchors, h)
			return
		}
	}
}

// block has the plan rely on what keeps claims that would share the key from it: the first waiter,
// or a holder that has it alone and may step down. If the plan takes a waiter out of the queue, it
// also relies on this: no claim has come since that waits behind that waiter.
func (p *plan) block() {
	for _, h := range p.holders {
		if h.created != 0 && !h.put && !h.record.Shared {
			p.steady = append(p.steady, h)
		}
	}
	if !p.shared() {
		return
	}
	if len(p.waiters) > 0 {
		p.anchors = append(p.anchors, p.waiters[0])
	}
	p.strict = p.strict || slices.ContainsFunc(p.removed, func(x *party) bool {
		return x.key == p.waiter(x.owner)
	})
}

// queue leaves the claim in the queue if it asks for that, or is there.
func (p *plan) queue(w want, mine bool) answer {
	a := answer{state: driver.Busy}
	i := find(p.waiters, w.Owner)
	switch {
	case i >= 0:
		a.mine = p.waiters[i]
		if a.mine.lease == w.wait && !w.refresh {
			return a
		}
	case !w.Queue || mine:
		return a
	}
	if w.wait == 0 {
		a.needsLease = true
		return a
	}
	r := record{Token: uint64(w.Token), Block: w.Block, Shared: w.Shared,
		TTL: w.TTL.Milliseconds(), Ticket: w.Ticket, At: w.at}
	next := &party{owner: w.Owner, key: p.waiter(w.Owner), lease: w.wait, put: true, record: r}
	if i >= 0 {
		next.record.Ticket, next.record.At = a.mine.record.Ticket, a.mine.record.At
		next.record.Shared = a.mine.record.Shared
		next.created, next.modified = a.mine.created, a.mine.modified
		p.waiters[i] = next
	} else {
		p.anchor()
		if w.Shared {
			p.block()
		}
		p.waiters = append(p.waiters, next)
	}
	a.mine = next
	return a
}

// release plans the end of a claim.
func (p *plan) release(owner string, stones []stone) answer {
	if p.crowded() {
		return answer{}
	}
	p.stones = stones
	a := answer{state: driver.Lost}
	if i := find(p.holders, owner); i >= 0 {
		a.state = driver.Held
		p.removed = append(p.removed, p.holders[i])
		p.holders = slices.Delete(p.holders, i, i+1)
	}
	// The claim may be a holder and a waiter, if a request to queue came late, after the grant.
	if i := find(p.waiters, owner); i >= 0 {
		if a.state == driver.Lost {
			a.state = driver.Busy
		}
		p.removed = append(p.removed, p.waiters[i])
		p.waiters = slices.Delete(p.waiters, i, i+1)
	}
	p.anchor()
	p.pass()
	p.block()
	return a
}

// pass settles a key that may have lost its last holder.
func (p *plan) pass() {
	p.settle()
	if len(p.holders) == 0 {
		p.strict = true // nobody else would pass the key on to a newcomer
	}
}

// renew plans a renewal under the lease.
func (p *plan) renew(c driver.Claim, lease clientv3.LeaseID) answer {
	if p.crowded() {
		return answer{}
	}
	i := find(p.holders, c.Owner)
	if i < 0 {
		if len(p.removed) > 0 {
			p.anchor()
			p.pass()
			p.block()
		}
		return answer{state: driver.Lost}
	}
	h := *p.holders[i]
	if h.lease != lease {
		h.lease, h.put = lease, true
	}
	if c.Shared && !h.record.Shared {
		h.record.Shared, h.put = true, true
		p.strict = true // a newcomer may share it
	}
	if c.Block > 0 {
		h.record.Token, h.record.Block, h.put = p.draw(uint64(c.Token), c.Block), c.Block, true
	}
	if h.put {
		h.record.TTL = c.TTL.Milliseconds()
	}
	p.holders[i] = &h
	p.settle()
	if len(p.removed) > 0 && !h.put {
		p.anchors = append(p.anchors, &h)
	}
	if len(p.removed) > 0 || p.strict {
		p.block()
	}
	return answer{state: driver.Held, mine: &h, waiting: c.Block > 0 && len(p.waiters) > 0}
}

// changes reports whether there is anything to write.
func (p *plan) changes() bool {
	return len(p.removed) > 0 || len(p.stones) > 0 ||
		slices.ContainsFunc(p.holders, func(x *party) bool { return x.put }) ||
		slices.ContainsFunc(p.waiters, func(x *party) bool { return x.put })
}

// transaction returns the conditions and the operations.
func (p *plan) transaction() (conditions []clientv3.Cmp, operations []clientv3.Op) {
	written := make(map[string]bool)
	for _, x := range slices.Concat(p.holders, p.waiters) {
		if !x.put {
			continue
		}
		written[x.key] = true
		operations = append(operations, clientv3.OpPut(x.key, x.record.String(),
			clientv3.WithLease(x.lease)))
		if x.created != 0 {
			conditions = append(conditions, unchanged(x))
		}
	}
	for _, x := range p.removed {
		conditions = append(conditions, unchanged(x))
		if !written[x.key] {
			operations = append(operations, clientv3.OpDelete(x.key))
		}
	}
	// Tombstones are put whether or not they are there. The key of a tombstone contains its lease,
	// and all tombstones have one value, so an earlier release that is executed late puts what is
	// there already. After a release without an answer a tombstone may be there, and that must not
	// keep the claim from being ended.
	for _, s := range p.stones {
		operations = append(operations, clientv3.OpPut(s.key, "", clientv3.WithLease(s.lease)))
	}
	for _, x := range p.steady {
		conditions = append(conditions, unchanged(x))
	}
	for _, x := range p.anchors {
		conditions = append(conditions,
			clientv3.Compare(clientv3.CreateRevision(x.key), "=", x.created))
	}
	for _, key := range p.absent {
		conditions = append(conditions, missing(key))
	}
	if p.free {
		conditions = append(conditions, p.since(p.holderRange()))
	}
	if p.strict {
		conditions = append(conditions, p.since(p.waiterRange()))
	}
	if p.first > 0 {
		conditions = append(conditions, p.counterBelow(p.first))
		operations = append(operations, clientv3.OpPut(p.tokens, digits(p.last)))
	}
	return conditions, operations
}

// since is the condition that nothing in the range was written after the state was read.
func (p *plan) since(from, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(from).WithRange(end), "<", p.revision+1)
}

// counterBelow is the condition that no token from that one on was granted.
func (p *plan) counterBelow(token uint64) clientv3.Cmp {
	if !p.counted {
		return missing(p.tokens)
	}
	return clientv3.Compare(clientv3.Value(p.tokens), "<", digits(token))
}

func unchanged(x *party) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(x.key), "=", x.modified)
}

func missing(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}
