package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// background is the context of tests that do not cancel.
var background = context.Background()

// validity is how long a lease counts with the default drift allowance.
func validity(ttl time.Duration) time.Duration {
	return ttl - time.Duration(float64(ttl)*holdfast.DefaultDrift) - 2*time.Millisecond
}

// bench is a backend in memory with Lockers on it, like processes on one server. When the test
// ends, it closes the Lockers and checks that nothing is left: no key at the backend, and nothing
// that counts as held or waiting.
type bench struct {
	t       *testing.T
	memory  *memhold.Backend
	clients []*memhold.Backend
	lockers []*holdfast.Locker
}

func newBench(t *testing.T, options ...memhold.Option) *bench {
	b := &bench{t: t, memory: memhold.New(options...)}
	t.Cleanup(b.check)
	return b
}

// locker returns a Locker with a client of its own.
func (b *bench) locker(options ...holdfast.Option) (*holdfast.Locker, memhold.Faults) {
	b.t.Helper()
	client := b.memory.Client()
	b.clients = append(b.clients, client)
	return b.lockerOn(client, options...), client.Faults()
}

func (b *bench) lockerOn(backend driver.Backend, options ...holdfast.Option) *holdfast.Locker {
	b.t.Helper()
	l, err := holdfast.New(backend, options...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.lockers = append(b.lockers, l)
	return l
}

func (b *bench) check() {
	for i, l := range b.lockers {
		if err := l.Close(); err != nil {
			b.t.Errorf("Close of Locker %d: %v", i, err)
		}
		if s := l.Stats(); s.Held != 0 || s.Waiting != 0 {
			b.t.Errorf("locker %d, closed: %d held, %d waiting, want none", i, s.Held, s.Waiting)
		}
	}
	for entry, err := range b.memory.List(background, "") {
		if err != nil {
			b.t.Error(err)
		}
		b.t.Errorf("left behind: key %q held by %q", entry.Key, entry.Holder.Owner)
	}
	for _, c := range b.clients {
		c.Close()
	}
	b.memory.Close()
}

func (b *bench) acquire(l *holdfast.Locker, key string,
	options ...holdfast.AcquireOption) *holdfast.Lock {
	b.t.Helper()
	lock, err := l.Acquire(background, key, options...)
	if err != nil {
		b.t.Fatal(err)
	}
	return lock
}

func (b *bench) release(lock *holdfast.Lock) {
	b.t.Helper()
	if err := lock.Release(background); err != nil {
		b.t.Errorf("release: %v", err)
	}
}

// mustBeHeld fails the test unless the key is held by another than l.
func (b *bench) mustBeHeld(l *holdfast.Locker, key string) {
	b.t.Helper()
	lock, err := l.TryAcquire(background, key)
	if err == nil {
		lock.Release(background)
	}
	if !errors.Is(err, holdfast.ErrHeld) {
		b.t.Errorf("TryAcquire of a held key gives %v, want ErrHeld", err)
	}
}

// mustBeFree fails the test unless l can have the key at once.
func (b *bench) mustBeFree(l *holdfast.Locker, key string) {
	b.t.Helper()
	lock, err := l.TryAcquire(background, key)
	if err != nil {
		b.t.Errorf("key %q should be free: %v", key, err)
		return
	}
	b.release(lock)
}

// endsAfter fails the test unless the lock's Done closes exactly at start + want of fake time.
func (b *bench) endsAfter(lock *holdfast.Lock, start time.Time, want time.Duration) {
	b.t.Helper()
	<-lock.Done()
	if got := time.Since(start); got != want {
		b.t.Errorf("lock ended after %v, want exactly %v", got, want)
	}
}

// mustBe fails the test unless err wraps all of the targets.
func mustBe(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got error %v, want one that wraps %q", err, target)
		}
	}
}

func TestAcquireAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l1, _ := b.locker(holdfast.WithLabel("report"))
		l2, _ := b.locker()
		start := time.Now()
		lock := b.acquire(l1, "invoice/42")
		if lock.Key() != "invoice/42" || lock.Token() == 0 || lock.Err() != nil {
			t.Errorf("key %q, token %d, error %v; want \"invoice/42\", a token, no error",
				lock.Key(), lock.Token(), lock.Err())
		}
		if got := lock.Deadline().Sub(start); got != validity(holdfast.DefaultTTL) {
			t.Errorf("deadline %v after the start, want %v", got, validity(holdfast.DefaultTTL))
		}
		_, err := l2.TryAcquire(background, "invoice/42")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Key != "invoice/42" || held.Holder.Label != "report" ||
			held.Holder.PID == 0 ||
			held.ExpiresIn != holdfast.DefaultTTL ||
			!strings.HasSuffix(err.Error(), ", lease ends in 30s unless renewed") {
			t.Errorf("another Locker got %#v, want that \"report\" holds the key for 30s", err)
		}
		_, err = l1.TryAcquire(background, "invoice/42")
		if !errors.As(err, &held) || held.Holder.Label != "report" || held.ExpiresIn <= 0 {
			t.Errorf("the same Locker got %#v, want that \"report\" holds the key", err)
		}
		b.mustBeFree(l2, "invoice/43")
		b.release(lock)
		mustBe(t, lock.Err(), holdfast.ErrReleased)
		mustBe(t, lock.Release(background), holdfast.ErrReleased)
		mustBe(t, lock.Extend(background), holdfast.ErrReleased)
		if lock.Deadline().After(time.Now()) {
			t.Error("a released lock has a deadline in the future")
		}
		next := b.acquire(l2, "invoice/42")
		if next.Token() <= lock.Token() {
			t.Errorf("token %d after %d: must rise", next.Token(), lock.Token())
		}
		b.release(next)
	})
}

func TestPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		plain, _ := b.locker()
		prefixed, _ := b.locker(holdfast.WithPrefix("lock:"))
		lock := b.acquire(prefixed, "x")
		if lock.Key() != "x" {
			t.Errorf("key %q, want what the caller named", lock.Key())
		}
		b.mustBeHeld(plain, "lock:x")
		b.mustBeFree(plain, "x")
		b.release(lock)
	})
}

func TestOptionsAreValidated(t *testing.T) {
	backend := memhold.New()
	defer backend.Close()
	for _, c := range []struct {
		name   string
		option holdfast.Option
		want   []string
	}{
		{"TTL zero", holdfast.WithTTL(0), []string{"TTL 0s", "10ms"}},
		{"TTL negative", holdfast.WithTTL(-time.Second), []string{"TTL -1s", "10ms"}},
		{"TTL under the floor", holdfast.WithTTL(9 * time.Millisecond),
			[]string{"TTL 9ms", "10ms"}},
		{"TTL too long", holdfast.WithTTL(math.MaxInt64), []string{"2562047h", "8784h"}},
		{"maximum hold too long", holdfast.WithMaxHold(math.MaxInt64),
			[]string{"2562047h", "8784h"}},
		{"maximum hold negative", holdfast.WithMaxHold(-1), []string{"-1ns", "negative"}},
		{"maximum hold under the TTL", holdfast.WithMaxHold(time.Second), []string{"1s", "30s"}},
		{"label too long", holdfast.WithLabel(strings.Repeat("x", 129)), []string{"129", "128"}},
		{"drift negative", holdfast.WithDrift(-0.1), []string{"-0.1", "0.5"}},
		{"drift too large", holdfast.WithDrift(0.5), []string{"0.5"}},
		{"drift not a number", holdfast.WithDrift(math.NaN()), []string{"NaN"}},
		{"prefix too long", holdfast.WithPrefix(strings.Repeat("p", 1024)), []string{"1024"}},
		{"cohort of none", holdfast.WithCohort(0, time.Second), []string{"0 turns"}},
		{"cohort too large", holdfast.WithCohort(1<<21, time.Second),
			[]string{"2097152", "1048576"}},
		{"cohort without span", holdfast.WithCohort(2, 0), []string{"span 0s", "2 turns"}},
		{"nil", nil, []string{"option 1 is nil: leave it out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				mustBe(t, err, holdfast.ErrInvalid)
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q does not name %q", err, want)
					}
				}
			}
			_, err := holdfast.New(backend, c.option)
			check(err)
			option, perAcquisition := c.option.(holdfast.AcquireOption)
			if !perAcquisition && c.option != nil {
				return
			}
			l, err := holdfast.New(backend)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, err = l.Acquire(background, "key", option)
			check(err)
			_, err = l.TryAcquire(background, "key", option)
			check(err)
			if s := l.Stats(); s.Held != 0 {
				t.Errorf("%d locks are held after refusals, want none", s.Held)
			}
		})
	}
	var unopened *memhold.Backend
	for _, none := range []driver.Backend{nil, unopened} {
		if _, err := holdfast.New(none); !errors.Is(err, holdfast.ErrInvalid) ||
			!strings.Contains(err.Error(), "backend is nil") {
			t.Errorf("New(%#v): %v, want ErrInvalid: backend is nil", none, err)
		}
	}
}

// limited is a backend that takes no TTL over a minute, and counts what it is asked.
type limited struct {
	*memhold.Backend
	asked int
}

func (b *limited) CheckTTL(ttl time.Duration) error {
	if ttl > time.Minute {
		return &driver.Error{Invalid: true, Err: fmt.Errorf("TTL %v: at most 1m0s", ttl)}
	}
	return nil
}

func (b *limited) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	b.asked++
	return b.Backend.Acquire(ctx, c)
}

// What the backend will never grant is refused before anything is sent; a Locker's own TTL, by New.
func TestTTLThatTheBackendDoesNotTake(t *testing.T) {
	b := newBench(t)
	backend := &limited{Backend: b.memory}
	check := func(err error) {
		t.Helper()
		if mustBe(t, err, holdfast.ErrInvalid); !strings.Contains(err.Error(),
			"TTL 1m1s: at most 1m0s") {
			t.Errorf("%v; want it to name the TTL, and what is allowed", err)
		}
	}
	_, err := holdfast.New(backend, holdfast.WithTTL(61*time.Second))
	check(err)
	l := b.lockerOn(backend, holdfast.WithTTL(time.Minute))
	for _, acquire := range []func(context.Context, string,
		...holdfast.AcquireOption) (*holdfast.Lock, error){l.Acquire, l.TryAcquire} {
		_, err = acquire(background, "key", holdfast.WithTTL(61*time.Second))
		if check(err); !strings.Contains(err.Error(), `"key"`) {
			t.Errorf("%v; want it to name the key", err)
		}
	}
	if backend.asked != 0 {
		t.Errorf("the backend was asked %d times, want not once", backend.asked)
	}
	b.release(b.acquire(l, "key", holdfast.WithTTL(59*time.Second)))
}

func TestKeysAreValidated(t *testing.T) {
	b := newBench(t)
	l, _ := b.locker(holdfast.WithPrefix("p:"))
	for key, want := range map[string]string{"": "1 to 1022 bytes",
		strings.Repeat("k", 1023): "1025 bytes"} {
		_, err := l.Acquire(background, key)
		mustBe(t, err, holdfast.ErrInvalid)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
		err = l.Do(background, key, func(context.Context, *holdfast.Lock) error {
			t.Error("Do called the function for a key that is not allowed")
			return nil
		})
		mustBe(t, err, holdfast.ErrInvalid)
	}
	mustBe(t, l.Do(background, "key", nil), holdfast.ErrInvalid)
	b.mustBeFree(l, strings.Repeat("k", 1022))
	b.mustBeFree(l, "\x00\xff{}\n")
}

// R6: the owner value is unique over all acquisitions.
func TestR6OwnerValuesAreUnique(t *testing.T) {
	backend := &spy{Backend: memhold.New()}
	defer backend.Close()
	seen := make(map[string]bool)
	backend.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
		if seen[c.Owner] {
			t.Errorf("owner value %q used twice", c.Owner)
		}
		seen[c.Owner] = true
		return backend.Backend.Acquire(ctx, c)
	}
	b := &bench{t: t}
	l := b.lockerOn(backend)
	defer l.Close()
	for range 1000 {
		b.release(b.acquire(l, "key"))
	}
	if len(seen) != 1000 {
		t.Errorf("%d owner values for 1000 acquisitions, want as many", len(seen))
	}
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(3 * time.Second))
		other, _ := b.locker()

		failure := errors.New("no paper")
		err := l.Do(background, "key", func(ctx context.Context, lock *holdfast.Lock) error {
			b.mustBeHeld(other, "key")
			if ctx.Err() != nil || lock.Err() != nil {
				t.Errorf("while the function runs: context %v, lock %v; want no error",
					ctx.Err(), lock.Err())
			}
			return failure
		})
		if err != failure {
			t.Errorf("Do gives %v, want the function's error as it is", err)
		}
		b.mustBeFree(other, "key")

		err = l.Do(background, "key", func(ctx context.Context, lock *holdfast.Lock) error {
			faults.Lose("key")
			<-ctx.Done()
			mustBe(t, context.Cause(ctx), holdfast.ErrLost)
			return failure
		})
		mustBe(t, err, failure, holdfast.ErrLost)

		// Lost without the function noticing.
		err = l.Do(background, "key", func(context.Context, *holdfast.Lock) error {
			faults.Lose("key")
			return nil
		})
		mustBe(t, err, holdfast.ErrLost)

		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic of the function did not reach the caller")
				}
			}()
			l.Do(background, "key", func(context.Context, *holdfast.Lock) error { panic("boom") })
		}()
		b.mustBeFree(other, "key")

		// The caller's context ends inside. The key is still released.
		ctx, cancel := context.WithCancel(background)
		err = l.Do(ctx, "key", func(ctx context.Context, _ *holdfast.Lock) error {
			cancel()
			return ctx.Err()
		})
		mustBe(t, err, context.Canceled)
		b.mustBeFree(other, "key")
	})
}

func TestLockContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(3 * time.Second))
		type name struct{}
		parent, cancel := context.WithCancelCause(context.WithValue(background, name{}, "value"))
		lock := b.acquire(l, "key")
		ctx := lock.Context(parent)
		if ctx.Value(name{}) != "value" {
			t.Error("values of the parent are lost")
		}
		why := errors.New("why")
		cancel(why)
		mustBe(t, context.Cause(ctx), why)
		if lock.Err() != nil {
			t.Error("the end of a context ended the lock")
		}

		ctx = lock.Context(background)
		b.release(lock)
		mustBe(t, ctx.Err(), context.Canceled)
		mustBe(t, context.Cause(ctx), holdfast.ErrReleased)
		mustBe(t, context.Cause(lock.Context(background)), holdfast.ErrReleased)

		lock = b.acquire(l, "key")
		ctx = lock.Context(background)
		faults.Lose("key")
		<-ctx.Done()
		mustBe(t, context.Cause(ctx), holdfast.ErrLost)
		if lock.Err() != context.Cause(ctx) {
			t.Errorf("cause %v, lock's error %v: want the same", context.Cause(ctx), lock.Err())
		}
	})
}

// spy is a backend whose calls a test can take over.
type spy struct {
	driver.Backend
	acquire func(context.Context, driver.Claim) (driver.Result, error)
	renew   func(context.Context, []driver.Claim) ([]driver.Result, error)
	release func(context.Context, driver.Claim) (driver.Result, error)
}

func (s *spy) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if s.acquire != nil {
		return s.acquire(ctx, c)
	}
	return s.Backend.Acquire(ctx, c)
}

func (s *spy) Renew(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
	if s.renew != nil {
		return s.renew(ctx, c)
	}
	return s.Backend.Renew(ctx, c)
}

func (s *spy) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if s.release != nil {
		return s.release(ctx, c)
	}
	return s.Backend.Release(ctx, c)
}

// together runs f in n goroutines and waits for them.
func together(n int, f func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { f(i) })
	}
	wait.Wait()
}
