package holdfast_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// When a lease is lost, all readers on it are lost, and no others.
func TestLossIsToldToAllReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		var lost []*holdfast.Lock
		for range 3 {
			lost = append(lost, b.read(l))
		}
		other := b.readAnew(l, backend)
		if _, err := backend.Backend.Release(background, claimOf(b, 0)); err != nil {
			t.Fatal(err)
		}
		mustBe(t, lost[1].Extend(background), holdfast.ErrLost)
		for _, lock := range lost {
			<-lock.Done()
			mustBe(t, lock.Err(), holdfast.ErrLost)
			mustBe(t, lock.Release(background), holdfast.ErrLost)
		}
		if s := l.Stats(); s.Lost != 3 || s.Held != 1 {
			t.Errorf("counted %+v, want 3 lost and 1 held", s)
		}
		if err := other.Err(); err != nil {
			t.Errorf("a reader on another lease was lost: %v", err)
		}
		b.release(other)
	})
}

// claimOf returns the nth claim that shares the key, in the order in which their leases end.
func claimOf(b *bench, n int) driver.Claim {
	b.t.Helper()
	e, err := b.memory.Inspect(background, "key")
	if err != nil || len(e.Sharers) <= n {
		b.t.Fatalf("%d claims share the key, error %v; want more", len(e.Sharers), err)
	}
	return driver.Claim{Key: "key", Owner: e.Sharers[n].Owner, TTL: holdfast.DefaultTTL,
		Shared: true}
}

// Without an answer all readers end with the validity, and the claim is removed.
func TestReadersEndWithTheirLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		start := time.Now()
		first := b.read(l)
		second := b.read(l)
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable})
		b.endsAfter(first, start, validity(holdfast.DefaultTTL))
		b.endsAfter(second, start, validity(holdfast.DefaultTTL))
		synctest.Wait()
		if n := b.sharers(); n != 0 {
			t.Errorf("%d claims are left, want none", n)
		}
		faults.Clear()
	})
}

// A release after the validity has ended finds the lock lost, even if nobody asks the backend.
func TestReaderThatLeavesOthersKnowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(time.Second))
		first, second := b.read(l), b.read(l)
		faults.Freeze()
		time.Sleep(validity(time.Second)) // the watchdog is due at the same moment
		err := first.Release(background)
		mustBe(t, err, holdfast.ErrLost)
		mustBe(t, second.Err(), holdfast.ErrLost)
		faults.Thaw()
	})
}

// A reader at its maximum hold ends alone; the others' lease goes on.
func TestMaximumHoldOfOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(9 * time.Second))
		other, _ := b.locker()
		start := time.Now()
		patient := b.read(l)
		long := b.read(l, holdfast.WithMaxHold(30*time.Second))
		short := b.read(l, holdfast.WithMaxHold(10*time.Second))
		b.endsAfter(short, start, 10*time.Second)
		mustBe(t, short.Err(), holdfast.ErrMaxHold)
		b.endsAfter(long, start, 30*time.Second)
		time.Sleep(time.Hour)
		if err := patient.Err(); err != nil {
			t.Errorf("the reader without a maximum hold was lost: %v", err)
		}
		b.release(patient)
		b.mustBeHeld(other, "key") // those two have not stopped yet
		time.Sleep(10 * time.Second)
		b.mustBeFree(other, "key") // but nobody renews for them
		mustBe(t, long.Release(background), holdfast.ErrMaxHold)
		mustBe(t, short.Release(background), holdfast.ErrMaxHold)
	})
}

// A reader that joins others past their maximum hold has the lease renewed again.
func TestReaderJoinsThosePastTheirHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped(holdfast.WithTTL(9*time.Second), holdfast.WithCohort(100, time.Hour))
		other, _ := b.locker()
		over := b.read(l, holdfast.WithMaxHold(10*time.Second))
		<-over.Done()
		time.Sleep(time.Second)
		lock := b.read(l)
		if n := backend.acquires.Load(); n != 1 {
			t.Fatalf("%d acquisitions, want 1", n)
		}
		time.Sleep(time.Hour)
		mustBe(t, over.Release(background), holdfast.ErrMaxHold)
		b.mustBeHeld(other, "key")
		b.release(lock)
		b.mustBeFree(other, "key")
	})
}

func TestReadersReleaseInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, cancel := context.WithCancel(background)
		cancel()
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
			locks := []*holdfast.Lock{b.read(l), b.read(l), b.read(l)}
			for _, i := range order {
				b.mustBeHeld(other, "key")
				ctx := locks[i].Context(background)
				b.release(locks[i])
				mustBe(t, context.Cause(ctx), holdfast.ErrReleased)
				mustBe(t, locks[i].Release(background), holdfast.ErrReleased)
				mustBe(t, locks[i].Release(dead), holdfast.ErrReleased)
			}
			b.mustBeFree(other, "key")
		}
		releases := backend.releases.Load()

		// With a context that has ended, nobody waits for an answer, and the key still becomes
		// free.
		first, last := b.read(l), b.read(l)
		if err := first.Release(dead); err != nil {
			t.Errorf("a release in memory with a context that has ended: %v", err)
		}
		mustBe(t, last.Release(dead), context.Canceled)
		synctest.Wait()
		if n := backend.releases.Load() - releases; n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
		b.mustBeFree(other, "key")
	})
}

// A reader that comes when the last one has gone begins a new lease, and does not wait for the
// release.
func TestReaderAfterTheLastHasAnotherClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		first := b.read(l)
		old := claimOf(b, 0).Owner
		remove := backend.Faults().Inject(memhold.Fault{Calls: memhold.Releases,
			Err: driver.ErrUnavailable})
		mustBe(t, first.Release(background), holdfast.ErrUnavailable)
		second, err := l.TryAcquire(background, "key", holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		remove()
		time.Sleep(time.Minute)
		if owner := claimOf(b, 0).Owner; owner == old {
			t.Error("a claim that is being released was used again")
		}
		b.release(second)
	})
}

// If the leader gives up, the next reader goes on with its claim. If another waiter gives up,
// nothing changes.
func TestCancelledReadersPassTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		var mu sync.Mutex
		owners := make(map[string]bool)
		backend.before(func(call string, c driver.Claim) {
			mu.Lock()
			defer mu.Unlock()
			owners[c.Owner] = c.Shared
		})
		writer := b.acquire(other, "key")
		const waiting = 6
		ctx := make([]context.Context, waiting)
		cancel := make([]context.CancelFunc, waiting)
		got := make([]chan *holdfast.Lock, waiting)
		for i := range ctx {
			ctx[i], cancel[i] = context.WithCancel(background)
			defer cancel[i]()
			got[i] = next(l, ctx[i], holdfast.WithShared())
		}
		cancel[0]() // the leader
		cancel[3]()
		synctest.Wait()
		cancel[1]() // the next leader
		for _, i := range []int{0, 1, 3} {
			if <-got[i] != nil {
				t.Error("a cancelled acquisition succeeded")
			}
		}
		time.Sleep(time.Minute)
		b.release(writer)
		for _, i := range []int{2, 4, 5} {
			b.release(<-got[i])
		}
		synctest.Wait()
		if len(owners) != 1 {
			t.Errorf("%d claims, want the first one's only", len(owners))
		}
		for owner, shared := range owners {
			if !shared {
				t.Errorf("claim %q was not shared in its last call", owner)
			}
		}
	})
}

// Readers that give up while they are let in leave nothing.
func TestReadersGiveUpAtTheGrant(t *testing.T) {
	for _, leader := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, backend := b.tapped()
			other, _ := b.locker()
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			backend.Faults().Freeze()
			first := background
			if leader {
				first = ctx
			}
			got := []chan *holdfast.Lock{next(l, first, holdfast.WithShared())}
			for range 40 {
				got = append(got, next(l, ctx, holdfast.WithShared()))
			}
			go backend.Faults().Thaw()
			go cancel()
			synctest.Wait()
			for _, c := range got {
				if lock := <-c; lock != nil {
					b.release(lock)
				}
			}
			synctest.Wait()
			if s := l.Stats(); s.Held != 0 || s.Waiting != 0 {
				t.Errorf("counted %+v, want none held and none waiting", s)
			}
			b.mustBeFree(other, "key")
		})
	}
}

// One reader's Extend moves the deadline of all.
func TestExtendByOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		first, second := b.read(l), b.read(l)
		time.Sleep(time.Second)
		if err := first.Extend(background); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(second.Deadline()); left != validity(holdfast.DefaultTTL) {
			t.Errorf("the other reader's lease ends in %v, want %v", left,
				validity(holdfast.DefaultTTL))
		}
		b.release(first)
		b.release(second)
	})
}

// Close ends readers on all leases, and those who wait.
func TestCloseEndsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		locks := []*holdfast.Lock{b.read(l), b.read(l)}
		locks = append(locks, b.readAnew(l, backend))
		time.Sleep(time.Second)
		writer := make(chan *holdfast.Lock, 1)
		go func() { writer <- b.acquire(other, "key") }()
		synctest.Wait()
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := l.Acquire(background, "key", holdfast.WithShared())
				errs <- err
			}()
		}
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			mustBe(t, <-errs, holdfast.ErrClosed)
		}
		for _, lock := range locks {
			mustBe(t, lock.Err(), holdfast.ErrClosed, holdfast.ErrLost)
		}
		if n := backend.releases.Load(); n != 3 {
			t.Errorf("%d releases, want 3", n)
		}
		b.release(<-writer)
	})
}

// If one reader recovers from a panic of the backend, the others go on unharmed.
func TestPanicAmongReaders(t *testing.T) {
	calls := []string{"acquire", "acquired", "release", "renew", "span", "downgrade"}
	for _, call := range calls {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				client := &fragile{Backend: b.memory.Client()}
				b.clients = append(b.clients, client.Backend)
				l := b.lockerOn(client, holdfast.WithHooks(holdfast.Hooks{
					Acquired: func(holdfast.AcquiredEvent) { panic("a hook's fault") },
					Released: func(holdfast.ReleasedEvent) { panic("a hook's fault") },
				}))
				other, _ := b.locker()
				switch call {
				case "acquire", "acquired":
					client.Faults().Freeze()
					client.breakIn(call)
					if call == "acquire" {
						recovered(t, func() {
							l.Acquire(background, "key", holdfast.WithShared())
						})
						client.Faults().Thaw()
						break
					}
					var wait sync.WaitGroup
					wait.Go(func() {
						recovered(t, func() {
							l.Acquire(background, "key", holdfast.WithShared())
						})
					})
					synctest.Wait()
					got := next(l, background, holdfast.WithShared())
					client.Faults().Thaw()
					wait.Wait()
					b.release(<-got)
				case "release":
					lock := b.read(l)
					client.breakIn(call)
					recovered(t, func() { lock.Release(background) })
				case "renew":
					first, second := b.read(l), b.read(l)
					client.breakIn(call)
					recovered(t, func() { first.Extend(background) })
					time.Sleep(time.Hour)
					b.release(first)
					b.release(second)
				case "span":
					first := b.read(l)
					time.Sleep(holdfast.DefaultCohortSpan)
					client.breakIn("renew")
					recovered(t, func() { l.Acquire(background, "key", holdfast.WithShared()) })
					second := b.read(l)
					time.Sleep(time.Hour)
					b.release(first)
					b.mustBeHeld(other, "key")
					b.release(second)
				case "downgrade":
					lock := b.acquire(l, "key")
					waiting := next(l, background)
					client.breakIn("renew")
					recovered(t, func() { lock.Downgrade(background) })
					time.Sleep(time.Hour)
					if err := lock.Downgrade(background); err != nil {
						t.Error(err)
					}
					b.release(lock)
					b.release(<-waiting)
				}
				synctest.Wait()
				b.release(b.read(l))
				b.mustBeFree(other, "key")
			})
		})
	}
}

// A reader whose Lock nobody refers to any more is logged. The others and the key stay.
func TestForgottenReaderIsLogged(t *testing.T) {
	backend := memhold.New()
	defer backend.Close()
	log := make(lines, 10)
	l, err := holdfast.New(backend, holdfast.WithShared(),
		holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := l.Acquire(t.Context(), "forgotten")
	if err != nil {
		t.Fatal(err)
	}
	ctx := forget(t, l, "forgotten", "released", "nested")
	runtime.GC()
	if line := <-log; !strings.Contains(line, "key=forgotten") {
		t.Errorf("the log says %q, want that \"forgotten\" was never released", line)
	}
	if ctx.Err() != nil {
		t.Errorf("the garbage collector has ended the lock: %v", context.Cause(ctx))
	}
	if err := other.Release(t.Context()); err != nil {
		t.Error(err)
	}
	writer, err := holdfast.New(backend)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.TryAcquire(t.Context(), "forgotten"); err == nil {
		t.Error("the key is free while a reader has it")
	}
}
