package drivertest

import "github.com/holdfast-go/holdfast/driver"

// Tokens of a key are unique and rise.
var tokenRules = []rule{
	{name: "Tokens/R38_RiseOverAcquisitions", check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		var last driver.Token
		for range 5 {
			for _, b := range []driver.Backend{b1, b2} {
				a := s.claim("k")
				last = s.rises(last, s.hold(b, a).Token)
				s.release(b, a, driver.Held)
			}
		}
	}},
	{name: "Tokens/R38_RiseOverExpiry", needs: expiry, check: func(s *suite) {
		b := s.open()
		first := s.hold(b, s.short(s.claim("k"))).Token
		s.rises(first, s.eventuallyHeld(b, s.claim("k")).Token)
	}},
	{name: "Tokens/R38_RiseOverLoss", needs: lose, check: func(s *suite) {
		b := s.open()
		first := s.hold(b, s.claim("k")).Token
		s.store.Lose(s, "k")
		s.rises(first, s.hold(b, s.claim("k")).Token)
	}},
	{name: "Tokens/R38_RiseOverHandoff", needs: queue, check: func(s *suite) {
		b := s.open()
		claims := []driver.Claim{s.claim("k"), s.queued("k"), s.queued("k"), s.queued("k")}
		last := s.hold(b, claims[0]).Token
		for i, w := range claims[1:] {
			s.wait(b, w, claims[0], i+1)
		}
		for i, w := range claims[1:] {
			s.release(b, claims[i], driver.Held)
			last = s.rises(last, s.hold(b, w).Token)
		}
	}},
	{name: "Tokens/R38_RiseOverClients", check: func(s *suite) {
		a := s.claim("k")
		b := s.open()
		first := s.hold(b, a).Token
		s.release(b, a, driver.Held)
		if err := b.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
		s.rises(first, s.hold(s.open(), s.claim("k")).Token)
	}},
	{name: "Tokens/ProposedIsHonoured", check: func(s *suite) {
		const proposed = 1 << 51 // in some seventy years, in microseconds
		b := s.open()
		a := s.claim("k")
		first := s.hold(b, a).Token
		s.release(b, a, driver.Held)
		a = s.claim("k")
		a.Token = proposed
		second := s.hold(b, a).Token
		if s.rises(first, second); second < proposed || second >= 1<<53 {
			s.Fatalf(
				"token %d was granted where %d was proposed; want at least that, and less than 2^53",
				second, uint64(proposed))
		}
		s.release(b, a, driver.Held)
		// A proposed token counts from then on, even for claims that propose less.
		c := s.claim("k")
		c.Token = 7
		s.rises(second, s.hold(b, c).Token)
	}},
	{name: "Tokens/BlocksDoNotOverlap", check: func(s *suite) {
		b := s.open()
		var last driver.Token // of the block before
		for _, block := range []uint64{64, 0, 1, 1000, 1} {
			a := s.claim("k")
			a.Block = block
			last = s.rises(last, s.hold(b, a).Token) + driver.Token(max(block, 1)) - 1
			s.release(b, a, driver.Held)
		}
	}},
	{name: "Tokens/BlocksDoNotOverlapAfterAskingAgain", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		a.Block = 10
		s.hold(b, a)
		again := s.hold(b, a).Token
		s.release(b, a, driver.Held)
		s.rises(again+9, s.hold(b, s.claim("k")).Token)
	}},
	{name: "Tokens/BlocksDoNotOverlapAfterHandoff", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		a.Block, w.Block = 10, 20
		first := s.hold(b, a).Token
		s.wait(b, w, a, 1)
		s.release(b, a, driver.Held)
		s.release(b, w, driver.Held)
		// What was granted to w is not known, but at least 20 tokens lie between.
		s.rises(first+10+20-1, s.hold(b, s.claim("k")).Token)
	}},
	{name: "Tokens/ProposedIsHonouredAfterHandoff", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		w.Token = s.hold(b, a).Token + 1<<40
		s.wait(b, w, a, 1)
		s.release(b, a, driver.Held)
		s.release(b, w, driver.Held)
		// What was granted to w is not known, but it counts from then on.
		s.rises(w.Token, s.hold(b, s.claim("k")).Token)
	}},
	{name: "Tokens/RenewReservesBlock", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		a.Block = 8
		first := s.hold(b, a).Token
		a.Block = 16
		second := s.rises(first+7, s.renew(b, a, driver.Held).Token)
		a.Token = second + 1000
		third := s.renew(b, a, driver.Held).Token
		if third < a.Token {
			s.Fatalf("Renew gave token %d where %d was proposed", third, a.Token)
		}
		s.rises(second+15, third)
		s.release(b, a, driver.Held)
		s.rises(third+15, s.hold(b, s.claim("k")).Token)
	}},
	{name: "Tokens/RenewWithoutBlockReservesNone", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		first := s.hold(b, a).Token
		a.Token = first + 1<<40
		s.renew(b, a, driver.Held)
		s.release(b, a, driver.Held)
		if next := s.rises(first, s.hold(b, s.claim("k")).Token); next >= a.Token {
			s.Fatalf("token %d follows %d after a Renew without a Block", next, first)
		}
	}},
	{name: "Tokens/RenewOfLostReservesNone", check: func(s *suite) {
		b := s.open()
		a, other := s.claim("k"), s.claim("k")
		first := s.hold(b, a).Token
		other.Token, other.Block = first+1<<40, 5
		s.renew(b, other, driver.Lost)
		s.release(b, a, driver.Held)
		if next := s.rises(first, s.hold(b, s.claim("k")).Token); next >= other.Token {
			s.Fatalf("token %d follows %d after the Renew of a claim that is lost", next, first)
		}
	}},
}

// rises checks that token is larger than last, and returns it.
func (s *suite) rises(last, token driver.Token) driver.Token {
	s.Helper()
	if token <= last {
		s.Fatalf("token %d follows %d", token, last)
	}
	return token
}
