package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A context ends the call, not its effect, and calls for a key take effect in order.
var contextRules = []rule{
	{name: "Context/EndedBeforeTheCall", check: func(s *suite) {
		b := s.open()
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
		defer cancel()
		held := s.claim("held")
		s.hold(b, held)
		for _, ctx := range []context.Context{cancelled, late} {
			a := s.claim("k")
			for name, call := range s.calls(b, a, held) {
				if err := call(ctx); err == nil {
					s.Errorf("%s with a context that has ended: no error", name)
				} else if !errors.Is(err, ctx.Err()) {
					s.Errorf("%s with a context that has ended: %v; want an error that is %q", name,
						err, ctx.Err())
				}
			}
			if _, err := b.Release(ctx, held); !errors.Is(err, ctx.Err()) {
				s.Errorf("Release with a context that has ended: %v; want an error that is %q", err,
					ctx.Err())
			}
			s.release(b, a, driver.Lost)
			s.free(b, "k")
			s.renew(b, held, driver.Held)
		}
	}},
	{name: "Context/EndsHangingCalls", needs: freeze, check: func(s *suite) {
		b := s.open()
		held := s.claim("held")
		s.hold(b, held)
		thaw := s.freeze(b)
		defer thaw()
		for name, call := range s.calls(b, s.claim("k"), held) {
			if name == "Acquire" || name == "Renew" {
				s.cutOff(name, call)
			} else if err := s.brief(name, call); err != nil &&
				!errors.Is(err, context.DeadlineExceeded) {
				// What is known without the store may be told.
				s.Errorf("%s failed with %v; want an error that is %q", name,
					err, context.DeadlineExceeded)
			}
		}
		s.cutOff("Release", func(ctx context.Context) error {
			_, err := b.Release(ctx, s.claim("k"))
			return err
		})
	}},
	{name: "Context/R17_ReleaseFollowsAcquire", needs: freeze, check: func(s *suite) {
		b := s.open()
		a := s.claim("k")
		thaw := s.freeze(b)
		defer thaw()
		s.cutOff("Acquire", func(ctx context.Context) error {
			_, err := b.Acquire(ctx, a)
			return err
		})
		s.sent("Release", func(ctx context.Context) error {
			_, err := b.Release(ctx, a)
			return err
		})
		thaw()
		// By the same client, so it comes after the two.
		s.free(b, "k")
		s.release(b, a, driver.Lost)
	}},
	{name: "Context/ReleaseFollowsQueueing", needs: freeze | queue, check: func(s *suite) {
		b := s.open()
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		thaw := s.freeze(b)
		defer thaw()
		s.cutOff("Acquire", func(ctx context.Context) error {
			_, err := b.Acquire(ctx, w)
			return err
		})
		s.sent("Release", func(ctx context.Context) error {
			_, err := b.Release(ctx, w)
			return err
		})
		thaw()
		s.release(b, w, driver.Lost)
		s.release(b, a, driver.Held)
		s.free(b, "k")
	}},
	{name: "Context/AcquireFollowsRelease", needs: freeze, check: func(s *suite) {
		b := s.open()
		a, c := s.claim("k"), s.claim("k")
		s.hold(b, a)
		thaw := s.freeze(b)
		defer thaw()
		s.sent("Release", func(ctx context.Context) error {
			_, err := b.Release(ctx, a)
			return err
		})
		s.cutOff("Acquire", func(ctx context.Context) error {
			_, err := b.Acquire(ctx, c)
			return err
		})
		thaw()
		s.hold(b, c)
	}},
}

// calls returns every call that takes a context, but Release. They claim, and renew held.
func (s *suite) calls(b driver.Backend, claim,
	held driver.Claim) map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := b.Acquire(ctx, claim); return err },
		"Renew": func(ctx context.Context) error {
			_, err := b.Renew(ctx, []driver.Claim{held})
			return err
		},
	}
	if i, ok := b.(driver.Inspector); ok {
		calls["Inspect"] = func(ctx context.Context) error {
			_, err := i.Inspect(ctx, held.Key)
			return err
		}
		calls["List"] = func(ctx context.Context) error {
			for _, err := range i.List(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	if c, ok := b.(driver.Checker); ok {
		calls["Check"] = func(ctx context.Context) error { _, err := c.Check(ctx); return err }
	}
	if i, ok := b.(driver.Identifier); ok {
		calls["Identity"] = func(ctx context.Context) error {
			_, err := i.Identity(ctx)
			return err
		}
	}
	return calls
}

// sent is cutOff for a call whose request must arrive when the store is thawed. A busy machine may
// use up the call's time before it sends anything. So sent makes the call again while the error
// says that nothing was done. It does not do so for ever, because a backend may say that of a
// request that it sent, too.
func (s *suite) sent(name string, call func(context.Context) error) {
	s.Helper()
	for range 20 {
		if !errors.Is(s.cutOff(name, call), driver.ErrUnavailable) {
			return
		}
	}
}

// cutOff makes a call that hangs, lets its context end, and checks that the call returns for that
// reason. It returns the call's error.
func (s *suite) cutOff(name string, call func(context.Context) error) error {
	s.Helper()
	err := s.brief(name, call)
	if err == nil {
		s.Fatalf("%s was answered while the store was frozen", name)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("%s failed with %v; want an error that is %q", name, err, context.DeadlineExceeded)
	}
	if driver.Permanent(err) {
		s.Fatalf("%s failed with %v, which is permanent", name, err)
	}
	return err
}

// brief makes a call with a context that ends soon, and checks that it returns.
func (s *suite) brief(name string, call func(context.Context) error) error {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*step)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- call(ctx) }()
	patience := time.NewTimer(s.Patience)
	defer patience.Stop()
	select {
	case err := <-failed:
		return err
	case <-patience.C:
		s.Fatalf("%s has not returned %v after its context ended", name, s.Patience)
		return nil
	}
}
