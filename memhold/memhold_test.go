package memhold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// claim makes a claim with a TTL of 30 s that queues.
func claim(key, owner string) driver.Claim {
	return driver.Claim{Key: key, Owner: owner, TTL: 30 * time.Second, Queue: true}
}

func lasting(c driver.Claim, ttl time.Duration) driver.Claim {
	c.TTL = ttl
	return c
}

func acquire(t *testing.T, b driver.Backend, c driver.Claim, want driver.State) driver.Result {
	t.Helper()
	r, err := b.Acquire(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Acquire(%q by %q) = %v, %v; want %v", c.Key, c.Owner, r.State, err, want)
	}
	return r
}

func renew(t *testing.T, b driver.Backend, c driver.Claim, want driver.State) driver.Result {
	t.Helper()
	r, err := b.Renew(t.Context(), []driver.Claim{c})
	if err != nil || r[0].State != want {
		t.Fatalf("Renew(%q by %q) = %v, %v; want %v", c.Key, c.Owner, r, err, want)
	}
	return r[0]
}

func release(t *testing.T, b driver.Backend, c driver.Claim, want driver.State) {
	t.Helper()
	r, err := b.Release(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Release(%q by %q) = %v, %v; want %v", c.Key, c.Owner, r.State, err, want)
	}
}

// holder returns who holds the key, as a client without faults sees it.
func holder(t *testing.T, b *memhold.Backend, key string) string {
	t.Helper()
	e, err := b.Inspect(t.Context(), key)
	if err != nil {
		t.Fatalf("Inspect(%q): %v", key, err)
	}
	return e.Holder.Owner
}

// inbox collects the owners that are granted a key.
type inbox struct {
	mu      sync.Mutex
	granted []string
}

func listen(b *memhold.Backend) *inbox {
	in := new(inbox)
	b.Notify(func(n driver.Notice) {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.granted = append(in.granted, n.Owner)
	})
	return in
}

func expectGrants(t *testing.T, in *inbox, want ...string) {
	t.Helper()
	synctest.Wait()
	in.mu.Lock()
	defer in.mu.Unlock()
	if !slices.Equal(in.granted, want) {
		t.Fatalf("granted to %q; want %q", in.granted, want)
	}
}

func TestExpiryHandsOverByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		defer b.Close()
		granted := listen(b)
		acquire(t, b, lasting(claim("k", "a"), 4*time.Second), driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		time.Sleep(4*time.Second - time.Nanosecond)
		expectGrants(t, granted)
		time.Sleep(time.Nanosecond)
		expectGrants(t, granted, "b")
	})
}

func TestRenewalPutsHandoverOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		defer b.Close()
		granted := listen(b)
		a := lasting(claim("k", "a"), 4*time.Second)
		acquire(t, b, a, driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		for range 2 {
			time.Sleep(3 * time.Second)
			renew(t, b, a, driver.Held)
			acquire(t, b, claim("k", "b"), driver.Busy)
		}
		// The last renewal shortens the lease.
		renew(t, b, lasting(a, time.Second), driver.Held)
		time.Sleep(time.Second - time.Nanosecond)
		expectGrants(t, granted)
		time.Sleep(time.Nanosecond)
		expectGrants(t, granted, "b")
	})
}

func TestDeadWaitersArePassedOverByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New(memhold.WithPresence(5 * time.Second))
		defer b.Close()
		granted := listen(b)
		acquire(t, b, lasting(claim("k", "a"), 3*time.Second), driver.Held)
		// dead when a's lease ends
		acquire(t, b, lasting(claim("k", "b"), 2*time.Second), driver.Busy)
		// dies with the key in hand
		acquire(t, b, claim("k", "c"), driver.Busy)
		time.Sleep(time.Second)
		acquire(t, b, claim("k", "d"), driver.Busy)
		time.Sleep(2 * time.Second)
		expectGrants(t, granted, "c")
		time.Sleep(2*time.Second - time.Nanosecond)
		expectGrants(t, granted, "c")
		time.Sleep(time.Nanosecond)
		expectGrants(t, granted, "c", "d")
		time.Sleep(time.Second)
		if h := holder(t, b, "k"); h != "" {
			t.Fatalf("%q holds the key past its presence", h)
		}
	})
}

func TestPresence(t *testing.T) {
	b := memhold.New(memhold.WithPresence(7 * time.Second))
	defer b.Close()
	acquire(t, b, claim("k", "a"), driver.Held)
	if r := acquire(t, b, claim("k", "b"), driver.Busy); r.Presence != 7*time.Second {
		t.Errorf("presence %v; want 7s", r.Presence)
	}
	// A dead waiter must not cost more than its TTL.
	if r := acquire(t, b, lasting(claim("k", "c"), time.Second),
		driver.Busy); r.Presence != time.Second {
		t.Errorf("presence %v with a TTL of 1s; want 1s", r.Presence)
	}
	if r := acquire(t, memhold.New(), claim("k", "a"), driver.Held); r.Presence != 0 {
		t.Errorf("presence %v of a holder; want none", r.Presence)
	}
	defer func() {
		if recover() == nil {
			t.Error("WithPresence(0) did not panic")
		}
	}()
	memhold.WithPresence(0)
}

func TestNilOptionPanics(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); p != "memhold: option 2 is nil: leave it out" {
			t.Errorf("panic %q; want that option 2 is nil", p)
		}
	}()
	memhold.New(memhold.WithPresence(time.Second), nil)
}

func TestRefusedClaims(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	good := claim("k", "a")
	for name, change := range map[string]func(*driver.Claim){
		"empty key":      func(c *driver.Claim) { c.Key = "" },
		"long key":       func(c *driver.Claim) { c.Key = strings.Repeat("k", driver.MaxKeyLen+1) },
		"empty owner":    func(c *driver.Claim) { c.Owner = "" },
		"no TTL":         func(c *driver.Claim) { c.TTL = 0 },
		"huge token":     func(c *driver.Claim) { c.Token = 1 << 53 },
		"negative TTL":   func(c *driver.Claim) { c.TTL = -time.Second },
		"endless TTL":    func(c *driver.Claim) { c.TTL = driver.MaxTTL + 1 },
		"enormous block": func(c *driver.Claim) { c.Block = 1 << 53 },
	} {
		bad := good
		change(&bad)
		if r, err := b.Acquire(t.Context(), bad); !driver.Permanent(err) ||
			!errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: Acquire = %v, %v; want ErrInvalid", name, r.State, err)
		}
		acquire(t, b, good, driver.Held)
		r, err := b.Renew(t.Context(), []driver.Claim{bad, good})
		if err != nil || r[0].State != driver.Unknown || !driver.Permanent(r[0].Err) ||
			r[1].State != driver.Held {
			t.Errorf("%s: Renew = %+v, %v; want only the bad claim refused", name, r, err)
		}
		release(t, b, good, driver.Held)
	}
	if entries, _ := b.Size(); entries != 0 {
		t.Errorf("%d entries are left by claims that were refused; want none", entries)
	}
}

// TestLongQueue has many waiters, of which some leave and some die, and checks that the others are
// served in the order of their tickets. A queue of this length is searched by an index.
func TestLongQueue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		b := memhold.New(memhold.WithPresence(time.Minute))
		defer b.Close()
		a := claim("k", "a")
		acquire(t, b, a, driver.Held)
		waiters := make([]driver.Claim, n)
		for i := range waiters {
			waiters[i] = claim("k", fmt.Sprintf("w%04d", i))
			waiters[i].Ticket = 1 + random.Uint64N(n/2) // some are equal
			if random.IntN(4) == 0 {
				waiters[i].TTL = time.Second
			}
			acquire(t, b, waiters[i], driver.Busy)
		}
		var live []driver.Claim
		for _, w := range waiters {
			switch {
			case random.IntN(4) == 0:
				release(t, b, w, driver.Busy)
				release(t, b, w, driver.Lost)
			case w.TTL > time.Second:
				live = append(live, w)
			}
		}
		time.Sleep(2 * time.Second)
		slices.SortFunc(live, func(x, y driver.Claim) int {
			if x.Ticket != y.Ticket {
				return int(x.Ticket) - int(y.Ticket)
			}
			return strings.Compare(x.Owner, y.Owner)
		})
		for i, w := range live {
			if r := acquire(t, b, w, driver.Busy); r.Place != i+1 {
				t.Fatalf("%q is at place %d; want %d", w.Owner, r.Place, i+1)
			}
		}
		last := a
		for _, w := range live {
			release(t, b, last, driver.Held)
			release(t, b, last, driver.Lost) // and leaves no trace in the index
			if h := holder(t, b, "k"); h != w.Owner {
				t.Fatalf("after %q it is the turn of %q; want %q", last.Owner, h, w.Owner)
			}
			last = w
		}
		release(t, b, last, driver.Held)
		if entries, _ := b.Size(); entries != 0 {
			t.Fatalf("%d entries are left; want none", entries)
		}
	})
}

func TestNoticesGoToTheClientThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b1 := memhold.New()
		defer b1.Close()
		b2 := b1.Client()
		defer b2.Close()
		one, two, also := listen(b1), listen(b2), listen(b2)
		acquire(t, b1, claim("k", "a"), driver.Held)
		acquire(t, b2, claim("k", "b"), driver.Busy)
		release(t, b1, claim("k", "a"), driver.Held)
		expectGrants(t, one)
		expectGrants(t, two, "b")
		expectGrants(t, also, "b")
		acquire(t, b2, claim("k", "c"), driver.Busy)
		b2.Close()
		release(t, b1, claim("k", "b"), driver.Held)
		expectGrants(t, two, "b")
		if h := holder(t, b1, "k"); h != "c" {
			t.Errorf("%q holds k; want the waiter, which is present though its client was closed",
				h)
		}
	})
}

// TestSubscriberHoldsUpNobody: a subscriber blocks, against the contract. Neither calls nor the
// memory wait for it, but stop does.
func TestSubscriberHoldsUpNobody(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	enter, leave := make(chan string, 3), make(chan struct{})
	stop := b.Notify(func(n driver.Notice) {
		enter <- n.Owner
		<-leave
	})
	acquire(t, b, claim("k", "a"), driver.Held)
	acquire(t, b, claim("k", "b"), driver.Busy)
	acquire(t, b, claim("k", "c"), driver.Busy)
	go b.Release(t.Context(), claim("k", "a"))
	if owner := <-enter; owner != "b" {
		t.Fatalf("notice to %q; want b", owner)
	}
	release(t, b, claim("k", "b"), driver.Held) // returns, with its notice behind the first
	acquire(t, b, claim("l", "a"), driver.Held)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Fatal("stop returned while the subscriber was called")
	case <-time.After(20 * time.Millisecond):
		// long enough for a stop that does not wait, as a rule
	}
	close(leave)
	<-stopped
	told := len(enter) // the second notice may have come before stop
	acquire(t, b, claim("l", "b"), driver.Busy)
	release(t, b, claim("l", "a"), driver.Held)
	if len(enter) != told {
		t.Fatalf("notice to %q after stop", <-enter)
	}
}

func TestCloseStopsTheTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		other := b.Client()
		granted := listen(other)
		acquire(t, b, lasting(claim("k", "a"), 2*time.Second), driver.Held)
		acquire(t, other, claim("k", "b"), driver.Busy)
		acquire(t, b, lasting(claim("k2", "a"), 4*time.Second), driver.Held)
		acquire(t, other, claim("k2", "b"), driver.Busy)
		b.Close()
		time.Sleep(3 * time.Second)
		expectGrants(t, granted, "b") // the memory goes on for the others
		if n := other.Timers(); n != 1 {
			t.Fatalf("%d timers run; want the one of k2", n)
		}
		other.Close()
		if n := other.Timers(); n != 0 {
			t.Fatalf("%d timers run after the last Close; want none", n)
		}
		time.Sleep(2 * time.Second)
		expectGrants(t, granted, "b")

		// What is left of the memory can be used again, and goes on by itself.
		again := b.Client()
		if h := holder(t, again, "k2"); h != "b" {
			t.Fatalf("%q holds k2; want the waiter that is still present", h)
		}
		acquire(t, again, lasting(claim("k3", "a"), 2*time.Second), driver.Held)
		acquire(t, again, claim("k3", "b"), driver.Busy)
		again.Close()
		time.Sleep(time.Second)
		last := b.Client()
		defer last.Close()
		if n := last.Timers(); n != 1 {
			t.Fatalf("%d timers run; want the one of k3", n)
		}
	})
}

// TestQueueOfTheDeadEnds checks that a key whose holder renews for ever does not keep dead waiters.
func TestQueueOfTheDeadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New(memhold.WithPresence(time.Second))
		defer b.Close()
		a := lasting(claim("k", "a"), 3*time.Second)
		acquire(t, b, a, driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		for range 5 {
			time.Sleep(time.Second)
			renew(t, b, a, driver.Held)
		}
		if n := b.Timers(); n != 0 {
			t.Errorf("%d timers run for a key that nobody waits for; want none", n)
		}
		release(t, b, claim("k", "b"), driver.Lost)
		release(t, b, a, driver.Held)
		if entries, _ := b.Size(); entries != 0 {
			t.Fatalf("%d entries are left; want none", entries)
		}
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		b := memhold.New()
		defer b.Close()
		// Leases that have ended must not pile up, even if nobody asks for their keys again.
		for i := range n {
			acquire(t, b, lasting(claim(fmt.Sprint("short", i), "a"), time.Millisecond),
				driver.Held)
			if i%100 == 99 {
				time.Sleep(time.Millisecond)
			}
		}
		if entries, _ := b.Size(); entries > 2048 {
			t.Errorf("%d entries for 100 keys that are held; want 2048 at most", entries)
		}
		// Keys that are released leave no entry, and many leave no room.
		for i := range n {
			acquire(t, b, claim(fmt.Sprint("long", i), "a"), driver.Held)
		}
		for i := range n {
			release(t, b, claim(fmt.Sprint("long", i), "a"), driver.Held)
		}
		if entries, room := b.Size(); entries > 2048 || room > 4096 {
			t.Errorf("%d entries with room for %d are left of %d keys; want 2048 and 4096 at most",
				entries, room, n)
		}
		for e, err := range b.List(t.Context(), "") {
			t.Errorf("List still shows %+v, %v", e, err)
		}
	})
}

// TestSuspendEndsLeases is not in a bubble: a suspend of the host is real time.
func TestSuspendEndsLeases(t *testing.T) {
	b := memhold.New(memhold.WithPresence(time.Minute))
	defer b.Close()
	a, long := lasting(claim("k", "a"), time.Hour), lasting(claim("l", "a"), 3*time.Hour)
	acquire(t, b, a, driver.Held)
	acquire(t, b, long, driver.Held)
	acquire(t, b, claim("l", "b"), driver.Busy)
	clock.SimulateSuspend(2 * time.Hour)
	renew(t, b, a, driver.Lost)
	acquire(t, b, claim("k", "b"), driver.Held)
	renew(t, b, long, driver.Held)
	release(t, b, claim("l", "b"), driver.Lost) // its presence is over, too
}

func TestEndedContextTakesNoPart(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ctx, claim("k", "a")); !errors.Is(err, context.Canceled) ||
		!errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire: %v; want canceled, without effect", err)
	}
	if h := holder(t, b, "k"); h != "" {
		t.Errorf("%q holds the key; want nobody", h)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	ctx, a := t.Context(), claim("k", "a")
	if n := testing.AllocsPerRun(1000, func() {
		b.Acquire(ctx, a)
		b.Release(ctx, a)
	}); n > 0 {
		t.Errorf("%v allocations for an Acquire and its Release; want none", n)
	}
}
