package etcdhold

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A claim that is among the holders and in the queue, as a request to queue came late, ends as a
// whole.
func TestReleaseOfBoth(t *testing.T) {
	n := layout("x/").names("k")
	at := func(key string) *party {
		return &party{owner: "o", key: key, created: 1, modified: 1, record: record{Shared: true}}
	}
	p := newPlan(n, &state{holders: []*party{at(n.holder("o"))},
		waiters: []*party{at(n.waiter("o"))}}, func(*party) bool { return false })
	answer := p.release("o", nil)
	if answer.state != driver.Held || len(p.removed) != 2 || len(p.admit) != 0 {
		t.Errorf("%v, %d removed, %d let in; want Held, 2, none", answer.state, len(p.removed),
			len(p.admit))
	}
}

// Tokens are compared as texts, also those that a claim may ask for beyond 2^53.
func TestDigits(t *testing.T) {
	for _, token := range []uint64{1, 9, 1<<53 - 1, 1 << 53, 9_999_999_999_999_999, 1<<64 - 2} {
		if digits(token) >= digits(token+1) {
			t.Errorf("%q is not before %q", digits(token), digits(token+1))
		}
	}
}

// crowd is a store with a holder, of whom there is a late waiter, too, with as many dead as one
// transaction removes, and with more waiters than it lets in.
func crowd(t *testing.T, dead int) (m *memory, isDead func(*party) bool) {
	m = newMemory()
	p := newPlan(lockOfTest, m.read(t, lockOfTest), func(*party) bool { return false })
	put := func(key, owner string, shared bool) *party {
		return &party{owner: owner, key: key, put: true, record: record{Shared: shared, TTL: 1000}}
	}
	p.holders = append(p.holders, put(lockOfTest.holder("me"), "me", false))
	p.waiters = append(p.waiters, put(lockOfTest.waiter("me"), "me", true))
	for i := range dead {
		owner := fmt.Sprint("dead", i)
		p.waiters = append(p.waiters, put(lockOfTest.waiter(owner), owner, false))
	}
	for i := range 2 * maxTouched {
		owner := fmt.Sprint("w", i)
		p.waiters = append(p.waiters, put(lockOfTest.waiter(owner), owner, true))
	}
	if !m.commit(t, p) {
		t.Fatal("the store is not filled")
	}
	return m, func(x *party) bool { return strings.HasPrefix(x.owner, "dead") }
}

// Every plan fits into a transaction of etcd, which the store refuses otherwise. One that has to
// leave something says so.
func TestPlansFit(t *testing.T) {
	me := driver.Claim{Key: "k", Owner: "me", TTL: time.Second, Shared: true, Block: 1, Queue: true}
	stones := []stone{{9, lockOfTest.tombstone(9, "me")}, {10, lockOfTest.tombstone(10, "me")}}
	if len(stones) != maxStones {
		t.Fatalf("a release may have %d tombstones, and the test has %d", maxStones, len(stones))
	}
	for name, plan := range map[string]func(p *plan) answer{
		"release": func(p *plan) answer { return p.release("me", stones) },
		"renew":   func(p *plan) answer { return p.renew(me, 2) },
		"acquire": func(p *plan) answer {
			return p.acquire(want{Claim: me, hold: 2, wait: 3})
		},
	} {
		for dead, state := range map[int]driver.State{maxTouched: driver.Held,
			maxTouched + 1: driver.Unknown} {
			m, isDead := crowd(t, dead)
			if name == "acquire" {
				delete(m.kvs, lockOfTest.holder("me"))
				state = driver.Unknown // it has to go on until the key is settled
			}
			p := newPlan(lockOfTest, m.read(t, lockOfTest), isDead)
			a := plan(p)
			if a.state != state || !p.again || len(p.admit) > 0 != (dead == maxTouched) {
				t.Errorf("%s with %d dead: %v, again %v, %d let in; want %v, and more to do", name,
					dead, a.state, p.again, len(p.admit), state)
			}
			if !m.commit(t, p) {
				t.Errorf("%s with %d dead is refused", name, dead)
			}
			left := m.read(t, lockOfTest)
			if n := len(left.waiters) + len(left.holders); n < 2*maxTouched ||
				n > 2*maxTouched+3 {
				t.Errorf("%s with %d dead has left %d parties", name, dead, n)
			}
		}
	}
}
