package drivertest

import "github.com/holdfast-go/holdfast/driver"

// A call whose reply is lost reports an unknown outcome. The next call copes with either outcome.
var unknownRules = []rule{
	{name: "Unknown/AcquireIsMineOnAskingAgain", needs: cutReply, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.cutAcquire(b1, a)
		s.busy(b2, s.claim("k"), a)
		s.hold(b1, a)
		s.busy(b2, s.claim("k"), a)
		s.release(b1, a, driver.Held)
		s.free(b2, "k")
	}},
	{name: "Unknown/AcquireIsUndoneByRelease", needs: cutReply, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.cutAcquire(b1, a)
		s.release(b1, a, driver.Held)
		s.free(b2, "k")
	}},
	// A waiter over several nodes does so.
	{name: "Unknown/UndoneClaimIsAskedForAgain", needs: cutReply, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.cutAcquire(b1, a)
		s.release(b1, a, driver.Held)
		s.hold(b1, a)
		s.cutRelease(b1, a)
		s.hold(b1, a)
		s.busy(b2, s.claim("k"), a)
		s.release(b1, a, driver.Held)
		s.free(b2, "k")
	}},
	{name: "Unknown/QueueingIsKeptOnAskingAgain", needs: cutReply | queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b2, a)
		s.cutAcquire(b1, w)
		s.wait(b2, s.queued("k"), a, 2)
		s.wait(b1, w, a, 1)
		s.release(b2, a, driver.Held)
		s.hold(b1, w)
	}},
	{name: "Unknown/QueueingIsUndoneByRelease", needs: cutReply | queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b2, a)
		s.cutAcquire(b1, w)
		s.release(b1, w, driver.Busy)
		s.release(b2, a, driver.Held)
		s.free(b2, "k")
	}},
	{name: "Unknown/ReleaseIsDoneOnce", needs: cutReply, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, c := s.claim("k"), s.claim("k")
		s.hold(b1, a)
		s.cutRelease(b1, a)
		s.hold(b2, c)
		s.release(b1, a, driver.Lost)
		s.renew(b2, c, driver.Held)
	}},
	{name: "Unknown/RenewalCounts", needs: cutReply | expiry, check: func(s *suite) {
		b := s.open()
		var long driver.Claim
		lease := s.beforeItEnds(func(lease brief) driver.Result {
			long = s.claim(lease.key)
			a := long
			a.TTL = lease.ttl
			s.hold(b, a)
			s.cutRenew(b, long)
			if lease.mayBeOver() {
				return driver.Result{State: driver.Lost} // or not: nobody knows
			}
			return driver.Result{State: driver.Held}
		})
		s.elapse(lease.ttl)
		s.renew(b, long, driver.Held)
	}},
}

// cutRenew renews the claim and loses the reply.
func (s *suite) cutRenew(b driver.Backend, c driver.Claim) {
	s.Helper()
	s.store.CutReply(s, b)
	ctx, cancel := s.limit()
	defer cancel()
	results, err := b.Renew(ctx, []driver.Claim{c})
	if err == nil {
		if len(results) != 1 || results[0].State != driver.Unknown {
			s.Fatalf("Renew with its reply cut off = %+v; want an error", results)
		}
		err = results[0].Err
	}
	s.fails("Renew with its reply cut off", err, driver.ErrUnknown)
}

// cutRelease releases the claim and loses the reply.
func (s *suite) cutRelease(b driver.Backend, c driver.Claim) {
	s.Helper()
	s.store.CutReply(s, b)
	ctx, cancel := s.limit()
	defer cancel()
	r, err := b.Release(ctx, c)
	if err == nil {
		s.Fatalf("Release with its reply cut off = %v; want an error", r.State)
	}
	s.fails("Release with its reply cut off", err, driver.ErrUnknown)
}

// cutAcquire acquires the claim and loses the reply.
func (s *suite) cutAcquire(b driver.Backend, c driver.Claim) {
	s.Helper()
	s.store.CutReply(s, b)
	ctx, cancel := s.limit()
	defer cancel()
	r, err := b.Acquire(ctx, c)
	if err == nil {
		s.Fatalf("Acquire with its reply cut off = %v; want an error", r.State)
	}
	s.fails("Acquire with its reply cut off", err, driver.ErrUnknown)
	if driver.Permanent(err) {
		s.Fatalf("Acquire with its reply cut off failed with %v, which is permanent", err)
	}
}
