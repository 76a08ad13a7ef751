package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// mustKeepOut fails the test unless readers and writers of l are refused.
func (b *bench) mustKeepOut(l *holdfast.Locker) {
	b.t.Helper()
	b.mustBeHeld(l, "key")
	lock, err := l.TryAcquire(background, "key", holdfast.WithShared())
	if err == nil {
		lock.Release(background)
	}
	mustBe(b.t, err, holdfast.ErrHeld)
}

// Downgrade lets readers in, also those that wait already, and no writer. Handle, token, contexts
// and nested locks stay.
func TestDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		token, ctx := lock.Token(), lock.Context(background)
		inner, err := l.Acquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		reader := next(other, background, holdfast.WithShared())
		writer := next(other, background)
		b.mustKeepOut(other)

		time.Sleep(time.Second)
		if err := lock.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lock.Deadline()); left != validity(holdfast.DefaultTTL) {
			t.Errorf("after a Downgrade the lease ends in %v, want %v", left,
				validity(holdfast.DefaultTTL))
		}
		if lock.Token() != token || lock.Err() != nil || ctx.Err() != nil || inner.Err() != nil {
			t.Errorf("token %d, was %d; lock %v, context %v, nested %v; want the same, held",
				lock.Token(), token, lock.Err(), ctx.Err(), inner.Err())
		}
		b.release(<-reader)
		renewals := backend.renewals.Load()
		for _, again := range []*holdfast.Lock{lock, inner} {
			if err := again.Downgrade(background); err != nil {
				t.Errorf("Downgrade of a shared lock: %v", err)
			}
		}
		if n := backend.renewals.Load(); n != renewals {
			t.Error("Downgrade of a shared lock asked the backend")
		}
		time.Sleep(time.Hour) // it is renewed as a shared one
		select {
		case <-writer:
			t.Error("a writer got the key beside a downgraded lock")
		default:
		}
		b.release(inner)
		b.release(lock)
		b.release(<-writer)
	})
}

// If nobody else waits, readers of the same Locker get in, with a claim of their own.
func TestDowngradeLetsOwnReadersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		if err := lock.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		b.mustBeShared(other)
		b.mustBeShared(l)
		reader := b.read(l)
		if n := b.sharers(); n != 2 || reader.Token() <= lock.Token() {
			t.Errorf("%d claims share the key, with tokens %d and %d; want 2 that rise",
				n, lock.Token(), reader.Token())
		}
		b.release(lock)
		mustBe(t, lock.Release(background), holdfast.ErrReleased)
		mustBe(t, lock.Downgrade(background), holdfast.ErrReleased)
		b.mustBeShared(other)
		b.release(reader)
		b.mustBeFree(other, "key")
	})
}

// Goroutines that wait for an exclusive turn go on, and get the key only after the release.
func TestDowngradePassesNoTurnToAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		waiting := []chan *holdfast.Lock{next(l, background), next(l, background)}
		if err := lock.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if len(waiting[0])+len(waiting[1]) != 0 {
			t.Fatal("a writer got the key beside a downgraded lock")
		}
		_, err := other.TryAcquire(background, "key", holdfast.WithShared())
		mustBe(t, err, holdfast.ErrHeld) // a writer waits
		b.release(lock)
		first := <-waiting[0]
		b.mustKeepOut(other)
		b.release(first)
		second := <-waiting[1]
		b.mustKeepOut(other)
		b.release(second)
	})
}

func TestDowngradeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		inner, err := l.Acquire(lock.Context(background), "key", holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		var none context.Context
		mustBe(t, lock.Downgrade(none), holdfast.ErrInvalid)
		err = inner.Downgrade(background)
		mustBe(t, err, holdfast.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "outermost") {
			t.Errorf("the error %v does not name the outermost lock", err)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		mustBe(t, lock.Downgrade(ctx), context.Canceled)
		if n := backend.renewals.Load(); n != 0 {
			t.Errorf("%d renewals, want none", n)
		}
		b.mustKeepOut(other)
		again, err := l.Acquire(lock.Context(background), "key")
		if err != nil {
			t.Fatalf("a nested write after refusals: %v", err)
		}
		b.release(again)
		b.release(lock)
		mustBe(t, lock.Downgrade(background), holdfast.ErrReleased)
		mustBe(t, inner.Downgrade(background), holdfast.ErrReleased)
	})
}

// A nested lock from before a Downgrade ends with the downgraded lock. An exclusive one after the
// Downgrade is refused.
func TestNestedLocksOfADowngradedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		lock := b.acquire(l, "key")
		before, err := l.Acquire(lock.Context(background), "key")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(lock.Context(background), "key")
		mustBe(t, err, holdfast.ErrInvalid)
		_, err = l.Acquire(before.Context(background), "key")
		mustBe(t, err, holdfast.ErrInvalid)
		after, err := l.Acquire(before.Context(background), "key", holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		b.release(lock)
		mustBe(t, before.Err(), holdfast.ErrReleased)
		mustBe(t, after.Err(), holdfast.ErrReleased)
	})
}

// modes notes which owner values were asked for as shared, and which were not.
type modes struct {
	mu     sync.Mutex
	shared map[string]bool
}

func (m *modes) note(_ string, c driver.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared == nil {
		m.shared = make(map[string]bool)
	}
	m.shared[c.Owner] = m.shared[c.Owner] || c.Shared
}

// A lock is released while it is downgraded. The next turn is exclusive, on another lease.
func TestReleaseDuringADowngrade(t *testing.T) {
	for _, when := range []string{"before it left", "before its answer"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.tapped()
				other, _ := b.locker()
				lock := b.acquire(l, "key")
				waiting := []chan *holdfast.Lock{next(l, background), next(l, background)}
				if when == "before it left" {
					backend.before(func(call string, c driver.Claim) {
						if call == "renew" && c.Shared {
							backend.before(nil)
							if err := lock.Release(background); err != nil {
								t.Error(err)
							}
						}
					})
					mustBe(t, lock.Downgrade(background), holdfast.ErrReleased)
				} else {
					backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1,
						ReplyDelay: 100 * time.Millisecond})
					done := make(chan error, 1)
					go func() { done <- lock.Downgrade(background) }()
					synctest.Wait()
					b.release(lock)
					mustBe(t, <-done, holdfast.ErrReleased)
				}
				for _, w := range waiting {
					lock := <-w
					if lock == nil {
						t.Fatal("a waiter was refused")
					}
					b.mustKeepOut(other)
					time.Sleep(time.Minute)
					b.mustKeepOut(other)
					b.release(lock)
				}
				if n := backend.Faults().Hanging(); n != 0 {
					t.Errorf("%d calls hang, want none", n)
				}
			})
		})
	}
}

// A Downgrade that waits for the watchdog's renewal finds the lock released, and the key handed
// over in memory: it must not make the next turn's lease shared.
func TestDowngradeAfterAHandoffChangesNothing(t *testing.T) {
	for _, waiters := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, backend := b.tapped(holdfast.WithCohort(10, time.Hour))
			other, _ := b.locker()
			var m modes
			backend.before(m.note)
			lock := b.acquire(l, "key")
			backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1,
				ReplyDelay: time.Second})
			time.Sleep(holdfast.DefaultTTL/3 + 10*time.Millisecond) // the renewal is under way
			done := make(chan error, 1)
			go func() { done <- lock.Downgrade(background) }()
			synctest.Wait()
			var got chan *holdfast.Lock
			if waiters > 0 {
				got = next(l, background)
			}
			go lock.Release(background)
			mustBe(t, <-done, holdfast.ErrReleased)
			if waiters > 0 {
				second := <-got
				if n := l.Stats().HandedOver; n != 1 {
					t.Errorf("%d handoffs, want 1", n)
				}
				b.mustKeepOut(other)
				time.Sleep(time.Hour) // it is still renewed
				b.mustKeepOut(other)
				b.release(second)
			}
			synctest.Wait()
			for owner, shared := range m.shared {
				if shared {
					t.Errorf("the claim %q was made shared when its turn was over", owner)
				}
			}
			b.mustBeFree(other, "key")
		})
	}
}

// A lock is lost, or its validity ends, while it is downgraded.
func TestLossDuringADowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped(holdfast.WithTTL(time.Second))
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		waiting := next(l, background)
		backend.Faults().Lose("key")
		mustBe(t, lock.Downgrade(background), holdfast.ErrLost)
		mustBe(t, lock.Err(), holdfast.ErrLost)
		mustBe(t, lock.Downgrade(background), holdfast.ErrLost)

		lock = <-waiting
		b.mustKeepOut(other)
		start := time.Now()
		backend.Faults().Freeze()
		for lock.Err() == nil {
			err := lock.Downgrade(background)
			if err == nil {
				t.Fatal("a Downgrade without an answer succeeded")
			}
			if !errors.Is(err, holdfast.ErrUnknown) && !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Downgrade without an answer: %v, want ErrUnknown or ErrLost", err)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the lock was lost after %v, want a second at most", took)
		}
		backend.Faults().Thaw()
		b.release(b.acquire(l, "key"))
	})
}

// Without an answer the lock stays held, is handed over to nobody, and can be downgraded again.
func TestDowngradeWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		fault  memhold.Fault
		kind   error
		cut    bool // the caller's context ends
		shared bool // the backend has done it
	}{
		"refused": {memhold.Fault{Err: driver.ErrUnavailable}, driver.ErrUnavailable, false,
			false},
		"cut":      {memhold.Fault{CutReply: true}, holdfast.ErrUnknown, false, true},
		"given up": {memhold.Fault{ReplyDelay: time.Second}, context.DeadlineExceeded, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.tapped()
				other, _ := b.locker()
				for _, again := range []bool{false, true} {
					lock := b.acquire(l, "key")
					c.fault.Calls, c.fault.Times = memhold.Renewals, 1
					backend.Faults().Inject(c.fault)
					ctx := background
					if c.cut {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
						defer cancel()
					}
					mustBe(t, lock.Downgrade(ctx), c.kind)
					if err := lock.Err(); err != nil {
						t.Fatal(err)
					}
					check := b.mustKeepOut
					if c.shared {
						check = b.mustBeShared
					}
					check(other)
					time.Sleep(time.Hour) // renewals change nothing
					check(other)
					_, err := l.Acquire(lock.Context(background), "key")
					mustBe(t, err, holdfast.ErrInvalid)
					waiting := next(l, background)
					if again {
						if err := lock.Downgrade(background); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
					}
					b.release(lock)
					lock = <-waiting
					b.mustKeepOut(other)
					b.release(lock)
				}
			})
		})
	}
}

// Two Downgrades at once ask once.
func TestDowngradeTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		lock := b.acquire(l, "key")
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1,
			Delay: time.Second})
		together(5, func(int) {
			if err := lock.Downgrade(background); err != nil {
				t.Error(err)
			}
		})
		backend.expect(t, "downgraded", 1, 1, 0)
		time.Sleep(time.Hour)
		b.release(lock)
	})
}

// A lock that is not renewed, and one with a maximum hold, keep their ends.
func TestDowngradeKeepsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(9 * time.Second))
		other, _ := b.locker()
		lock := b.acquire(l, "key", holdfast.WithoutRenewal())
		waiting := next(l, background, holdfast.WithoutRenewal())
		time.Sleep(time.Second)
		if err := lock.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		b.endsAfter(lock, time.Now(), validity(9*time.Second))
		lock = <-waiting
		b.mustKeepOut(other)
		b.release(lock)

		start := time.Now()
		lock = b.acquire(l, "key", holdfast.WithMaxHold(20*time.Second))
		if err := lock.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		b.endsAfter(lock, start, 20*time.Second)
		mustBe(t, lock.Downgrade(background), holdfast.ErrMaxHold)
		b.mustBeHeld(other, "key") // until it has stopped
		mustBe(t, lock.Release(background), holdfast.ErrMaxHold)
		b.mustBeFree(other, "key")
	})
}

// Close ends a downgraded lock, and one that is being downgraded.
func TestCloseDuringADowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		done := b.acquire(l, "done")
		if err := done.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		lock := b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, Delay: time.Second})
		failed := make(chan error, 1)
		go func() { failed <- lock.Downgrade(background) }()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		mustBe(t, <-failed, holdfast.ErrClosed)
		mustBe(t, done.Err(), holdfast.ErrClosed)
		b.mustBeFree(other, "done")
		b.mustBeFree(other, "key")
	})
}
