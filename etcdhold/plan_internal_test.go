package etcdhold

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// A late request to queue may leave a claim both among the holders and in the queue. A release ends
// both.
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

// Tokens are compared as texts, even those beyond 2^53, which a claim may ask for.
func TestDigits(t *testing.T) {
	for _, token := range []uint64{1, 9, 1<<53 - 1, 1 << 53, 9_999_999_999_999_999, 1<<64 - 2} {
		if digits(token) >= digits(token+1) {
			t.Errorf("%q is not before %q", digits(token), digits(token+1))
		}
	}
}

// crowd is a store with a holder that is also in the queue, with dead waiters, and with more other
// waiters than one transaction lets in.
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

// Every plan fits into a transaction of etcd: the store refuses larger ones. A plan that has to
// leave something undone says so.
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

// If a claim among both asks again, it has the key, and waits no longer.
func TestAcquireOfBoth(t *testing.T) {
	at := func(key string) *party {
		return &party{owner: "o", key: key, created: 1, modified: 1}
	}
	p := newPlan(lockOfTest, &state{holders: []*party{at(lockOfTest.holder("o"))},
		waiters: []*party{at(lockOfTest.waiter("o"))}}, func(*party) bool { return false })
	a := p.acquire(want{Claim: driver.Claim{Owner: "o"}, hold: 1})
	if a.state != driver.Held || len(p.holders) != 1 || len(p.waiters) != 0 || len(p.removed) != 1 {
		t.Errorf("%v, %d holders, %d waiters, %d removed; want Held, 1, none, 1", a.state,
			len(p.holders), len(p.waiters), len(p.removed))
	}
}

// A reader does not pass a writer that waits, unless the reader's ticket is older.
func TestReadersDoNotPassWriters(t *testing.T) {
	for ticket, state := range map[uint64]driver.State{0: driver.Busy, 4: driver.Held,
		6: driver.Busy} {
		p := newPlan(lockOfTest, &readerAndWriter, func(*party) bool { return false })
		a := p.acquire(want{Claim: driver.Claim{Owner: "o", Shared: true, Queue: true,
			Ticket: ticket}, hold: 1, wait: 2})
		if a.state != state {
			t.Errorf("with ticket %d: %v; want %v", ticket, a.state, state)
		}
	}
}

// readerAndWriter is a lock with a reader, and a writer that waits.
var readerAndWriter = state{holders: []*party{{owner: "r", key: lockOfTest.holder("r"), created: 1,
	modified: 1, record: record{Shared: true}}}, waiters: []*party{{owner: "w",
	key: lockOfTest.waiter("w"), created: 2, modified: 2, ticket: 5, record: record{Ticket: 5}}}}

// Tokens rise above those granted and those proposed, by the length of the block.
func TestDraw(t *testing.T) {
	p := newPlan(lockOfTest, &state{counter: 5}, func(*party) bool { return false })
	for i, draw := range []struct{ proposed, block, want, last uint64 }{
		{0, 0, 6, 6}, {3, 1, 7, 7}, {10, 3, 10, 12}, {11, 2, 13, 14},
	} {
		if token := p.draw(draw.proposed, draw.block); token != draw.want || p.last != draw.last ||
			p.first != 6 {
			t.Errorf("draw %d gives %d, the last is %d, and the first %d; want %d, %d and 6", i,
				token, p.last, p.first, draw.want, draw.last)
		}
	}
}

// A renewal moves the claim to the lease under which it is made. It is refused if the claim has
// been lost meanwhile, even if it writes only that somebody else is gone. A release leaves its
// tombstones, and a plan that must not find one is refused then.
func TestWhatPlansWrite(t *testing.T) {
	m := newMemory()
	write := func(dead string, plan func(p *plan) answer) bool {
		p := newPlan(lockOfTest, m.read(t, lockOfTest),
			func(x *party) bool { return x.owner == dead })
		plan(p)
		return m.commit(t, p)
	}
	reader := driver.Claim{Owner: "r", Shared: true}
	writer := driver.Claim{Owner: "w", Queue: true}
	renews := func(lease clientv3.LeaseID) func(p *plan) answer {
		return func(p *plan) answer { return p.renew(reader, lease) }
	}
	write("", func(p *plan) answer { return p.acquire(want{Claim: reader, hold: 1}) })
	write("", func(p *plan) answer { return p.acquire(want{Claim: writer, hold: 1, wait: 2}) })
	held := lockOfTest.holder("r")
	if write("", renews(3)); m.kvs[held].Lease != 3 {
		t.Errorf("it is under the lease %d; want 3", m.kvs[held].Lease)
	}
	lost := m.clone()
	p := newPlan(lockOfTest, m.read(t, lockOfTest), func(x *party) bool { return x.owner == "w" })
	p.renew(reader, 3)
	if delete(lost.kvs, held); lost.commit(t, p) {
		t.Error("the renewal of a claim that is lost is executed")
	}
	if !m.commit(t, p) || m.kvs[lockOfTest.waiter("w")] != nil {
		t.Error("the dead writer is still there")
	}
	grave := stone{9, lockOfTest.tombstone(9, "r")}
	write("", func(p *plan) answer { return p.release("r", []stone{grave}) })
	if left := m.kvs[grave.key]; left == nil || left.Lease != 9 || m.kvs[held] != nil {
		t.Errorf("the release has left %v, and the tombstone %v", m.kvs[held], left)
	}
	if write("", func(p *plan) answer {
		p.absent = []string{grave.key}
		return p.acquire(want{Claim: reader, hold: 9})
	}) {
		t.Error("an acquisition is executed over its tombstone")
	}
}

// A release without an answer is made again, so releases of one claim may be executed in another
// order than they were made. Whichever comes last, each tombstone is there afterwards, under the
// lease of the requests that it refuses. Requests under later leases are not refused.
//
// Fails if the code is broken like this: a tombstone on the condition that there is none, or
// without its lease in its key.
func TestLateReleaseLeavesTombstones(t *testing.T) {
	me := driver.Claim{Key: "k", Owner: "me", TTL: time.Second}
	first := stone{9, lockOfTest.tombstone(9, "me")}
	second := stone{10, lockOfTest.tombstone(10, "me")}
	for _, late := range []bool{false, true} {
		m := newMemory()
		planned := func(do func(p *plan) answer) *plan {
			p := newPlan(lockOfTest, m.read(t, lockOfTest), func(*party) bool { return false })
			do(p)
			return p
		}
		release := func(stones ...stone) *plan {
			return planned(func(p *plan) answer { return p.release("me", stones) })
		}
		acquire := func(lease clientv3.LeaseID) bool {
			return m.commit(t, planned(func(p *plan) answer {
				p.absent = []string{lockOfTest.tombstone(lease, "me")}
				return p.acquire(want{Claim: me, hold: lease})
			}))
		}
		// Both are made when there is nothing but tombstones to leave: the request that may arrive
		// under the first lease was sent, and then the one under the second.
		older, newer := release(first), release(first, second)
		if !late && !m.commit(t, older) || !m.commit(t, newer) || late && !m.commit(t, older) {
			t.Errorf("late %v: a release is refused", late)
		}
		for _, s := range []stone{first, second} {
			if left := m.kvs[s.key]; left == nil || clientv3.LeaseID(left.Lease) != s.lease {
				t.Errorf("late %v: %v is left; want a tombstone under %d", late, left, s.lease)
			}
			if acquire(s.lease) {
				t.Errorf("late %v: a request under %d is executed", late, s.lease)
			}
		}
		if !acquire(11) {
			t.Errorf("late %v: a request under a later lease is refused", late)
		}
		if m.commit(t, newer); m.kvs[lockOfTest.holder("me")] == nil {
			t.Errorf("late %v: the release of before has ended what came after it", late)
		}
	}
}
