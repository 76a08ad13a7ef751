package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// acquirePermits acquires n permits of a semaphore of that size, and checks that each has a slot of
// its own.
func (b *bench) acquirePermits(l *holdfast.Locker, key string, n int,
	options ...holdfast.AcquireOption) []*holdfast.Lock {
	b.t.Helper()
	permits := make([]*holdfast.Lock, n)
	slots := make(map[int]bool)
	options = append(options, holdfast.WithPermits(n))
	for i := range permits {
		permits[i] = b.acquire(l, key, options...)
		slot := permits[i].Slot()
		if slot < 0 || slot >= n || slots[slot] {
			b.t.Errorf("permit %d of %d has slot %d, want one that is free", i, n, slot)
		}
		slots[slot] = true
	}
	return permits
}

func (b *bench) releasePermits(permits []*holdfast.Lock) {
	b.t.Helper()
	for _, p := range permits {
		b.release(p)
	}
}

// waitFor has goroutines acquire a permit, one after the other, and returns what they get.
func (b *bench) waitFor(l *holdfast.Locker, key string, n, waiters int) chan *holdfast.Lock {
	got := make(chan *holdfast.Lock, waiters)
	for range waiters {
		go func() {
			lock, err := l.Acquire(background, key, holdfast.WithPermits(n))
			if err != nil {
				b.t.Error(err)
			}
			got <- lock
		}()
		synctest.Wait()
	}
	return got
}

func TestPermitsAreSlotsOfTheirOwn(t *testing.T) {
	for _, n := range []int{1, 2, 3, 16, 64, 1000} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			other, _ := b.locker()
			permits := b.acquirePermits(l, "deploy", n)
			for _, who := range []*holdfast.Locker{l, other} {
				_, err := who.TryAcquire(background, "deploy", holdfast.WithPermits(n))
				mustBe(t, err, holdfast.ErrHeld)
				if !strings.Contains(err.Error(), `"deploy"`) {
					t.Errorf("the error does not name the key: %v", err)
				}
			}
			if s := l.Stats(); s.Held != n || s.Acquired != uint64(n) {
				t.Errorf("%d held, %d acquired, want %d", s.Held, s.Acquired, n)
			}
			slot, token := permits[n-1].Slot(), permits[n-1].Token()
			b.release(permits[n-1])
			again, err := other.TryAcquire(background, "deploy", holdfast.WithPermits(n))
			if err != nil {
				t.Fatal(err)
			}
			if again.Slot() != slot || again.Token() <= token {
				t.Errorf("slot %d, token %d after slot %d, token %d; want the slot again, a larger token",
					again.Slot(), again.Token(), slot, token)
			}
			if again.Key() != "deploy" {
				t.Errorf("key %q, want \"deploy\"", again.Key())
			}
			b.release(again)
			b.releasePermits(permits[:n-1])
		})
	}
}

func TestPermitsAreNoLockOfThatName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		lock := b.acquire(l, "deploy")
		permit := b.acquire(l, "deploy", holdfast.WithPermits(1))
		if lock.Slot() != -1 || permit.Slot() != 0 {
			t.Errorf("slots %d and %d, want -1 and 0", lock.Slot(), permit.Slot())
		}
		if s := permit.String(); !strings.Contains(s, `permit 0 of "deploy"`) {
			t.Errorf("the permit is %q, want permit 0 of \"deploy\"", s)
		}
		// An acquisition is nested in the permit that its context carries, and in no other.
		ctx := lock.Context(background)
		_, err := l.TryAcquire(ctx, "deploy", holdfast.WithPermits(1))
		mustBe(t, err, holdfast.ErrHeld)
		b.release(lock)
		b.release(permit)
	})
}

func TestPermitsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithPrefix("p/"))
		refused := func(err error, texts ...string) {
			t.Helper()
			mustBe(t, err, holdfast.ErrInvalid)
			for _, text := range texts {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not have %q", err, text)
				}
			}
		}
		for n, text := range map[int]string{0: "0 permits", -1: "-1 permits",
			1001: "1001 permits"} {
			_, err := l.Acquire(background, "key", holdfast.WithPermits(n))
			refused(err, text, "1 to 1000")
			_, err = holdfast.New(b.memory, holdfast.WithPermits(n))
			refused(err, text, "1 to 1000")
		}
		four := holdfast.WithPermits(4)
		_, err := l.Acquire(background, "key", four, holdfast.WithShared())
		refused(err, "WithShared")
		_, err = l.AcquireAll(background, []string{"key", "other"}, four)
		refused(err, "WithPermits(4)", `"key"`)
		for _, key := range []string{"x@permit/0", "x@permit/999", "x@permit/gate5",
			"x@permit/gate1000", "x@permit/scout", "@permit/7"} {
			_, err = l.Acquire(background, key)
			refused(err, key, "reserved")
			_, err = l.TryAcquire(background, key, four)
			refused(err, key, "reserved")
			_, err = l.AcquireAll(background, []string{"a", key})
			refused(err, key, "reserved")
		}
		tail, _ := b.locker(holdfast.WithPrefix("x@permit/"))
		_, err = tail.Acquire(background, "3")
		refused(err, "reserved")
		for _, key := range []string{"x@permit/", "x@permit/1000", "x@permit/3x", "@permit/3/x",
			"x@permit/gate", "x@permit/gate1001"} {
			b.release(b.acquire(l, key))
		}
		long := strings.Repeat("k", driver.MaxKeyLen-len("p/")-len("@permit/gate1000"))
		b.releasePermits(b.acquirePermits(l, long, 2))
		_, err = l.Acquire(background, long+"k", four)
		refused(err, "1008")
		permit := b.acquire(l, "key", four)
		refused(permit.Downgrade(background), "permit")
		b.release(permit)
	})
}

// A permit that becomes free goes to the first waiter, whichever slot it is, in this process or
// another.
func TestPermitsGoToTheFirstWhoWaits(t *testing.T) {
	for _, handoff := range []bool{true, false} {
		for _, elsewhere := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var options []holdfast.Option
				if !handoff {
					options = append(options, holdfast.WithCohort(1, 0))
				}
				l, _ := b.locker(options...)
				waits := l
				if elsewhere {
					waits, _ = b.locker(options...)
				}
				const n = 4
				permits := b.acquirePermits(l, "deploy", n)
				for _, i := range []int{2, 0, 3, 1} {
					got := b.waitFor(waits, "deploy", n, 1)
					time.Sleep(time.Second)
					if s := waits.Stats(); s.Waiting != 1 {
						t.Errorf("%d wait, want 1", s.Waiting)
					}
					start := time.Now()
					b.release(permits[i])
					next := <-got
					if next.Slot() != permits[i].Slot() {
						t.Errorf("slot %d was released, slot %d acquired", permits[i].Slot(),
							next.Slot())
					}
					if waited := time.Since(start); waited > 0 {
						t.Errorf("got it after %v, want at once", waited)
					}
					permits[i] = next
				}
				b.releasePermits(permits)
			})
		}
	}
}

// Waiters of one Locker get permits in the order in which they asked, both those that the Locker
// has and those of others.
func TestPermitsKeepTheOrderInALocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		four := holdfast.WithPermits(4)
		var permits []*holdfast.Lock
		for i := range 4 {
			from := l
			if i%2 == 1 {
				from = other
			}
			permits = append(permits, b.acquire(from, "deploy", four))
		}
		var got []chan *holdfast.Lock
		for range 4 {
			got = append(got, b.waitFor(l, "deploy", 4, 1))
		}
		time.Sleep(time.Second)
		for i, p := range permits {
			b.release(p)
			time.Sleep(time.Millisecond)
			for j, c := range got {
				if has := len(c) > 0; has != (j <= i) {
					t.Errorf("after %d releases, waiter %d has a permit: %t", i+1, j, has)
				}
			}
		}
		for _, c := range got {
			b.release(<-c)
		}
	})
}

// Processes get permits in the order in which they began to wait at the gate, even while waiters of
// the first process keep all permits busy.
func TestPermitsGoOnToOtherProcesses(t *testing.T) {
	// With the longer hold, the scout of the busy process has waiters all the time.
	for _, hold := range []time.Duration{3 * time.Millisecond, 30 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) { goOnToOtherProcesses(t, hold) })
	}
}

func goOnToOtherProcesses(t *testing.T, hold time.Duration) {
	b := newBench(t)
	busy, _ := b.locker()
	const n = 4
	ctx, cancel := context.WithCancel(background)
	var wait sync.WaitGroup
	for range 32 {
		wait.Go(func() {
			for ctx.Err() == nil {
				lock, err := busy.Acquire(background, "deploy", holdfast.WithPermits(n))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(hold)
				b.release(lock)
			}
		})
	}
	time.Sleep(time.Second)
	const others = 3
	bound := (others + 1) * (2*holdfast.DefaultCohortSpan + hold)
	for range others {
		l, _ := b.locker()
		wait.Go(func() {
			for range 5 {
				start := time.Now()
				lock, err := l.Acquire(background, "deploy", holdfast.WithPermits(n))
				if err != nil {
					t.Error(err)
					return
				}
				if waited := time.Since(start); waited > bound {
					t.Errorf("waited for %v, want at most %v", waited, bound)
				}
				time.Sleep(hold)
				b.release(lock)
			}
		})
	}
	time.Sleep(5 * time.Second)
	cancel()
	wait.Wait()
	if s := busy.Stats(); s.HandedOver < uint64(3*time.Second/hold) {
		t.Errorf("%d handed over in memory, want nearly all", s.HandedOver)
	}
}

func TestPermitsAreNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		err := l.Do(background, "deploy", func(ctx context.Context, outer *holdfast.Lock) error {
			for _, n := range []int{2, 5} { // the number does not matter
				inner, err := l.Acquire(ctx, "deploy", holdfast.WithPermits(n))
				if err != nil {
					return err
				}
				if inner.Slot() != outer.Slot() || inner.Token() != outer.Token() {
					t.Errorf("slot %[2]d is nested in slot %[1]d, want the same slot and token",
						outer.Slot(), inner.Slot())
				}
				b.release(inner)
			}
			// The lock of that name is another thing, which nobody holds.
			lock, err := l.TryAcquire(ctx, "deploy")
			if err != nil {
				return err
			}
			if lock.Slot() != -1 {
				t.Error("a lock was nested in a permit")
			}
			b.release(lock)
			return outer.Err()
		}, holdfast.WithPermits(2))
		if err != nil {
			t.Error(err)
		}
	})
}

func TestPermitsEndAsLocksDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var events []string
		l, faults := b.locker(holdfast.WithPermits(3), holdfast.WithHooks(holdfast.Hooks{
			Lost: func(e holdfast.LostEvent) {
				if e.Slot < 0 || e.Key != "deploy" {
					t.Errorf("slot %d of %q lost", e.Slot, e.Key)
				}
				events = append(events, "lost")
			},
			Acquired: func(e holdfast.AcquiredEvent) {
				if e.Slot < 0 || e.Key != "deploy" && e.Key != "other" {
					t.Errorf("slot %d of %q acquired", e.Slot, e.Key)
				}
			},
			Renewed: func(e holdfast.RenewedEvent) {
				if e.Slot < 0 || e.Key != "deploy" {
					t.Errorf("slot %d of %q renewed", e.Slot, e.Key)
				}
			},
		}))
		start := time.Now()
		held := b.acquire(l, "deploy")
		limited := b.acquire(l, "deploy", holdfast.WithMaxHold(time.Minute))
		short := b.acquire(l, "deploy", holdfast.WithoutRenewal(), holdfast.WithTTL(time.Second))
		if err := short.Extend(background); err != nil {
			t.Error(err)
		}
		b.endsAfter(short, start, validity(time.Second))
		b.endsAfter(limited, start, time.Minute)
		mustBe(t, limited.Err(), holdfast.ErrMaxHold)
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		b.releasePermits(b.acquirePermits(l, "other", 3))
		faults.Freeze()
		<-held.Done()
		mustBe(t, held.Err(), holdfast.ErrLost)
		faults.Thaw()
		time.Sleep(time.Minute)
		b.releasePermits(b.acquirePermits(l, "deploy", 3))
		synctest.Wait()
		if len(events) != 3 {
			t.Errorf("%d losses told, want 3", len(events))
		}
	})
}

// The maximum hold counts from the grant to the waiter, and is the waiter's own.
func TestMaximumHoldOfAPermitThatWasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		permits := b.acquirePermits(other, "deploy", 2)
		got := make(chan *holdfast.Lock)
		for _, hold := range []time.Duration{0, time.Minute} {
			go func() {
				lock, err := l.Acquire(background, "deploy", holdfast.WithPermits(2),
					holdfast.WithMaxHold(hold))
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		b.release(permits[0])
		first := <-got
		b.release(permits[1])
		second := <-got
		b.endsAfter(second, time.Now(), time.Minute)
		if err := first.Err(); err != nil {
			t.Errorf("the permit without a maximum hold was lost: %v", err)
		}
		b.release(first)
	})
}

// A permit that the scout has brought, and that is not renewed, ends at its maximum hold too.
func TestMaximumHoldOfAPermitThatIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		foreign := b.acquire(other, "deploy", holdfast.WithPermits(1))
		time.AfterFunc(time.Minute, func() { b.release(foreign) })
		lock := b.acquire(l, "deploy", holdfast.WithPermits(1), holdfast.WithoutRenewal(),
			holdfast.WithMaxHold(time.Second))
		b.endsAfter(lock, time.Now(), time.Second)
		mustBe(t, lock.Err(), holdfast.ErrMaxHold)
		lock.Release(background)
	})
}

// A waiter that gives up leaves nothing behind, and keeps nobody from a permit.
func TestPermitsWhoseWaitersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		permits := b.acquirePermits(other, "deploy", 3)
		for range 3 {
			ctx, cancel := context.WithTimeout(background, time.Second)
			_, err := l.Acquire(ctx, "deploy", holdfast.WithPermits(3))
			mustBe(t, err, context.DeadlineExceeded)
			cancel()
		}
		if s := l.Stats(); s.Waiting != 0 || s.Held != 0 {
			t.Errorf("%d wait, %d held; want none", s.Waiting, s.Held)
		}
		time.Sleep(time.Second)
		for entry, err := range b.memory.List(background, "") {
			if err != nil {
				t.Fatal(err)
			}
			if entry.Key == "deploy@permit/gate3" || len(entry.Waiters) > 0 {
				t.Errorf("left behind: %q has holder %q and %d waiters",
					entry.Key, entry.Holder.Owner, len(entry.Waiters))
			}
		}
		b.releasePermits(permits)
	})
}

// If several permits come at once, a waiter takes one, and the others are free, whatever the waiter
// was about to do when they came.
func TestPermitsThatComeTogether(t *testing.T) {
	for delay := range 30 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			other, faults := b.locker()
			permits := b.acquirePermits(l, "deploy", 4)
			faults.Inject(memhold.Fault{Times: 1000, Delay: 5 * time.Millisecond})
			got := b.waitFor(other, "deploy", 4, 1)
			time.Sleep(time.Duration(delay) * time.Millisecond)
			b.releasePermits(permits)
			first := <-got
			time.Sleep(time.Second)
			permits = permits[:0]
			for range 3 {
				p, err := l.TryAcquire(background, "deploy", holdfast.WithPermits(4))
				if err != nil {
					t.Fatalf("three permits are free, but: %v", err)
				}
				permits = append(permits, p)
			}
			b.release(first)
			b.releasePermits(permits)
		})
	}
}

// A process that has died while it waited with the gate costs the others no more than the gate's
// lease: five seconds, or the TTL if that is shorter.
func TestPermitsOutliveADeadScout(t *testing.T) {
	outliveADeadScout(t, 3*time.Second, 5*time.Second)
}

func TestPermitsOutliveADeadScoutWithAShortTTL(t *testing.T) {
	outliveADeadScout(t, 500*time.Millisecond, 2*time.Second, holdfast.WithTTL(time.Second))
}

// outliveADeadScout has a process with these options die with the gate, and another wait behind it
// for at most that time.
func outliveADeadScout(t *testing.T, presence, most time.Duration, options ...holdfast.Option) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(presence))
		l, _ := b.locker()
		dead, faults := b.locker(options...)
		other, _ := b.locker()
		permits := b.acquirePermits(l, "deploy", 2)
		ctx, cancel := context.WithCancel(background)
		go dead.Acquire(ctx, "deploy", holdfast.WithPermits(2))
		time.Sleep(time.Second)
		faults.Freeze()
		got := b.waitFor(other, "deploy", 2, 1)
		start := time.Now()
		b.release(permits[0])
		lock := <-got
		if waited := time.Since(start); waited > most {
			t.Errorf("waited for %v behind a dead process, want %v at most", waited, most)
		}
		cancel()
		faults.Thaw()
		b.release(lock)
		b.release(permits[1])
		time.Sleep(time.Minute)
	})
}

// While a semaphore is used with different numbers of permits, at most the larger number hold one,
// and the log says so.
func TestDifferentNumbersOfPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log bytes.Buffer
		two, _ := b.locker(holdfast.WithPermits(2),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		four, _ := b.locker(holdfast.WithPermits(4))
		var permits []*holdfast.Lock
		for _, l := range []*holdfast.Locker{two, two, four, four} {
			p, err := l.TryAcquire(background, "deploy")
			if err != nil {
				t.Fatal(err)
			}
			permits = append(permits, p)
		}
		for _, l := range []*holdfast.Locker{two, four} {
			_, err := l.TryAcquire(background, "deploy")
			mustBe(t, err, holdfast.ErrHeld)
		}
		ctx, cancel := context.WithCancel(background)
		var wait sync.WaitGroup
		for _, l := range []*holdfast.Locker{four, two} {
			wait.Go(func() {
				_, err := l.Acquire(ctx, "deploy")
				mustBe(t, err, context.Canceled)
			})
			time.Sleep(time.Second)
		}
		cancel()
		wait.Wait()
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "permits=2") ||
			!strings.Contains(text, "others=4") {
			t.Errorf("the log does not tell of 2 and 4 permits: %s", text)
		}
		b.releasePermits(permits)
	})
}

// After an outage of a TTL, all who wait are told. A shorter one ends no wait.
func TestPermitsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		permits := b.acquirePermits(other, "deploy", 2)
		options := []holdfast.AcquireOption{holdfast.WithPermits(2), holdfast.WithTTL(time.Minute)}
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				lock, err := l.Acquire(background, "deploy", options...)
				if err == nil {
					err = lock.Release(background)
				}
				errs <- err
			}()
		}
		time.Sleep(time.Second)
		faults.Freeze()
		time.Sleep(30 * time.Second)
		faults.Thaw()
		time.Sleep(10 * time.Second)
		if len(errs) > 0 {
			t.Fatalf("an outage of half the TTL ended a wait: %v", <-errs)
		}
		b.releasePermits(permits)
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		permits = b.acquirePermits(other, "deploy", 2)
		for range 3 {
			go func() {
				_, err := l.Acquire(background, "deploy", options...)
				errs <- err
			}()
		}
		time.Sleep(time.Second)
		faults.Freeze()
		start := time.Now()
		for range 3 {
			err := <-errs
			if !errors.Is(err, holdfast.ErrUnknown) && !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("got %v in an outage, want ErrUnknown or ErrUnavailable", err)
			}
		}
		if took := time.Since(start); took < 59*time.Second || took > 3*time.Minute {
			t.Errorf("told of the outage after %v, want about a minute", took)
		}
		faults.Thaw()
		b.releasePermits(permits)
		time.Sleep(5 * time.Minute)
	})
}

func TestCloseEndsWaitsForPermits(t *testing.T) {
	for _, handoff := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			var options []holdfast.Option
			if !handoff {
				options = append(options, holdfast.WithCohort(1, 0))
			}
			l, _ := b.locker(options...)
			other, _ := b.locker()
			own := b.acquire(l, "deploy", holdfast.WithPermits(2))
			permit := b.acquire(other, "deploy", holdfast.WithPermits(2))
			errs := make(chan error, 5)
			for range 5 {
				go func() {
					_, err := l.Acquire(background, "deploy", holdfast.WithPermits(2))
					errs <- err
				}()
			}
			time.Sleep(time.Second)
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("Close took %v, want no time", took)
			}
			for range 5 {
				mustBe(t, <-errs, holdfast.ErrClosed)
			}
			mustBe(t, own.Err(), holdfast.ErrClosed)
			_, err := l.Acquire(background, "deploy", holdfast.WithPermits(2))
			mustBe(t, err, holdfast.ErrClosed)
			b.release(permit)
		})
	}
}

// Close does not wait for the scout to set out.
func TestCloseBeforeTheScoutSetsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithCohort(64, time.Hour))
		b.acquire(l, "deploy", holdfast.WithPermits(1))
		errs := make(chan error, 1)
		go func() {
			_, err := l.Acquire(background, "deploy", holdfast.WithPermits(1))
			errs <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		mustBe(t, <-errs, holdfast.ErrClosed)
	})
}

// If a turn of the scout fails, those who wait in the next turn are not told.
func TestFailureOfATurnIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		l, faults := b.locker()
		permits := b.acquirePermits(holder, "deploy", 2)
		errs := make(chan error, 1)
		got := make(chan *holdfast.Lock, 1)
		go func() {
			_, err := l.Acquire(background, "deploy", holdfast.WithPermits(2))
			go func() { got <- b.acquire(l, "deploy", holdfast.WithPermits(2)) }()
			errs <- err
		}()
		time.Sleep(time.Second)
		faults.Inject(memhold.Fault{Times: 1, Key: "deploy@permit/1", Calls: memhold.Acquires,
			Err: &driver.Error{Permanent: true, Err: errors.New("wrong password")}})
		if err := <-errs; !driver.Permanent(err) {
			t.Errorf("error %v, want the refusal", err)
		}
		time.Sleep(time.Minute)
		b.releasePermits(permits)
		b.release(<-got)
	})
}

// While somebody waits for a permit, Stats count the permits that are held, and no gate.
func TestStatsWhileAPermitIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		l, _ := b.locker()
		permits := b.acquirePermits(holder, "deploy", 2)
		got := b.waitFor(l, "deploy", 2, 2)
		time.Sleep(time.Second)
		if s := l.Stats(); s.Held != 0 || s.Waiting != 2 || s.Acquired != 0 {
			t.Errorf("%d held, %d wait, %d acquired; want 0, 2, 0", s.Held, s.Waiting, s.Acquired)
		}
		b.releasePermits(permits)
		b.release(<-got)
		b.release(<-got)
	})
}

// Within the span, before the scout sets out, permits are handed over in memory in the same order.
func TestPermitsKeepTheOrderInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		permits := b.acquirePermits(l, "deploy", 3)
		got := make(chan int, 3)
		for i := range 3 {
			go func() {
				lock, err := l.Acquire(background, "deploy", holdfast.WithPermits(3))
				if err != nil {
					t.Error(err)
					return
				}
				got <- i
				time.Sleep(time.Second)
				b.release(lock)
			}()
			synctest.Wait()
		}
		for i, p := range permits {
			b.release(p)
			if first := <-got; first != i {
				t.Errorf("waiter %d got the permit, want %d", first, i)
			}
		}
		if s := l.Stats(); s.HandedOver != 3 {
			t.Errorf("%d handed over in memory, want 3", s.HandedOver)
		}
		time.Sleep(time.Minute)
	})
}

// A slot that another process has left is taken after at most the span, by a caller that waits in
// this process for slots that it has itself, and by no later caller.
func TestNewcomersDoNotOvertakeWhoWaitsForPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		two := holdfast.WithPermits(2)
		own, foreign := b.acquire(l, "deploy", two), b.acquire(other, "deploy", two)
		start := time.Now()
		first := b.waitFor(l, "deploy", 2, 1)
		time.Sleep(10 * time.Millisecond)
		b.release(foreign)
		_, err := l.TryAcquire(background, "deploy", two)
		mustBe(t, err, holdfast.ErrHeld)
		second := b.waitFor(l, "deploy", 2, 1)
		lock := <-first
		if waited := time.Since(start); waited != holdfast.DefaultCohortSpan {
			t.Errorf("waited for %v, want the span", waited)
		}
		if len(second) > 0 {
			t.Error("the second waiter has a permit as well")
		}
		b.release(lock)
		b.release(<-second)
		b.release(own)
	})
}

// A waiter that was to have a permit at the end of a run, and finds that it went to another
// process, is still the first of those who wait.
func TestPermitsKeepTheOrderAtTheEndOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		one := holdfast.WithPermits(1)
		own := b.acquire(l, "deploy", one)
		foreign := b.waitFor(other, "deploy", 1, 1)
		time.Sleep(time.Second)
		first := b.waitFor(l, "deploy", 1, 1)
		second := b.waitFor(l, "deploy", 1, 1)
		b.release(own)
		lock := <-foreign
		synctest.Wait()
		if len(first)+len(second) > 0 {
			t.Error("a second waiter has a permit, though there is one")
		}
		b.release(lock)
		b.release(<-first)
		b.release(<-second)
	})
}

// A process whose last permit has ended starts its scout at once.
func TestPermitsAreWaitedForAtOnceWithoutAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		options := []holdfast.AcquireOption{holdfast.WithPermits(2), holdfast.WithoutRenewal(),
			holdfast.WithTTL(20 * time.Millisecond)}
		foreign := b.acquire(other, "deploy", holdfast.WithPermits(2))
		b.acquire(l, "deploy", options...)
		start := time.Now()
		lock := b.acquire(l, "deploy", options...)
		if waited := time.Since(start); waited > 30*time.Millisecond {
			t.Errorf("waited for %v, want 30ms at most for a lease of 20ms to end", waited)
		}
		b.release(lock)
		b.release(foreign)
	})
}

// An outage that is shorter than the TTL ends no wait, even if the scout has just begun its first
// or another turn.
func TestPermitsInAShortOutage(t *testing.T) {
	for _, waited := range []time.Duration{0, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker(holdfast.WithTTL(time.Minute))
			other, _ := b.locker()
			two := holdfast.WithPermits(2)
			own, foreign := b.acquire(l, "deploy", two), b.acquire(other, "deploy", two)
			got := b.waitFor(l, "deploy", 2, 3)
			if waited > 0 {
				time.Sleep(waited)
				b.release(foreign)
				foreign = <-got
			}
			time.Sleep(10 * time.Millisecond)
			faults.Freeze()
			time.Sleep(30 * time.Second)
			faults.Thaw()
			time.Sleep(time.Second)
			foreign.Release(background) // one that was handed over just before may be lost
			b.release(<-got)
			b.release(own)
			b.release(<-got)
			if waited == 0 {
				b.release(<-got)
			}
			time.Sleep(time.Minute) // releases of the gate were not confirmed
		})
	}
}
