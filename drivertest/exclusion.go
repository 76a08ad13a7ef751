package drivertest

import (
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// At most one owner value holds a key.
var exclusionRules = []rule{
	{name: "Exclusion/R1_SecondIsBusy", check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.hold(b1, a)
		s.busy(b1, s.claim("k"), a)
		s.busy(b2, s.claim("k"), a)
		s.renew(b1, a, driver.Held)
	}},
	{name: "Exclusion/KeysAreIndependent", check: func(s *suite) {
		b := s.open()
		a, c := s.claim("k1"), s.claim("k2")
		s.hold(b, a)
		s.hold(b, c)
		s.release(b, a, driver.Held)
		s.renew(b, c, driver.Held)
		s.busy(b, s.claim("k2"), c)
	}},
	{name: "Exclusion/R26_OneOfManyWins", check: func(s *suite) {
		const contenders, rounds = 32, 10
		clients := []driver.Backend{s.open(), s.open(), s.open(), s.open()}
		for round := range rounds {
			claims := make([]driver.Claim, contenders)
			results := make([]driver.Result, contenders)
			errs := make([]error, contenders)
			start := make(chan struct{})
			var done sync.WaitGroup
			for i := range claims {
				claims[i] = s.claim("k")
				done.Add(1)
				go func() {
					defer done.Done()
					ctx, cancel := s.limit()
					defer cancel()
					<-start
					results[i], errs[i] = clients[i%len(clients)].Acquire(ctx, claims[i])
				}()
			}
			close(start)
			done.Wait()
			winner := -1
			for i, r := range results {
				switch {
				case errs[i] != nil:
					s.Fatalf("Acquire: %v", errs[i])
				case r.State == driver.Held && winner >= 0:
					s.Fatalf("round %d: two of %d contenders hold the key", round, contenders)
				case r.State == driver.Held:
					winner = i
				case r.State != driver.Busy:
					s.Fatalf("round %d: Acquire = %v; want held or busy", round, r.State)
				}
			}
			if winner < 0 {
				s.Fatalf("round %d: none of %d contenders holds the key", round, contenders)
			}
			s.release(clients[winner%len(clients)], claims[winner], driver.Held)
		}
	}},
	{name: "Exclusion/AskingAgainConfirms", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		a.Block = 5
		first := s.hold(b, a)
		again := s.hold(b, a)
		if again.Token != first.Token && again.Token < first.Token+5 {
			s.Fatalf("asking again gave token %d, inside the block of 5 from %d",
				again.Token, first.Token)
		}
		s.busy(b, s.claim("k"), a)
		// The key is held once, not twice: one release frees it.
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Exclusion/AskingAgainRefreshes", needs: expiry, check: func(s *suite) {
		b := s.open()
		a := s.short(s.claim("k"))
		s.hold(b, a)
		long := a
		long.TTL = s.TTL
		s.hold(b, long)
		s.elapse(a.TTL)
		s.busy(b, s.claim("k"), a)
		s.renew(b, long, driver.Held)
	}},
	{name: "Exclusion/BusyNamesHolder", needs: holder, check: func(s *suite) {
		b := s.open()
		// The user chooses a part of an owner value, too: the readable one.
		for _, label := range []string{"", "deploy", `a "b" 'c' {d} \e/f`, "größer ☂"} {
			a := s.claim("k/" + label)
			a.Owner = driver.NewOwner(driver.OwnerSuffix(label))
			s.hold(b, a)
			if r := s.try(b, s.claim(a.Key)); r.Holder != a.Owner {
				s.Errorf("busy, held by %q; want %q", r.Holder, a.Owner)
			}
		}
	}},
	{name: "Exclusion/BusyTellsLease", needs: expiresIn, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		if r := s.busy(b, s.claim("k"), a); r.ExpiresIn <= s.TTL/2 || r.ExpiresIn > s.TTL {
			s.Fatalf("busy for another %v; want what remains of %v", r.ExpiresIn, s.TTL)
		}
	}},
	{name: "Exclusion/BusyLeavesNoTrace", check: func(s *suite) {
		b := s.open()
		a, c := s.claim("k"), s.claim("k")
		s.hold(b, a)
		r := s.busy(b, c, a)
		if r.Place != 0 || r.Presence != 0 {
			s.Errorf("busy without Queue gave place %d and presence %v; want none",
				r.Place, r.Presence)
		}
		s.release(b, c, driver.Lost)
		s.busy(b, s.claim("k"), a)
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Exclusion/BusyWithoutQueue", lacks: queue, check: func(s *suite) {
		b := s.open()
		a, c := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.busy(b, c, a)
		s.release(b, c, driver.Lost)
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Exclusion/R2_LeaseEndsByItself", needs: expiry, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.short(s.claim("k"))
		start := clock.Now()
		s.hold(b1, a)
		s.eventuallyHeld(b2, s.claim("k"))
		// The lease began after start, so it cannot be over earlier.
		if took := clock.Now().Sub(start); took < earliest(a.TTL) {
			s.Fatalf("a lease of %v was over after %v", a.TTL, took)
		}
		s.renew(b1, a, driver.Lost)
	}},
}
