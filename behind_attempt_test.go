package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// attempts is a backend that fails acquisitions, each after a moment, and counts them.
type attempts struct {
	*memhold.Backend
	mu     sync.Mutex
	errs   []error // of the next acquisitions; nil: as the memory says
	effect bool    // those of unknown outcome take effect
	claims []driver.Claim
}

const moment = 20 * time.Millisecond

func (a *attempts) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	a.mu.Lock()
	var err error
	if len(a.errs) > 0 {
		err, a.errs = a.errs[0], a.errs[1:]
	}
	a.claims = append(a.claims, c)
	effect := a.effect
	a.mu.Unlock()
	time.Sleep(moment)
	if err == nil {
		return a.Backend.Acquire(ctx, c)
	}
	if effect && errors.Is(err, holdfast.ErrUnknown) {
		a.Backend.Acquire(context.Background(), c)
	}
	return driver.Result{}, err
}

// asked is the claims of the key that were asked for.
func (a *attempts) asked(key string) (claims []driver.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		if c.Key == key {
			claims = append(claims, c)
		}
	}
	return claims
}

// failing returns a Locker on a backend whose first acquisitions fail with errs.
func (b *bench) failing(effect bool, errs ...error) (*holdfast.Locker, *attempts) {
	b.t.Helper()
	backend := &attempts{Backend: b.memory.Client(), errs: errs, effect: effect}
	b.clients = append(b.clients, backend.Backend)
	return b.lockerOn(backend), backend
}

var (
	errMaybe   = &driver.Error{Maybe: true, Err: errors.New("connection cut")}
	errRefused = &driver.Error{Err: errors.New("connection refused")}
	errForGood = &driver.Error{Maybe: true, Permanent: true, Err: errors.New("no permission")}
)

// single makes a single attempt for "key", and releases what it got.
var single = map[string]func(b *bench, l *holdfast.Locker, options ...holdfast.AcquireOption) error{
	"TryAcquire": func(b *bench, l *holdfast.Locker, options ...holdfast.AcquireOption) error {
		lock, err := l.TryAcquire(background, "key", options...)
		if err == nil {
			b.release(lock)
		}
		return err
	},
	"TryAcquireAll": func(b *bench, l *holdfast.Locker, options ...holdfast.AcquireOption) error {
		set, err := l.TryAcquireAll(background, []string{"key"}, options...)
		if err == nil {
			err = set.Release(background)
		}
		return err
	},
}

// behind has n goroutines wait in Acquire behind a single attempt, and returns their errors. They
// release what they get.
func (b *bench) behind(l *holdfast.Locker, first func(), n int,
	options ...holdfast.AcquireOption) []error {
	b.t.Helper()
	var all sync.WaitGroup
	all.Go(first)
	synctest.Wait()
	errs := make([]error, n)
	for i := range errs {
		all.Go(func() {
			lock, err := l.Acquire(background, "key", options...)
			if err == nil {
				b.release(lock)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errs
}

// An Acquire that waits behind a single attempt whose outcome is unknown asks a second time, for
// the same claim: the key may be its own.
//
// Fails if the code is broken like this: giveUp with goesOn = ended != nil.
func TestAcquireBehindASingleAttemptAsksAgain(t *testing.T) {
	for name, first := range single {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, effect %v", name, effect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					l, backend := b.failing(effect, errMaybe)
					for i, err := range b.behind(l, func() {
						mustBe(t, first(b, l), holdfast.ErrUnknown, errMaybe)
					}, 3) {
						if err != nil {
							t.Errorf("Acquire %d: %v", i, err)
						}
					}
					claims := backend.asked("key")
					if len(claims) != 2 || claims[0].Owner != claims[1].Owner ||
						claims[0].Queue || !claims[1].Queue {
						t.Errorf("asked for %v, want the same claim twice, then to wait", claims)
					}
				})
			})
		}
	}
}

// The same behind an AcquireAll, whose first attempt at each key is a single one.
func TestAcquireBehindASetAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.failing(true, errMaybe, errMaybe)
		errs := b.behind(l, func() {
			set, err := l.AcquireAll(background, []string{"key", "other"})
			if err != nil {
				t.Errorf("AcquireAll: %v", err)
				return
			}
			if err := set.Release(background); err != nil {
				t.Error(err)
			}
		}, 2)
		for i, err := range errs {
			if err != nil {
				t.Errorf("Acquire %d: %v", i, err)
			}
		}
		if n := len(backend.asked("key")); n > 3 {
			t.Errorf("the key was asked for %d times, want 3 at most", n)
		}
	})
}

// The second request is the last, because the backend has never answered. What both may have left
// is removed.
func TestAcquireBehindASingleAttemptAsksTwiceInAll(t *testing.T) {
	for name, first := range single {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.failing(true, errMaybe, errMaybe)
				other, _ := b.locker()
				start := time.Now()
				for i, err := range b.behind(l, func() {
					mustBe(t, first(b, l), holdfast.ErrUnknown)
				}, 3) {
					if mustBe(t, err, holdfast.ErrUnknown, errMaybe); err == nil {
						t.Errorf("Acquire %d succeeded, though the backend never answered", i)
					}
				}
				if n, took := len(backend.asked("key")), time.Since(start); n != 2 ||
					took != 2*moment {
					t.Errorf("told after %d requests and %v, want 2 and %v", n, took, 2*moment)
				}
				synctest.Wait()
				b.mustBeFree(other, "key")
			})
		})
	}
}

// If a single attempt was refused, or failed for good, those who wait fail too: they have had one
// request as well.
func TestAcquireBehindASingleAttemptThatWasRefused(t *testing.T) {
	for name, refusal := range map[string]*driver.Error{"refused": errRefused,
		"for good": errForGood} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.failing(false, refusal)
				for _, err := range b.behind(l, func() {
					mustBe(t, single["TryAcquire"](b, l), refusal)
				}, 3) {
					mustBe(t, err, refusal)
				}
				if n := len(backend.asked("key")); n != 1 {
					t.Errorf("asked %d times, want once", n)
				}
			})
		})
	}
}

// Readers that wait behind a single attempt share what the second request brings.
func TestReadersBehindASingleAttempt(t *testing.T) {
	for name, first := range single {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.failing(true, errMaybe)
				for i, err := range b.behind(l, func() {
					mustBe(t, first(b, l, holdfast.WithShared()), holdfast.ErrUnknown)
				}, 3, holdfast.WithShared()) {
					if err != nil {
						t.Errorf("reader %d: %v", i, err)
					}
				}
				if claims := backend.asked("key"); len(claims) < 2 ||
					claims[0].Owner != claims[1].Owner {
					t.Errorf("asked for %v, want the same claim twice", claims)
				}
			})
		})
	}
}

// A waiter that gives up just as it is to lead leaves the claim to the next one. The last of them
// removes the claim.
func TestWaiterBehindASingleAttemptGivesUp(t *testing.T) {
	for _, stays := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.failing(true, errMaybe)
			other, _ := b.locker()
			var all sync.WaitGroup
			all.Go(func() { single["TryAcquire"](b, l) })
			synctest.Wait()
			ctx, cancel := context.WithCancel(background)
			all.Go(func() {
				_, err := l.Acquire(ctx, "key")
				mustBe(t, err, context.Canceled)
			})
			synctest.Wait()
			if stays {
				all.Go(func() { b.release(b.acquire(l, "key")) })
			}
			time.AfterFunc(moment+moment/2, cancel) // in the second request
			all.Wait()
			synctest.Wait()
			b.mustBeFree(other, "key")
		})
	}
}

// A Close while the second request is under way leaves nothing.
func TestCloseBehindASingleAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.failing(true, errMaybe)
		closed := make(chan error)
		time.AfterFunc(moment+moment/2, func() { closed <- l.Close() })
		for _, err := range b.behind(l, func() { single["TryAcquire"](b, l) }, 3) {
			mustBe(t, err, holdfast.ErrClosed)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// An outage that begins after the backend has answered the attempt of another one does not end the
// wait.
//
// Fails if the code is broken like this: heard without c.answered.
func TestOutageBehindASingleAttemptThatWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.failing(false, nil, errRefused)
		other, _ := b.locker()
		lock := b.acquire(other, "key")
		time.AfterFunc(time.Second, func() { b.release(lock) })
		for _, err := range b.behind(l, func() {
			mustBe(t, single["TryAcquire"](b, l), holdfast.ErrHeld)
		}, 2) {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// If the cohort lets a lease go because others rest on it, that counts as an answer too: an outage
// ends the wait only after a TTL.
//
// Fails if the code is broken like this: begin without c.answered.
func TestOutageAfterALeaseThatWasLetGo(t *testing.T) {
	down := memhold.Fault{Calls: memhold.Acquires | memhold.Renewals, Err: errRefused}
	t.Run("readers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			first := b.acquire(l, "key", holdfast.WithShared())
			time.Sleep(time.Second)
			faults.Inject(down)
			time.AfterFunc(5*time.Second, faults.Clear)
			lock, err := l.Acquire(background, "key", holdfast.WithShared())
			if err != nil {
				t.Errorf("an outage of 5 s ended the wait: %v", err)
			} else {
				b.release(lock)
			}
			b.release(first)
		})
	})
	t.Run("readers behind a single attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, backend := b.failing(false, nil, errRefused, errRefused)
			first := b.acquire(l, "key", holdfast.WithShared())
			time.Sleep(time.Second)
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1,
				Err: errRefused})
			for _, err := range b.behind(l, func() {
				mustBe(t, single["TryAcquire"](b, l, holdfast.WithShared()), errRefused)
			}, 3, holdfast.WithShared()) {
				if err != nil {
					t.Errorf("an outage of a moment ended the wait: %v", err)
				}
			}
			b.release(first)
		})
	})
	t.Run("downgraded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			first := b.acquire(l, "key")
			got := next(l, background)
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: errRefused})
			if err := first.Downgrade(background); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			faults.Clear()
			b.release(first)
			if lock := <-got; lock == nil {
				t.Error("an outage of 5 s ended the wait")
			} else {
				b.release(lock)
			}
		})
	})
}

// In an outage longer than a TTL the wait ends, a TTL after the last answer.
func TestLongOutageAfterALeaseThatWasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(10 * time.Second))
		first := b.acquire(l, "key", holdfast.WithShared())
		time.Sleep(time.Second)
		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: errRefused})
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, Err: errRefused})
		start := time.Now()
		_, err := l.Acquire(background, "key", holdfast.WithShared())
		mustBe(t, err, holdfast.ErrUnavailable)
		if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("told after %v, want about 10s", took)
		}
		faults.Clear()
		b.release(first)
	})
}

// If renewals of the lease had failed before the cohort let it go, the outage counts from the first
// of them.
//
// Fails if the code is broken like this: letGo without c.silent.
func TestOutageCountsFromRenewalsOfALeaseThatWasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(ttl))
		b.acquire(l, "key", holdfast.WithShared())
		start := time.Now()
		faults.Inject(memhold.Fault{Err: errRefused})
		time.Sleep(ttl / 2) // renewals fail since a third
		_, err := l.Acquire(background, "key", holdfast.WithShared())
		mustBe(t, err, holdfast.ErrUnavailable)
		if took := time.Since(start); took < ttl*4/3 || took > ttl*4/3+2*time.Second {
			t.Errorf("told after %v, want a TTL after the first renewal at %v", took, ttl/3)
		}
		faults.Clear()
		time.Sleep(2 * ttl)
	})
}
