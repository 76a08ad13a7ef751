package holdfast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// newLocker returns a backend in memory and a Locker on it. Both are closed when the test is over.
func newLocker(t *testing.T, options ...Option) (*memhold.Backend, *Locker) {
	t.Helper()
	memory := memhold.New()
	t.Cleanup(func() { memory.Close() })
	l, err := New(memory, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return memory, l
}

// A turn is returned after its maximum hold, because its caller gave up. It does not keep the key.
func TestReturnedTurnIsReleasedAfterItsMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(context.Background(), "key", WithMaxHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		<-lock.Done()
		s := lock.cohort.shard
		s.mu.Lock()
		lock.cohort.returnTurn(lock)
		s.mu.Unlock()
		synctest.Wait()
		if _, err := l.TryAcquire(context.Background(), "key"); err != nil {
			t.Error(err)
		}
		if held := l.Stats().Held; held != 1 {
			t.Errorf("%d held, want 1", held)
		}
	})
}

// A backend that asks for Done after its call has returned leaves nothing behind.
func TestRequestAskedTooLateLeavesNothing(t *testing.T) {
	_, l := newLocker(t)
	before := runtime.NumGoroutine()
	for range 1000 {
		r := l.request(context.Background(), time.Hour)
		r.end()
		select {
		case <-r.Done():
		default:
			t.Fatal("a request that has ended is not done")
		}
		if r.Err() == nil || context.Cause(r) == nil {
			t.Fatal("a request that has ended has no error")
		}
		if r.unhook != nil {
			t.Fatal("a request that has ended waits for the Locker's end")
		}
	}
	// One more may belong to another test's timer, while its function runs.
	if after := runtime.NumGoroutine(); after > before+100 {
		t.Errorf("%d goroutines after 1,000 requests, %d before; want about as many", after, before)
	}
}

// The caller learns why the backend did not answer, but does not take the time bound of a request
// for its own deadline.
func TestRequestKeepsTheBackendsDiagnosis(t *testing.T) {
	const within, earlier = time.Second, time.Second - 1
	for _, c := range []struct {
		after time.Duration
		err   error
		want  string
	}{
		{within, context.DeadlineExceeded, "outcome unknown: no answer within 1s"},
		{within, &driver.Error{Node: "a", Err: context.DeadlineExceeded},
			"a: backend unavailable: no answer within 1s"},
		{
			within, &driver.Error{Err: errors.Join(errors.New("kept locked by process 7"),
				context.DeadlineExceeded)},
			"backend unavailable: no answer within 1s: kept locked by process 7",
		},
		{earlier, &driver.Error{Maybe: true, Err: context.DeadlineExceeded},
			"outcome unknown: no answer before the backend's client gave up"},
		{earlier, fmt.Errorf("dial 10.0.0.1: %w", context.DeadlineExceeded),
			"outcome unknown: no answer before the backend's client gave up: dial 10.0"},
		// as gRPC says it
		{earlier, &driver.Error{Node: "a", Permanent: true, Err: fmt.Errorf("%w: no handshake",
			context.DeadlineExceeded)},
			"a: backend unavailable: no answer before the backend's client gave up: context"},
		{earlier, &driver.Error{Invalid: true, Err: context.DeadlineExceeded},
			"invalid: no answer before the backend's client gave up"},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, l := newLocker(t)
			r := l.request(context.Background(), within)
			defer r.end()
			time.Sleep(c.after)
			err := r.explain(c.err)
			if !strings.HasPrefix(err.Error(), c.want) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v after %v is explained as %v, want %s", c.err, c.after, err, c.want)
			}
			if driver.Permanent(err) != driver.Permanent(c.err) {
				t.Errorf("%v is explained as one that is permanent: %v", c.err,
					driver.Permanent(err))
			}
		})
	}
}

// Tokens stay near the clock, however fast acquisitions are, so that they go on rising if a counter
// is lost.
func TestTokensStayNearTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, l := newLocker(t, WithCohort(maxCohortTurns, time.Hour))
		var last Token
		for range 100_000 { // at one moment
			lock, err := l.Acquire(context.Background(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if lock.Token() <= last {
				t.Fatalf("token %d after %d, want a larger one", lock.Token(), last)
			}
			last = lock.Token()
			lock.Release(context.Background())
		}
		// A block that ends a second ahead, and single tokens from then on.
		if lead := uint64(last) - clock.Microseconds(); lead > 1_100_000 {
			t.Errorf("tokens are %v ahead of the clock, want 1.1s at most",
				time.Duration(lead)*time.Microsecond)
		}
		memory.Faults().Forget()
		time.Sleep(1100 * time.Millisecond)
		lock, err := l.Acquire(context.Background(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if lock.Token() <= last {
			t.Errorf("token %d after %d: it fell with the counter", lock.Token(), last)
		}
	})
}

// If somebody has set a counter wrongly, the error does not spread: a Locker does not carry it over
// to other keys.
func TestHighestDoesNotBelieveEverything(t *testing.T) {
	var h highest
	wall := clock.Microseconds()
	h.saw(Token(wall+1000), 64, wall)
	if got, want := h.propose(wall), Token(wall+1064); got != want {
		t.Errorf("proposes %d, want %d", got, want)
	}
	for _, wrong := range []Token{Token(wall + maxBelieved), 1<<53 - 1, math.MaxInt64} {
		h.saw(wrong, 64, wall)
		if got, want := h.propose(wall), Token(wall+1064); got != want {
			t.Errorf("after token %d proposes %d, want %d", wrong, got, want)
		}
	}
}

// If a turn is returned after its maximum hold, the lease of the next turn is renewed again.
func TestReturnedTurnIsHandedOnAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t, WithCohort(64, time.Hour))
		ctx := context.Background()
		lock, err := l.Acquire(ctx, "key", WithMaxHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *Lock)
		go func() {
			lock, err := l.Acquire(ctx, "key")
			if err != nil {
				t.Error(err)
			}
			next <- lock
		}()
		time.Sleep(time.Minute)
		<-lock.Done()
		s := lock.cohort.shard
		s.mu.Lock()
		// as wait does if its context ended, and its goroutine has not run until now
		lock.cohort.returnTurn(lock)
		s.mu.Unlock()
		second := <-next
		time.Sleep(time.Hour)
		if err := second.Err(); err != nil {
			t.Error(err)
		}
		second.Release(ctx)
	})
}

// A notice that the key may be free does not replace a grant that the leader has not read yet. So
// the leader need not ask.
func TestHintDisplacesNoGrant(t *testing.T) {
	granted, freed := driver.Notice{Kind: driver.Granted, Token: 1},
		driver.Notice{Kind: driver.Freed}
	later := driver.Notice{Kind: driver.Granted, Token: 2}
	for _, c := range []struct {
		told []driver.Notice
		want driver.Notice
	}{
		{[]driver.Notice{granted, freed}, granted},
		{[]driver.Notice{granted, {}}, granted},
		{[]driver.Notice{freed, granted}, granted},
		{[]driver.Notice{granted, later}, later},
	} {
		notices := make(chan driver.Notice, 1)
		for _, n := range c.told {
			post(notices, n)
		}
		if got := <-notices; got != c.want {
			t.Errorf("of %v, %v is kept; want %v", c.told, got, c.want)
		}
	}
}

// panicking is a backend that panics when it is asked for a key.
type panicking struct{ *memhold.Backend }

func (panicking) Acquire(context.Context, driver.Claim) (driver.Result, error) {
	panic("a backend's fault")
}

// An acquisition that ends with a panic is forgotten.
func TestPanicLeavesNobodyWaiting(t *testing.T) {
	memory := memhold.New()
	defer memory.Close()
	l, err := New(panicking{memory})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	func() {
		defer func() { recover() }()
		l.Acquire(context.Background(), "key")
	}()
	l.addressees.mu.Lock()
	defer l.addressees.mu.Unlock()
	if n := len(l.addressees.waiting); n > 0 {
		t.Errorf("%d acquisitions wait for notices; want none", n)
	}
}

// Tokens also rise above those of a fresh run if the backend has lost its counter.
func TestTokensRiseAboveAFreshRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all at one moment: the clock is no help
		memory, l := newLocker(t, WithCohort(2, time.Hour))
		lock, err := l.Acquire(context.Background(), "key")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *Lock)
		for range 6 {
			go func() {
				lock, err := l.Acquire(context.Background(), "key")
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
		}
		synctest.Wait()
		for range 6 {
			lock.Release(context.Background())
			lock = <-got
		}
		last := lock.Token()
		memory.Faults().Forget()
		lock.Release(context.Background())
		if lock, err = l.Acquire(context.Background(), "key"); err != nil {
			t.Fatal(err)
		}
		if lock.Token() <= last {
			t.Errorf("token %d after %d, want a larger one", lock.Token(), last)
		}
		lock.Release(context.Background())
	})
}

// The check of a lease for its holder does not mark a renewal as under way: nobody would make it.
func TestCheckRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(context.Background(), "key")
		if err != nil {
			t.Fatal(err)
		}
		l.watchdog.check(lock.lease, lock.lease.renewAt.Add(time.Second))
		s := lock.cohort.shard
		s.mu.Lock()
		asking := lock.lease.asking
		s.mu.Unlock()
		if asking {
			t.Error("a check counts as a renewal that is under way")
		}
		time.Sleep(time.Hour)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Of several releases of one key, the one whose TTL ends last counts, in whatever order they came.
func TestUnreleasedUntilTheLastTTLEnds(t *testing.T) {
	early, late := errors.New("early"), errors.New("late")
	for _, order := range [][]error{{early, late}, {late, early}} {
		synctest.Test(t, func(t *testing.T) {
			var u unreleased
			ends := map[error]clock.Instant{early: clock.Now().Add(time.Second),
				late: clock.Now().Add(2 * time.Second)}
			for _, err := range order {
				u.add("key", err, ends[err])
			}
			time.Sleep(time.Second)
			if errs := u.errors(); len(errs) != 1 || errs[0] != late {
				t.Errorf("of %q, %q are left; want the late one", order, errs)
			}
		})
	}
}

// Of keys that were left to their TTLs, a Locker remembers only those whose TTL has not ended.
func TestUnreleasedForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unreleased
		for i := range 10_000 {
			u.add(fmt.Sprint(i), errors.New("refused"), clock.Now().Add(100*time.Millisecond))
			time.Sleep(time.Millisecond)
		}
		if n := len(u.keys); n > 500 {
			t.Errorf("there are %d keys, want 500 at most for the 100 that are left", n)
		}
		if n := len(u.errors()); n != 99 {
			t.Errorf("%d keys are left, want 99", n)
		}
		time.Sleep(100 * time.Millisecond)
		if n := len(u.errors()); n != 0 {
			t.Errorf("%d keys are left when their time is over, want none", n)
		}
	})
}

// A set that fails leaves nothing with the locks in which some of its keys were nested. A caller
// that holds one of the keys and tries again and again must not fill the memory.
func TestSetThatFailsLeavesNoNestedLocks(t *testing.T) {
	_, l := newLocker(t)
	background := context.Background()
	outer, err := l.Acquire(background, "outer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(background, "busy"); err != nil {
		t.Fatal(err)
	}
	ctx := outer.Context(background)
	for range 1000 {
		if _, err := l.TryAcquireAll(ctx, []string{"busy", "outer"}); err == nil {
			t.Fatal("got a key that is held")
		}
	}
	outer.cohort.shard.mu.Lock()
	left := len(outer.ends)
	outer.cohort.shard.mu.Unlock()
	if left > 1 { // the context
		t.Errorf("%d nested locks and contexts are left with the lock, want 1", left)
	}
}

// What the context of a set needs is freed when its parent ends.
func TestContextOfASetIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		set, err := l.AcquireAll(context.Background(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			parent, cancel := context.WithCancel(context.Background())
			set.Context(parent)
			cancel()
		}
		synctest.Wait()
		set.set.mu.Lock()
		defer set.set.mu.Unlock()
		if n := len(set.set.contexts); n > 0 {
			t.Errorf("%d contexts are kept, want none", n)
		}
	})
}

// A renewal that is answered at the very deadline is too late: from then on others may have the
// key.
func TestRenewalAnsweredAtTheDeadlineIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		h := lock.lease
		if ok, err := h.reserve(t.Context()); !ok {
			t.Fatal(err)
		}
		start := clock.Now()
		err = l.watchdog.renewed(h, start, h.deadline, h.claim(), driver.Result{State: driver.Held})
		if !errors.Is(err, ErrLost) || !errors.Is(lock.Err(), ErrLost) {
			t.Errorf("the renewal: %v; the lock: %v; want a loss", err, lock.Err())
		}
	})
}

// A renewal that was answered ends its own reservation, and not the next one: somebody else may
// have reserved the lease by the time that the renewal returns. Then two requests would change it.
func TestRenewalEndsOnlyItsOwnReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		h := lock.lease
		l.config.hooks.Renewed = func(RenewedEvent) { // called before the renewal returns
			l.config.hooks.Renewed = nil
			if ok, err := h.reserve(t.Context()); !ok {
				t.Error(err)
			}
		}
		if err := lock.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := lock.cohort.shard
		s.mu.Lock()
		if !h.asking {
			t.Error("the lease is free, though somebody has reserved it")
		}
		h.settle()
		s.mu.Unlock()
	})
}

// A Downgrade waits for a renewal, and the maximum hold ends in that time. Then it asks for nothing
// any more: until the release nobody else may have the key.
func TestDowngradeAfterTheMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(t.Context(), "key", WithMaxHold(DefaultTTL+time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultTTL / 2)
		if err := lock.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := lock.lease
		if ok, err := h.reserve(t.Context()); !ok {
			t.Fatal(err)
		}
		result := make(chan error)
		go func() { result <- lock.Downgrade(t.Context()) }()
		time.Sleep(DefaultTTL/2 + 2*time.Second)
		s := lock.cohort.shard
		s.mu.Lock()
		h.settle()
		s.mu.Unlock()
		if err := <-result; !errors.Is(err, ErrMaxHold) {
			t.Errorf("the Downgrade: %v, want ErrMaxHold", err)
		}
		if _, err := l.TryAcquire(t.Context(), "key", WithShared()); !errors.Is(err, ErrHeld) {
			t.Errorf("a reader beside a holder that has not released: %v, want ErrHeld", err)
		}
		if err := lock.Release(t.Context()); !errors.Is(err, ErrMaxHold) {
			t.Error(err)
		}
	})
}

// A set has ended from the start if one of its locks was lost at the last moment.
func TestSetOfALockThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		g := &gathering{locker: l, members: []member{{key: "key", lock: lock}}}
		set := g.complete(t.Context())
		select {
		case <-set.Done(): // before Err looks at the locks
		default:
			t.Error("Done is open before Err looks at the locks")
		}
		if !errors.Is(set.Err(), ErrReleased) {
			t.Errorf("the set ended with %v, want ErrReleased", set.Err())
		}
	})
}

// A lock of a set that is lost at the last moment is the caller's, so its loss is told, once. That
// of a nested lock is told with the outermost one.
func TestLossAtTheLastMomentIsTold(t *testing.T) {
	for _, nested := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			told := 0
			memory, l := newLocker(t, WithHooks(Hooks{Lost: func(e LostEvent) {
				if told++; e.Key != "a" || e.Held < time.Second {
					t.Errorf("the loss of %q is told, held for %v", e.Key, e.Held)
				}
			}}))
			ctx := t.Context()
			if nested {
				outer, err := l.Acquire(ctx, "a")
				if err != nil {
					t.Fatal(err)
				}
				ctx = outer.Context(ctx)
			}
			g, err := l.gathering([]string{"a", "b"}, true, nil)
			if err == nil {
				err = g.run(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			memory.Faults().Lose("a")
			for g.members[0].lock.Err() == nil {
				time.Sleep(time.Second)
			}
			set := g.complete(ctx)
			if err := set.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			synctest.Wait()
			if s := l.Stats(); told != 1 || s.Lost != 1 || s.Released != 1 || s.Acquired != 2 {
				t.Errorf("nested %v: %d losses told; counted %+v; want one of two locks lost",
					nested, told, s)
			}
		})
	}
}

// A lock that a set nests has an owner with a handle on it already. The set has no handle of its
// own for it.
func TestSetHasNoHandleOnWhatIsNested(t *testing.T) {
	_, l := newLocker(t, WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	outer, err := l.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	set, err := l.AcquireAll(outer.Context(t.Context()), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := set.Lock("a"), set.Lock("b"); a.handle || !b.handle {
		t.Errorf("a handle on the nested lock: %v, on the other: %v; want only on the other",
			a.handle, b.handle)
	}
	if err := set.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := outer.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Downgrade waits for a renewal. If its context ends first, it fails and has changed nothing.
func TestDowngradeThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := newLocker(t)
		lock, err := l.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		h := lock.lease
		if ok, err := h.reserve(t.Context()); !ok {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := lock.Downgrade(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the Downgrade: %v, want DeadlineExceeded", err)
		}
		s := lock.cohort.shard
		s.mu.Lock()
		h.settle()
		s.mu.Unlock()
		if _, err := l.TryAcquire(t.Context(), "key", WithShared()); !errors.Is(err, ErrHeld) {
			t.Errorf("a reader beside the writer: %v, want ErrHeld", err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
