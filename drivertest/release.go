package drivertest

import (
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Release ends one acquisition and no other.
var releaseRules = []rule{
	{name: "Release/FreesAtOnce", check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.hold(b1, a)
		s.release(b1, a, driver.Held)
		s.hold(b2, s.claim("k"))
	}},
	{name: "Release/R7_ComparesOwner", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		s.release(b, s.claim("k"), driver.Lost)
		// An owner value is compared as a whole.
		first := "x"
		if a.Owner[:1] == first {
			first = "y"
		}
		for _, owner := range []string{a.Owner + "x", a.Owner[:len(a.Owner)-1],
			first + a.Owner[1:]} {
			other := a
			other.Owner = owner
			s.release(b, other, driver.Lost)
		}
		s.renew(b, a, driver.Held)
		s.busy(b, s.claim("k"), a)
	}},
	{name: "Release/R25_Twice", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		s.release(b, a, driver.Held)
		s.release(b, a, driver.Lost)
		s.free(b, "k")
	}},
	{name: "Release/R25_OfUnknown", check: func(s *suite) {
		b := s.open()
		s.release(b, s.claim("k"), driver.Lost)
		s.free(b, "k")
	}},
	{name: "Release/R8_LateSparesNextHolder", needs: expiry, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, c := s.short(s.claim("k")), s.claim("k")
		s.hold(b1, a)
		s.eventuallyHeld(b2, c)
		s.release(b1, a, driver.Lost)
		s.renew(b2, c, driver.Held)
		s.busy(b1, s.claim("k"), c)
	}},
	{name: "Release/OfExpiredIsLost", needs: expiry, check: func(s *suite) {
		b := s.open()
		a := s.short(s.claim("k"))
		s.hold(b, a)
		s.elapse(a.TTL)
		s.release(b, a, driver.Lost)
		s.free(b, "k")
	}},
	{name: "Release/OfLostIsLost", needs: lose, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, c := s.claim("k"), s.claim("k")
		s.hold(b1, a)
		s.store.Lose(s, "k")
		s.hold(b2, c)
		s.release(b1, a, driver.Lost)
		s.renew(b2, c, driver.Held)
	}},
}

// Renew extends what is held and nothing else.
var renewalRules = []rule{
	{name: "Renew/Extends", needs: expiry, check: func(s *suite) {
		b := s.open()
		var a driver.Claim
		s.beforeItEnds(func(lease brief) driver.Result {
			a = s.claim(lease.key)
			a.TTL = lease.ttl
			s.hold(b, a)
			long := a
			long.TTL = s.TTL
			return s.renewAll(b, []driver.Claim{long})[0]
		})
		s.elapse(a.TTL)
		s.busy(b, s.claim(a.Key), a)
		s.renew(b, a, driver.Held)
		// The last renewal counts, even if it asks for less.
		s.eventuallyHeld(b, s.claim(a.Key))
	}},
	{name: "Renew/R34_NeverCreates", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.gone(b, a)
		s.hold(b, s.claim("k")) // still free
		c := s.claim("k2")
		s.hold(b, c)
		s.release(b, c, driver.Held)
		s.gone(b, c)
		s.hold(b, s.claim("k2"))
	}},
	{name: "Renew/R34_NeverRecreatesExpired", needs: expiry, check: func(s *suite) {
		b := s.open()
		a := s.short(s.claim("k"))
		s.hold(b, a)
		s.elapse(a.TTL)
		s.gone(b, a)
		s.hold(b, s.claim("k"))
	}},
	{name: "Renew/R34_NeverRecreatesLost", needs: lose, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		s.store.Lose(s, "k")
		s.gone(b, a)
		s.hold(b, s.claim("k"))
	}},
	{name: "Renew/R34_SparesAnother", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		other := s.claim("k")
		s.renew(b, other, driver.Lost)
		s.renew(b, a, driver.Held)
		s.release(b, other, driver.Lost)
		s.busy(b, s.claim("k"), a)
	}},
	{name: "Renew/NeverExtendsAnother", needs: expiry, check: func(s *suite) {
		b := s.open()
		a, other := s.short(s.claim("k")), s.claim("k")
		s.hold(b, a)
		s.renew(b, other, driver.Lost)
		s.elapse(a.TTL)
		s.hold(b, s.claim("k"))
	}},
	{name: "Renew/EmptyBatch", check: func(s *suite) {
		s.renewAll(s.open(), nil)
	}},
	{name: "Renew/BatchKeepsOrder", check: func(s *suite) {
		b := s.open()
		held, gone, never, another := s.claim("held"), s.claim("gone"), s.claim("never"),
			s.claim("another")
		s.hold(b, held)
		s.hold(b, gone)
		s.release(b, gone, driver.Held)
		s.hold(b, s.claim("another"))
		s.batch(b, []driver.Claim{gone, held, never, another, held, gone}, driver.Lost, driver.Held,
			driver.Lost, driver.Lost, driver.Held, driver.Lost)
		s.batch(b, []driver.Claim{held, gone}, driver.Held, driver.Lost)
		s.renew(b, held, driver.Held)
	}},
	{name: "Renew/BatchOfThousand", check: func(s *suite) {
		const n = 1000
		b := s.open()
		claims := make([]driver.Claim, n)
		want := make([]driver.State, n)
		renewed := clock.Now()
		for i := range claims {
			claims[i] = s.claim("k" + string(rune('a'+i%26)) + string(rune('A'+i/26)))
			if want[i] = driver.Lost; i%7 != 0 {
				s.hold(b, claims[i])
				want[i] = driver.Held
			}
			if i%100 == 99 || clock.Now().Sub(renewed) > s.TTL/4 {
				// Leases must not end meanwhile, however long a thousand acquisitions take.
				renewed = clock.Now()
				s.batch(b, claims[:i+1], want[:i+1]...)
			}
		}
		slices.Reverse(claims)
		slices.Reverse(want)
		s.batch(b, claims, want...)
	}},
	{name: "Renew/NobodyWaits", check: func(s *suite) {
		b := s.open()
		a := blockOf(s.claim("k"), 3)
		s.hold(b, a)
		s.waitedFor(b, a, false)
		s.busy(b, s.claim("k"), a)
		s.waitedFor(b, a, false)
	}},
}

// batch renews claims, with the given outcomes, and returns the results. It renews claims with
// unknown outcomes again, as a Locker would, because a shard that is slow once breaks no rule.
func (s *suite) batch(b driver.Backend, claims []driver.Claim,
	want ...driver.State) []driver.Result {
	s.Helper()
	results := make([]driver.Result, len(claims))
	index := make([]int, len(claims)) // of those to ask for
	for i := range index {
		index[i] = i
	}
	s.eventually("a renewal is still unknown", func() bool {
		asked, open := make([]driver.Claim, len(index)), []int(nil)
		for at, i := range index {
			asked[at] = claims[i]
		}
		for at, r := range s.renewAll(b, asked) {
			i := index[at]
			switch {
			case r.State == driver.Unknown && errors.Is(r.Err, driver.ErrUnknown):
				open = append(open, i)
			case r.State == want[i]:
				results[i] = r
			default:
				s.Fatalf("Renew of %d claims: result %d, of %q, is %v (%v); want %v", len(asked),
					at, claims[i].Key, r.State, r.Err, want[i])
			}
		}
		index = open
		return len(open) == 0
	})
	return results
}
