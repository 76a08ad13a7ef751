package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// shared returns a new shared claim on key "k".
func (c *client) shared() driver.Claim {
	claim := c.claim()
	claim.Shared = true
	return claim
}

// sharers returns who shares the key on each server, in alphabetical order.
func (c *cluster) sharers(key string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		var owners []string
		if k := s.keys[key]; k != nil {
			for _, o := range k.sharers {
				if s.now() < o.expires {
					owners = append(owners, o.owner)
				}
			}
		}
		slices.Sort(owners)
		all = append(all, strings.Join(owners, " "))
	}
	return all
}

// shares checks who shares the key on each server.
func (c *cluster) shares(want ...string) {
	c.t.Helper()
	if got := c.sharers("k"); !slices.Equal(got, want) {
		c.t.Errorf("shared by %q, server by server; want %q", got, want)
	}
}

// exclusive is a backend that grants no shared claims.
type exclusive struct{ driver.Backend }

// shy is one that has the method, and says no.
type shy struct{ driver.Backend }

func (shy) Shares() bool { return false }

// A node that grants no shared claims would take one for an exclusive claim, and keep other readers
// out. So the claim is refused, and the error names the node.
func TestNodeThatCannotShare(t *testing.T) {
	for name, restrict := range map[string]func(driver.Backend) driver.Backend{
		"without the method": func(b driver.Backend) driver.Backend { return exclusive{b} },
		"with it":            func(b driver.Backend) driver.Backend { return shy{b} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { refusesToShare(t, restrict(memhold.New())) })
		})
	}
}

// refusesToShare checks a Quorum of two nodes that grant shared claims, and a last one that does
// not.
func refusesToShare(t *testing.T, last driver.Backend) {
	q, err := quorum.New([]driver.Backend{memhold.New(), memhold.New(), last},
		quorum.WithGuard(0), quorum.WithNames("a", "b", "last"))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if q.Shares() {
		t.Error("Shares() = true; want false, because the last node cannot share")
	}
	ctx := context.Background()
	claim := driver.Claim{Key: "k", Owner: "o", TTL: time.Minute}
	if r, err := q.Acquire(ctx, claim); err != nil || r.State != driver.Held {
		t.Fatalf("Acquire = %v, %v; want held", r.State, err)
	}
	claim.Shared = true
	results, err := q.Renew(ctx, []driver.Claim{claim})
	if err != nil {
		t.Fatal(err)
	}
	_, acquired := q.Acquire(ctx, driver.Claim{Key: "l", Owner: "p", TTL: time.Minute,
		Shared: true})
	for _, err := range []error{results[0].Err, acquired} {
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "last") {
			t.Errorf("error %v; want ErrInvalid, and the node's name", err)
		}
	}
}

// Any number of readers have the key, or one writer. Each needs a majority. What a dead writer has
// left on a node keeps both out there.
func TestR1_SharersNeedAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		dead, a, b := c.client(), c.client(), c.client()
		dead.cut(true, 2)
		writer := dead.claim()
		dead.hold(writer)
		rest()
		x := a.shared()
		a.busy(x) // one of three is no majority
		rest()
		if n := c.holds(x); n != 0 {
			t.Errorf("a reader that was refused holds %d servers; want none", n)
		}
		c.do(func() { c.servers[1].release(writer) })
		a.hold(x)
		y := b.shared()
		b.hold(y)
		b.busy(b.claim())
		rest()
		both := x.Owner + " " + y.Owner
		c.shares("", both, both)
		a.release(x, driver.Held)
		b.busy(b.claim())
		b.release(y, driver.Held)
		b.hold(b.claim())
	})
}

// The tokens of readers are larger than the writers' before them, and smaller than the writers'
// after them, though each node draws for readers that come at once in another order.
func TestR38_TokensOfReadersAreBetweenThoseOfWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		var clients []*client
		for range 6 {
			clients = append(clients, c.client())
		}
		writer := c.client()
		last := driver.Token(0)
		write := func(round int) {
			claim := writer.claim()
			claim.Token = 1 // its clock is wrong, and it has seen no reader
			first := writer.hold(claim).Token
			if first <= last {
				t.Errorf("round %d: the writer has token %d after %d; want a larger one",
					round, first, last)
			}
			last = max(last, first)
			writer.release(claim, driver.Held)
			rest()
		}
		for round := range 40 {
			write(round)
			var mu sync.Mutex
			var all sync.WaitGroup
			written := last
			note := func(first driver.Token, size uint64) {
				mu.Lock()
				defer mu.Unlock()
				if first <= written {
					t.Errorf("round %d: a reader has token %d after %d; want a larger one",
						round, first, written)
				}
				last = max(last, first+driver.Token(size)-1)
			}
			for _, cl := range clients {
				claim := cl.shared()
				claim.Block = uint64(round % 3)
				all.Go(func() {
					r, err := cl.Acquire(context.Background(), claim)
					if err != nil || r.State != driver.Held {
						t.Errorf("Acquire = %v, %v; want held", r.State, err)
						return
					}
					note(r.Token, max(claim.Block, 1))
					more := claim
					more.Block = 2
					results, err := cl.Renew(context.Background(), []driver.Claim{more})
					if err != nil || results[0].State != driver.Held {
						t.Errorf("Renew = %v, %v; want held", results, err)
						return
					}
					note(results[0].Token, 2)
					cl.release(claim, driver.Held)
				})
			}
			all.Wait()
			rest()
		}
		second := uint64(0)
		for _, cl := range clients {
			second += cl.Status().SecondRounds
		}
		if second == 0 {
			t.Error("no acquisition needed a second round; the case is that nodes disagree on tokens")
		}
	})
}

// A Downgrade is done when a majority has confirmed it. A node that has not heard of it keeps
// readers out until the next renewal.
func TestDowngradeOverNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		b := c.client()
		a.cut(true, 2)
		down := claim
		down.Shared = true
		a.renew(down, driver.Held)
		rest()
		c.shares(claim.Owner, claim.Owner, "")
		x := b.shared()
		b.hold(x)
		b.busy(b.claim())
		rest()
		both := claim.Owner + " " + x.Owner
		c.shares(both, both, "")
		a.cut(false, 2)
		time.Sleep(time.Second)
		a.renew(down, driver.Held)
		b.renew(x, driver.Held)
		rest()
		c.shares(both, both, both)
		a.release(down, driver.Held)
		b.busy(b.claim())
		b.release(x, driver.Held)
		rest()
		c.clean("k")
	})
}

// If only one of three nodes has confirmed a Downgrade, nobody knows that it is done. The claim
// still keeps out all writers, and the holder may go on either way: renewals in the old mode change
// nothing, and those in the new mode complete the Downgrade.
func TestDowngradeWithoutAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		b := c.client()
		a.cut(true, 1, 2)
		down := claim
		down.Shared = true
		a.renew(down, driver.Unknown)
		a.cut(false, 1, 2)
		rest()
		c.shares(claim.Owner, "", "")
		b.busy(b.claim())
		b.busy(b.shared()) // two nodes have it alone
		rest()
		a.renew(claim, driver.Held)
		rest()
		c.shares(claim.Owner, "", "")
		a.renew(down, driver.Held)
		x := b.shared()
		b.hold(x)
		rest()
		both := claim.Owner + " " + x.Owner
		c.shares(both, both, both)
		// A late renewal in the old mode takes nothing back.
		a.renew(claim, driver.Held)
		rest()
		c.shares(both, both, both)
	})
}

// A reader is put back as one where it was lost, by a renewal in either mode after a Downgrade, and
// so lets others be put back as well.
func TestHealingPutsReadersBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		b := c.client()
		down := claim
		down.Shared = true
		a.renew(down, driver.Held)
		x := b.shared()
		b.hold(x)
		rest()
		both := claim.Owner + " " + x.Owner
		for i, mode := range []driver.Claim{down, claim} {
			c.restart(true, i)
			a.renew(mode, driver.Held)
			rest()
			b.renew(x, driver.Held)
			rest()
			c.shares(both, both, both)
		}
	})
}

// A claim that is alone is still alone when it has been healed.
func TestR1_HealingLeavesAWriterAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		c.restart(true, 0)
		a.renew(claim, driver.Held)
		rest()
		if n := c.holds(claim); n != 3 {
			t.Errorf("%d servers are held; want all 3", n)
		}
		c.shares("", "", "")
		b := c.client()
		b.busy(b.shared())
	})
}

// Readers hold a majority, so they are put back before a writer that waits: else it would keep out
// all but the first of them, and another loss would end their locks.
func TestHealingComesBeforeAWaitingWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, w := c.client(), c.client(), c.client()
		x, y, writer := a.shared(), b.shared(), w.queued()
		a.hold(x)
		b.hold(y)
		rest()
		w.busy(writer)
		c.restart(true, 0)
		a.renew(x, driver.Held)
		time.Sleep(roundTrip)
		w.busy(writer) // behind the one that is back
		b.renew(y, driver.Held)
		time.Sleep(roundTrip)
		both := x.Owner + " " + y.Owner
		c.shares(both, both, both)
		w.busy(writer)
		a.release(x, driver.Held)
		b.release(y, driver.Held)
		time.Sleep(roundTrip)
		if r := w.hold(writer); r.Token == 0 {
			t.Error("the writer has no token")
		}
		w.release(writer, driver.Held)
		rest()
		c.clean("k")
	})
}

// A reader that heals nodes does not know the tokens of those with whom it shares the key. Nodes
// that lose their data one after the other get them from the other nodes nevertheless. So whoever
// comes after all readers has a larger token, though no node has kept its data and no clock helps.
func TestR38_ReadersHealWithTheTokensOfOthers(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, downgraded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d nodes, downgraded %v", n, downgraded), func(t *testing.T) {
				bubble(t, func(t *testing.T) { healsForOthers(t, n, downgraded) })
			})
		}
	}
}

func healsForOthers(t *testing.T, n int, downgraded bool) {
	c := newCluster(t, n)
	a, b, w := c.client(), c.client(), c.client()
	stays := a.shared()
	down := stays
	stays.Shared = !downgraded
	a.hold(stays)
	a.renew(down, driver.Held)
	rest()
	// A minority does not hear of the other reader's token.
	for i := range (n - 1) / 2 {
		b.cut(true, i)
	}
	goes := b.shared()
	goes.Token, goes.Block = goes.Token+1e12, 5 // its clock is far ahead
	last := b.hold(goes).Token + 4
	b.release(goes, driver.Held)
	rest()
	for i := range n {
		c.restart(true, n-1-i)
		// Without Shared, as a renewal of before the downgrade would be.
		a.renew(stays, driver.Held)
		rest()
		if h := c.sharers("k")[n-1-i]; h != stays.Owner {
			t.Fatalf("server %d is shared by %q after a renewal; want %q", n-1-i, h, stays.Owner)
		}
	}
	a.release(stays, driver.Held)
	rest()
	if next := w.hold(w.claim()).Token; next <= last {
		t.Errorf("token %d after %d, want a larger one", next, last)
	}
}

// The token that a node is healed with is no reader's: nobody is told it, and what is drawn later
// is larger.
func TestR38_TokensOfHealingAreNobodys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, w := c.client(), c.client(), c.client()
		x, y := a.shared(), b.shared()
		own := a.hold(x).Token
		y.Token += 1e12 // its clock is far ahead
		b.hold(y)
		rest()
		c.restart(true, 0)
		if r := a.renew(x, driver.Held); r.Token != 0 {
			t.Errorf("a renewal without a block has token %d; want none", r.Token)
		}
		rest()
		b.release(y, driver.Held)
		c.restart(true, 1)
		more := x
		more.Block = 1
		last := a.renew(more, driver.Held).Token
		rest()
		if last <= own+1e11 {
			t.Errorf("a renewal drew token %d; want one above that of the other reader", last)
		}
		a.release(x, driver.Held)
		if next := w.hold(w.claim()).Token; next <= last {
			t.Errorf("token %d after %d, want a larger one", next, last)
		}
	})
}

// A reader is healed also if too few nodes are left to say what tokens others have: else the next
// loss would end its lock.
func TestReaderIsHealedThoughNodesDoNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		x := a.shared()
		a.hold(x)
		rest()
		c.restart(true, 0)
		a.renew(x, driver.Held)
		c.freeze(2) // before it hears of the healing
		rest()
		if h := c.sharers("k")[0]; h != x.Owner {
			t.Fatalf("server 0 is shared by %q after a renewal; want %q", h, x.Owner)
		}
		a.renew(x, driver.Held)
		c.thaw(2)
		rest()
		c.shares(x.Owner, x.Owner, x.Owner)
	})
}

// What is shared on a majority is shown as shared. A claim whose Downgrade some nodes have not
// heard of is shown as it is on most of them.
func TestSharersAreShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemories(t, 3)
		q, other := m.open(t, quorum.WithGuard(0)), m.open(t, quorum.WithGuard(0))
		defer q.Close()
		defer other.Close()
		ctx := context.Background()
		claim := driver.Claim{Key: "k", Owner: "a", TTL: time.Minute, Token: 1}
		hold := func(q *quorum.Quorum, claim driver.Claim) {
			t.Helper()
			if r, err := q.Acquire(ctx, claim); err != nil || r.State != driver.Held {
				t.Fatalf("Acquire = %v, %v; want held", r.State, err)
			}
			time.Sleep(time.Second)
		}
		shown := func(holder string, sharers ...string) {
			t.Helper()
			e, err := q.Inspect(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range e.Sharers {
				got = append(got, p.Owner)
				if p.Token == 0 || p.ExpiresIn <= 0 {
					t.Errorf("%+v is shown without token or lease", p)
				}
			}
			if e.Holder.Owner != holder || !slices.Equal(got, sharers) {
				t.Errorf("shown as held by %q and shared by %q; want %q and %q", e.Holder.Owner,
					got, holder, sharers)
			}
		}
		hold(q, claim)
		down := claim
		down.Shared = true
		for i, want := range []func(){
			func() { shown("a") },
			func() { shown("", "a") },
		} {
			node := m.clients[other][i]
			if r, err := node.Renew(ctx, []driver.Claim{down}); err != nil ||
				r[0].State != driver.Held {
				t.Fatalf("Renew = %v, %v", r, err)
			}
			want()
		}
		hold(other, driver.Claim{Key: "k", Owner: "b", TTL: 2 * time.Minute, Shared: true})
		shown("", "a", "b")
		// On one node of three it is being acquired, or was left behind.
		if r, err := m.clients[other][0].Acquire(ctx, driver.Claim{Key: "k", Owner: "c",
			TTL: time.Minute, Shared: true}); err != nil || r.State != driver.Held {
			t.Fatalf("Acquire = %v, %v", r, err)
		}
		shown("", "a", "b")
	})
}

// A claim that shares its key is not granted it alone, whoever asks, and asking costs it nothing.
func TestSharerIsNotGrantedTheKeyAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		x := a.shared()
		a.hold(x)
		rest()
		alone := x
		alone.Shared = false
		a.busy(alone)
		rest()
		c.shares(x.Owner, x.Owner, x.Owner)
		a.renew(x, driver.Held)
	})
}
