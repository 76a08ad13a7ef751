package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// errNoLogin is a permanent error.
var errNoLogin = &driver.Error{Node: "db1", Permanent: true, Err: errors.New("no login")}

// mustBeUnknown fails the test unless err says that the outcome is unknown, and nothing else, but
// still finds what the last request failed with.
func mustBeUnknown(t *testing.T, err error, last *driver.Error) {
	t.Helper()
	var known *driver.Error
	if !errors.Is(err, holdfast.ErrUnknown) || errors.Is(err, holdfast.ErrUnavailable) ||
		!errors.Is(err, last) || !errors.As(err, &known) || !known.Maybe ||
		known.Node != last.Node || driver.Permanent(err) != last.Permanent {
		t.Errorf("got %v; want ErrUnknown alone, with %v in it", err, last)
	}
}

// If one request of an acquisition may have taken effect, its outcome is unknown, even if a later
// request was surely refused.
//
// Fails if the code is broken like this: told returns err as it is.
func TestUnknownOutcomeOutlastsARefusal(t *testing.T) {
	acquire := func(b *bench, l *holdfast.Locker, options ...holdfast.AcquireOption) error {
		_, err := l.Acquire(background, "key", options...)
		return err
	}
	for name, test := range map[string]struct {
		errs    []error
		acquire func(b *bench, l *holdfast.Locker) error
	}{
		"lock": {[]error{errMaybe}, func(b *bench, l *holdfast.Locker) error {
			return acquire(b, l)
		}},
		"reader": {[]error{errMaybe}, func(b *bench, l *holdfast.Locker) error {
			return acquire(b, l, holdfast.WithShared())
		}},
		"set": {[]error{errMaybe, errMaybe}, func(b *bench, l *holdfast.Locker) error {
			_, err := l.AcquireAll(background, []string{"key", "other"})
			return err
		}},
		"permit": {[]error{errMaybe}, func(b *bench, l *holdfast.Locker) error {
			return acquire(b, l, holdfast.WithPermits(1))
		}},
		"permits": {[]error{errMaybe}, func(b *bench, l *holdfast.Locker) error {
			return acquire(b, l, holdfast.WithPermits(4))
		}},
		"who waits": {[]error{errMaybe}, func(b *bench, l *holdfast.Locker) error {
			return b.behind(l, func() { single["TryAcquire"](b, l) }, 1)[0]
		}},
	} {
		for _, last := range []*driver.Error{errRefused, errNoLogin} {
			t.Run(fmt.Sprintf("%s, permanent %v", name, last.Permanent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					errs := append(slices.Clone(test.errs), slices.Repeat([]error{last}, 20)...)
					l, _ := b.failing(true, errs...)
					mustBeUnknown(t, test.acquire(b, l), last)
				})
			})
		}
	}
}

// The same holds for the slots of a semaphore that are asked for together, in whatever order they
// fail.
//
// Fails if the code is broken like this: attemptAll without afterUnknown.
func TestUnknownOutcomeOfOneSlot(t *testing.T) {
	for _, maybe := range []int{0, 1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			errs := slices.Repeat([]error{errRefused}, 4)
			errs[maybe] = errMaybe
			l, _ := b.failing(true, errs...)
			_, err := l.TryAcquire(background, "key", holdfast.WithPermits(4))
			mustBe(t, err, holdfast.ErrUnknown)
			if errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("got %v; want ErrUnknown alone", err)
			}
		})
	}
}

// The same holds for a waiter for a permit whose own request was lost, when the scout is refused.
//
// Fails if the code is broken like this: semaphore.wait without a.maybe.
func TestUnknownOutcomeOfAWaiterForAPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		errs := append([]error{nil, errMaybe}, slices.Repeat([]error{errNoLogin}, 20)...)
		l, backend := b.failing(true, errs...)
		options := []holdfast.AcquireOption{holdfast.WithPermits(1), holdfast.WithoutRenewal()}
		lock := b.acquire(l, "key", options...)
		told := make(chan error)
		go func() {
			_, err := l.Acquire(background, "key", options...)
			told <- err
		}()
		synctest.Wait()
		// Without renewal each turn asks the backend: for a fresh lease, and then for another.
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Err: errRefused})
		b.release(lock)
		mustBeUnknown(t, <-told, errNoLogin)
	})
}

// An answer settles earlier requests: after it, a refusal is a refusal.
//
// Fails if the code is broken like this: heard without p.maybe.
func TestAnswerSettlesAnUnknownOutcome(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprintf("settled %v", settled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				errs := []error{nil, errMaybe}
				if settled {
					errs = append(errs, nil)
				}
				l, _ := b.failing(true, append(errs, errNoLogin)...)
				other, _ := b.locker()
				lock := b.acquire(other, "key")
				_, err := l.Acquire(background, "key")
				if settled {
					mustBe(t, err, holdfast.ErrUnavailable, errNoLogin)
				} else {
					mustBeUnknown(t, err, errNoLogin)
				}
				b.release(lock)
			})
		})
	}
}

// The cause of a context says nothing about a request, even if it is an error of a backend.
func TestUnknownOutcomeIsNotTheContexts(t *testing.T) {
	for name, options := range map[string][]holdfast.AcquireOption{"lock": nil,
		"permit": {holdfast.WithPermits(1)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, _ := b.failing(true, errMaybe, errRefused)
				ctx, cancel := context.WithCancelCause(background)
				time.AfterFunc(moment+time.Millisecond, func() { cancel(errNoLogin) })
				_, err := l.Acquire(ctx, "key", options...)
				mustBe(t, err, context.Canceled, errNoLogin, holdfast.ErrUnavailable)
				if errors.Is(err, holdfast.ErrUnknown) {
					t.Errorf("%v: want the context's error alone", err)
				}
			})
		})
	}
}
