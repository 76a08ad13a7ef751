package drivertest

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// A queue serves its live waiters in order.
var queueRules = []rule{
	{name: "Queue/ReportsPlaces", needs: queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.hold(b1, a)
		for place, b := range []driver.Backend{b1, b2, b1} {
			s.wait(b, s.queued("k"), a, place+1)
		}
		// Another key has a queue of its own.
		c := s.claim("k2")
		s.hold(b1, c)
		s.wait(b1, s.queued("k2"), c, 1)
	}},
	{name: "Queue/FreeKeyIsGrantedAtOnce", needs: queue, check: func(s *suite) {
		b := s.open()
		a := s.queued("k")
		s.hold(b, a)
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Queue/InOrderOfArrival", needs: queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.hold(b1, a)
		var line []client
		for i := range 8 {
			w := client{b1, s.queued("k")}
			if i%2 == 1 {
				w.Backend = b2
			}
			s.wait(w.Backend, w.claim, a, i+1)
			line = append(line, w)
		}
		s.served(client{b1, a}, line)
	}},
	{name: "Queue/InOrderOfTickets", needs: queue, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		line := make([]client, 6)
		for _, i := range []int{3, 0, 5, 1, 4, 2} {
			w := s.queued("k")
			// All digits in one and few in the other: they are numbers, not text.
			w.Ticket = []uint64{9, 10, 99, 1000, 1 << 40, 1<<53 - 1}[i]
			s.joins(b, w, a)
			line[i] = client{b, w}
		}
		for i, w := range line {
			s.wait(b, w.claim, a, i+1)
		}
		s.served(client{b, a}, line)
	}},
	{name: "Queue/EqualTicketsByOwner", needs: queue, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		line := make([]client, 5)
		for i := range line {
			w := s.queued("k")
			w.Ticket = 1000
			line[i] = client{b, w}
		}
		slices.SortFunc(line, func(x, y client) int {
			return strings.Compare(x.claim.Owner, y.claim.Owner)
		})
		for _, i := range []int{3, 0, 4, 1, 2} {
			s.busy(b, line[i].claim, a)
		}
		s.served(client{b, a}, line)
	}},
	{name: "Queue/HeartbeatKeepsPlace", needs: queue, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		x, y, z := s.queued("k"), s.queued("k"), s.queued("k")
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		for range 3 {
			s.wait(b, x, a, 1)
			s.wait(b, y, a, 2)
		}
		s.wait(b, z, a, 3)
		s.wait(b, y, a, 2)
		s.wait(b, x, a, 1)
		s.served(client{b, a}, []client{{b, x}, {b, y}, {b, z}})
	}},
	{name: "Queue/HeartbeatKeepsPresent", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.lasting(b, s.claim("k")), s.queued("k")
		s.hold(b, a)
		presence := s.wait(b, w, a, 1).Presence
		s.elapseWith(2*presence, presence, b, w)
		s.release(b, a, driver.Held)
		s.busy(b, s.claim("k"), w)
	}},
	{name: "Queue/WaiterLeaves", needs: queue, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		s.hold(b, a)
		x, y, z := s.queued("k"), s.queued("k"), s.queued("k")
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		s.wait(b, z, a, 3)
		s.release(b, y, driver.Busy)
		s.release(b, y, driver.Lost)
		s.wait(b, z, a, 2)
		s.release(b, x, driver.Busy)
		s.wait(b, z, a, 1)
		s.served(client{b, a}, []client{{b, z}})
	}},
	{name: "Queue/LastWaiterLeaves", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, w, a, 1)
		s.release(b, w, driver.Busy)
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Queue/WaiterDoesNotHold", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, w, a, 1)
		s.renew(b, w, driver.Lost)
		s.wait(b, w, a, 1)
		s.renew(b, a, driver.Held)
	}},
	{name: "Queue/ReleaseOfStrangerMovesNobody", needs: queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, w, a, 1)
		s.release(b, s.claim("k"), driver.Lost)
		s.wait(b, w, a, 1)
		s.renew(b, a, driver.Held)
	}},
	{name: "Queue/DeadHeadIsSkipped", needs: queue, check: func(s *suite) { s.skipped(0) }},
	{name: "Queue/DeadMiddleIsSkipped", needs: queue, check: func(s *suite) { s.skipped(1) }},
	{name: "Queue/ManyDeadAreSkipped", needs: queue, check: func(s *suite) { s.skipped(0, 1, 3) }},
	{name: "Queue/OnlyDeadWaiters", needs: queue, check: func(s *suite) {
		b := s.open()
		a, dead := s.claim("k"), s.short(s.queued("k"))
		s.hold(b, a)
		presence := s.wait(b, dead, a, 1).Presence
		s.joins(b, s.short(s.queued("k")), a)
		s.elapse(presence)
		s.release(b, a, driver.Held)
		s.free(b, "k")
		s.release(b, dead, driver.Lost)
	}},
}

// client is a claim with the client that makes it.
type client struct {
	driver.Backend
	claim driver.Claim
}

// served releases the holder and then each of the line in turn. Each time it checks that the next
// one gets the key and nobody else does, and in the end that the key is free.
func (s *suite) served(holder client, line []client) {
	s.Helper()
	key := holder.claim.Key
	for i, next := range line {
		s.release(holder.Backend, holder.claim, driver.Held)
		s.busy(holder.Backend, s.claim(key), next.claim)
		for place, w := range line[i+1:] {
			s.wait(w.Backend, w.claim, next.claim, place+1)
		}
		s.hold(next.Backend, next.claim)
		holder = next
	}
	s.release(holder.Backend, holder.claim, driver.Held)
	s.free(holder.Backend, key)
}

// skipped queues four waiters, lets those at the given indexes die and the others live, and checks
// that only these are served.
func (s *suite) skipped(dead ...int) {
	s.Helper()
	b := s.open()
	a := s.claim("k")
	s.hold(b, a)
	var live []driver.Claim
	var line []client
	var longest, shortest = s.ShortTTL, s.TTL
	for i := range 4 {
		w := s.queued("k")
		if slices.Contains(dead, i) {
			w = s.short(w)
		} else {
			live = append(live, w)
			line = append(line, client{b, w})
		}
		presence := s.joins(b, w, a).Presence
		if shortest = min(shortest, presence); w.TTL == s.ShortTTL {
			longest = max(longest, presence)
		}
	}
	s.elapseWith(longest, shortest, b, live...)
	s.served(client{b, a}, line)
}
