package drivertest

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// A key passes to the first live waiter, and nobody gets in between.
var handoffRules = []rule{
	{name: "Handoff/OnRelease", needs: queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b1, a)
		s.wait(b2, w, a, 1)
		s.release(b1, a, driver.Held)
		// Before the waiter says anything, it is the holder.
		s.busy(b1, s.claim("k"), w)
		s.renew(b2, w, driver.Held)
		s.release(b2, w, driver.Held)
		s.free(b1, "k")
	}},
	{name: "Handoff/OldHolderHasLost", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, w, a, 1)
		s.release(b, a, driver.Held)
		s.renew(b, a, driver.Lost)
		s.release(b, a, driver.Lost)
		s.busy(b, s.claim("k"), w)
	}},
	{name: "Handoff/GrantAfterCancelIsGivenBack", needs: queue, check: func(s *suite) {
		b := s.open()
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		s.release(b, a, driver.Held)
		// x gave up without having heard that it was granted the key.
		s.release(b, x, driver.Held)
		s.busy(b, s.claim("k"), y)
		s.release(b, x, driver.Lost)
		s.release(b, y, driver.Held)
		s.free(b, "k")
	}},
	{name: "Handoff/NobodyBargesIn", needs: queue | lose, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, w, a, 1)
		s.store.Lose(s, "k")
		s.busy(b, s.claim("k"), w)
		s.hold(b, w)
	}},
	{name: "Handoff/NobodyBargesInByQueue", needs: queue | lose, check: func(s *suite) {
		b := s.open()
		a, w, late := s.claim("k"), s.queued("k"), s.queued("k")
		w.Ticket, late.Ticket = 1000, 1
		s.hold(b, a)
		s.busy(b, w, a)
		s.store.Lose(s, "k")
		// Its ticket comes before all others, but it was not in the queue when the key became free.
		s.wait(b, late, w, 1)
		s.served(client{b, w}, []client{{b, late}})
	}},
	{name: "Handoff/FirstTakesFreeKey", needs: queue | lose, check: func(s *suite) {
		b := s.open()
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		s.store.Lose(s, "k")
		s.hold(b, x)
		s.wait(b, y, x, 1)
	}},
	{name: "Handoff/SecondLeavesFreeKeyToFirst", needs: queue | lose, check: func(s *suite) {
		b := s.open()
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		s.store.Lose(s, "k")
		s.wait(b, y, x, 1)
		s.hold(b, x)
	}},
	{name: "Handoff/WaiterLeavesFreeKey", needs: queue | lose, check: func(s *suite) {
		b := s.open()
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		s.store.Lose(s, "k")
		s.release(b, x, driver.Busy)
		s.hold(b, y)
		s.release(b, y, driver.Held)
		s.free(b, "k")
	}},
	{name: "Handoff/OnExpiry", needs: queue | expiry, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b1, a)
		s.busy(b2, x, a)
		s.busy(b2, y, a)
		a = s.short(a) // not before: a busy machine may take as long to queue the others
		s.renew(b1, a, driver.Held)
		// y asks as well, and must not be first.
		s.eventually("the first waiter is granted the key", func() bool {
			if r := s.try(b2, y); r.State != driver.Busy {
				s.Fatalf("Acquire of the second waiter = %v; want busy", r.State)
			}
			return s.try(b2, x).State == driver.Held
		})
		s.renew(b1, a, driver.Lost)
		s.wait(b2, y, x, 1)
	}},
	{name: "Handoff/AfterWaitingWasTold", needs: queue, check: func(s *suite) {
		// As at the end of a run of turns: ask, hear that others wait, release.
		b1, b2 := s.open(), s.open()
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		a.Block, x.Block = 3, 3
		s.hold(b1, a)
		s.wait(b2, x, a, 1)
		s.wait(b1, y, a, 2)
		first := s.waitedFor(b1, a, true).Token
		s.busy(b1, s.claim("k"), a) // the answer changes nothing: it holds the key, and they wait
		s.wait(b2, x, a, 1)
		s.release(b1, a, driver.Held)
		s.busy(b1, s.claim("k"), x)
		s.renew(b1, a, driver.Lost)
		s.rises(first+2, s.hold(b2, x).Token)
		s.waitedFor(b2, x, true)
		s.release(b2, x, driver.Held)
		s.renew(b2, x, driver.Lost)
		s.waitedFor(b1, blockOf(y, 1), false)
		s.release(b1, y, driver.Held)
		s.free(b1, "k")
	}},
	{name: "Handoff/NobodyWaits", needs: queue, check: func(s *suite) {
		b := s.open()
		a, x := s.claim("k"), s.queued("k")
		a.Block = 3
		s.hold(b, a)
		s.waitedFor(b, a, false)
		s.wait(b, x, a, 1)
		s.waitedFor(b, a, true)
		s.release(b, x, driver.Busy)
		s.waitedFor(b, a, false)
		s.busy(b, s.claim("k"), a) // a claim that does not queue does not wait
		s.waitedFor(b, a, false)
	}},
	{name: "Handoff/TheDeadDoNotWait", needs: queue, check: func(s *suite) {
		b := s.open()
		a, dead := s.claim("k"), s.short(s.queued("k"))
		a.Block = 3
		s.hold(b, a)
		s.elapse(s.wait(b, dead, a, 1).Presence)
		s.waitedFor(b, a, false)
		s.busy(b, s.claim("k"), a)
		dead.TTL = s.TTL
		s.busy(b, dead, a) // it was not dead
		s.waitedFor(b, a, true)
	}},
	{name: "Handoff/StrangerIsToldNothing", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w, stranger := s.claim("k"), s.queued("k"), s.claim("k")
		stranger.Block = 3
		s.hold(b, a)
		s.wait(b, w, a, 1)
		if r := s.renew(b, stranger, driver.Lost); r.Waiting {
			s.Fatalf("Renew of a stranger tells that somebody waits: %+v", r)
		}
		s.wait(b, w, a, 1)
		s.renew(b, a, driver.Held)
	}},
	{name: "Handoff/WaitingInBatch", needs: queue, check: func(s *suite) {
		b := s.open()
		a, c, gone, w := s.claim("k1"), s.claim("k2"), s.claim("k3"), s.queued("k1")
		a.Block, c.Block, gone.Block = 3, 3, 3
		s.hold(b, a)
		s.hold(b, c)
		s.wait(b, w, a, 1)
		got := s.batch(b, []driver.Claim{gone, a, c, a}, driver.Lost, driver.Held,
			driver.Held, driver.Held)
		for i, want := range []bool{false, true, false, true} {
			if got[i].Waiting != want {
				s.Fatalf("Renew of 4 claims: result %d is %+v; want waiting: %v", i, got[i], want)
			}
		}
		s.wait(b, w, a, 1)
	}},
	{name: "Handoff/GrantEndsWithPresence", needs: queue, check: func(s *suite) {
		// The waiter dies after it was granted the key. That costs its presence, not its TTL.
		b := s.open()
		a, dead, next := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b, a)
		if p := s.wait(b, dead, a, 1).Presence; p >= s.Patience || p >= s.TTL {
			s.Fatalf("a presence of %v is not short against a patience of %v and a TTL of %v", p,
				s.Patience, s.TTL)
		}
		s.wait(b, next, a, 2)
		s.release(b, a, driver.Held)
		s.busy(b, next, dead)
		s.eventuallyHeld(b, next)
		s.renew(b, dead, driver.Lost)
	}},
	{name: "Handoff/GrantIsRestOfPresence", needs: queue | expiresIn, check: func(s *suite) {
		// The waiter relies on it, and need not ask before it works.
		b := s.open()
		tries := 0
		s.eventually("the machine takes as long as a presence", func() bool {
			tries++
			a := s.claim(fmt.Sprint("k", tries))
			w := s.queued(a.Key)
			s.hold(b, a)
			asked := clock.Now()
			presence := s.wait(b, w, a, 1).Presence
			queued := clock.Now()
			s.Elapse(s, presence/3)
			s.release(b, a, driver.Held)
			before := clock.Now()
			r := s.try(b, s.claim(a.Key))
			after := clock.Now()
			if after.Sub(asked) >= earliest(presence) {
				return false
			}
			const rounding = margin / 5
			if least, most := presence-after.Sub(asked)-rounding, presence-before.Sub(queued)+
				rounding; r.State != driver.Busy || r.ExpiresIn < least || r.ExpiresIn > most {
				s.Fatalf("after a third of a presence of %v another claim is %v, and the grant has "+
					"a lease of %v; want busy, and %v to %v", presence, r.State, r.ExpiresIn, least,
					most)
			}
			return true
		})
	}},
	{name: "Handoff/AskingConfirmsGrant", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		presence := s.wait(b, w, a, 1).Presence
		s.release(b, a, driver.Held)
		s.hold(b, w)
		s.elapse(presence)
		s.busy(b, s.claim("k"), w)
		s.renew(b, w, driver.Held)
	}},
	{name: "Handoff/RenewConfirmsGrant", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		presence := s.wait(b, w, a, 1).Presence
		s.release(b, a, driver.Held)
		s.renew(b, w, driver.Held)
		s.elapse(presence)
		s.busy(b, s.claim("k"), w)
		s.renew(b, w, driver.Held)
	}},
}

// waitedFor renews a claim with a block of tokens, and checks what is told of others that wait.
func (s *suite) waitedFor(b driver.Backend, c driver.Claim, want bool) driver.Result {
	s.Helper()
	r := s.renew(b, c, driver.Held)
	if r.Waiting != want {
		s.Fatalf("Renew of %q = %+v; want waiting: %v", c.Key, r, want)
	}
	return r
}

// blockOf is the claim with a block of n tokens.
func blockOf(c driver.Claim, n uint64) driver.Claim {
	c.Block = n
	return c
}
