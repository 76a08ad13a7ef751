package drivertest

import "github.com/holdfast-go/holdfast/driver"

// A process that is killed costs at most its TTL, on some backends somewhat more.
var processRules = []rule{
	{name: "Process/R2_KilledHolder", needs: killHolder, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		first := s.hold(b, a).Token
		s.release(b, a, driver.Held)
		s.store.KillHolder(s, "k")
		second := s.eventuallyHeld(b, s.claim("k")).Token
		// The process that died had a token as well.
		s.rises(first+1, second)
		s.free(b, "k2")
	}},
	{name: "Process/R2_KilledHolderHandsOver", needs: killHolder | queue, check: func(s *suite) {
		b := s.open()
		s.store.KillHolder(s, "k")
		w := s.queued("k")
		s.eventuallyHeld(b, w)
		s.release(b, w, driver.Held)
		s.free(b, "k")
	}},
}
