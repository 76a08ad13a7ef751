package drivertest

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Several shared claims hold a key together, or one claim that is not shared, never both.
var shareRules = []rule{
	{name: "Sharing/Together", needs: share, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		x, y, z := s.shared("k"), s.shared("k"), s.shared("k")
		s.hold(b1, x)
		s.hold(b2, y)
		s.hold(b1, z)
		for _, c := range []driver.Claim{x, y, z} {
			s.renew(b1, c, driver.Held)
		}
		for _, c := range []driver.Claim{y, x, z} {
			s.release(b2, c, driver.Held)
			s.renew(b1, c, driver.Lost)
			s.release(b2, c, driver.Lost)
		}
		s.free(b1, "k")
	}},
	{name: "Sharing/ExcludesWriters", needs: share, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		x, y := s.shared("k"), s.shared("k")
		s.hold(b1, x)
		s.busy(b2, s.claim("k"), x)
		s.hold(b2, y)
		s.excluded(b1, s.claim("k"))
		s.release(b1, x, driver.Held)
		s.busy(b1, s.claim("k"), y)
		s.busy(b2, s.claim("k"), y)
		s.release(b2, y, driver.Held)
		s.free(b1, "k")
	}},
	{name: "Sharing/WritersExclude", needs: share, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, x := s.claim("k"), s.shared("k")
		s.hold(b1, a)
		s.busy(b2, x, a)
		s.renew(b2, x, driver.Lost)
		s.release(b1, a, driver.Held)
		s.hold(b2, x)
		s.busy(b1, a, x)
	}},
	{name: "Sharing/AskingAgainConfirms", needs: share, check: func(s *suite) {
		b := s.open()
		x, y := s.shared("k"), s.shared("k")
		s.rises(s.hold(b, x).Token, s.hold(b, x).Token)
		s.hold(b, y)
		s.release(b, x, driver.Held)
		s.release(b, x, driver.Lost)
		s.release(b, y, driver.Held)
		s.free(b, "k")
	}},
	{name: "Sharing/ReleaseFindsItAnyhow", needs: share, check: func(s *suite) {
		b := s.open()
		x := s.shared("k")
		s.hold(b, x)
		x.Shared = false // as after a downgrade whose answer was lost
		s.release(b, x, driver.Held)
		s.free(b, "k")
	}},
	{name: "Sharing/NeverBecomesExclusive", needs: share, check: func(s *suite) {
		b := s.open()
		x, y := s.shared("k"), s.shared("k")
		s.hold(b, x)
		alone := x
		alone.Shared = false
		s.busy(b, alone, x)
		alone.Queue = true
		s.busy(b, alone, x)
		s.renew(b, alone, driver.Held)
		s.hold(b, y)
		s.renew(b, x, driver.Held)
		s.release(b, x, driver.Held)
		s.release(b, y, driver.Held)
		s.free(b, "k")
	}},
	{name: "Sharing/R13_Tokens", needs: share, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		x, y, a := s.shared("k"), s.shared("k"), s.claim("k")
		x.Block, y.Block = 5, 3
		first := s.hold(b1, x).Token
		second := s.rises(first+4, s.hold(b2, y).Token)
		fresh := s.renew(b1, x, driver.Held).Token // another block
		s.rises(second+2, fresh)
		s.release(b1, x, driver.Held)
		s.release(b2, y, driver.Held)
		written := s.rises(fresh+4, s.hold(b1, a).Token)
		s.release(b1, a, driver.Held)
		s.rises(written, s.hold(b2, s.shared("k")).Token)
	}},
	{name: "Sharing/EachLeaseEnds", needs: share | expiry, check: func(s *suite) {
		b := s.open()
		x, y := s.short(s.shared("k")), s.shared("k")
		s.hold(b, y)
		s.hold(b, x)
		s.elapse(x.TTL)
		s.renew(b, x, driver.Lost)
		s.renew(b, y, driver.Held)
		s.busy(b, s.claim("k"), y)
		s.release(b, y, driver.Held)
		s.free(b, "k")
	}},
	{name: "Sharing/RenewsOnlyOne", needs: share | expiry, check: func(s *suite) {
		b := s.open()
		var x, y driver.Claim
		s.beforeItEnds(func(lease brief) driver.Result {
			x, y = s.shared(lease.key), s.shared(lease.key)
			x.TTL, y.TTL = lease.ttl, lease.ttl
			s.hold(b, x)
			s.hold(b, y)
			x.TTL = s.TTL
			return s.renewAll(b, []driver.Claim{x})[0]
		})
		s.elapse(y.TTL)
		s.renew(b, y, driver.Lost)
		s.renew(b, x, driver.Held)
		s.busy(b, s.claim(x.Key), x)
	}},
	{name: "Sharing/LastsAsTheLongestLeft", needs: share | expiry, check: func(s *suite) {
		// The one with the long lease goes. The one that is left must not keep the key longer than
		// its own lease.
		b := s.open()
		x, y := s.shared("k"), s.shared("k")
		s.hold(b, x)
		s.hold(b, y)
		s.excluded(b, s.claim("k"))
		y = s.short(y) // not before: a busy machine may take as long for the others
		s.renew(b, y, driver.Held)
		s.release(b, x, driver.Held)
		s.elapse(y.TTL)
		s.free(b, "k")
	}},
	{name: "Sharing/AllAreLost", needs: share | lose, check: func(s *suite) {
		b := s.open()
		x, y := s.shared("k"), s.shared("k")
		s.hold(b, x)
		s.hold(b, y)
		s.store.Lose(s, "k")
		s.renew(b, x, driver.Lost)
		s.renew(b, y, driver.Lost)
		a := s.claim("k")
		s.hold(b, a)
		s.renew(b, x, driver.Lost)
		s.release(b, y, driver.Lost)
		s.release(b, a, driver.Held)
		z := s.shared("k")
		s.hold(b, z) // those of before share it no more
		s.renew(b, x, driver.Lost)
		s.release(b, z, driver.Held)
		s.free(b, "k")
	}},
	{name: "Sharing/InBatch", needs: share, check: func(s *suite) {
		b := s.open()
		x, y, a, gone := s.shared("k1"), s.shared("k1"), s.claim("k2"), s.shared("k1")
		s.hold(b, x)
		s.hold(b, y)
		s.hold(b, a)
		s.batch(b, []driver.Claim{x, gone, a, y}, driver.Held, driver.Lost, driver.Held,
			driver.Held)
	}},
	{name: "Sharing/Downgrade", needs: share, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, x := s.claim("k"), s.shared("k")
		s.hold(b1, a)
		s.busy(b2, x, a)
		down := a
		down.Shared = true
		s.renew(b1, down, driver.Held)
		s.excluded(b2, s.claim("k"))
		s.hold(b2, x)
		s.renew(b1, down, driver.Held)
		s.renew(b1, a, driver.Held) // sent before the other, and overtaken
		s.hold(b2, s.shared("k"))
		s.renew(b2, x, driver.Held)
		s.release(b1, down, driver.Held)
		s.renew(b2, x, driver.Held)
		s.excluded(b1, s.claim("k"))
	}},
	{name: "Sharing/DowngradeOfStrangerMovesNobody", needs: share, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		s.renew(b, s.shared("k"), driver.Lost)
		s.busy(b, s.shared("k"), a)
	}},
	{name: "Sharing/WaitsBehindWriter", needs: share | queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		x, a, y := s.shared("k"), s.queued("k"), s.shared("k")
		s.hold(b1, x)
		s.wait(b2, a, x, 1)
		s.busy(b1, y, x)
		y.Queue = true
		s.wait(b1, y, x, 2)
		s.hold(b1, x) // it shares the key already
		s.release(b1, x, driver.Held)
		s.renew(b2, a, driver.Held)
		s.renew(b1, y, driver.Lost)
		s.wait(b1, y, a, 1)
		s.release(b2, a, driver.Held)
		s.renew(b1, y, driver.Held)
	}},
	{name: "Sharing/EarlierTicketNeedNotWait", needs: share | queue, check: func(s *suite) {
		b := s.open()
		x, a, y, z := s.shared("k"), s.queued("k"), s.sharedQueued("k"), s.sharedQueued("k")
		a.Ticket, y.Ticket, z.Ticket = 1000, 1, 1001
		s.hold(b, x)
		s.wait(b, a, x, 1)
		s.hold(b, y)
		s.placed(b, z, 2)
	}},
	{name: "Sharing/LetsInAllUpToTheNextWriter", needs: share | queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, c := s.claim("k"), s.queued("k")
		x, y, z := s.sharedQueued("k"), s.sharedQueued("k"), s.sharedQueued("k")
		third := s.sharedQueued("k")
		last := s.hold(b1, a).Token
		for i, w := range []driver.Claim{x, y, third, c, z} {
			s.wait(b2, w, a, i+1)
		}
		s.release(b1, a, driver.Held)
		// Before anybody asks.
		s.renew(b1, x, driver.Held)
		s.renew(b1, y, driver.Held)
		s.renew(b1, third, driver.Held)
		first, second := s.hold(b2, x).Token, s.hold(b2, y).Token
		s.rises(last, first)
		s.rises(first, second)
		s.placed(b2, c, 1)
		s.placed(b2, z, 2)
		s.release(b1, third, driver.Held)
		s.release(b2, y, driver.Held)
		s.placed(b2, c, 1)
		s.release(b2, x, driver.Held)
		s.renew(b1, c, driver.Held)
		s.release(b2, c, driver.Held)
		s.renew(b1, z, driver.Held)
		s.release(b2, z, driver.Held)
		s.free(b1, "k")
	}},
	{name: "Sharing/GrantsArePushed", needs: share | queue | notify, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		inbox := s.listen(b2)
		for pushed, tries := 0, 0; pushed < 3; tries++ {
			a, x, y := s.claim("k"), s.sharedQueued("k"), s.sharedQueued("k")
			z := s.sharedQueued("k")
			x.Block, y.Block = 2, 2
			s.hold(b1, a)
			s.wait(b2, x, a, 1)
			s.wait(b2, y, a, 2)
			s.wait(b2, z, a, 3)
			s.release(b1, a, driver.Held)
			n, ok := inbox.await(x.Owner, s.Patience/10)
			var m driver.Notice
			if ok {
				m, ok = inbox.await(y.Owner, s.Patience/10)
			}
			if ok {
				_, ok = inbox.await(z.Owner, s.Patience/10)
			}
			switch {
			case ok:
				pushed++
				if n.Kind != driver.Granted || m.Kind != driver.Granted || m.Token < n.Token+2 {
					s.Fatalf("notices %+v and %+v; want grants with tokens of their own", n, m)
				}
			case pushed > 0 || tries > 20:
				s.Fatalf("no notice of a grant, after %d of %d that came", pushed, tries)
			}
			s.release(b2, x, driver.Held)
			s.release(b2, y, driver.Held)
			s.release(b2, z, driver.Held)
		}
	}},
	{name: "Sharing/DowngradeLetsIn", needs: share | queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, c := s.claim("k"), s.queued("k")
		x, y := s.sharedQueued("k"), s.sharedQueued("k")
		s.hold(b1, a)
		s.wait(b2, x, a, 1)
		s.wait(b2, c, a, 2)
		s.wait(b2, y, a, 3)
		down := a
		down.Shared = true
		s.renew(b1, down, driver.Held)
		s.renew(b2, x, driver.Held)
		s.placed(b2, y, 2)
		s.release(b1, down, driver.Held)
		s.placed(b2, c, 1)
		s.release(b2, x, driver.Held)
		s.renew(b2, c, driver.Held)
	}},
	{name: "Sharing/WaiterLeaves", needs: share | queue, check: func(s *suite) {
		b := s.open()
		a, x := s.claim("k"), s.sharedQueued("k")
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.release(b, x, driver.Busy)
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Sharing/WriterLeavesTheQueue", needs: share | queue, check: func(s *suite) {
		b := s.open()
		x, c, y, z := s.shared("k"), s.queued("k"), s.sharedQueued("k"), s.sharedQueued("k")
		s.hold(b, x)
		s.wait(b, c, x, 1)
		s.wait(b, y, x, 2)
		s.wait(b, z, x, 3)
		s.release(b, c, driver.Busy)
		s.renew(b, y, driver.Held)
		s.renew(b, z, driver.Held)
		s.renew(b, x, driver.Held)
	}},
	{name: "Sharing/WriterDiesInTheQueue", needs: share | queue, check: func(s *suite) {
		b := s.open()
		x, c, y := s.shared("k"), s.short(s.queued("k")), s.sharedQueued("k")
		s.hold(b, x)
		s.wait(b, c, x, 1)
		s.eventuallyHeld(b, y)
		s.renew(b, x, driver.Held)
		s.hold(b, s.shared("k"))
	}},
	{name: "Sharing/LastLeaseEnds", needs: share | queue | expiry, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		x, y, a := s.shared("k"), s.shared("k"), s.queued("k")
		s.hold(b1, x)
		s.hold(b1, y)
		s.placed(b2, a, 1)
		s.renew(b1, s.short(x), driver.Held)
		s.renew(b1, s.short(y), driver.Held)
		s.eventuallyHeld(b2, a)
		s.renew(b1, x, driver.Lost)
		s.renew(b1, y, driver.Lost)
	}},
	{name: "Sharing/WaitingIsTold", needs: share | queue, check: func(s *suite) {
		b := s.open()
		x, y, a := blockOf(s.shared("k"), 3), blockOf(s.shared("k"), 3), s.queued("k")
		s.hold(b, x)
		s.hold(b, y)
		s.waitedFor(b, x, false)
		s.placed(b, a, 1)
		s.waitedFor(b, x, true)
		s.waitedFor(b, y, true)
		s.release(b, x, driver.Held)
		s.renew(b, a, driver.Lost)
		s.wait(b, a, y, 1)
		s.waitedFor(b, y, true)
		s.release(b, y, driver.Held)
		s.waitedFor(b, blockOf(a, 3), false)
	}},
	{name: "Sharing/WhoIsLetInDoesNotWait", needs: share | queue, check: func(s *suite) {
		b := s.open()
		a, x := blockOf(s.claim("k"), 3), s.shared("k")
		x.Queue = true
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.waitedFor(b, a, true)
		a.Shared = true
		s.waitedFor(b, a, false) // it steps down, and x is in
		s.renew(b, x, driver.Held)
	}},
	{name: "Sharing/IsShown", needs: share | inspect, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		x, y := s.shared("k"), s.shared("k")
		y.TTL /= 2
		s.hold(b1, x)
		s.hold(b2, y)
		shown := []driver.Entry{s.inspect(b2, "k")}
		for e, err := range b1.(driver.Inspector).List(s.Context(), "k") {
			if err != nil {
				s.Fatalf("List: %v", err)
			}
			shown = append(shown, e)
		}
		want := []string{y.Owner, x.Owner} // the longest lease last
		for _, e := range shown {
			var got []string
			for _, p := range e.Sharers {
				got = append(got, p.Owner)
			}
			if !slices.Equal(got, want) || e.Holder.Owner != "" {
				s.Fatalf("shown as %+v; want no holder, and the sharers %q", e, want)
			}
		}
		if len(shown) != 2 {
			s.Fatalf("List shows %d keys; want 1", len(shown)-1)
		}
		s.release(b1, x, driver.Held)
		s.release(b1, y, driver.Held)
		s.unheld(b1, "k")
		a := s.claim("k")
		s.hold(b1, a)
		if e := s.inspect(b1, "k"); len(e.Sharers) > 0 || e.Holder.Owner != a.Owner {
			s.Fatalf("shown as %+v; want the holder %q alone", e, a.Owner)
		}
	}},
}

// shared returns a new shared claim on key that does not queue.
func (s *suite) shared(key string) driver.Claim {
	c := s.claim(key)
	c.Shared = true
	return c
}

// sharedQueued returns a new shared claim on key that queues.
func (s *suite) sharedQueued(key string) driver.Claim {
	c := s.shared(key)
	c.Queue = true
	return c
}

// excluded asks for the claim. The answer must be that the key is busy, whoever has it.
func (s *suite) excluded(b driver.Backend, c driver.Claim) driver.Result {
	s.Helper()
	r := s.try(b, c)
	if r.State != driver.Busy {
		s.Fatalf("Acquire(%q) = %v; want busy", c.Key, r.State)
	}
	return r
}

// placed queues the claim. It must come to that place behind those that share the key.
func (s *suite) placed(b driver.Backend, c driver.Claim, place int) {
	s.Helper()
	if r := s.excluded(b, c); r.Place != place || r.Presence <= 0 {
		s.Fatalf("Acquire(%q) is busy at place %d with a presence of %v; want place %d", c.Key,
			r.Place, r.Presence, place)
	}
}
