package drivertest

import "github.com/holdfast-go/holdfast/driver"

// The backend and the store can do what the harness states, and nothing else. Without this, a rule
// might not be run for a backend that breaks it.
var capabilityRules = []rule{
	{name: "Capabilities/Interfaces", check: func(s *suite) {
		b := s.open()
		_, notifier := b.(driver.Notifier)
		_, inspector := b.(driver.Inspector)
		_, checks := b.(driver.Checker)
		_, guarded := b.(driver.Guarder)
		_, identified := b.(driver.Identifier)
		s.stated("Notify", s.Capabilities.Notify, notifier)
		s.stated("Inspect", s.Capabilities.Inspect, inspector)
		s.stated("Check", s.Capabilities.Check, checks)
		s.stated("Guard", s.Capabilities.Guard, guarded)
		s.stated("Identify", s.Capabilities.Identify, identified)
		_, member := b.(driver.Member)
		s.stated("Member", s.Capabilities.Member, member)
		sharer, ok := b.(driver.Sharer)
		s.stated("Share", s.Capabilities.Share, ok && sharer.Shares())
	}},
	{name: "Capabilities/Hooks", check: func(s *suite) {
		s.stated("CanLose", s.Capabilities.CanLose, s.store.Lose != nil)
		s.stated("CanCutReply", s.Capabilities.CanCutReply, s.store.CutReply != nil)
		s.stated("CanFreeze", s.Capabilities.CanFreeze, s.store.Freeze != nil)
		s.stated("CanForget", s.Capabilities.CanForget, s.store.Forget != nil)
		s.stated("CanKillHolder", s.Capabilities.CanKillHolder, s.store.KillHolder != nil)
	}},
	{name: "Capabilities/Answers", check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		r := s.busy(b, s.queued("k"), a)
		s.stated("Queue", s.Capabilities.Queue, r.Presence > 0)
		s.stated("Holder", s.Capabilities.Holder, r.Holder != "")
		s.stated("ExpiresIn", s.Capabilities.ExpiresIn, r.ExpiresIn > 0)
	}},
	{name: "Capabilities/NoExpiry", lacks: expiry, check: func(s *suite) {
		b := s.open()
		a := s.short(s.claim("k"))
		s.hold(b, a)
		s.elapse(a.TTL)
		s.stated("Expiry", false, s.try(b, s.claim("k")).State == driver.Held)
	}},
	{name: "Capabilities/EndsWithItsClient", lacks: outlives, check: func(s *suite) {
		a, b := s.open(), s.open()
		s.hold(a, s.claim("k"))
		if err := a.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
		s.stated("Outlives", false, s.try(b, s.claim("k")).State == driver.Busy)
	}},
}

// stated compares what the harness states with what was found.
func (s *suite) stated(capability string, stated, found bool) {
	s.Helper()
	switch {
	case stated && !found:
		s.Errorf("the harness states Capabilities.%s, but it is not there", capability)
	case found && !stated:
		s.Errorf(
			"it is there, but the harness does not state Capabilities.%s: rules would be left out",
			capability)
	}
}
