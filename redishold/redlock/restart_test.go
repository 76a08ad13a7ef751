package redlock_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/quorum"
)

// shortGuard is a quarantine that tests wait for the end of. It is in whole seconds, as the
// servers' uptime is.
const shortGuard = 2 * time.Second

const guarded = "restart-guard=2s&node-timeout=1s"

// timed asks for the claim until it is granted, as a busy machine may take all of a brief lease,
// and returns until when its holder may count on that.
func (k *client) timed(claim driver.Claim) (r driver.Result, until time.Time) {
	k.t.Helper()
	testserver.Eventually(k.t, "the claim is granted", func() (err error) {
		until = time.Now().Add(claim.TTL - claim.TTL/100 - 2*time.Millisecond)
		r, err = k.ask(claim)
		if driver.Permanent(err) || err == nil && r.State != driver.Held {
			k.t.Fatalf("Acquire = %v held by %q, %v; want held", r.State, r.Holder, err)
		}
		return err
	})
	return r, until
}

// outOfQuarantine waits until all nodes take part.
func (k *client) outOfQuarantine() {
	k.t.Helper()
	claim := newClaim("first", shortGuard) // which may end before it is released
	testserver.Eventually(k.t, "the quarantine is over", func() error {
		_, err := k.ask(claim)
		for _, n := range k.Status().Nodes {
			err = errors.Join(err, testserver.Not(n.State == quorum.Up, "%s is %v",
				n.Name, n.State))
		}
		return err
	})
	k.giveBack(claim)
}

// giveBack releases the claim, whether it is still held or not.
func (k *client) giveBack(claim driver.Claim) {
	k.t.Helper()
	testserver.Eventually(k.t, "it is given back", func() error {
		ctx, cancel := limit()
		defer cancel()
		_, err := k.Release(ctx, claim)
		return err
	})
}

// The published case: 3 of 5 servers grant a lock, one of them restarts without its data, and the
// other two, which did not know of it, and the one that has forgotten make a majority. Without a
// quarantine that is two holders (R29).
func TestR29_ForgottenLockIsGrantedTwice(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.behindProxies(t, "restart-guard=0s&node-timeout=1s"), c.client(t, calm)
	a.cut(true, 3, 4)
	first, until := a.timed(newClaim("k", longTTL))
	if n := c.servers[3].Int(t, "EXISTS", "k") + c.servers[4].Int(t, "EXISTS", "k"); n != 0 {
		t.Fatalf("%d of two servers that could not be reached have the lock", n)
	}
	c.servers[2].Kill()
	c.servers[2].Run(t)
	second := b.hold(newClaim("k", longTTL))
	if time.Now().After(until) {
		t.Fatal("the first lease was over by then")
	}
	// No server of the second majority knows the first one's token: where data is lost, the
	// clients' clocks stand in.
	if second.Token <= first.Token {
		t.Errorf("token %v after %v", second.Token, first.Token)
	}
}

// With the quarantine on there is one holder in the same case: the server takes no part until the
// lease that it has forgotten is over (R32). Only then is the lock granted again. Everything else
// goes on meanwhile.
func TestR29_R32_QuarantineKeepsASecondHolderOut(t *testing.T) {
	t.Parallel()
	c, clocks := withClocks(t, 5)
	a, b := c.behindProxies(t, guarded), c.client(t, guarded)
	a.outOfQuarantine()
	b.outOfQuarantine()
	a.cut(true, 3, 4)
	first, until := a.timed(newClaim("k", shortGuard)) // as long as is allowed
	c.servers[2].Kill()
	// It starts late in a second, and soon says that it has been up for one.
	now := time.Now()
	clocks[2].Step(t, now.Truncate(time.Second).Add(time.Second+900*time.Millisecond).Sub(now))
	c.servers[2].Run(t)
	other := newClaim("other", shortGuard)
	b.granted(other)
	b.giveBack(other)
	second := b.granted(newClaim("k", shortGuard))
	if early := time.Until(until); early > 0 {
		t.Errorf("granted again %v before the first lease was over", early)
	}
	if second.Token <= first.Token {
		t.Errorf("token %v after %v", second.Token, first.Token)
	}
}

// A renewed lock survives if all five servers forget it, two at a time, as long as a renewal comes
// in between.
func TestR32_LockOutlivesAllServersInTurn(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.client(t, calm), c.client(t, calm)
	claim := newClaim("k", longTTL)
	a.hold(claim)
	for _, pair := range [][]int{{0, 1}, {2, 3}, {4, 0}} {
		for _, i := range pair {
			c.servers[i].Kill()
			c.servers[i].Run(t)
		}
		testserver.Eventually(t, "renewals have set the lock again", func() error {
			a.renew(claim, driver.Held)
			n := c.heldOn(t, claim)
			return testserver.Not(n == 5, "it is on %d", n)
		})
		b.busy(newClaim("k", longTTL))
	}
	a.release(claim, driver.Held)
	c.nothingLeft(t)
}

// When a majority has restarted, nothing can be locked until its quarantine is over, and the error
// says for how long (R33). A set of servers that were all just started is that case.
func TestR33_MajorityRestarts(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, guarded)
	k.outOfQuarantine()
	k.granted(newClaim("held", shortGuard))
	// With the two that stay, the first to restart is a majority again when its own quarantine is
	// over.
	restarted := time.Now()
	for _, i := range []int{0, 2, 4} {
		c.servers[i].Kill()
		c.servers[i].Run(t)
	}

	claim := newClaim("k", shortGuard)
	// A busy machine may take as long to start the others.
	sawQuarantine := time.Since(restarted) > shortGuard/2
	testserver.Eventually(t, "locks are granted again", func() error {
		asked := time.Now()
		r, err := k.ask(claim)
		var q *driver.QuarantineError
		if errors.As(err, &q) {
			sawQuarantine = true
			if rest := q.Remaining; rest <= 0 || rest > shortGuard+time.Second ||
				driver.Permanent(err) {
				t.Errorf("quarantine for another %v; permanent: %v", rest, driver.Permanent(err))
			}
			if !strings.Contains(err.Error(), "too many in restart quarantine, for another ") {
				t.Errorf("error %q; want that it says for how long", err)
			}
			// Not of a node that a busy machine was late with, nor when it may be over by now.
			var all *quorum.Error
			if !errors.As(err, &all) {
				t.Fatalf("error %v; want one of the quorum", err)
			}
			for i, n := range k.Status().Nodes {
				// Another answer may say better when the server was started, by a second at most.
				if errors.As(all.Nodes[i].Err, &q) &&
					time.Since(asked)+time.Second < q.Remaining && n.State != quorum.Quarantined {
					t.Errorf("node %d: %+v; want quarantined", i, n)
				}
			}
		}
		return errors.Join(err, testserver.Not(r.State == driver.Held, "%v", r.State))
	})
	if early := time.Until(restarted.Add(shortGuard)); early > 0 {
		t.Errorf("granted %v before the quarantine was over", early)
	}
	if !sawQuarantine {
		t.Error("no error said that there is a quarantine")
	}
}

// Releases are served in quarantine, and the TTL may not be longer than it.
func TestR32_GuardBoundsTheTTL(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	for query, ttl := range map[string]time.Duration{"": quorum.DefaultGuard,
		"&restart-guard=10s": 10 * time.Second} {
		k := c.client(t, "node-timeout=3s"+query)
		if _, err := k.ask(newClaim("k", ttl+time.Millisecond)); !driver.Permanent(err) ||
			!strings.Contains(err.Error(), ttl.String()) {
			t.Errorf("%s: a TTL over the guard gives %v", query, err)
		}
		_, err := k.ask(newClaim("k", ttl))
		var q *driver.QuarantineError
		if !errors.As(err, &q) || driver.Permanent(err) || q.Remaining > ttl+time.Second {
			t.Errorf("%s: a TTL as long as the guard gives %v; want a quarantine", query, err)
		}
		k.release(newClaim("k", ttl), driver.Lost)
	}
}

// A server of which the operator says that it forgets nothing is exempt from quarantine, and does
// not forget: after a crash of all of them the lock is there (R31, always).
func TestR31_FsyncAlwaysIsExemptAndRemembers(t *testing.T) {
	t.Parallel()
	c := start(t, 3, redistest.WithAOF("always"))
	const query = "restart-guard=1h&node-timeout=3s&durable=always"
	a, b := c.client(t, query), c.client(t, query)
	claim := newClaim("k", longTTL)
	first := a.hold(claim)
	for _, s := range c.servers {
		s.Kill()
		s.Run(t)
	}
	testserver.Eventually(t, "the lock is known to be held", func() error {
		r, err := b.ask(newClaim("k", longTTL))
		if r.State == driver.Held {
			t.Fatal("two holders")
		}
		return err
	})
	testserver.Eventually(t, "the lock is renewed", func() error {
		ctx, cancel := limit()
		defer cancel()
		results, err := a.Renew(ctx, []driver.Claim{claim})
		return errors.Join(err, results[0].Err, testserver.Not(results[0].State == driver.Held,
			"%v",
			results[0].State))
	})
	a.release(claim, driver.Held)
	if second := b.granted(newClaim("k", longTTL)); second.Token <= first.Token {
		t.Errorf("token %v after %v", second.Token, first.Token)
	}
}

// powerFailure kills a server that syncs its log every second, and leaves of the log what was there
// a moment ago: what may be left when the power fails.
func powerFailure(t *testing.T, s *redistest.Server, log map[string]int64) {
	t.Helper()
	s.Kill()
	for path, size := range log {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	s.Run(t)
}

// logOf returns the files of a server's log and their sizes.
func logOf(t *testing.T, s *redistest.Server) map[string]int64 {
	t.Helper()
	files := make(map[string]int64)
	paths, err := filepath.Glob(filepath.Join(s.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no log in %s: %v", s.Dir, err)
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = info.Size()
	}
	return files
}

// R30: an orderly shutdown of servers with a log loses nothing, and the TTL runs while they are
// off. R31: a power failure may take the last second of a log that is synced every second; a
// majority of such failures is two holders, which the quarantine prevents: a server with such a log
// is not exempt.
func TestR30_R31_EverySecond(t *testing.T) {
	t.Parallel()
	c := start(t, 3, redistest.WithAOF("everysec"))
	a, b := c.client(t, brisk), c.client(t, calm)
	claim, brief := newClaim("k", longTTL), newClaim("brief", briefTTL)
	a.granted(claim)
	first, _ := a.timed(brief)
	over := time.Now().Add(brief.TTL)
	for _, s := range c.servers {
		s.Shutdown(t)
	}
	testserver.Eventually(t, "the brief lease is over", func() error {
		return testserver.Not(time.Now().After(over), "not yet")
	})
	for _, s := range c.servers {
		s.Run(t)
	}
	testserver.Eventually(t, "the lock is known to be held", func() error {
		r, err := b.ask(newClaim("k", longTTL))
		if r.State == driver.Held {
			t.Fatal("an orderly shutdown has lost the lock")
		}
		return err
	})
	if second := b.granted(newClaim("brief", longTTL)); second.Token <= first.Token {
		t.Errorf("token %v after %v", second.Token, first.Token)
	}

	logs := make([]map[string]int64, len(c.servers))
	for i, s := range c.servers {
		logs[i] = logOf(t, s)
	}
	a.healthy()
	_, until := a.timed(newClaim("late", longTTL))
	powerFailure(t, c.servers[0], logs[0])
	powerFailure(t, c.servers[1], logs[1])
	// Not exempt:
	var q *driver.QuarantineError
	if _, err := c.client(t, "restart-guard=1h&node-timeout=3s").ask(newClaim("late",
		longTTL)); !errors.As(err, &q) {
		t.Errorf("with a quarantine: %v", err)
	}
	b.granted(newClaim("late", longTTL))
	if time.Now().After(until) {
		t.Fatal("the first lease was over by then")
	}
}

// Every server that comes back is told to the observer by name, with what it does.
func TestStatusNamesNodes(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	k := c.client(t, "restart-guard=1h&node-timeout=3s")
	_, _ = k.ask(newClaim("k", longTTL))
	for i, n := range k.Status().Nodes {
		if want := c.servers[i].Addr; n.Name != want || n.State != quorum.Quarantined ||
			n.Quarantine < 59*time.Minute {
			t.Errorf("node %d: %s; want %s, quarantined", i, fmt.Sprintf("%+v", n), want)
		}
	}
}
