package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// withClocks starts n servers that live by clocks of their own.
func withClocks(t *testing.T, n int) (*cluster, []*redistest.Clock) {
	t.Helper()
	c, clocks := new(cluster), make([]*redistest.Clock, n)
	for i := range clocks {
		clocks[i] = redistest.NewClock(t)
		c.servers = append(c.servers, redistest.Start(t, redistest.WithClock(clocks[i])))
	}
	return c, clocks
}

// R39, K1: a server whose clock is set forward gives a lease away early. If the two servers that
// could object are out of reach, there are two holders at the same time. The package documentation
// states this limit of the approach. The tokens tell the holders apart, whatever the clocks say:
// here neither client proposes one.
func TestK1_R39_ForwardJumpGivesTwoHolders(t *testing.T) {
	t.Parallel()
	c, clocks := withClocks(t, 5)
	a, b := c.behindProxies(t, calm), c.behindProxies(t, calm)
	a.cut(true, 3, 4)
	b.cut(true, 0, 1)
	first := newClaim("k", longTTL)
	first.Token = 0
	held, until := a.timed(first)
	second := newClaim("k", longTTL)
	second.Token = 0
	if r, err := b.ask(second); err == nil && r.State == driver.Held {
		t.Fatal("two holders before any clock was set")
	}

	clocks[2].Step(t, longTTL+time.Second)
	again := b.granted(second)
	if time.Now().After(until) {
		t.Fatal("the first lease was over by then")
	}
	if again.Token <= held.Token {
		t.Errorf("the second holder has token %v, the first %v", again.Token, held.Token)
	}
	// The first one learns it with its next renewal.
	ctx, cancel := limit()
	defer cancel()
	if results, err := a.Renew(ctx, []driver.Claim{first}); err == nil &&
		results[0].State == driver.Held {
		t.Error("the first one renews what the second one holds")
	}
}

// If a majority can be reached, one clock that is set forward does no harm: the others object.
func TestK1_MinorityOfClocksJumps(t *testing.T) {
	t.Parallel()
	c, clocks := withClocks(t, 5)
	a, b := c.client(t, calm), c.client(t, calm)
	claim := newClaim("k", longTTL)
	a.hold(claim)
	testserver.Eventually(t, "the lock is on all servers", func() error {
		n := c.heldOn(t, claim)
		return testserver.Not(n == 5, "it is on %d", n)
	})
	clocks[1].Step(t, time.Hour)
	clocks[3].Step(t, time.Hour)
	b.busy(newClaim("k", longTTL))
	a.renew(claim, driver.Held)
	b.busy(newClaim("k", longTTL))
	a.release(claim, driver.Held)
	c.nothingLeft(t)
}

// K5: a clock that is set back only makes leases longer: nobody gets a lock early, and everybody
// gets it in the end.
func TestK5_BackwardJumpOnlyDelays(t *testing.T) {
	t.Parallel()
	c, clocks := withClocks(t, 3)
	a, b := c.client(t, brisk), c.client(t, calm)
	claim := newClaim("k", briefTTL)
	first, until := a.timed(claim)
	testserver.Eventually(t, "the lock is on all servers", func() error {
		n := c.heldOn(t, claim)
		return testserver.Not(n == 3 || time.Now().After(until), "it is on %d", n)
	})
	for i, clock := range clocks {
		clock.Step(t, -time.Second)
		testserver.Eventually(t, "the lease gets longer than it was made", func() error {
			rest := c.servers[i].Int(t, "PTTL", "k")
			return testserver.Not(rest > claim.TTL.Milliseconds() || time.Now().After(until),
				"it ends in %d ms", rest)
		})
	}
	second := b.granted(newClaim("k", longTTL))
	if early := time.Until(until); early > 0 {
		t.Errorf("granted again %v before the first lease was over", early)
	}
	if second.Token <= first.Token {
		t.Errorf("token %v after %v", second.Token, first.Token)
	}
}

// R19: the servers' clocks need not show the same time.
func TestR19_ClocksDisagree(t *testing.T) {
	t.Parallel()
	c, clocks := withClocks(t, 5)
	for i, clock := range clocks {
		clock.Step(t, time.Duration(i-2)*1000*time.Hour)
	}
	a, b := c.client(t, calm), c.client(t, calm)
	var last driver.Token
	for range 10 {
		claim := newClaim("k", longTTL)
		r := a.hold(claim)
		if r.Token <= last {
			t.Errorf("token %v after %v", r.Token, last)
		}
		last = r.Token
		b.busy(newClaim("k", longTTL))
		a.renew(claim, driver.Held)
		a.release(claim, driver.Held)
		a, b = b, a
	}
	brief := newClaim("k", briefTTL)
	_, until := c.client(t, brisk).timed(brief)
	b.granted(newClaim("k", longTTL))
	if early := time.Until(until); early > 0 {
		t.Errorf("granted again %v before the first lease was over", early)
	}
}

// A server's uptime follows its wall clock, which may be set forward after a restart. A client that
// was connected before the restart is not deceived: it knows since when the server was gone. Nor is
// a later client, because the record of since when the server has had its data is gone too. A
// client that comes after another jump is deceived, as the package documentation says (R39).
func TestR39_ClockJumpEndsQuarantineEarly(t *testing.T) {
	t.Parallel()
	c, clocks := withClocks(t, 3)
	const query = "restart-guard=10m&node-timeout=3s"
	early := c.client(t, query)
	claim := newClaim("k", longTTL)
	var q *driver.QuarantineError
	if _, err := early.ask(claim); !errors.As(err, &q) {
		t.Fatalf("from fresh servers: %v", err)
	}
	for i, s := range c.servers {
		s.Kill()
		s.Run(t)
		clocks[i].Step(t, time.Hour)
		testserver.Eventually(t, "the server has read its clock", func() error {
			up := s.Info(t, "uptime_in_seconds")
			return testserver.Not(len(up) == len("3600"), "up for %s s", up)
		})
	}
	testserver.Eventually(t, "the connections are made again", func() error {
		r, err := early.ask(claim)
		if r.State == driver.Held {
			t.Fatal("granted: the uptime was believed")
		}
		return testserver.Not(errors.As(err, &q), "%v", err)
	})
	if _, err := c.client(t, query).ask(claim); !errors.As(err, &q) {
		t.Errorf(
			"for a client that comes later: %v; want that the servers have lost what they kept",
			err)
	}
	for _, clock := range clocks {
		clock.Step(t, time.Hour)
	}
	late := c.client(t, query)
	late.granted(claim)
	late.release(claim, driver.Held)
}
