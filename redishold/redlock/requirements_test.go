package redlock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold/redistest"
)

// R5, R6, R10, R12: on each of five servers that know nothing of each other there is the published form of the lock: a string under the same
// key, with the same value, which is another one for each acquisition, and with the TTL.
func TestR5_R6_R10_R12_SameOnAllServers(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, calm)
	values := make(map[string]bool)
	for range 3 {
		claim := newClaim("k", longTTL)
		k.hold(claim)
		for i, s := range c.servers {
			redistest.Eventually(t, fmt.Sprintf("the lock is on server %d", i), func() error {
				return redistest.Not(s.String(t, "GET", "k") == claim.Owner, "%q", s.String(t, "GET", "k"))
			})
			if kind := s.String(t, "TYPE", "k"); kind != "string" {
				t.Errorf("server %d has a %s", i, kind)
			}
			if rest := s.Int(t, "PTTL", "k"); rest <= 0 || rest > longTTL.Milliseconds() {
				t.Errorf("server %d lets it end in %d ms", i, rest)
			}
			if role := s.Info(t, "connected_slaves"); role != "0" {
				t.Errorf("server %d has %s replicas", i, role)
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

// R7, R8, R25: a holder whose lease is over takes nothing away from the next one, by releasing or by renewing, on any server; and
// releasing what one never had, or not any more, does no harm.
func TestR7_R8_R25_OverrunHolder(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.client(t, calm), c.client(t, calm)
	overrun, next := newClaim("k", 500*time.Millisecond), newClaim("k", longTTL)
	a.hold(overrun)
	b.granted(next)
	a.release(overrun, driver.Lost)
	a.renew(overrun, driver.Lost)
	a.release(overrun, driver.Lost)
	a.release(newClaim("k", longTTL), driver.Lost)
	redistest.Eventually(t, "the next one has it everywhere", func() error {
		b.renew(next, driver.Held)
		n := c.heldOn(t, next)
		return redistest.Not(n == 5, "on %d servers", n)
	})
	b.release(next, driver.Held)
	c.nothingLeft(t)
}

// R14, R15, R16, R18, K2: a majority that is reached when the validity is over is none. Here the replies are kept back for longer than the lease;
// a process that is paused in between looks the same.
func TestK2_R14_R18_RepliesComeTooLate(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.behindProxies(t, calm), c.client(t, calm)
	a.healthy()
	for _, s := range c.servers {
		s.Do(t, "FLUSHALL")
	}
	for _, p := range a.proxies {
		p.SetReplies(redistest.Hold)
	}
	claim := newClaim("k", 300*time.Millisecond)
	type outcome struct {
		r   driver.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := a.ask(claim)
		done <- outcome{r, err}
	}()
	// The lease is made, and ends, on every server before a hears of it. That it was made is seen from the fence, which stays.
	next := newClaim("k", longTTL)
	for i, s := range c.servers {
		redistest.Eventually(t, fmt.Sprintf("the lock was on server %d", i), func() error {
			n := s.Int(t, "DBSIZE")
			return redistest.Not(n > 0, "%d keys", n)
		})
	}
	b.granted(next)
	for _, p := range a.proxies {
		p.SetReplies(redistest.Pass)
	}
	o := <-done
	var all *quorum.Error
	if o.err == nil || o.r.State == driver.Held || !errors.As(o.err, &all) || !errors.Is(all, quorum.ErrTooLate) {
		t.Errorf("Acquire = %v, %v; want %v", o.r.State, o.err, quorum.ErrTooLate)
	}
	b.renew(next, driver.Held) // what is given back is not the next one's
	b.release(next, driver.Held)
	c.nothingLeft(t)
}

// R17, R24: who gets no majority gives back at once what it got, so nobody has to wait for that to end; and it has not touched
// what another holds.
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
		redistest.Eventually(t, "it is given back", func() error {
			return redistest.Not(c.servers[i].Int(t, "EXISTS", "k") == 0, "not on server %d", i)
		})
	}
	a.cut(false, 0, 1)
	redistest.Eventually(t, "the holder has it everywhere", func() error {
		a.renew(holder, driver.Held)
		n := c.heldOn(t, holder)
		return redistest.Not(n == 5, "on %d servers", n)
	})
	a.release(holder, driver.Held)
	c.nothingLeft(t)
}

// R26: of many that ask at the same moment at most one gets the lock, and the others leave nothing behind.
func TestR26_SimultaneousContenders(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	var clients []*client
	for range 4 {
		k := c.client(t, calm)
		k.healthy()
		clients = append(clients, k)
	}
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
		}
	}
	c.nothingLeft(t)
}

// R27, R28: a network that parts holders from the servers costs the others a lease each time, and no more; while it does so over and over
// nobody gets anything done, which is a limit of the approach.
func TestR27_R28_PartitionsCostALeaseEach(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	brief := newClaim("k", 300*time.Millisecond)
	var over time.Time
	for range 3 {
		a := c.behindProxies(t, calm)
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
		a.cut(true, 0, 1, 2, 3, 4) // and so it can not release it
	}
	b := c.client(t, calm)
	last := newClaim("k", longTTL)
	b.granted(last)
	b.release(last, driver.Held)
}

// R34, R35: a renewal counts when a majority has renewed. It does not make a lock that is gone, nor take one from another, and
// with a minority of renewals it is not said to be held.
func TestR34_R35_RenewalNeedsAMajority(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, calm)
	claim := newClaim("k", longTTL)
	k.hold(claim)
	redistest.Eventually(t, "the lock is on all servers", func() error {
		n := c.heldOn(t, claim)
		return redistest.Not(n == 5, "on %d", n)
	})
	c.servers[0].Do(t, "SET", "k", "another", "PX", "60000")
	c.servers[1].Do(t, "DEL", "k")
	k.renew(claim, driver.Held) // on three
	redistest.Eventually(t, "it is set again where it was gone", func() error {
		return redistest.Not(c.servers[1].String(t, "GET", "k") == claim.Owner, "not yet")
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

// R3, R33: with three of five down nothing is granted, renewed or said to be released, and when they are back everything is as it was.
func TestR3_NothingWithoutMajority(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, "restart-guard=0s&node-timeout=1s")
	held := newClaim("held", longTTL)
	k.hold(held)
	for _, s := range c.servers[:3] {
		s.Freeze()
	}
	ctx, cancel := limit()
	defer cancel()
	var all *quorum.Error
	if r, err := k.ask(newClaim("k", longTTL)); r.State == driver.Held || !errors.As(err, &all) {
		t.Errorf("Acquire = %v, %v", r.State, err)
	}
	if results, err := k.Renew(ctx, []driver.Claim{held}); err != nil || results[0].State != driver.Unknown || !errors.As(results[0].Err, &all) {
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
	for _, key := range []string{"{", "}", "{}", "a{b}c", "holdfast", "\x00", "\xff\xfe", "lock:{x}"} {
		claim := newClaim(key, longTTL)
		k.hold(claim)
		k.busy(newClaim(key, longTTL))
		k.release(claim, driver.Held)
	}
	c.nothingLeft(t)
}
