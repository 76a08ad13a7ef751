package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// R5, R6, R12: on each of five servers there is the published form of the lock: a string under the
// same key, with the same value, which is another one for each acquisition, and with the TTL.
func TestR5_R6_R12_SameOnAllServers(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, calm)
	values := make(map[string]bool)
	for range 3 {
		claim := newClaim("k", longTTL)
		k.hold(claim)
		for i, s := range c.servers {
			testserver.Eventually(t, fmt.Sprintf("the lock is on server %d", i), func() error {
				return testserver.Not(s.String(t, "GET", "k") == claim.Owner, "%q",
					s.String(t, "GET", "k"))
			})
			if kind := s.String(t, "TYPE", "k"); kind != "string" {
				t.Errorf("server %d has a %s", i, kind)
			}
			if rest := s.Int(t, "PTTL", "k"); rest <= 0 || rest > longTTL.Milliseconds() {
				t.Errorf("server %d lets it end in %d ms", i, rest)
			}
		}
		values[claim.Owner] = true
		k.release(claim, driver.Held)
	}
	if len(values) != 3 {
		t.Errorf("%d values for 3 acquisitions", len(values))
	}
	c.nothingLeft(t)
}

// R6: the values are unique over all clients and all acquisitions, whoever they are.
func TestR6_ValuesOfManyClients(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	const clients, each = 8, 25
	var mu sync.Mutex
	values := make(map[string]string)
	var all sync.WaitGroup
	for n := range clients {
		locker, err := holdfast.New(c.client(t, calm).Quorum, holdfast.WithPrefix("lock:"),
			holdfast.WithTTL(longTTL))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		all.Go(func() {
			for round := range each {
				ctx, cancel := limit()
				key := fmt.Sprint(n, "/", round%5)
				lock, err := locker.Acquire(ctx, key)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				value, err := c.majority("lock:" + key)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if other, taken := values[value]; taken {
					t.Errorf("value %q of %s, round %d, is that of %s, too", value, key, round,
						other)
				}
				values[value] = fmt.Sprint(key, " ", round)
				mu.Unlock()
				if err := lock.Release(ctx); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if len(values) != clients*each {
		t.Errorf("%d values for %d acquisitions", len(values), clients*each)
	}
}

// majority returns the value that most of the servers have at that key. One of the others may be
// slow, and have no value yet, or still that of a claim whose release has not reached it.
func (c *cluster) majority(key string) (string, error) {
	votes := make(map[string]int)
	var failed error
	for _, s := range c.servers {
		reply, err := s.Try("GET", key)
		failed = errors.Join(failed, err)
		if value, _ := reply.(string); value != "" {
			votes[value]++
		}
	}
	for value, n := range votes {
		if 2*n > len(c.servers) {
			return value, nil
		}
	}
	return "", errors.Join(fmt.Errorf("no majority has the same value of %s: %v", key, votes), failed)
}

// R10: servers that replicate each other are not independent. One that is another's replica takes
// no part, so it is no vote even where it is needed.
func TestR10_ReplicaIsNoVote(t *testing.T) {
	t.Parallel()
	c := start(t, 3, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	host, port, _ := net.SplitHostPort(c.servers[0].Addr)
	for range 2 {
		c.servers = append(c.servers,
			redistest.Start(t, redistest.WithArgs("--replicaof", host, port)))
	}
	k := c.client(t, calm)
	claim := newClaim("k", longTTL)
	k.hold(claim)
	k.release(claim, driver.Held)
	for i, n := range k.Status().Nodes[3:] {
		testserver.Eventually(t, "the replica is refused", func() error {
			n = k.Status().Nodes[3+i]
			return testserver.Not(driver.Permanent(n.Err) &&
				strings.Contains(n.Err.Error(), "replica"), "%v", n.Err)
		})
	}
	c.servers[1].Kill()
	if r, err := k.ask(newClaim("k", longTTL)); err == nil {
		t.Errorf("two of three masters and two replicas answer: %v", r.State)
	}
}

// R7, R8, R25: a holder whose lease is over takes nothing from the next one, by a release or a
// renewal, on any server. Releasing what one never had, or has no longer, does no harm.
func TestR7_R8_R25_OverrunHolder(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.client(t, brisk), c.client(t, calm)
	overrun, next := newClaim("k", briefTTL), newClaim("k", longTTL)
	a.timed(overrun)
	b.granted(next)
	// On a busy machine a's node timeout may be over before the answer is there.
	lost := func(what string, call func(context.Context) (driver.Result, error)) {
		t.Helper()
		testserver.Eventually(t, what+" is answered", func() error {
			ctx, cancel := limit()
			defer cancel()
			r, err := call(ctx)
			if err == nil && r.State != driver.Lost {
				t.Fatalf("%s: %v; want lost", what, r.State)
			}
			return err
		})
	}
	release := func(claim driver.Claim) func(context.Context) (driver.Result, error) {
		return func(ctx context.Context) (driver.Result, error) { return a.Release(ctx, claim) }
	}
	lost("the release", release(overrun))
	lost("the renewal", func(ctx context.Context) (driver.Result, error) {
		results, err := a.Renew(ctx, []driver.Claim{overrun})
		return results[0], errors.Join(err, results[0].Err)
	})
	lost("another release", release(overrun))
	lost("a release by nobody", release(newClaim("k", longTTL)))
	testserver.Eventually(t, "the next one has it everywhere", func() error {
		b.renew(next, driver.Held)
		n := c.heldOn(t, next)
		return testserver.Not(n == 5, "on %d servers", n)
	})
	b.release(next, driver.Held)
	c.nothingLeft(t)
}

// R14, R15, R16, R18, K2: a majority that is reached after the validity is over does not count.
// Here the replies are kept back for longer than the lease; a process that is paused in between
// looks the same.
func TestK2_R14_R18_RepliesComeTooLate(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.behindProxies(t, brisk), c.client(t, calm)
	a.healthy()
	for _, p := range a.proxies {
		p.SetReplies(redistest.Hold)
	}
	claim := newClaim("k", briefTTL)
	type outcome struct {
		r   driver.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := a.ask(claim)
		done <- outcome{r, err}
	}()
	// The lease is made, and ends, on every server before a hears of it. That it was made is seen
	// from the fence, which stays.
	next := newClaim("k", longTTL)
	for i, s := range c.servers {
		testserver.Eventually(t, fmt.Sprintf("the lock was on server %d", i), func() error {
			return testserver.Not(s.Int(t, "EXISTS", protocol.KeysOf("k").Fence) == 1,
				"no token was drawn")
		})
	}
	b.granted(next)
	for _, p := range a.proxies {
		p.SetReplies(redistest.Pass)
	}
	o := <-done
	var all *quorum.Error
	if o.r.State == driver.Held || !errors.As(o.err, &all) {
		t.Errorf("Acquire = %v, %v; want an error of the quorum", o.r.State, o.err)
	}
	b.renew(next, driver.Held) // what is given back is not the next one's
	b.release(next, driver.Held)
	c.nothingLeft(t)
}

// R17, R24: a claim without a majority gives back at once what it got, so nobody has to wait for
// that to end. It has not touched what another holds.
func TestR17_R24_LoserGivesBack(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.behindProxies(t, calm), c.client(t, calm)
	a.cut(true, 0, 1)
	holder := newClaim("k", longTTL)
	a.hold(holder) // on 2, 3 and 4
	loser := newClaim("k", longTTL)
	if r := b.busy(loser); r.Holder != holder.Owner {
		t.Errorf("busy, held by %q; want %q", r.Holder, holder.Owner)
	}
	for _, i := range []int{0, 1} {
		testserver.Eventually(t, "it is given back", func() error {
			return testserver.Not(c.servers[i].Int(t, "EXISTS", "k") == 0, "not on server %d", i)
		})
	}
	a.cut(false, 0, 1)
	testserver.Eventually(t, "the holder has it everywhere", func() error {
		a.renew(holder, driver.Held)
		n := c.heldOn(t, holder)
		return testserver.Not(n == 5, "on %d servers", n)
	})
	a.release(holder, driver.Held)
	c.nothingLeft(t)
}

// R26: of many that ask at the same moment at most one gets the lock, and the others leave nothing
// behind.
func TestR26_SimultaneousContenders(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	var clients []*client
	for range 4 {
		k := c.client(t, calm)
		k.healthy()
		clients = append(clients, k)
	}
	won := 0
	for round := range 50 {
		key := fmt.Sprint("k", round)
		var mu sync.Mutex
		var winners []func() // release
		var all sync.WaitGroup
		for _, k := range clients {
			all.Go(func() {
				claim := newClaim(key, longTTL)
				r, err := k.ask(claim)
				if err != nil {
					t.Errorf("Acquire: %v", err)
				}
				if r.State == driver.Held {
					mu.Lock()
					winners = append(winners, func() { k.release(claim, driver.Held) })
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(winners) > 1 {
			t.Fatalf("%d hold %s", len(winners), key)
		}
		for _, release := range winners {
			release()
			won++
		}
	}
	if won == 0 {
		t.Error("nobody has ever won")
	}
	c.nothingLeft(t)
}

// R27, R28: a network that cuts off holders from the servers costs the others a lease each time,
// and no more. While it does so over and over, nobody makes progress, which is a limit of the
// approach.
func TestR27_R28_PartitionsCostALeaseEach(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	brief := newClaim("k", briefTTL)
	var over time.Time
	for range 3 {
		a := c.behindProxies(t, brisk)
		brief.Owner = driver.NewOwner(driver.OwnerSuffix("parted"))
		for held := false; !held; {
			until := time.Now().Add(brief.TTL - brief.TTL/100 - 2*time.Millisecond)
			r, err := a.ask(brief)
			if err != nil && !errors.As(err, new(*quorum.Error)) {
				t.Fatal(err)
			}
			if held = r.State == driver.Held; held {
				if early := time.Until(over); early > 0 {
					t.Errorf("granted %v before the lease of the one before was over", early)
				}
				over = until
			}
		}
		a.cut(true, 0, 1, 2, 3, 4) // and so it cannot release it
	}
	b := c.client(t, calm)
	last := newClaim("k", longTTL)
	b.granted(last)
	b.release(last, driver.Held)
}

// R34, R35: a renewal counts if a majority has renewed. It does not bring back a lock that is gone,
// nor take one from another. If only a minority has renewed, the lock does not count as held.
func TestR34_R35_RenewalNeedsAMajority(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, calm)
	claim := newClaim("k", longTTL)
	k.hold(claim)
	testserver.Eventually(t, "the lock is on all servers", func() error {
		n := c.heldOn(t, claim)
		return testserver.Not(n == 5, "on %d", n)
	})
	c.servers[0].Do(t, "SET", "k", "another", "PX", "60000")
	c.servers[1].Do(t, "DEL", "k")
	k.renew(claim, driver.Held) // on three
	testserver.Eventually(t, "it is set again where it was gone", func() error {
		return testserver.Not(c.servers[1].String(t, "GET", "k") == claim.Owner, "not yet")
	})
	if got := c.servers[0].String(t, "GET", "k"); got != "another" {
		t.Errorf("another's lock is now %q", got)
	}
	for _, s := range c.servers[1:4] {
		s.Do(t, "SET", "k", "another", "PX", "60000")
	}
	k.renew(claim, driver.Lost) // on one
	for i, s := range c.servers[:4] {
		if got := s.String(t, "GET", "k"); got != "another" {
			t.Errorf("another's lock on server %d is now %q", i, got)
		}
		s.Do(t, "DEL", "k")
	}
	k.renew(claim, driver.Lost)
	c.nothingLeft(t) // and on the one it is given back
}

// R35: a renewal counts within the validity only. Here the servers have renewed, and their answers
// come when what the holder could count on is over.
func TestR35_RenewalComesTooLate(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.behindProxies(t, brisk)
	k.healthy()
	claim := newClaim("k", briefTTL)
	k.timed(claim)
	k.healthy()
	for _, p := range k.proxies {
		p.SetReplies(redistest.Hold)
	}
	renewal := claim
	renewal.TTL = 2 * briefTTL
	type outcome struct {
		results []driver.Result
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		ctx, cancel := limit()
		defer cancel()
		results, err := k.Renew(ctx, []driver.Claim{renewal})
		done <- outcome{results, err}
	}()
	o := <-done
	for _, p := range k.proxies {
		p.SetReplies(redistest.Pass)
	}
	if o.err == nil && o.results[0].State != driver.Unknown {
		t.Errorf("Renew = %v; want that nothing is known", o.results[0].State)
	}
	c.nothingLeft(t)
}

// R3, R33: with three of five down nothing is granted, renewed or said to be released, and when
// they are back everything is as it was.
func TestR3_NothingWithoutMajority(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k, brief := c.client(t, calm), c.client(t, "restart-guard=0s&node-timeout=1s")
	held := newClaim("held", longTTL)
	k.hold(held)
	for _, s := range c.servers[:3] {
		s.Freeze()
	}
	ctx, cancel := limit()
	defer cancel()
	var all *quorum.Error
	if r, err := brief.ask(newClaim("k", longTTL)); r.State == driver.Held ||
		!errors.As(err, &all) {
		t.Errorf("Acquire = %v, %v", r.State, err)
	}
	if results, err := brief.Renew(ctx, []driver.Claim{held}); err != nil ||
		results[0].State != driver.Unknown || !errors.As(results[0].Err, &all) {
		t.Errorf("Renew = %+v, %v", results, err)
	}
	for _, s := range c.servers[:3] {
		s.Thaw()
	}
	k.healthy()
	k.renew(held, driver.Held)
	k.release(held, driver.Held)
	c.nothingLeft(t)
}

// Keys of all kinds do not collide with what is kept beside them, over several servers as on one.
func TestKeysOnSeveralServers(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	k := c.client(t, calm)
	for _, key := range []string{"{", "}", "{}", "a{b}c", "holdfast", "\x00", "\xff\xfe",
		"lock:{x}"} {
		claim := newClaim(key, longTTL)
		k.hold(claim)
		k.busy(newClaim(key, longTTL))
		k.release(claim, driver.Held)
	}
	c.nothingLeft(t)
}
