package drivertest

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Close gives up the client, and nothing of what others have.
var closeRules = []rule{
	{name: "Close/Twice", check: func(s *suite) {
		b := s.open()
		s.hold(b, s.claim("k"))
		for range 3 {
			if err := b.Close(); err != nil {
				s.Fatalf("Close: %v", err)
			}
		}
	}},
	{name: "Close/CallsAreRefused", check: func(s *suite) {
		b := s.open()
		held := s.claim("held")
		s.hold(b, held)
		if err := b.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
		calls := s.calls(b, s.claim("k"), held)
		calls["Release"] = func(ctx context.Context) error {
			_, err := b.Release(ctx, held)
			return err
		}
		for name, call := range calls {
			ctx, cancel := s.limit()
			defer cancel()
			err := call(ctx)
			if err == nil {
				s.Errorf("%s was served after Close", name)
				continue
			}
			s.fails(name+" after Close", err, driver.ErrUnavailable)
		}
		if n, ok := b.(driver.Notifier); ok {
			n.Notify(func(driver.Notice) {})()
		}
		s.free(s.open(), "k")
	}},
	{name: "Close/SparesOthers", check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a := s.claim("k")
		s.hold(b2, a)
		if err := b1.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
		s.renew(b2, a, driver.Held)
		s.release(b2, a, driver.Held)
		s.free(b2, "k")
	}},
	{name: "Close/LeasesRunOn", needs: outlives | expiry, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, short := s.claim("k"), s.short(s.claim("short"))
		s.hold(b1, a)
		s.hold(b1, short)
		if err := b1.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
		s.busy(b2, s.claim("k"), a)
		s.eventuallyHeld(b2, s.claim("short"))
		s.busy(b2, s.claim("k"), a)
	}},
	{name: "Close/WaitersRunOut", needs: queue, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		a, dead := s.claim("k"), s.short(s.queued("k"))
		s.hold(b2, a)
		presence := s.wait(b1, dead, a, 1).Presence
		if err := b1.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
		s.elapse(presence)
		s.release(b2, a, driver.Held)
		s.free(b2, "k")
	}},
	{name: "Close/WhileCalling", check: func(s *suite) {
		b := s.open()
		var done sync.WaitGroup
		for range 8 {
			claim := s.short(s.queued("k"))
			done.Add(1)
			go func() {
				defer done.Done()
				ctx, cancel := s.limit()
				defer cancel()
				for range 100 {
					if _, err := b.Acquire(ctx, claim); err != nil {
						return
					}
					if _, err := b.Renew(ctx, []driver.Claim{claim}); err != nil {
						return
					}
				}
			}()
		}
		if err := b.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
		done.Wait()
	}},
	{name: "Close/EndsHangingCalls", needs: freeze, check: func(s *suite) {
		b := s.open()
		thaw := s.freeze(b)
		defer thaw()
		failed := make(chan error, 1)
		sent := make(chan struct{})
		go func() {
			ctx, cancel := s.limit()
			defer cancel()
			close(sent)
			_, err := b.Acquire(ctx, s.claim("k"))
			failed <- err
		}()
		<-sent
		if err := b.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
		if err := <-failed; err == nil {
			s.Errorf("Acquire was answered while the store was frozen")
		}
	}},
}
