package redishold_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// A Backend that knows of no contention acquires without a script. These are the cases in which it
// meets some.

func TestPlainAcquisitionMeetsWaiters(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithClock(clock))
	b := open(t, server.URL())
	holder, waiter, late := newClaim("k"), newClaim("k"), newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), holder))
	mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), waiter))
	stay(t, clock)
	server.Do(t, "DEL", "k")
	r := mustBe(t, "acquire out of turn",
		driver.Busy)(open(t, server.URL()).Acquire(t.Context(), late))
	if r.Holder != waiter.Owner || r.Place != 1 {
		t.Errorf("busy, held by %q, at place %d; want held by the waiter, at place 1",
			r.Holder, r.Place)
	}
	if got := server.String(t, "GET", "k"); got != waiter.Owner {
		t.Errorf("the key is held by %q", got)
	}
	mustBe(t, "the waiter's turn", driver.Held)(b.Acquire(t.Context(), waiter))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), waiter))
	mustBe(t, "the late one's turn", driver.Held)(b.Acquire(t.Context(), late))
}

func TestPlainAcquisitionOfTheFirstWaiter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	holder, waiter := newClaim("k"), newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), holder))
	mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), waiter))
	server.Do(t, "DEL", "k")
	// As a process does whose connection was lost and that has a new Backend.
	mustBe(t, "its turn", driver.Held)(open(t, server.URL()).Acquire(t.Context(), waiter))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), waiter))
	if n := server.Int(t, "DBSIZE"); n != 1 {
		t.Errorf("%d keys are left: %v", n, server.Do(t, "KEYS", "*"))
	}
}

func TestPlainAcquisitionMeetsALargerFence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ahead, behind := newClaim("k"), newClaim("k")
	ahead.Token, ahead.Block, behind.Token, behind.Block = 1000, 64, 1010, 64
	b := open(t, server.URL())
	first := mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), ahead))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), ahead))
	second := mustBe(t, "acquire", driver.Held)(open(t, server.URL()).Acquire(t.Context(), behind))
	if first.Token != 1000 || second.Token < 1064 {
		t.Errorf("blocks of 64 from %d and from %d overlap", first.Token, second.Token)
	}
}

func TestPlainAcquisitionIsNotOursToTake(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first, second := newClaim("k"), newClaim("k")
	second.Queue = false
	mustBe(t, "acquire", driver.Held)(open(t, server.URL()).Acquire(t.Context(), first))
	r := mustBe(t, "acquire", driver.Busy)(open(t, server.URL()).Acquire(t.Context(), second))
	if r.Holder != first.Owner || r.ExpiresIn <= 0 || r.Place != 0 {
		t.Errorf("%+v", r)
	}
	mustBe(t, "again, by another connection",
		driver.Held)(open(t, server.URL()).Acquire(t.Context(), first))
}

// A SET that has succeeded counts, whatever becomes of the script that is asked for next: the
// outcome is unknown, or the key would be left for its TTL.
func TestPlainAcquisitionWhoseScriptIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL())
	server.Do(t, "ACL", "SETUSER", "default", "-zadd", "-evalsha")
	claim := newClaim("k")
	_, err := b.Acquire(t.Context(), claim)
	if got := server.String(t, "GET", "k"); got != claim.Owner {
		t.Fatalf("the key is %q: the test is about one that was set", got)
	}
	if !errors.Is(err, driver.ErrUnknown) || !driver.Permanent(err) {
		t.Errorf("Acquire: %v; want the outcome unknown, for good", err)
	}
	server.Do(t, "ACL", "SETUSER", "default", "-set")
	if _, err := b.Acquire(t.Context(), newClaim("other")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire with SET refused as well: %v; want that nothing was done", err)
	}
}
