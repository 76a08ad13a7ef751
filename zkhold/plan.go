package zkhold

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// plan is what one call changes about a lock. It starts from a slot that was read, and changes the
// slot's record. It becomes a transaction that is executed only if nobody has changed the slot
// since.
type plan struct {
	*slot
	*lock
	key   string // escaped
	nodes namer

	changed bool
	create  []*party // whose nodes are to be made
	remove  []string // names of nodes that are there and are to go
	admit   []*party // whom it lets in out of the queue
}

// namer names the nodes that a plan makes.
type namer interface {
	ours(node string) bool // of this session
	made(node string) bool // by this Backend, in whatever session
	next() string
}

// newPlan returns a plan for the slot without the dead parties of the lock, and without parties of
// other locks whose nodes are gone.
func newPlan(s *slot, key string, dead func(*party) bool, nodes namer) *plan {
	p := &plan{slot: s, key: escape(key), nodes: nodes}
	for name, l := range s.Locks {
		l.Holders, l.Waiters = p.living(l.Holders, nil), p.living(l.Waiters, nil)
		if len(l.Holders)+len(l.Waiters) == 0 {
			delete(s.Locks, name)
		}
	}
	if p.lock = s.Locks[p.key]; p.lock == nil {
		p.lock = new(lock)
	}
	p.Holders, p.Waiters = p.living(p.Holders, dead), p.living(p.Waiters, dead)
	return p
}

// living returns the parties without those whose nodes are gone, and without those that are dead
// for another reason.
func (p *plan) living(parties []*party, dead func(*party) bool) []*party {
	return slices.DeleteFunc(parties, func(x *party) bool {
		if p.live != nil && !p.live[x.Node] {
			p.changed = true
			return true
		}
		if dead == nil || !dead(x) {
			return false
		}
		p.bury(x)
		return true
	})
}

// bury has the party's node removed.
func (p *plan) bury(x *party) {
	p.changed = true
	p.remove = append(p.remove, x.Node)
}

func (p *plan) shared() bool { return len(p.Holders) > 0 && p.Holders[0].Shared }

// draw takes tokens, and returns the first.
func (p *plan) draw(proposed, block uint64) uint64 {
	p.changed = true
	token := max(p.Tokens+1, proposed)
	p.Tokens = token + max(block, 1) - 1
	return token
}

// settle passes a key that nobody holds to the first waiter, and lets in waiters that may share it.
func (p *plan) settle() {
	if len(p.Holders) == 0 && len(p.Waiters) > 0 {
		p.letIn(p.Waiters[0])
	}
	for p.shared() && len(p.Waiters) > 0 && p.Waiters[0].Shared {
		p.letIn(p.Waiters[0])
	}
}

// letIn makes the first waiter a holder. Its node stays.
func (p *plan) letIn(w *party) {
	p.Waiters = p.Waiters[1:]
	w.Token, w.Ticket = p.draw(w.Token, w.Block), 0
	p.admit = append(p.admit, w)
	p.Holders = append(p.Holders, w)
}

// want is what an acquisition asks for.
type want struct {
	driver.Claim
	at      uint64 // our clock in microseconds
	refresh bool   // the waiter's party is out of date
}

// answer is what a plan gives if it is executed.
type answer struct {
	state   driver.State
	mine    *party // the claim's own; nil if it has none
	waiting bool   // for Renew
}

// acquire plans an acquisition.
func (p *plan) acquire(w want) answer {
	p.settle()
	mine, shared := find(p.Holders, w.Owner) >= 0, p.shared()
	switch {
	case w.Shared && (len(p.Holders) == 0 || mine && shared || shared && p.behind(w)),
		!shared && (len(p.Holders) == 0 || mine):
		return answer{state: driver.Held, mine: p.grant(w)}
	}
	return p.queue(w, mine && shared)
}

// behind reports whether every waiter comes after the claim.
func (p *plan) behind(w want) bool {
	if len(p.Waiters) == 0 {
		return true
	}
	return w.Queue && w.Ticket > 0 && find(p.Waiters, w.Owner) < 0 &&
		p.Waiters[0].compare(w.Ticket, w.Owner) > 0
}

// grant gives the claim the key, or fresh tokens if it has it.
func (p *plan) grant(w want) *party {
	h := &party{Owner: escape(w.Owner), Token: p.draw(uint64(w.Token), w.Block), Block: w.Block,
		Shared: w.Shared, TTL: w.TTL.Milliseconds()}
	i := find(p.Holders, w.Owner)
	if i < 0 {
		h.Node = p.nodes.next()
		p.create = append(p.create, h)
		p.Holders = append(p.Holders, h)
		return h
	}
	h.Node, h.Shared = p.Holders[i].Node, p.Holders[i].Shared
	p.Holders[i] = h
	p.own(h)
	p.admit = slices.DeleteFunc(p.admit, func(a *party) bool { return a.Owner == h.Owner })
	return h
}

// own gives the party a node of this session, if its node is of another session.
func (p *plan) own(x *party) {
	if p.nodes.ours(x.Node) {
		return
	}
	p.bury(x)
	x.Node = p.nodes.next()
	p.create = append(p.create, x)
}

// queue leaves the claim in the queue if it asks for that, or is there.
func (p *plan) queue(w want, mine bool) answer {
	a := answer{state: driver.Busy}
	if i := find(p.Waiters, w.Owner); i >= 0 {
		a.mine = p.Waiters[i]
		p.own(a.mine)
		if w.refresh {
			p.changed = true
			a.mine.Token, a.mine.Block = uint64(w.Token), w.Block
			a.mine.TTL = w.TTL.Milliseconds()
		}
		return a
	}
	if !w.Queue || mine || p.size > maxRecord {
		return a
	}
	p.changed = true
	a.mine = &party{Owner: escape(w.Owner), Node: p.nodes.next(), Token: uint64(w.Token),
		Block: w.Block, Shared: w.Shared, TTL: w.TTL.Milliseconds(), Ticket: w.Ticket}
	if w.Ticket == 0 {
		p.Given = max(p.Given+1, w.at)
		a.mine.Ticket = p.Given
	}
	p.create = append(p.create, a.mine)
	i := slices.IndexFunc(p.Waiters, func(x *party) bool {
		return x.compare(a.mine.Ticket, w.Owner) > 0
	})
	if i < 0 {
		i = len(p.Waiters)
	}
	p.Waiters = slices.Insert(p.Waiters, i, a.mine)
	return a
}

// release plans the end of a claim.
func (p *plan) release(owner string) answer {
	a := answer{state: driver.Lost}
	if i := find(p.Holders, owner); i >= 0 {
		a.state = driver.Held
		p.bury(p.Holders[i])
		p.Holders = slices.Delete(p.Holders, i, i+1)
	} else if i := find(p.Waiters, owner); i >= 0 {
		a.state = driver.Busy
		p.bury(p.Waiters[i])
		p.Waiters = slices.Delete(p.Waiters, i, i+1)
	}
	p.settle()
	return a
}

// renew plans a renewal.
func (p *plan) renew(c driver.Claim) answer {
	i := find(p.Holders, c.Owner)
	if i < 0 {
		return answer{state: driver.Lost}
	}
	h := p.Holders[i]
	p.own(h)
	if c.Shared && !h.Shared {
		h.Shared, p.changed = true, true
	}
	if c.Block > 0 {
		h.Token, h.Block = p.draw(uint64(c.Token), c.Block), c.Block
	}
	if p.changed {
		h.TTL = c.TTL.Milliseconds()
	}
	p.settle()
	return answer{state: driver.Held, mine: h, waiting: len(p.Waiters) > 0}
}

// data is the record as it is to be written.
func (p *plan) data() []byte {
	if len(p.Holders)+len(p.Waiters) > 0 {
		p.Locks[p.key] = p.lock
	} else {
		delete(p.Locks, p.key)
	}
	return encode(p.record)
}
