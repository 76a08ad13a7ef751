package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// takeFirst has other hold the slot that l asks for first, so that l then asks for three more
// together. It returns that permit, one of four.
func (b *bench) takeFirst(l, other *holdfast.Locker) *holdfast.Lock {
	b.t.Helper()
	lock := b.acquire(l, "deploy", holdfast.WithPermits(4))
	first := lock.Slot()
	b.release(lock)
	var taken *holdfast.Lock
	for _, p := range b.acquirePermits(other, "deploy", 4) {
		if p.Slot() == first {
			taken = p
		} else {
			b.release(p)
		}
	}
	return taken
}

// breaking is a brittle context that panics in Done, too.
type breaking struct{ brittle }

func (c *breaking) Done() <-chan struct{} {
	if c.left.Add(-1) < 0 {
		panic("a context's fault")
	}
	return c.Context.Done()
}

// If a context panics while several slots are asked for together, no permit stays taken.
func TestContextThatPanicsKeepsNoPermit(t *testing.T) {
	for calls, panicked := int64(1), true; panicked; calls++ {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			other, _ := b.locker()
			taken := b.takeFirst(l, other)
			ctx := &breaking{brittle{Context: background}}
			ctx.left.Store(calls)
			func() {
				defer func() { panicked = recover() != nil }()
				lock, err := l.Acquire(ctx, "deploy", holdfast.WithPermits(4))
				if err != nil {
					t.Fatal(err)
				}
				b.release(lock)
			}()
			time.Sleep(time.Second)
			if held := l.Stats().Held; held != 0 {
				t.Errorf("a panic after %d calls: %d permits are held, want none", calls, held)
			}
			b.release(taken)
			b.releasePermits(b.acquirePermits(other, "deploy", 4))
		})
		if calls > 100 {
			t.Fatal("each of 100 searches panicked")
		}
	}
}

// Several slots are asked for together. One is granted at once, and another does not answer until
// the context has ended. Then the call gets no permit.
func TestNoPermitAfterTheContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		taken := b.takeFirst(l, other)
		slow := fmt.Sprintf("deploy@permit/%d", (taken.Slot()+1)%4)
		faults.Inject(memhold.Fault{Key: slow, ReplyDelay: 3 * time.Second})
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		lock, err := l.Acquire(ctx, "deploy", holdfast.WithPermits(4))
		if lock != nil {
			t.Error("a permit was granted after the end of its context")
			b.release(lock)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		faults.Clear()
		time.Sleep(time.Minute)
		b.release(taken)
		b.releasePermits(b.acquirePermits(other, "deploy", 4))
	})
}

// If spare permits cannot be given back at once, the call waits no longer than its context.
func TestSparePermitsAreGivenBackWithinTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		taken := b.takeFirst(l, other)
		faults.Inject(memhold.Fault{Calls: memhold.Releases, ReplyDelay: 4 * time.Second})
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		start := time.Now()
		lock, err := l.Acquire(ctx, "deploy", holdfast.WithPermits(4))
		if lock != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, error %v; want DeadlineExceeded alone", lock, err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("returned after %v, want 1 s", took)
		}
		faults.Clear()
		time.Sleep(time.Minute)
		b.release(taken)
		b.releasePermits(b.acquirePermits(other, "deploy", 4))
	})
}

// A permit whose lease has ended while other slots did not answer is not granted.
func TestNoPermitAfterItsLeaseEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var slow atomic.Value
		slow.Store("")
		backend := newPushing(b)
		backend.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			if c.Key == slow.Load() { // this backend does not listen to its context
				time.Sleep(2 * time.Second)
			}
			return backend.Backend.Acquire(ctx, c)
		}
		l := b.lockerOn(backend, holdfast.WithTTL(time.Second), holdfast.WithoutRenewal())
		other, _ := b.locker()
		taken := b.takeFirst(l, other)
		slow.Store(fmt.Sprintf("deploy@permit/%d", (taken.Slot()+1)%4))
		lock, err := l.Acquire(background, "deploy", holdfast.WithPermits(4))
		if err == nil && !time.Now().Before(lock.Deadline()) {
			t.Error("a permit was granted after its deadline")
		}
		if err == nil {
			b.release(lock)
		}
		slow.Store("")
		time.Sleep(time.Minute)
		b.release(taken)
		b.releasePermits(b.acquirePermits(other, "deploy", 4))
	})
}

// If no slot has answered before, the wait for a permit ends after four requests in two steps, as
// that for a lock does after one request. If the first may have taken effect, it asks once more.
func TestPermitsWithoutAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want int
	}{{"refused", errRefused, 4}, {"unknown", errMaybe, 8}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.failing(false, slices.Repeat([]error{test.err}, 100)...)
				_, err := l.Acquire(background, "key", holdfast.WithPermits(100))
				mustBe(t, err, test.err)
				backend.mu.Lock()
				asked := len(backend.claims)
				backend.mu.Unlock()
				if asked != test.want {
					t.Errorf("%d requests, want %d", asked, test.want)
				}
			})
		})
	}
}

// If a slot is taken, and the request for another one has failed, Acquire waits: the backend has
// answered.
//
// Fails if the code is broken like this: notFound that does not look at f.refusal.
func TestFailureOfASlotBesideOneThatIsTaken(t *testing.T) {
	for slot := range 2 { // the first that is asked for, or the second
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			other, _ := b.locker()
			permits := b.acquirePermits(other, "key", 2)
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1,
				Key: fmt.Sprint("key@permit/", slot), Err: driver.ErrUnavailable})
			got := next(l, background, holdfast.WithPermits(2))
			time.Sleep(time.Second)
			b.release(permits[0])
			if lock := <-got; lock == nil {
				t.Errorf("a failed request for slot %d has ended the wait", slot)
			} else {
				b.release(lock)
			}
			b.release(permits[1])
		})
	}
}
