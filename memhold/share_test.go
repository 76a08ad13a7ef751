package memhold_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// reader makes a shared claim with a TTL of 30 s that queues.
func reader(key, owner string) driver.Claim {
	c := claim(key, owner)
	c.Shared = true
	return c
}

// expectSharers checks who shares the key, the longest lease last.
func expectSharers(t *testing.T, b *memhold.Backend, key string, want ...string) {
	t.Helper()
	e, err := b.Inspect(t.Context(), key)
	if err != nil || len(e.Sharers) != len(want) {
		t.Fatalf("Inspect(%q) = %+v, %v; want the sharers %q", key, e, err, want)
	}
	for i, s := range e.Sharers {
		if s.Owner != want[i] {
			t.Fatalf("Inspect(%q) = %+v; want the sharers %q", key, e, want)
		}
	}
}

// The writer's notice comes when the last lease ends, and not before, even if a longer lease has
// been given back.
func TestLastLeaseToEndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		defer b.Close()
		granted := listen(b)
		long := reader("k", "long")
		acquire(t, b, lasting(reader("k", "a"), 2*time.Second), driver.Held)
		acquire(t, b, lasting(reader("k", "b"), 4*time.Second), driver.Held)
		acquire(t, b, long, driver.Held)
		acquire(t, b, claim("k", "w"), driver.Busy)
		release(t, b, long, driver.Held)
		time.Sleep(4*time.Second - time.Nanosecond)
		expectGrants(t, granted) // no Inspect here: it would set the timer anew
		time.Sleep(time.Nanosecond)
		expectGrants(t, granted, "w")
	})
}

// A writer that dies at the head of the queue keeps readers out for its presence, not for longer.
func TestDeadWriterLetsReadersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New(memhold.WithPresence(4 * time.Second))
		defer b.Close()
		granted := listen(b)
		acquire(t, b, reader("k", "a"), driver.Held)
		acquire(t, b, claim("k", "dead"), driver.Busy)
		time.Sleep(2 * time.Second)
		for _, owner := range []string{"b", "c"} {
			acquire(t, b, reader("k", owner), driver.Busy)
		}
		acquire(t, b, claim("k", "w"), driver.Busy)
		acquire(t, b, reader("k", "d"), driver.Busy)
		time.Sleep(2*time.Second - time.Nanosecond)
		expectGrants(t, granted)
		time.Sleep(time.Nanosecond)
		expectGrants(t, granted, "b", "c")
		expectSharers(t, b, "k", "b", "c", "a")
	})
}

// A downgrade lets in the readers at the head of the queue, at once.
func TestDowngradeLetsReadersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		defer b.Close()
		granted := listen(b)
		token := acquire(t, b, claim("k", "a"), driver.Held).Token
		for _, owner := range []string{"b", "c"} {
			acquire(t, b, reader("k", owner), driver.Busy)
		}
		acquire(t, b, claim("k", "w"), driver.Busy)
		if r := renew(t, b, reader("k", "a"), driver.Held); r.Token != 0 {
			t.Errorf("a downgrade without a block gave token %d; want none", r.Token)
		}
		expectGrants(t, granted, "b", "c")
		e, err := b.Inspect(t.Context(), "k")
		if err != nil || len(e.Sharers) != 3 || e.Sharers[2].Owner != "a" ||
			e.Sharers[2].Token != token || e.Holder.Owner != "" || len(e.Waiters) != 1 {
			t.Errorf("after a downgrade: %+v, %v; want a with token %d, b, c, and w waiting", e,
				err, token)
		}
	})
}

// A suspend of the host is real time, in which no timer fires. So these are not in a bubble: what
// happens must not depend on whether a timer was in time.

func TestSuspendEndsSharedLeases(t *testing.T) {
	b := memhold.New(memhold.WithPresence(3 * time.Hour))
	defer b.Close()
	a, long := lasting(reader("k", "a"), time.Hour), lasting(reader("k", "long"), 3*time.Hour)
	acquire(t, b, a, driver.Held)
	acquire(t, b, long, driver.Held)
	w := lasting(claim("k", "w"), 4*time.Hour)
	acquire(t, b, w, driver.Busy)
	clock.SimulateSuspend(2 * time.Hour)
	renew(t, b, a, driver.Lost)
	expectSharers(t, b, "k", "long")
	acquire(t, b, w, driver.Busy)
	clock.SimulateSuspend(2 * time.Hour)
	renew(t, b, long, driver.Lost)
	renew(t, b, w, driver.Lost) // not settled yet: Renew grants nothing
	acquire(t, b, w, driver.Held)
}

// The writer in front has died, but nobody has noticed: then nobody counts as waiting, because a
// reader behind it is to be let in.
func TestNobodyWaitsWhenTheWriterInFrontHasDied(t *testing.T) {
	b := memhold.New(memhold.WithPresence(5 * time.Hour))
	defer b.Close()
	a := lasting(reader("k", "a"), 6*time.Hour)
	acquire(t, b, a, driver.Held)
	acquire(t, b, lasting(claim("k", "dead"), time.Hour), driver.Busy)
	acquire(t, b, lasting(reader("k", "b"), 5*time.Hour), driver.Busy)
	clock.SimulateSuspend(2 * time.Hour)
	a.Block = 1
	if renew(t, b, a, driver.Held).Waiting {
		t.Error("told that somebody waits, when a writer has died and a reader is let in")
	}
	renew(t, b, lasting(reader("k", "b"), 5*time.Hour), driver.Held)
}

// The same, with a writer that waits behind that reader.
func TestWaitingIsToldAfterReadersWereLetIn(t *testing.T) {
	b := memhold.New(memhold.WithPresence(5 * time.Hour))
	defer b.Close()
	a, r := lasting(reader("k", "a"), 6*time.Hour), lasting(reader("k", "b"), 5*time.Hour)
	acquire(t, b, a, driver.Held)
	acquire(t, b, lasting(claim("k", "dead"), time.Hour), driver.Busy)
	acquire(t, b, r, driver.Busy)
	acquire(t, b, lasting(claim("k", "w"), 5*time.Hour), driver.Busy)
	clock.SimulateSuspend(2 * time.Hour)
	a.Block = 1
	if !renew(t, b, a, driver.Held).Waiting {
		t.Error("not told that a writer waits behind a reader that was let in")
	}
	renew(t, b, r, driver.Held)
}

func TestFaultsOfSharedKeys(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	x, y, w := reader("k", "x"), reader("k", "y"), claim("k", "w")
	acquire(t, b, x, driver.Held)
	acquire(t, b, y, driver.Held)
	acquire(t, b, w, driver.Busy)
	if !b.Faults().Lose("k") || b.Faults().Lose("k") {
		t.Error("Lose must report that somebody held the key, once")
	}
	renew(t, b, x, driver.Lost)
	renew(t, b, y, driver.Lost)
	acquire(t, b, w, driver.Held)
	release(t, b, w, driver.Held)

	acquire(t, b, x, driver.Held)
	b.Faults().Give("k", "stranger", time.Hour)
	renew(t, b, x, driver.Lost)
	acquire(t, b, y, driver.Busy)
	if h := holder(t, b, "k"); h != "stranger" {
		t.Errorf("%q holds the key; want the stranger whom it was given to", h)
	}
}

// Shared leases leave nothing behind, and the key's memory is used again.
func TestSharedKeysAreSweptUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		defer b.Close()
		for i := range 5000 {
			key := string([]rune{'k', rune('a' + i)})
			acquire(t, b, lasting(reader(key, "x"), time.Second), driver.Held)
			acquire(t, b, lasting(reader(key, "y"), time.Second), driver.Held)
			if i%1000 == 999 {
				time.Sleep(time.Second)
			}
		}
		if n, _ := b.Size(); n > 3500 {
			t.Errorf("%d entries are kept; want 3500 at most for 1000 keys that are held at a time",
				n)
		}
	})
}
