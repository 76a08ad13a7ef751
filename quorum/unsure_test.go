package quorum_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A node that is healed while those that know the last token do not answer gets that token when
// they are back. So whoever comes after all readers has a larger token, though no node has kept its
// data and no clock helps.
func TestR38_NodeThatWasHealedWithTooFewTokensGetsThem(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d nodes, renewed as shared %v", n, shared), func(t *testing.T) {
				bubble(t, func(t *testing.T) { healsForSilent(t, n, shared) })
			})
		}
	}
}

// healsForSilent has a majority of nodes know the last token. The first of them is healed while the
// others, the silent ones, do not answer. Then they are lost, too, one after the other.
func healsForSilent(t *testing.T, n int, shared bool) {
	c := newCluster(t, n)
	a, b, w := c.client(), c.client(), c.client()
	stays := a.shared()
	a.hold(stays)
	stays.Shared = shared
	rest()
	var silent, others []int
	for i := 1; i < n; i++ {
		if i <= n/2 {
			silent = append(silent, i)
		} else {
			others = append(others, i)
		}
	}
	b.cut(true, others...)
	goes := b.shared()
	goes.Token += 1e12 // its clock is far ahead
	last := b.hold(goes).Token
	b.release(goes, driver.Held)
	b.cut(false, others...)
	rest()
	unsure := func(want int) {
		t.Helper()
		if got := a.Unsure(); got != want {
			t.Errorf("%d claims have nodes that are unsure of the last token; want %d", got, want)
		}
	}
	// renewals renews and returns how many renewals a node was asked for.
	renewals := func() uint64 {
		made := func() (n uint64) {
			c.do(func() { n = a.conns[others[0]].made["renew"] })
			return n
		}
		before := made()
		a.renew(stays, driver.Held)
		rest()
		return made() - before
	}

	c.restart(true, 0)
	a.renew(stays, driver.Held)
	c.freeze(silent...) // before they hear of the healing
	rest()
	if h := c.sharers("k")[0]; h != stays.Owner {
		t.Fatalf("server 0 is shared by %q after a renewal; want %q", h, stays.Owner)
	}
	unsure(1)
	if n == 5 { // with three, no majority is left
		if n := renewals(); n != 1 {
			t.Errorf("a node was asked %d times in a renewal; want once: others do not answer", n)
		}
		unsure(1)
	}
	c.thaw(silent...)
	rest()
	renewals()
	unsure(0)
	if n := renewals(); n != 1 {
		t.Errorf("a node was asked %d times in a renewal; want once, all is known", n)
	}
	if healed := a.Status().Healed; healed != 1 {
		t.Errorf("%d claims were healed; want 1", healed)
	}
	for _, i := range slices.Concat(silent, []int{0}) {
		c.restart(true, i)
		a.renew(stays, driver.Held)
		rest()
	}
	a.release(stays, driver.Held)
	rest()
	if next := w.hold(w.claim()).Token; next <= last {
		t.Errorf("token %d after %d, want a larger one", next, last)
	}
}

// A node is lost while another one is unsure of the last token. All nodes that are left are asked
// for it then, and both get it.
func TestR38_LossWhileANodeIsUnsure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		stays := a.shared()
		a.hold(stays)
		rest()
		b.cut(true, 2)
		goes := b.shared()
		goes.Token += 1e12 // its clock is far ahead
		last := b.hold(goes).Token
		b.release(goes, driver.Held)
		b.cut(false, 2)
		rest()
		c.restart(true, 0)
		a.renew(stays, driver.Held)
		c.freeze(1) // before it hears of the healing
		rest()
		c.thaw(1)
		rest()
		c.restart(true, 2)
		a.renew(stays, driver.Held)
		rest()
		c.know(last)
	})
}

// know checks that all servers draw only tokens above that one from now on.
func (c *cluster) know(token driver.Token) {
	c.t.Helper()
	c.do(func() {
		for _, s := range c.servers {
			if s.fence < token {
				c.t.Errorf("server %d goes on above token %d; want above %d", s.index, s.fence,
					token)
			}
		}
	})
}

// What is known of unsure nodes goes with the claim.
func TestUnsureNodesAreForgottenWithTheClaim(t *testing.T) {
	for _, released := range []bool{true, false} {
		t.Run(fmt.Sprintf("released %v", released), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a := c.client()
				x := a.shared()
				a.hold(x)
				rest()
				c.restart(true, 0)
				a.renew(x, driver.Held)
				c.freeze(1)
				rest()
				if n := a.Unsure(); n != 1 {
					t.Fatalf("%d claims have unsure nodes; want 1", n)
				}
				c.thaw(1)
				if released {
					a.release(x, driver.Held)
				} else {
					time.Sleep(3 * x.TTL)
					a.Sweep()
				}
				if n := a.Unsure(); n != 0 {
					t.Errorf("%d claims have unsure nodes after their end; want none", n)
				}
			})
		})
	}
}
