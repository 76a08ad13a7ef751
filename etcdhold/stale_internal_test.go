package etcdhold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// call is a call for the lock of the test.
type call struct {
	kind   string // acquire, release, renew; lose if its lease ends
	claim  driver.Claim
	lease  clientv3.LeaseID
	wait   clientv3.LeaseID
	at     uint64
	dead   string // an owner value that the caller knows to be over
	stones int
}

func (c call) String() string {
	return fmt.Sprintf("%s %s shared %v queue %v ticket %d token %d block %d lease %d, %q is dead",
		c.kind, c.claim.Owner, c.claim.Shared, c.claim.Queue, c.claim.Ticket, c.claim.Token,
		c.claim.Block, c.lease, c.dead)
}

// anyCall returns one of few possible calls, so that calls meet. Either all have tickets or none
// has.
func anyCall(r *rand.Rand, tickets bool) call {
	owner := string("abcd"[r.IntN(4)])
	c := call{kind: []string{"acquire", "acquire", "acquire", "release", "renew"}[r.IntN(5)],
		lease: clientv3.LeaseID(1 + r.IntN(2)), wait: clientv3.LeaseID(3 + r.IntN(2)),
		at: r.Uint64N(4)}
	c.claim = driver.Claim{Key: "k", Owner: owner, TTL: time.Duration(1+r.IntN(2)) * time.Second,
		Shared: r.IntN(2) == 0, Queue: r.IntN(4) > 0}
	if tickets {
		c.claim.Ticket = 1 + r.Uint64N(4)
	}
	if r.IntN(3) == 0 {
		c.claim.Token = driver.Token(r.Uint64N(20))
	}
	if r.IntN(3) == 0 {
		c.claim.Block = r.Uint64N(4)
	}
	if r.IntN(8) == 0 {
		// Not the caller: it would keep its place in the queue, and be let in by the next call.
		c.dead = strings.Trim(string("abcd"[r.IntN(4)]), owner)
	}
	if c.kind == "release" && r.IntN(8) == 0 {
		c.stones = 1
	}
	return c
}

// meets reports whether another process may make the other call at the same time: calls of one
// claim come one after the other, and only its own process knows that its time is over.
func (c call) meets(other call) bool {
	return c.claim.Owner != other.claim.Owner && c.dead != other.claim.Owner &&
		other.dead != c.claim.Owner
}

var lockOfTest = layout("x/").names("k")

// plan plans the call from a state.
func (c call) plan(s *state) (*plan, answer) {
	p := newPlan(lockOfTest, s, func(x *party) bool { return x.owner == c.dead })
	switch c.kind {
	case "acquire":
		return p, p.acquire(want{Claim: c.claim, hold: c.lease, wait: c.wait, at: c.at})
	case "lose":
		for _, x := range slices.Concat(p.holders, p.waiters) {
			if x.owner == c.claim.Owner {
				p.removed = append(p.removed, x)
			}
		}
		return p, answer{}
	case "release":
		var stones []stone
		for i := range c.stones {
			id := clientv3.LeaseID(9 + i)
			stones = append(stones, stone{id, lockOfTest.tombstone(id, c.claim.Owner)})
		}
		return p, p.release(c.claim.Owner, stones)
	}
	return p, p.renew(c.claim, c.lease)
}

// outcome is the result of two calls: their answers, and everything that is stored then.
func outcome(m *memory, answers ...answer) string {
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprint(&b, a.state, " ")
		if a.state == driver.Held && a.mine != nil {
			fmt.Fprint(&b, a.mine.record.Token, " ")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.kvs)) {
		kv := m.kvs[key]
		fmt.Fprintf(&b, "\n%q %s under %d", key, kv.Value, kv.Lease)
	}
	return b.String()
}

// do plans the call from what is there, and executes it.
func (c call) do(t *testing.T, m *memory) answer {
	t.Helper()
	p, a := c.plan(m.read(t, lockOfTest))
	if p.changes() && !m.commit(t, p) {
		t.Fatalf("%v is refused, and nobody was in between", c)
	}
	return a
}

// broken returns what is wrong with a lock, or "".
func broken(before, s *state, loses bool) string {
	for i, h := range s.holders {
		switch {
		case len(s.holders) > 1 && !h.record.Shared:
			return h.owner + " is not alone"
		case slices.ContainsFunc(s.holders[:i], func(o *party) bool { return o.owner == h.owner }):
			return h.owner + " holds twice"
		case h.modified > before.revision && before.known(h) == nil &&
			h.record.Token <= before.counter:
			return fmt.Sprintf("%s has token %d after %d", h.owner, h.record.Token, before.counter)
		case h.record.Token+max(h.record.Block, 1)-1 > s.counter:
			return fmt.Sprintf("token %d is over the counter, %d", h.record.Token, s.counter)
		}
	}
	if len(s.waiters) == 0 || loses {
		return ""
	}
	if len(s.holders) == 0 {
		return s.waiters[0].owner + " waits for nobody"
	}
	if s.holders[0].record.Shared && s.waiters[0].record.Shared {
		return s.waiters[0].owner + " waits for those it might join"
	}
	return ""
}

// known returns the holder with that owner value, or nil.
func (s *state) known(h *party) *party {
	if i := find(s.holders, h.owner); i >= 0 {
		return s.holders[i]
	}
	return nil
}

// Others may do anything between a call's look at a lock and its change. If the change is made, the
// result is that of one call after the other, in some order. Each call leaves the lock in order.
func TestStalePlans(t *testing.T) {
	executed, overtaken := 0, 0
	for seed := range uint64(400) {
		h := history{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0)), store: newMemory()}
		for range 12 {
			switch changes, done := h.step(); {
			case done:
				executed++
			case changes:
				overtaken++
			}
		}
	}
	if executed < 500 || overtaken < 500 {
		t.Errorf("%d late changes were made, and %d were not: too few to tell", executed, overtaken)
	}
}

// history is what happens to a lock. In one of four, leases end. Then the lock may be in disorder
// until the next call.
type history struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand
	store *memory
}

func (h *history) loses() bool { return h.seed%4 == 3 }

// others returns one or two calls that may be made while the late one is under way.
func (h *history) others(late call) []call {
	calls := make([]call, 1+h.r.IntN(2))
	for i := range calls {
		for calls[i] = late; !calls[i].meets(late); {
			calls[i] = anyCall(h.r, h.seed%2 == 0)
		}
		if h.loses() && h.r.IntN(4) == 0 {
			calls[i] = call{kind: "lose", claim: driver.Claim{Owner: string("abcd"[h.r.IntN(4)])}}
		}
	}
	return calls
}

// step makes some calls, and then one that was planned before them. It reports whether the planned
// call had something to change, and whether it did.
func (h *history) step() (changes, done bool) {
	t, m := h.t, h.store
	late := anyCall(h.r, h.seed%2 == 0)
	others := h.others(late)
	before := m.clone()
	stale, answered := late.plan(m.read(t, lockOfTest))
	var answers []answer
	for _, c := range others {
		answers = append(answers, h.inOrder(m, c, func() answer { return c.do(t, m) }))
	}
	if !stale.changes() {
		return false, false
	}
	last := func() answer {
		done = m.commit(t, stale)
		return answered
	}
	if h.inOrder(m, late, last); !done {
		return true, false
	}
	is := outcome(m, append(answers, answered)...)
	for at := range len(others) + 1 { // when the late one might have been made as well
		other := before.clone()
		answers := make([]answer, len(others)+1)
		for i, c := range others {
			if i == at {
				answers[len(others)] = late.do(t, other)
			}
			answers[i] = c.do(t, other)
		}
		if at == len(others) {
			answers[at] = late.do(t, other)
		}
		if outcome(other, answers...) == is {
			return true, true
		}
	}
	t.Fatalf("seed %d: %v, overtaken by %v, has left what no order does:\n%s", h.seed, late, others,
		is)
	return true, true
}

// inOrder makes a call and looks at what it leaves.
func (h *history) inOrder(m *memory, c call, do func() answer) answer {
	h.t.Helper()
	before := m.read(h.t, lockOfTest)
	a := do()
	if wrong := broken(before, m.read(h.t, lockOfTest), h.loses()); wrong != "" {
		h.t.Fatalf("seed %d: %v leaves this: %s\n%s", h.seed, c, wrong, outcome(m, a))
	}
	return a
}
