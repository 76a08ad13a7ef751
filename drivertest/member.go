package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A server takes part for one set of nodes. This is one rule, not several, as stores may share a
// server, which has one set.
var memberRules = []rule{
	{name: "Member/TakesPartForOneSet", needs: member, check: func(s *suite) {
		three := driver.Set{Nodes: 3, Quorum: 2, Guard: time.Minute}
		five := driver.Set{Nodes: 5, Quorum: 3, Guard: time.Minute}
		a, b, anybody := s.open(), s.open(), s.open()
		operator := anybody.(driver.Member)
		s.moves(operator, s.belongs(operator), driver.Set{})

		// The first client that asks decides.
		a.(driver.Member).Join(three)
		b.(driver.Member).Join(five)
		held := s.claim("k")
		s.hold(a, held)
		if set := s.belongs(operator); set != three {
			s.Fatalf("the server belongs to a set of %v after a claim under %v", set, three)
		}
		s.disagrees(b, five, three)
		s.hold(anybody, s.claim("other")) // without Join it does not matter

		// A move from another set than its own changes nothing.
		if set := s.move(operator, five, driver.Set{}); set != three {
			s.Fatalf("the server belongs to a set of %v, as it was moved from another one than %v",
				set, three)
		}
		s.disagrees(b, five, three)

		moving := three
		moving.Moving = "first"
		s.moves(operator, three, moving)
		s.disagrees(b, five, moving)

		// Another attempt at the move takes over, and the first one cannot go on.
		first := moving
		moving.Moving = "second"
		s.moves(operator, first, moving)
		if set := s.move(operator, first, five); set != moving {
			s.Fatalf(
				"the server belongs to a set of %v, as one attempt at a move went on after another",
				set)
		}
		s.eventually("a client of the old set is served", func() bool {
			return s.refusal(a, three, moving)
		})
		s.release(a, held, driver.Held) // which is always served

		s.moves(operator, moving, five)
		s.eventually("a client of the new set is refused", func() bool {
			ctx, cancel := s.limit()
			defer cancel()
			r, err := b.Acquire(ctx, s.claim("k"))
			return err == nil && r.State == driver.Held
		})
		s.disagrees(a, three, five)
		s.moves(operator, five, driver.Set{})
	}},
}

func (s *suite) belongs(b driver.Member) driver.Set {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	set, err := b.Belongs(ctx)
	if err != nil {
		s.Fatalf("Belongs: %v", err)
	}
	return set
}

func (s *suite) move(b driver.Member, from, to driver.Set) driver.Set {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	set, err := b.Move(ctx, from, to)
	if err != nil {
		s.Fatalf("Move: %v", err)
	}
	return set
}

// moves moves the server, which has to be in from.
func (s *suite) moves(b driver.Member, from, to driver.Set) {
	s.Helper()
	if set := s.move(b, from, to); set != to {
		s.Fatalf("Move from %v to %v = %v", from, to, set)
	}
	if set := s.belongs(b); set != to {
		s.Fatalf("Belongs = %v after a move to %v", set, to)
	}
}

// refusal reports whether the client is refused, and checks the error.
func (s *suite) refusal(b driver.Backend, want, have driver.Set) bool {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	_, acquired := b.Acquire(ctx, s.claim("refused"))
	if acquired == nil {
		return false
	}
	_, renewed := renewal(ctx, b, s.claim("refused"))
	for what, err := range map[string]error{"Acquire": acquired, "Renew": renewed} {
		var e *driver.SetError
		if !errors.As(err, &e) || e.Want != want || e.Have != have || !driver.Permanent(err) {
			s.Fatalf(
				"%s by a client of %v on a server of %v: %v; want a permanent SetError that names both",
				what, want, have, err)
		}
	}
	return true
}

// disagrees checks that a client which has not asked yet, or was refused before, is refused.
func (s *suite) disagrees(b driver.Backend, want, have driver.Set) {
	s.Helper()
	s.eventually("a client of another set is served", func() bool {
		return s.refusal(b, want, have)
	})
}

// renewal renews one claim.
func renewal(ctx context.Context, b driver.Backend, c driver.Claim) (driver.State, error) {
	results, err := b.Renew(ctx, []driver.Claim{c})
	if err != nil || len(results) == 0 {
		return driver.Unknown, err
	}
	return results[0].State, results[0].Err
}
