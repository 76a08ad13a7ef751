package drivertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// suite is what the check of one rule works with. Its methods end the test if an answer is wrong,
// except where they say otherwise. Only the check's own goroutine may call methods that end the
// test.
type suite struct {
	testing.TB
	*Harness
	store Store
}

// step is the pause between two looks at a state that is waited for.
const step = 5 * time.Millisecond

// margin is added to a lease or presence that must have ended: servers expire to the millisecond.
const margin = 10 * time.Millisecond

// open returns a new client, closed at the end of the test.
func (s *suite) open() driver.Backend {
	s.Helper()
	b := s.store.Open(s)
	if b == nil {
		s.Fatal("Store.Open returned nil")
	}
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Errorf("Close at the end of the test: %v", err)
		}
	})
	return b
}

// freeze has the calls on the client hang until thaw is called, however often it is.
func (s *suite) freeze(b driver.Backend) (thaw func()) {
	s.Helper()
	return sync.OnceFunc(s.store.Freeze(s, b))
}

// claim returns a new claim on key with the harness's TTL that does not queue.
func (s *suite) claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("drivertest")),
		TTL: s.TTL}
}

// queued returns a new claim on key that queues.
func (s *suite) queued(key string) driver.Claim {
	c := s.claim(key)
	c.Queue = true
	return c
}

// short gives the claim a lease whose end the suite waits for.
func (s *suite) short(c driver.Claim) driver.Claim {
	c.TTL = s.ShortTTL
	return c
}

// limit returns a context for one call. It ends long after a call should have returned.
func (s *suite) limit() (context.Context, context.CancelFunc) {
	// Not the test's context, which has ended when clean-ups run.
	return context.WithTimeout(context.WithoutCancel(s.Context()), s.Patience)
}

// try asks for the claim and returns the answer, whatever it is.
func (s *suite) try(b driver.Backend, c driver.Claim) driver.Result {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	r, err := b.Acquire(ctx, c)
	if err != nil {
		s.Fatalf("Acquire(%q): %v", c.Key, err)
	}
	return r
}

// hold acquires the claim, which must be granted.
func (s *suite) hold(b driver.Backend, c driver.Claim) driver.Result {
	s.Helper()
	r := s.try(b, c)
	if r.State != driver.Held {
		s.Fatalf("Acquire(%q) = %v, held by %q; want held", c.Key, r.State, r.Holder)
	}
	if r.Token == 0 {
		s.Fatalf("Acquire(%q) = held without a token", c.Key)
	}
	return r
}

// busy asks for the claim. The answer must be that the claim by holds the key.
func (s *suite) busy(b driver.Backend, c, by driver.Claim) driver.Result {
	s.Helper()
	r := s.try(b, c)
	if r.State != driver.Busy {
		s.Fatalf("Acquire(%q) = %v; want busy", c.Key, r.State)
	}
	if s.Capabilities.Holder && r.Holder != by.Owner {
		s.Fatalf("Acquire(%q) is busy, held by %q; want held by %q", c.Key, r.Holder, by.Owner)
	}
	return r
}

// wait queues the claim. The answer must be that the claim by holds the key, and that this one is
// at place. If it is queued already, that is confirmed.
func (s *suite) wait(b driver.Backend, c, by driver.Claim, place int) driver.Result {
	s.Helper()
	r := s.busy(b, c, by)
	if r.Place != place {
		s.Fatalf("Acquire(%q) is busy at place %d in the queue; want place %d", c.Key,
			r.Place, place)
	}
	if r.Presence <= 0 {
		s.Fatalf("Acquire(%q) is queued with a presence of %v; want more than 0", c.Key, r.Presence)
	}
	return r
}

// joins queues the claim, at whatever place: who came before may be dead by now.
func (s *suite) joins(b driver.Backend, c, by driver.Claim) driver.Result {
	s.Helper()
	r := s.busy(b, c, by)
	if r.Place == 0 || r.Presence <= 0 {
		s.Fatalf("Acquire(%q) is busy at place %d in the queue with a presence of %v; want both",
			c.Key, r.Place, r.Presence)
	}
	return r
}

// release releases the claim, which must have been in the given state.
func (s *suite) release(b driver.Backend, c driver.Claim, want driver.State) {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	r, err := b.Release(ctx, c)
	if err != nil {
		s.Fatalf("Release(%q): %v", c.Key, err)
	}
	if r.State != want {
		s.Fatalf("Release(%q) = %v; want %v", c.Key, r.State, want)
	}
}

// visit queues the claim behind that of by, and has it leave the queue. If the machine takes as
// long as the presence for that, the claim may have been dropped, and visit does it again.
func (s *suite) visit(b driver.Backend, c, by driver.Claim) {
	s.Helper()
	for {
		start := clock.Now()
		presence := s.busy(b, c, by).Presence
		ctx, cancel := s.limit()
		r, err := b.Release(ctx, c)
		cancel()
		switch {
		case err != nil:
			s.Fatalf("Release(%q): %v", c.Key, err)
		case r.State == driver.Busy:
			return
		case r.State != driver.Lost || clock.Now().Sub(start) < earliest(presence):
			s.Fatalf("Release(%q) of a waiter = %v; want busy", c.Key, r.State)
		}
	}
}

// renew renews one claim, with the given outcome.
func (s *suite) renew(b driver.Backend, c driver.Claim, want driver.State) driver.Result {
	s.Helper()
	r := s.renewAll(b, []driver.Claim{c})[0]
	if r.State != want {
		s.Fatalf("Renew(%q) = %v (%v); want %v", c.Key, r.State, r.Err, want)
	}
	return r
}

// gone checks that no renewal brings the claim back, also none that reserves tokens.
func (s *suite) gone(b driver.Backend, c driver.Claim) {
	s.Helper()
	s.renew(b, c, driver.Lost)
	c.Block = 5
	s.renew(b, c, driver.Lost)
}

// renewAll renews a batch.
func (s *suite) renewAll(b driver.Backend, claims []driver.Claim) []driver.Result {
	s.Helper()
	ctx, cancel := s.limit()
	defer cancel()
	results, err := b.Renew(ctx, claims)
	if err != nil {
		s.Fatalf("Renew of %d claims: %v", len(claims), err)
	}
	if len(results) != len(claims) {
		s.Fatalf("Renew of %d claims gave %d results", len(claims), len(results))
	}
	return results
}

// free checks that nobody holds key or waits for it, by taking and releasing it.
func (s *suite) free(b driver.Backend, key string) {
	s.Helper()
	c := s.claim(key)
	s.hold(b, c)
	s.release(b, c, driver.Held)
}

// eventually waits until done reports true.
func (s *suite) eventually(what string, done func() bool) {
	s.Helper()
	deadline := clock.Now().Add(s.Patience)
	for !done() {
		if clock.Now() >= deadline {
			s.Fatalf("waited %v in vain: %s", s.Patience, what)
		}
		s.Elapse(s, step)
	}
}

// eventuallyHeld asks for the claim until it is granted, and returns the answer.
func (s *suite) eventuallyHeld(b driver.Backend, c driver.Claim) driver.Result {
	s.Helper()
	var r driver.Result
	s.eventually("Acquire is still busy", func() bool {
		r = s.try(b, c)
		return r.State == driver.Held
	})
	return r
}

// elapse waits for the end of a lease or presence of d that runs already.
func (s *suite) elapse(d time.Duration) {
	s.Helper()
	s.Elapse(s, d+d/50+margin)
}

// elapseWith lets d pass while the waiters keep asking. All of them must stay busy.
func (s *suite) elapseWith(d, presence time.Duration, b driver.Backend, waiters ...driver.Claim) {
	s.Helper()
	pause := min(presence/4, d)
	for end := clock.Now().Add(d + d/50 + margin); clock.Now() < end; {
		s.Elapse(s, pause)
		for _, w := range waiters {
			if r := s.try(b, w); r.State != driver.Busy {
				s.Fatalf("Acquire(%q) of a waiter = %v; want busy", w.Key, r.State)
			}
		}
	}
}

// fails checks that err is of exactly the given kind.
func (s *suite) fails(what string, err, kind error) {
	s.Helper()
	other := driver.ErrUnknown
	if kind == other {
		other = driver.ErrUnavailable
	}
	if !errors.Is(err, kind) || errors.Is(err, other) {
		s.Fatalf("%s failed with %v; want an error that is %q", what, err, kind)
	}
}
