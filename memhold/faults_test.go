package memhold_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// pair runs f in a bubble, with a client to be disturbed and one to watch with.
func pair(t *testing.T, f func(t *testing.T, b, watch *memhold.Backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := memhold.New()
		watch := b.Client()
		f(t, b, watch)
		b.Close()
		watch.Close()
	})
}

// call is a call that may hang.
type call struct {
	mu    sync.Mutex
	state driver.State
	err   error
	back  bool
}

// start makes the calls one after the other, each when the one before hangs or has returned.
func start(calls ...func() (driver.Result, error)) []*call {
	started := make([]*call, len(calls))
	for i, f := range calls {
		c := new(call)
		started[i] = c
		go func() {
			r, err := f()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.state, c.err, c.back = r.State, err, true
		}()
		synctest.Wait()
	}
	return started
}

func acquiring(ctx context.Context, b *memhold.Backend,
	c driver.Claim) func() (driver.Result, error) {
	return func() (driver.Result, error) { return b.Acquire(ctx, c) }
}

func releasing(ctx context.Context, b *memhold.Backend,
	c driver.Claim) func() (driver.Result, error) {
	return func() (driver.Result, error) { return b.Release(ctx, c) }
}

func renewing(ctx context.Context, b *memhold.Backend,
	c driver.Claim) func() (driver.Result, error) {
	return func() (driver.Result, error) {
		r, err := b.Renew(ctx, []driver.Claim{c})
		if err != nil {
			return driver.Result{}, err
		}
		return r[0], r[0].Err
	}
}

func (c *call) expect(t *testing.T, state driver.State, kind error) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.back:
		t.Errorf("a call has not returned; want %v, %v", state, kind)
	case c.state != state || !errors.Is(c.err, kind):
		t.Errorf("a call returned %v, %v; want %v, %v", c.state, c.err, state, kind)
	}
}

func (c *call) hangs(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.back {
		t.Errorf("a call returned %v, %v; want it to hang", c.state, c.err)
	}
}

func expectHolder(t *testing.T, b *memhold.Backend, key, want string) {
	t.Helper()
	if h := holder(t, b, key); h != want {
		t.Errorf("%q holds %q; want %q", h, key, want)
	}
}

func TestLose(t *testing.T) {
	pair(t, func(t *testing.T, b, _ *memhold.Backend) {
		granted := listen(b)
		a := claim("k", "a")
		if b.Faults().Lose("k") {
			t.Error("Lose of a free key reports a holder")
		}
		acquire(t, b, a, driver.Held)
		if !b.Faults().Lose("k") || b.Faults().Lose("k") {
			t.Error("Lose must report a holder the first time, and none the second")
		}
		renew(t, b, a, driver.Lost)
		if entries, _ := b.Size(); entries != 0 {
			t.Errorf("%d entries are left, want none", entries)
		}

		acquire(t, b, a, driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		acquire(t, b, claim("k", "c"), driver.Busy)
		b.Faults().Lose("k")
		time.Sleep(time.Second)
		expectGrants(t, granted) // nobody noticed
		renew(t, b, a, driver.Lost)
		acquire(t, b, claim("k", "c"), driver.Busy)
		expectGrants(t, granted, "b")
	})
}

func TestGive(t *testing.T) {
	pair(t, func(t *testing.T, b, _ *memhold.Backend) {
		granted := listen(b)
		a := claim("k", "a")
		first := acquire(t, b, a, driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		b.Faults().Give("k", "stranger", 2*time.Second)
		renew(t, b, a, driver.Lost)
		release(t, b, a, driver.Lost)
		if r := acquire(t, b, claim("k", "b"), driver.Busy); r.Holder != "stranger" ||
			r.ExpiresIn != 2*time.Second || r.Place != 1 {
			t.Errorf("busy: %+v; want the stranger for 2s, and the first place", r)
		}
		time.Sleep(2 * time.Second)
		expectGrants(t, granted, "b")
		if next := acquire(t, b, claim("k", "b"), driver.Held); next.Token <= first.Token {
			t.Errorf("token %d after %d, want a larger one", next.Token, first.Token)
		}
		b.Faults().Give("free", "stranger", time.Second)
		expectHolder(t, b, "free", "stranger")
	})
}

func TestFreeze(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		acquire(t, b, claim("held", "a"), driver.Held)
		b.Faults().Freeze()
		calls := start(
			acquiring(ctx, b, claim("k", "a")),
			releasing(ctx, b, claim("k", "a")),
			acquiring(t.Context(), b, claim("k", "b")),
			renewing(t.Context(), b, claim("held", "a")),
			func() (driver.Result, error) {
				_, err := b.Inspect(t.Context(), "k")
				return driver.Result{}, err
			},
			func() (driver.Result, error) {
				_, err := b.Identity(t.Context())
				return driver.Result{}, err
			},
			func() (driver.Result, error) {
				for _, err := range b.List(t.Context(), "") {
					return driver.Result{}, err
				}
				return driver.Result{}, nil
			},
		)
		for _, c := range calls {
			c.hangs(t)
		}
		if n := b.Faults().Hanging(); n != len(calls) {
			t.Errorf("%d calls hang; want %d", n, len(calls))
		}
		acquire(t, watch, claim("other", "a"), driver.Held) // others have a path of their own
		time.Sleep(time.Second)
		for _, c := range calls[:2] {
			c.expect(t, driver.Unknown, context.DeadlineExceeded)
			c.expect(t, driver.Unknown, driver.ErrUnknown)
		}
		for _, c := range calls[2:] {
			c.hangs(t)
		}
		expectHolder(t, watch, "k", "")
		b.Faults().Thaw()
		// The acquisition and the release that were cut off took effect, in this order.
		calls[2].expect(t, driver.Held, nil)
		calls[3].expect(t, driver.Held, nil)
		for _, c := range calls[4:] {
			c.expect(t, driver.Unknown, nil)
		}
		expectHolder(t, watch, "k", "b")
		if b.Faults().Hanging() != 0 || !b.Quiet() {
			t.Error("the freeze is not over")
		}
	})
}

// TestFreezeKeepsOrder freezes and thaws under a stream of calls whose contexts end at once.
func TestFreezeKeepsOrder(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		b.Faults().Freeze()
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			c := claim("k", fmt.Sprint(i))
			c.Queue = false
			start(acquiring(ctx, b, c))
			if i < 99 {
				start(releasing(ctx, b, c))
			}
			cancel()
			synctest.Wait()
		}
		b.Faults().Thaw()
		// Each found the key free, as the one before had released it.
		expectHolder(t, watch, "k", "99")
	})
}

func TestThawDropping(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		granted := listen(b)
		acquire(t, watch, claim("busy", "x"), driver.Held)
		acquire(t, b, claim("busy", "a"), driver.Busy)
		b.Faults().Freeze()
		release(t, watch, claim("busy", "x"), driver.Held)
		c := start(acquiring(t.Context(), b, claim("k", "a")))[0]
		b.Faults().ThawDropping()
		c.expect(t, driver.Unknown, driver.ErrUnknown)
		expectHolder(t, watch, "k", "")
		expectGrants(t, granted)
		acquire(t, b, claim("k", "a"), driver.Held)
		acquire(t, b, claim("busy", "a"), driver.Held)
	})
}

func TestFrozenNotices(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		granted, seen := listen(b), listen(watch)
		acquire(t, b, claim("k", "a"), driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		acquire(t, b, claim("k", "c"), driver.Busy)
		acquire(t, watch, claim("k", "d"), driver.Busy)
		b.Faults().Freeze()
		release(t, watch, claim("k", "a"), driver.Held)
		release(t, watch, claim("k", "b"), driver.Held)
		expectGrants(t, granted)
		start(releasing(t.Context(), b, claim("k", "c")))
		b.Faults().Thaw()
		expectGrants(t, granted, "b", "c")
		expectGrants(t, seen, "d")
		if !b.Quiet() {
			t.Error("the freeze is not over")
		}
	})
}

// TestKeptNoticesComeFirst: a freeze that kept back a notice ends, while a later notice waits for
// its delivery.
func TestKeptNoticesComeFirst(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		granted := listen(b)
		leave := make(chan struct{})
		watch.Notify(func(driver.Notice) { <-leave })
		acquire(t, watch, claim("k", "a"), driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		acquire(t, watch, claim("k", "c"), driver.Busy)
		acquire(t, b, claim("k", "d"), driver.Busy)
		b.Faults().Freeze()
		release(t, watch, claim("k", "a"), driver.Held)
		start(releasing(t.Context(), watch, claim("k", "b"))) // delivers, and is held up
		release(t, watch, claim("k", "c"), driver.Held)
		b.Faults().Thaw()
		close(leave)
		expectGrants(t, granted, "b", "d")
		if !b.Quiet() {
			t.Error("the freeze is not over")
		}
	})
}

// TestOneCallAtATime checks that of two calls on their way, the second leaves the line only when
// the first has taken effect. It is not in a bubble: a bubble does not see who waits for a mutex.
func TestOneCallAtATime(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	b.Faults().Inject(memhold.Fault{Calls: memhold.Identities, CutReply: true})
	resume := b.Halt()
	done := make(chan error, 2)
	for _, owner := range []string{"a", "b"} {
		go func() {
			_, err := b.Acquire(t.Context(), claim("k", owner))
			done <- err
		}()
	}
	deadline := time.After(10 * time.Second)
	for b.Faults().Hanging() != 1 {
		select {
		case <-deadline:
			resume()
			t.Fatal("neither of two calls waits for the other")
		default:
			runtime.Gosched()
		}
	}
	resume()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestBatchIsNotTheCallers(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		a := lasting(claim("k", "a"), 10*time.Second)
		acquire(t, b, a, driver.Held)
		b.Faults().Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		claims := []driver.Claim{claim("k", "a")}
		if _, err := b.Renew(ctx, claims); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Renew in a freeze: %v; want the end of its context", err)
		}
		claims[0] = claim("other", "b") // the caller may use its slice again
		b.Faults().Thaw()
		time.Sleep(10 * time.Second)
		expectHolder(t, watch, "k", "a")
	})
}

func TestLoseNotices(t *testing.T) {
	pair(t, func(t *testing.T, b, _ *memhold.Backend) {
		granted := listen(b)
		b.Faults().LoseNotices(true)
		acquire(t, b, claim("k", "a"), driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		acquire(t, b, claim("k", "c"), driver.Busy)
		release(t, b, claim("k", "a"), driver.Held)
		expectGrants(t, granted)
		acquire(t, b, claim("k", "b"), driver.Held) // found by asking
		b.Faults().LoseNotices(false)
		release(t, b, claim("k", "b"), driver.Held)
		expectGrants(t, granted, "c")
		if !b.Quiet() {
			t.Error("the fault is not over")
		}
	})
}

func TestInjectError(t *testing.T) {
	cause := errors.New("out of memory")
	for _, test := range []struct {
		err       error
		kind      error
		permanent bool
	}{
		{driver.ErrUnavailable, driver.ErrUnavailable, false},
		{driver.ErrUnknown, driver.ErrUnknown, false},
		{cause, driver.ErrUnavailable, false},
		{&driver.Error{Permanent: true, Err: cause}, driver.ErrUnavailable, true},
		{&driver.Error{Maybe: true, Node: "n1", Err: cause}, driver.ErrUnknown, false},
	} {
		pair(t, func(t *testing.T, b, watch *memhold.Backend) {
			acquire(t, b, claim("held", "a"), driver.Held)
			b.Faults().Inject(memhold.Fault{Calls: memhold.Acquires | memhold.Renewals, Times: 2,
				Err: test.err})
			for _, c := range start(acquiring(t.Context(), b, claim("k", "a")),
				renewing(t.Context(), b, claim("held", "a"))) {
				if c.expect(t, driver.Unknown, test.kind); !errors.Is(c.err,
					errors.Unwrap(test.err)) && !errors.Is(c.err, test.err) {
					t.Errorf("%v does not wrap %v", c.err, test.err)
				}
				if driver.Permanent(c.err) != test.permanent {
					t.Errorf("%v is permanent: %v; want the opposite", c.err, !test.permanent)
				}
			}
			expectHolder(t, watch, "k", "")
			if !b.Quiet() {
				t.Error("the fault is not over after two calls")
			}
			acquire(t, b, claim("k", "a"), driver.Held)
		})
	}
}

func TestInjectIsRemoved(t *testing.T) {
	pair(t, func(t *testing.T, b, _ *memhold.Backend) {
		remove := b.Faults().Inject(memhold.Fault{Err: driver.ErrUnavailable})
		other := b.Faults().Inject(memhold.Fault{Calls: memhold.Releases, Err: driver.ErrUnknown})
		for range 3 {
			start(acquiring(t.Context(), b, claim("k", "a")))[0].expect(t,
				driver.Unknown, driver.ErrUnavailable)
		}
		if _, err := b.Identity(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Identity: %v; want unavailable: no Calls means all", err)
		}
		// the first injected
		start(releasing(t.Context(), b, claim("k", "a")))[0].expect(t,
			driver.Unknown, driver.ErrUnavailable)
		remove()
		remove()
		start(releasing(t.Context(), b, claim("k", "a")))[0].expect(t,
			driver.Unknown, driver.ErrUnknown)
		acquire(t, b, claim("k", "a"), driver.Held)
		other()
		release(t, b, claim("k", "a"), driver.Held)
		b.Faults().Inject(memhold.Fault{Err: driver.ErrUnavailable})
		b.Faults().LoseNotices(true)
		b.Faults().Freeze()
		b.Faults().Clear()
		acquire(t, b, claim("k", "a"), driver.Held)
		if !b.Quiet() {
			t.Error("faults are left after Clear")
		}
	})
}

func TestFaultsOfOneKey(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		x, y, z := lasting(claim("x", "a"), 10*time.Second),
			lasting(claim("y", "a"), 10*time.Second), claim("z", "a")
		for _, c := range []driver.Claim{x, y, z} {
			acquire(t, b, c, driver.Held)
		}
		b.Faults().Inject(memhold.Fault{Key: "x", Times: 2, Err: driver.ErrUnavailable})
		b.Faults().Inject(memhold.Fault{Key: "y", Times: 1, CutReply: true})
		x.TTL, y.TTL = 30*time.Second, 30*time.Second
		r, err := b.Renew(t.Context(), []driver.Claim{z, x, y, z, claim("none", "a")})
		if err != nil {
			t.Fatal(err)
		}
		if r[0].State != driver.Held || r[3].State != driver.Held || r[4].State != driver.Lost {
			t.Errorf("the claims without a fault: %+v; want held, held and lost", r)
		}
		if r[1].State != driver.Unknown || !errors.Is(r[1].Err, driver.ErrUnavailable) {
			t.Errorf("the claim that fails: %+v; want ErrUnavailable", r[1])
		}
		if r[2].State != driver.Unknown || !errors.Is(r[2].Err, driver.ErrUnknown) {
			t.Errorf("the claim whose reply is cut: %+v; want ErrUnknown", r[2])
		}
		start(acquiring(t.Context(), b, x))[0].expect(t, driver.Unknown, driver.ErrUnavailable)
		if !b.Quiet() {
			t.Error("the faults are not over")
		}
		time.Sleep(10 * time.Second)
		expectHolder(t, watch, "x", "")  // it was not renewed
		expectHolder(t, watch, "y", "a") // it was
	})
}

func TestCutReply(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		b.Faults().Inject(memhold.Fault{Calls: memhold.Acquires | memhold.Releases, Times: 2,
			CutReply: true})
		start(acquiring(t.Context(), b, claim("k", "a")))[0].expect(t,
			driver.Unknown, driver.ErrUnknown)
		expectHolder(t, watch, "k", "a")
		start(releasing(t.Context(), b, claim("k", "a")))[0].expect(t,
			driver.Unknown, driver.ErrUnknown)
		expectHolder(t, watch, "k", "")
		acquire(t, b, claim("k", "a"), driver.Held)
	})
}

func TestDelay(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		b.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Times: 2, Delay: time.Second})
		slow := start(acquiring(t.Context(), b, claim("k", "a")))[0]
		time.Sleep(time.Second - time.Nanosecond)
		slow.hangs(t)
		expectHolder(t, watch, "k", "")
		time.Sleep(time.Nanosecond)
		slow.expect(t, driver.Held, nil)
		release(t, b, claim("k", "a"), driver.Held)

		// The caller gives up, and releases by a call that is not delayed.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		calls := start(acquiring(ctx, b, claim("k", "b")))
		time.Sleep(100 * time.Millisecond)
		calls[0].expect(t, driver.Unknown, context.DeadlineExceeded)
		calls = start(releasing(t.Context(), b, claim("k", "b")))
		calls[0].hangs(t)
		time.Sleep(900 * time.Millisecond)
		calls[0].expect(t, driver.Held, nil)
		expectHolder(t, watch, "k", "")
		if !b.Quiet() {
			t.Error("the fault is not over")
		}
	})
}

func TestReplyDelay(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		b.Faults().Inject(memhold.Fault{Times: 2, ReplyDelay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		calls := start(acquiring(t.Context(), b, claim("k", "a")),
			releasing(ctx, b, claim("k", "a")))
		expectHolder(t, watch, "k", "") // both took effect
		calls[0].hangs(t)
		time.Sleep(100 * time.Millisecond)
		calls[1].expect(t, driver.Unknown, context.DeadlineExceeded)
		calls[1].expect(t, driver.Unknown, driver.ErrUnknown)
		time.Sleep(900 * time.Millisecond)
		calls[0].expect(t, driver.Held, nil)
	})
}

func TestRestart(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		b.Guard(time.Minute)
		before, _ := b.Identity(t.Context())
		first := acquire(t, b, claim("k", "a"), driver.Held)
		acquire(t, b, claim("k", "b"), driver.Busy)
		b.Faults().Freeze()
		watch.Faults().Inject(memhold.Fault{Delay: time.Second})
		calls := start(releasing(t.Context(), b, claim("k", "a")),
			releasing(t.Context(), watch, claim("k", "a")))
		watch.Faults().Restart()
		for _, c := range calls {
			c.expect(t, driver.Unknown, driver.ErrUnknown)
		}
		b.Faults().Clear()
		watch.Faults().Clear()
		time.Sleep(2 * time.Second)
		if after, err := b.Identity(t.Context()); err != nil || after == before ||
			!strings.HasPrefix(after, "memory-") {
			t.Errorf("identity %q, %v after a restart of %q; want another one", after, err, before)
		}
		// Nothing was forgotten, so there is no quarantine.
		acquire(t, b, claim("l", "a"), driver.Held)
		renew(t, b, claim("k", "a"), driver.Held)
		release(t, b, claim("k", "a"), driver.Held)
		if next := acquire(t, b, claim("k", "b"), driver.Held); next.Token <= first.Token {
			t.Errorf("token %d after %d, want a larger one", next.Token, first.Token)
		}
	})
}

func TestForget(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		granted := listen(b)
		b.Guard(10 * time.Second)
		before, _ := b.Identity(t.Context())
		c := claim("k", "a")
		c.TTL = 5 * time.Second
		c.Token = 1000
		acquire(t, b, c, driver.Held)
		acquire(t, watch, claim("k", "b"), driver.Busy)
		hanging := start(func() (driver.Result, error) {
			b.Faults().Freeze()
			return b.Acquire(t.Context(), c)
		})[0]
		watch.Faults().Forget()
		hanging.expect(t, driver.Unknown, driver.ErrUnknown)
		b.Faults().Thaw()
		if after, _ := b.Identity(t.Context()); after == before {
			t.Error("the identity is the same after a restart")
		}

		var q *driver.QuarantineError
		if _, err := b.Acquire(t.Context(), c); !errors.As(err, &q) ||
			q.Remaining != 10*time.Second || driver.Permanent(err) {
			t.Errorf("Acquire in quarantine: %v; want another 10s, not permanent", err)
		}
		time.Sleep(4 * time.Second)
		if _, err := b.Renew(t.Context(), []driver.Claim{c}); !errors.As(err, &q) ||
			q.Remaining != 6*time.Second {
			t.Errorf("Renew in quarantine: %v; want another 6s", err)
		}
		release(t, b, c, driver.Lost)
		// The other client has no guard, and finds everything gone, the fence included.
		if r := acquire(t, watch, claim("k", "c"), driver.Held); r.Token != 1 {
			t.Errorf("token %d of a memory that forgot; want 1", r.Token)
		}
		release(t, watch, claim("k", "c"), driver.Held)
		// A restart with the data does not prolong the quarantine.
		watch.Faults().Restart()
		time.Sleep(6*time.Second - time.Nanosecond)
		if _, err := b.Acquire(t.Context(), c); !errors.As(err, &q) || q.Remaining != 1 {
			t.Errorf("Acquire in quarantine: %v; want another 1ns", err)
		}
		time.Sleep(time.Nanosecond)
		acquire(t, b, c, driver.Held)
		expectGrants(t, granted)
	})
}

func TestGuardRefusesLongerTTL(t *testing.T) {
	b := memhold.New()
	defer b.Close()
	b.Guard(time.Second)
	if _, err := b.Acquire(t.Context(), claim("k", "a")); !driver.Permanent(err) {
		t.Errorf("Acquire with a TTL over the guard: %v; want a permanent error", err)
	}
	a := lasting(claim("k", "a"), time.Second)
	acquire(t, b, a, driver.Held)
	r, err := b.Renew(t.Context(), []driver.Claim{claim("k", "a"), a})
	if err != nil || r[0].State != driver.Unknown || !driver.Permanent(r[0].Err) ||
		r[1].State != driver.Held {
		t.Errorf("Renew with one TTL over the guard: %+v, %v; want a permanent error for it alone",
			r, err)
	}
}

func TestCloseCutsHangingCalls(t *testing.T) {
	pair(t, func(t *testing.T, b, watch *memhold.Backend) {
		b.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Delay: time.Second})
		b.Faults().Inject(memhold.Fault{Calls: memhold.Releases, ReplyDelay: time.Second})
		calls := start(releasing(t.Context(), b, claim("l", "a")),
			acquiring(t.Context(), b, claim("k", "a")))
		b.Close()
		for _, c := range calls {
			c.expect(t, driver.Unknown, driver.ErrUnknown)
		}
		time.Sleep(2 * time.Second)
		expectHolder(t, watch, "k", "")
		start(acquiring(t.Context(), b, claim("k", "a")))[0].expect(t,
			driver.Unknown, driver.ErrUnavailable)
		b.Faults().Freeze()
		start(acquiring(t.Context(), b, claim("k", "a")))[0].expect(t,
			driver.Unknown, driver.ErrUnavailable)
		b.Faults().Clear()
	})
}
