package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// A process that knows fewer permits does not keep those that know more from the other slots.
func TestFewerPermitsDoNotHoldUpMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		two, _ := b.locker()
		three, _ := b.locker()
		permits := b.acquirePermits(holder, "deploy", 3)
		few := b.waitFor(two, "deploy", 2, 1)
		many := b.waitFor(three, "deploy", 3, 1)
		time.Sleep(time.Second)
		var rest []*holdfast.Lock
		for _, p := range permits {
			if p.Slot() == 2 {
				b.release(p)
			} else {
				rest = append(rest, p)
			}
		}
		start := time.Now()
		b.release(<-many)
		if waited := time.Since(start); waited > 10*time.Millisecond {
			t.Errorf("slot 2 was free for %v while somebody waited, want 10ms at most", waited)
		}
		b.releasePermits(rest)
		b.release(<-few)
	})
}

// The log warns of different numbers of permits where two processes wait at the same time.
func TestScoutsTellDifferentNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log bytes.Buffer
		logger := holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
		holder, _ := b.locker()
		two, _ := b.locker(logger)
		same, _ := b.locker(logger)
		permits := b.acquirePermits(holder, "deploy", 2)
		got := b.waitFor(two, "deploy", 2, 1)
		again := b.waitFor(same, "deploy", 2, 1)
		time.Sleep(time.Minute)
		b.releasePermits(permits)
		b.release(<-got)
		b.release(<-again)
		synctest.Wait()
		if strings.Contains(log.String(), "different numbers") {
			t.Errorf("two processes with two permits each, and the log warns: %s", log.String())
		}
	})
}

// An outage shorter than the TTL does not end a wait, even if the scout has waited for the gate for
// longer than the TTL.
func TestShortOutageAfterALongWaitForTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		before, _ := b.locker()
		l, faults := b.locker(holdfast.WithTTL(time.Minute))
		permits := b.acquirePermits(holder, "deploy", 2)
		other := b.waitFor(before, "deploy", 2, 1)
		got := b.waitFor(l, "deploy", 2, 1)
		time.Sleep(10 * time.Minute)
		faults.Freeze()
		time.Sleep(30 * time.Second)
		faults.Thaw()
		time.Sleep(10 * time.Second)
		if len(got) > 0 {
			t.Fatal("an outage shorter than the TTL ended the wait")
		}
		b.releasePermits(permits)
		b.release(<-other)
		if lock := <-got; lock != nil {
			b.release(lock)
		}
		time.Sleep(time.Minute)
	})
}

// Outages of single slots, one after the other, do not add up to an outage of all.
func TestOutagesOfSlotsDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		l, faults := b.locker(holdfast.WithTTL(time.Minute))
		permits := b.acquirePermits(holder, "deploy", 2)
		got := b.waitFor(l, "deploy", 2, 1)
		for _, key := range []string{"deploy@permit/0", "deploy@permit/1"} {
			time.Sleep(time.Minute)
			mend := faults.Inject(memhold.Fault{Key: key, Err: driver.ErrUnavailable})
			time.Sleep(5 * time.Minute)
			mend()
		}
		time.Sleep(time.Minute)
		if len(got) > 0 {
			t.Fatal("outages of one slot after the other ended the wait")
		}
		b.releasePermits(permits)
		if lock := <-got; lock != nil {
			b.release(lock)
		}
		time.Sleep(time.Minute)
	})
}

// A gate that gives no answer does not keep waiters from slots that do.
func TestPermitsWithoutAGate(t *testing.T) {
	for _, fault := range []memhold.Fault{{Err: driver.ErrUnavailable}, {CutReply: true}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			holder, _ := b.locker()
			l, faults := b.locker()
			permits := b.acquirePermits(holder, "deploy", 2)
			fault.Key = "deploy@permit/gate2"
			mend := faults.Inject(fault)
			got := b.waitFor(l, "deploy", 2, 1)
			time.Sleep(10 * time.Minute)
			start := time.Now()
			b.releasePermits(permits)
			if lock := <-got; lock != nil {
				b.release(lock)
			}
			if waited := time.Since(start); waited > 5*time.Second {
				t.Errorf("a permit was free for %v while somebody waited, want 5s at most", waited)
			}
			mend()
			time.Sleep(time.Minute)
		})
	}
}

// If an answer is lost, a waiter asks once more, as it does for a lock.
func TestLostAnswerOfAPermitIsAskedForAgain(t *testing.T) {
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: n, CutReply: true})
			b.release(b.acquire(l, "deploy", holdfast.WithPermits(n)))
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, CutReply: true})
			start := time.Now()
			_, err := l.Acquire(background, "deploy", holdfast.WithPermits(n))
			mustBe(t, err, holdfast.ErrUnknown)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("told after %v, want 5s at most", took)
			}
			faults.Clear()
			time.Sleep(time.Minute)
		})
	}
}

// In an outage the scout pauses between its requests.
func TestScoutPausesWhileNothingAnswers(t *testing.T) {
	const ttl = time.Minute
	for name, outage := range map[string]struct {
		fault memhold.Fault
		lasts time.Duration
	}{
		"refused": {memhold.Fault{Err: driver.ErrUnavailable}, ttl - 10*time.Second},
		"cut":     {memhold.Fault{CutReply: true}, ttl - 10*time.Second},
		"gate":    {memhold.Fault{Err: driver.ErrUnavailable, Key: "deploy@permit/gate2"}, 5 * ttl},
		"slot":    {memhold.Fault{Err: driver.ErrUnavailable, Key: "deploy@permit/0"}, 5 * ttl},
	} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprint(name, behind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					holder, _ := b.locker()
					var calls atomic.Int64
					counted := newPushing(b)
					counted.acquire = func(ctx context.Context,
						c driver.Claim) (driver.Result, error) {
						calls.Add(1)
						return counted.Backend.Acquire(ctx, c)
					}
					l := b.lockerOn(counted, holdfast.WithTTL(ttl))
					permits := b.acquirePermits(holder, "deploy", 2)
					before, _ := b.locker()
					n := 0
					if behind { // it has the gate then
						n = 1
					}
					first := b.waitFor(before, "deploy", 2, n)
					got := b.waitFor(l, "deploy", 2, 1)
					time.Sleep(time.Second)
					calls.Store(0)
					mend := counted.memory.Faults().Inject(outage.fault)
					time.Sleep(outage.lasts)
					mend()
					if n := calls.Load(); n > 10*int64(outage.lasts/time.Second) {
						t.Errorf("%d requests in %v of an outage, want 10 a second at most",
							n, outage.lasts)
					}
					b.releasePermits(permits)
					if behind {
						b.release(<-first)
					}
					if lock := <-got; lock != nil {
						b.release(lock)
					}
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// A turn of the scout lasts for a millisecond for each slot after its first permit, if that is
// longer than the span.
func TestTurnOfTheScoutLastsForItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		b := newBench(t)
		holder, _ := b.locker()
		first, _ := b.locker()
		second, _ := b.locker()
		permits := b.acquirePermits(holder, "deploy", n)
		early := b.waitFor(first, "deploy", n, 3)
		time.Sleep(time.Second)
		late := b.waitFor(second, "deploy", n, 1)
		time.Sleep(time.Second)
		b.release(permits[0])
		got := []*holdfast.Lock{<-early}
		time.Sleep(n*time.Millisecond - 10*time.Millisecond)
		b.release(permits[1])
		synctest.Wait()
		if len(early) != 1 || len(late) != 0 {
			t.Errorf("in the turn, %d and %d have the permit, want the first", len(early), len(late))
		}
		time.Sleep(20 * time.Millisecond)
		b.release(permits[2])
		synctest.Wait()
		if len(early) != 1 || len(late) != 1 {
			t.Errorf("after the turn, %d and %d have the permit, want the second", len(early),
				len(late))
		}
		b.releasePermits(permits[3:])
		b.releasePermits(append(got, <-early, <-early, <-late))
	})
}

// Each turn of the scout ends a span after its first permit, and not only the first turn.
func TestEveryTurnOfTheScoutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		first, _ := b.locker()
		second, _ := b.locker()
		permits := b.acquirePermits(holder, "deploy", 4)
		early := b.waitFor(first, "deploy", 4, 3)
		var late chan *holdfast.Lock
		for turn, p := range permits[:3] {
			if turn == 1 { // behind the scout that goes on
				late = b.waitFor(second, "deploy", 4, 1)
			}
			b.release(p)
			time.Sleep(holdfast.DefaultCohortSpan + 10*time.Millisecond)
		}
		if len(early) != 2 || len(late) != 1 {
			t.Errorf("after two turns %d and %d have a permit, want 2 and 1", len(early), len(late))
		}
		b.release(permits[3])
		for range 3 {
			b.release(<-early)
		}
		b.release(<-late)
	})
}

// A caller that comes just as the last waiter has given up is not told of that.
func TestWhoComesAsTheScoutTurnsBackWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		backend := newPushing(b)
		backend.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			r, err := backend.Backend.Acquire(ctx, c)
			if strings.Contains(c.Key, "@permit/gate") {
				time.Sleep(100 * time.Millisecond) // the answer takes its time
			}
			return r, err
		}
		l := b.lockerOn(backend)
		permits := b.acquirePermits(holder, "deploy", 2)
		ctx, cancel := context.WithCancel(background)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := l.Acquire(ctx, "deploy", holdfast.WithPermits(2))
			mustBe(t, err, context.Canceled)
		}()
		time.Sleep(50 * time.Millisecond)
		cancel()
		<-done
		got := b.waitFor(l, "deploy", 2, 1)
		time.Sleep(time.Minute)
		b.releasePermits(permits)
		if lock := <-got; lock != nil {
			b.release(lock)
		}
	})
}

// A caller that comes while a permit is being released asks for it after the release, without the
// scout.
func TestPermitThatIsBeingReleasedIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 10 * time.Millisecond
		b := newBench(t)
		l, faults := b.locker()
		permits := b.acquirePermits(l, "deploy", 2)
		defer faults.Inject(memhold.Fault{ReplyDelay: roundTrip})()
		go b.release(permits[0])
		synctest.Wait()
		start := time.Now()
		b.release(b.acquire(l, "deploy", holdfast.WithPermits(2)))
		if took := time.Since(start); took > 3*roundTrip {
			t.Errorf("release, acquisition and release took %v, want three round trips", took)
		}
		b.release(permits[1])
	})
}

// coarse is a backend that takes no TTL under ten seconds.
type coarse struct{ *pushing }

func (b coarse) CheckTTL(ttl time.Duration) error {
	if ttl < 10*time.Second {
		return &driver.Error{Invalid: true, Err: fmt.Errorf("TTL %v: at least 10s", ttl)}
	}
	return nil
}

// The gate has a TTL that the backend takes.
func TestGateOfABackendThatTakesNoShortTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		holder, _ := b.locker()
		backend := coarse{newPushing(b)}
		backend.acquire = func(ctx context.Context, c driver.Claim) (driver.Result, error) {
			if err := backend.CheckTTL(c.TTL); err != nil {
				return driver.Result{}, err
			}
			return backend.Backend.Acquire(ctx, c)
		}
		l := b.lockerOn(backend)
		permits := b.acquirePermits(holder, "deploy", 2)
		got := b.waitFor(l, "deploy", 2, 1)
		time.Sleep(time.Minute)
		b.releasePermits(permits)
		if lock := <-got; lock != nil {
			b.release(lock)
		}
	})
}

// A slot that becomes free in a turn of the scout that has brought it already is taken as soon as
// any other slot, however many there are.
func TestSlotOfALongTurnIsTaken(t *testing.T) {
	for _, n := range []int{40, 200} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			holder, _ := b.locker()
			l, _ := b.locker()
			permits := b.acquirePermits(holder, "deploy", n)
			const waiters = 3
			start, taken := time.Now(), make(chan time.Duration, waiters)
			for range waiters {
				go func() {
					lock, err := l.Acquire(background, "deploy", holdfast.WithPermits(n),
						holdfast.WithoutRenewal(), holdfast.WithTTL(20*time.Millisecond))
					if err != nil {
						t.Error(err)
						return
					}
					taken <- time.Since(start)
					<-lock.Done() // and does not release it
				}()
			}
			time.Sleep(time.Second)
			start = time.Now()
			b.release(permits[0])
			for i := range waiters {
				most := time.Duration(i) * (20*time.Millisecond + holdfast.DefaultCohortSpan)
				if took := <-taken; took > most {
					t.Errorf("%d slots: the permit that was free was taken after %v, want %v at most",
						n, took, most)
				}
			}
			time.Sleep(time.Second)
			b.releasePermits(permits[1:])
		})
	}
}

// A handoff tells how many wait, even if the scout is in between.
func TestHandoffToTheScoutCountsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var waiting []int
		l, _ := b.locker(holdfast.WithHooks(holdfast.Hooks{
			HandedOver: func(e holdfast.HandedOverEvent) { waiting = append(waiting, e.Waiting) }}))
		lock := b.acquire(l, "deploy", holdfast.WithPermits(1))
		got := b.waitFor(l, "deploy", 1, 3)
		for range 3 {
			time.Sleep(time.Millisecond)
			b.release(lock)
			lock = <-got
		}
		more := b.waitFor(l, "deploy", 1, 3)
		time.Sleep(time.Second) // the scout waits for the slot
		b.release(lock)         // a new run: that is no handoff
		for range 3 {
			lock = <-more
			synctest.Wait()
			b.release(lock)
		}
		synctest.Wait()
		if want := []int{2, 1, 0, 1, 0}; !slices.Equal(waiting, want) {
			t.Errorf("%v waited, want %v", waiting, want)
		}
	})
}
