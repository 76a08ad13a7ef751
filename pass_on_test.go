package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// endOfRun is the end of a run of turns: a goroutine has its turn, and the span is over. Another
// goroutine of the same process waits, and after it one of another process.
type endOfRun struct {
	bench   *bench
	backend *pushing // of the process
	lock    *holdfast.Lock
	owner   atomic.Value // of the lease of the run
	ours    chan *holdfast.Lock
	theirs  chan *holdfast.Lock

	// from when the release of the run's lease was asked for
	released atomic.Bool
	renewed  atomic.Int64 // renewals of it
}

// newEndOfRun makes an endOfRun. ctx is the context of the goroutine that waits in the process
// itself, and release stands in for the release of the lease of the run.
func newEndOfRun(t *testing.T, ctx context.Context,
	release func(context.Context, driver.Claim) (driver.Result, error)) *endOfRun {
	b := newBench(t)
	e := &endOfRun{bench: b, backend: newPushing(b)}
	e.owner.Store("")
	e.backend.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
		e.owner.CompareAndSwap("", c.Owner)
		return e.backend.memory.Acquire(ctx, c)
	}
	e.backend.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
		if e.released.Load() && c[0].Owner == e.owner.Load() {
			e.renewed.Add(1)
		}
		return e.backend.memory.Renew(ctx, c)
	}
	e.backend.release = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
		if c.Owner != e.owner.Load() || e.released.Swap(true) {
			return e.backend.memory.Release(ctx, c)
		}
		return release(ctx, c)
	}
	l := b.lockerOn(e.backend)
	other, _ := b.locker()
	e.lock = b.acquire(l, "key")
	e.ours = next(l, ctx)
	e.theirs = next(other, background)
	time.Sleep(holdfast.DefaultTTL/3 - 100*time.Millisecond) // the next renewal is near
	return e
}

// nobody fails if the process has got another turn.
func (e *endOfRun) nobody(when string) {
	e.bench.t.Helper()
	synctest.Wait()
	select {
	case <-e.ours:
		e.bench.t.Fatalf("a goroutine of the process has a turn %s", when)
	default:
	}
}

// passed returns the lock of the other process. The key must not be left to its TTL.
func (e *endOfRun) passed() *holdfast.Lock {
	e.bench.t.Helper()
	start := time.Now()
	theirs := <-e.theirs
	if took := time.Since(start); took > holdfast.DefaultTTL/3 {
		e.bench.t.Errorf("the other process got the key after %v; want it long before the TTL is "+
			"over", took)
	}
	return theirs
}

// passes checks that the other process gets the key, and then the goroutine that waits.
func (e *endOfRun) passes() {
	b := e.bench
	b.t.Helper()
	theirs := e.passed()
	e.nobody("while another process has the key")
	time.Sleep(time.Minute)
	if err := theirs.Err(); err != nil {
		b.t.Errorf("the other process lost the key: %v", err)
	}
	e.nobody("while another process has the key")
	b.release(theirs)
	ours := <-e.ours
	if e.lock.Token() >= theirs.Token() || theirs.Token() >= ours.Token() {
		b.t.Errorf("tokens %d, %d and %d; want them to rise", e.lock.Token(), theirs.Token(),
			ours.Token())
	}
	b.release(ours)
	if n := e.renewed.Load(); n != 0 {
		b.t.Errorf("the lease was renewed %d times after its release was asked for, want none", n)
	}
}

// A run has ended and another process waits. From when the release is sent, nobody has a turn,
// however long the release takes, and the key goes to the other process.
func TestR1_NoTurnWhileTheKeyIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const onItsWay = 4 * time.Second // a request may take five
		var e *endOfRun
		e = newEndOfRun(t, background,
			func(ctx context.Context, c driver.Claim) (driver.Result, error) {
				time.Sleep(onItsWay)
				return e.backend.memory.Release(ctx, c)
			})
		e.bench.release(e.lock)
		e.nobody("before the release arrived")
		if !e.released.Load() {
			t.Fatal("the key was not released at the end of a run, though another process waits")
		}
		time.Sleep(onItsWay)
		synctest.Wait()
		if len(e.theirs) != 1 {
			t.Error("the release has arrived, and the other process does not have the key")
		}
		e.passes()
	})
}

// The release is repeated if its answer is lost, or the request, or both without an error. There is
// one holder.
func TestR1_LostReleaseAtTheEndOfARun(t *testing.T) {
	for _, lost := range []string{"answer", "request", "silence"} {
		t.Run(lost, func(t *testing.T) {
			arrives := lost == "answer"
			synctest.Test(t, func(t *testing.T) {
				var e *endOfRun
				e = newEndOfRun(t, background,
					func(ctx context.Context, c driver.Claim) (driver.Result, error) {
						if arrives {
							e.backend.memory.Release(ctx, c)
						}
						if lost == "silence" {
							<-ctx.Done()
						}
						return driver.Result{}, &driver.Error{Maybe: true,
							Err: errors.New("connection lost")}
					})
				e.bench.release(e.lock)
				if e.nobody("when the release had no answer"); arrives && len(e.theirs) != 1 {
					t.Error("the release has arrived, and the other process does not have the key")
				}
				e.passes()
			})
		})
	}
}

// The goroutine that yields the key waits no longer than its context, and the key is still yielded.
func TestCancelledWhileTheKeyIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		e := newEndOfRun(t, ctx, func(ctx context.Context, _ driver.Claim) (driver.Result, error) {
			<-ctx.Done()
			return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
		})
		e.bench.release(e.lock)
		e.nobody("before the release arrived")
		cancel()
		synctest.Wait()
		select {
		case lock := <-e.ours:
			if lock != nil {
				t.Error("a cancelled acquisition succeeded")
			}
		default:
			t.Error("an acquisition went on after the end of its context")
		}
		e.bench.release(e.passed())
	})
}
