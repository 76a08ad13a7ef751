package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// A guarded backend takes no part until the leases that its server may have forgotten are over.
var guardRules = []rule{
	{name: "Guard/RefusesLongerTTL", needs: guard, check: func(s *suite) {
		guard := s.guardSpan()
		b := s.open()
		b.(driver.Guarder).Guard(guard)
		s.unguarded(b)
		a := s.claim("k")
		a.TTL = guard + time.Second
		ctx, cancel := s.limit()
		defer cancel()
		r, err := b.Acquire(ctx, a)
		if err == nil {
			s.Fatalf("Acquire with a TTL over the guard = %v; want an error", r.State)
		}
		s.fails("Acquire with a TTL over the guard", err, driver.ErrInvalid)
		c := s.claim("k")
		c.TTL = guard
		s.hold(b, c)
		longer := c
		longer.TTL = a.TTL
		results, err := b.Renew(ctx, []driver.Claim{longer})
		if err == nil && len(results) == 1 && results[0].State == driver.Unknown {
			err = results[0].Err
		}
		if !errors.Is(err, driver.ErrInvalid) {
			s.Fatalf("Renew with a TTL over the guard gave %+v and %v; want %v", results,
				err, driver.ErrInvalid)
		}
		b.(driver.Guarder).Guard(0)
		s.giveBack(b, c)
		s.hold(b, a)
	}},
	{name: "Guard/R32_Quarantine", needs: guard | forget, check: func(s *suite) {
		b := s.open()
		// If the machine takes as long as the guard, the guard gets longer.
		guard := s.guardSpan()
		for !s.sitsOut(b, guard) {
			guard *= 2
		}
		ctx, cancel := s.limit()
		defer cancel()
		s.eventually("still in quarantine", func() bool {
			c := s.short(s.claim("k"))
			r, err := b.Acquire(ctx, c)
			return err == nil && r.State == driver.Held
		})
	}},
	{name: "Guard/OffByZero", needs: guard | forget, check: func(s *suite) {
		b := s.open()
		b.(driver.Guarder).Guard(0)
		s.hold(b, s.claim("k"))
		s.store.Forget(s)
		s.eventually("Acquire is refused without a guard", func() bool {
			ctx, cancel := s.limit()
			defer cancel()
			r, err := b.Acquire(ctx, s.claim("k"))
			if q := new(driver.QuarantineError); errors.As(err, &q) {
				s.Fatalf("in quarantine without a guard: %v", err)
			}
			return err == nil && r.State == driver.Held
		})
	}},
}

// guardSpan returns a guard that is short enough to wait for, in whole seconds, because servers
// tell their uptime in seconds.
func (s *suite) guardSpan() time.Duration {
	return (2*s.ShortTTL + 2*time.Second).Truncate(time.Second)
}

// unguarded waits until the backend takes part: its server may just have been started.
func (s *suite) unguarded(b driver.Backend) {
	s.Helper()
	c := s.short(s.claim("unguarded"))
	s.eventually("still in quarantine", func() bool {
		ctx, cancel := s.limit()
		defer cancel()
		r, err := b.Acquire(ctx, c)
		if err == nil {
			return r.State == driver.Held
		}
		if q := new(driver.QuarantineError); !errors.As(err, &q) {
			s.Fatalf("Acquire: %v", err)
		}
		return false
	})
	s.giveBack(b, c)
}

// giveBack releases a claim whose lease may have ended.
func (s *suite) giveBack(b driver.Backend, c driver.Claim) {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	if _, err := b.Release(ctx, c); err != nil {
		s.Fatalf("Release(%q): %v", c.Key, err)
	}
}

// sitsOut has the server forget what it has, and checks that it takes no part but in releases. It
// returns false if the machine took as long as the guard to look.
func (s *suite) sitsOut(b driver.Backend, guard time.Duration) bool {
	s.Helper()
	b.(driver.Guarder).Guard(guard)
	s.unguarded(b)
	before := s.short(s.claim("k"))
	s.hold(b, before)
	start := clock.Now()
	s.store.Forget(s)
	if !s.quarantined(b, guard, start) {
		return false
	}
	ctx, cancel := s.limit()
	defer cancel()
	if r, err := b.Release(ctx, before); err != nil || r.State != driver.Lost {
		s.Fatalf("Release in quarantine = %v, %v; want lost", r.State, err)
	}
	return s.quarantined(b, guard, start)
}

// quarantined checks that Acquire and Renew are refused, for the guard at most. First it waits
// until broken connections are made again. It returns false if they are served because the guard
// has passed since start.
func (s *suite) quarantined(b driver.Backend, guard time.Duration, start clock.Instant) bool {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	over := false
	check := func(what string, err error) (connected bool) {
		var q *driver.QuarantineError
		if !errors.As(err, &q) {
			if over = err == nil && clock.Now().Sub(start) >= earliest(guard); over {
				return true
			}
			if err == nil {
				s.Fatalf("%s was served in quarantine", what)
			}
			return false
		}
		if s.fails(what, err, driver.ErrUnavailable); driver.Permanent(err) {
			s.Fatalf("%s failed with %v, which is permanent", what, err)
		}
		if q.Remaining <= 0 || q.Remaining > guard {
			s.Fatalf("%s: quarantine for another %v; want at most the guard of %v", what,
				q.Remaining, guard)
		}
		return true
	}
	s.eventually("Acquire fails for another reason than quarantine", func() bool {
		_, err := b.Acquire(ctx, s.short(s.claim("quarantined")))
		return check("Acquire", err)
	})
	s.eventually("Renew fails for another reason than quarantine", func() bool {
		if over {
			return true
		}
		results, err := b.Renew(ctx, []driver.Claim{s.short(s.claim("k"))})
		if err == nil && len(results) == 1 && results[0].State == driver.Unknown {
			err = results[0].Err
		}
		return check("Renew", err)
	})
	return !over
}
