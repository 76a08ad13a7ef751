package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// A waiter in another process gets the key at the release, without asking again.
func TestWaiterIsWokenByRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l1, _ := b.locker()
		l2, _ := b.locker()
		lock := b.acquire(l1, "key")
		time.AfterFunc(time.Minute+123*time.Millisecond, func() { b.release(lock) })
		start := time.Now()
		next := b.acquire(l2, "key")
		if waited := time.Since(start); waited != time.Minute+123*time.Millisecond {
			t.Errorf("got the key after %v, want in the moment of the release", waited)
		}
		if next.Token() <= lock.Token() {
			t.Errorf("token %d after %d, want a larger one", next.Token(), lock.Token())
		}
		// The grant is only as long as the presence. Most runs of turns end before it is renewed.
		time.Sleep(holdfast.DefaultCohortSpan)
		if n := l2.Stats().Renewed; n != 0 {
			t.Errorf("renewed %d times within the span of a cohort, want none", n)
		}
		time.Sleep(time.Second)
		if left := time.Until(next.Deadline()); left < validity(holdfast.DefaultTTL)-time.Second {
			t.Errorf("valid for %v after the handoff, want the full TTL", left)
		}
		b.release(next)
	})
}

// Without renewal a handoff still gives the full lease, which is the time to work (R9).
func TestR9HandoffWithoutRenewalGivesFullLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(time.Second))
		l1, _ := b.locker()
		l2, _ := b.locker(holdfast.WithTTL(20*time.Second), holdfast.WithoutRenewal())
		lock := b.acquire(l1, "key")
		time.AfterFunc(10*time.Second, func() { b.release(lock) })
		next := b.acquire(l2, "key")
		if left := time.Until(next.Deadline()); left != validity(20*time.Second) {
			t.Errorf("valid for %v, want %v", left, validity(20*time.Second))
		}
		b.release(next)
	})
}

// A grant by handoff is valid only for what is left of the waiter's presence, until a renewal
// succeeds.
func TestHandoffIsValidForThePresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const presence = 3 * time.Second
		b := newBench(t, memhold.WithPresence(presence))
		l1, _ := b.locker()
		l2, faults := b.locker()
		lock := b.acquire(l1, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable})
		start := time.Now()
		time.AfterFunc(10*time.Second+500*time.Millisecond, func() { b.release(lock) })
		next := b.acquire(l2, "key")
		// The last heartbeat left at 10 s.
		b.endsAfter(next, start, 10*time.Second+validity(presence))
		faults.Clear()
	})
}

// A short lease from a handoff does not stop the handoffs in memory that follow.
func TestRunGoesOnAfterHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(3*time.Second))
		l1, _ := b.locker()
		l2, faults := b.locker(holdfast.WithCohort(64, time.Second))
		lock := b.acquire(l1, "key")
		// the lease stays short for that long
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Delay: time.Second})
		var wait sync.WaitGroup
		for range 20 {
			wait.Go(func() { b.release(b.acquire(l2, "key")) })
		}
		synctest.Wait()
		b.release(lock)
		wait.Wait()
		if n := l2.Stats().HandedOver; n != 19 {
			t.Errorf("%d of 19 turns were handed over in memory, want all", n)
		}
		time.Sleep(5 * time.Second)
	})
}

// A waiter that gives up leaves its place in the backend's queue to the next goroutine of its
// Locker.
func TestPlaceInQueueIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l1, _ := b.locker()
		l2, _ := b.locker()
		l3, _ := b.locker()
		lock := b.acquire(l1, "key")
		ctx, cancel := context.WithCancel(background)
		var served []string
		var wait sync.WaitGroup
		ask := func(ctx context.Context, name string, l *holdfast.Locker) {
			wait.Go(func() {
				if lock, err := l.Acquire(ctx, "key"); err == nil {
					served = append(served, name)
					b.release(lock)
				}
			})
			synctest.Wait()
		}
		ask(ctx, "gives up", l2)
		ask(background, "its successor", l2)
		ask(background, "other process", l3)
		cancel()
		synctest.Wait()
		b.release(lock)
		wait.Wait()
		if len(served) != 2 || served[0] != "its successor" {
			t.Errorf("served %q, want the successor first", served)
		}
	})
}

// A lost notice costs at most a second.
func TestLostNoticeCostsAtMostASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, presence := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second,
			time.Minute} {
			b := newBench(t, memhold.WithPresence(presence))
			l1, _ := b.locker()
			l2, faults := b.locker()
			faults.LoseNotices(true)
			lock := b.acquire(l1, "key")
			var released time.Time
			time.AfterFunc(10*time.Second, func() { released = time.Now(); b.release(lock) })
			next := b.acquire(l2, "key")
			if late := time.Since(released); late > time.Second {
				t.Errorf("presence %v: got the key %v after the release, want a second at most",
					presence, late)
			}
			b.release(next)
		}
	})
}

// late holds back notices.
type late struct {
	*memhold.Backend
	deliver func()
}

func (l *late) Notify(f func(driver.Notice)) (stop func()) {
	var mu sync.Mutex
	var kept []driver.Notice
	l.deliver = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range kept {
			f(n)
		}
		kept = nil
	}
	return l.Backend.Notify(func(n driver.Notice) {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, n)
	})
}

// A notice may come so late that its grant has ended and the waiter has queued again. It does not
// count as a new grant: somebody else holds the key.
func TestR1LateNoticeIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(3*time.Second))
		l1, _ := b.locker()
		l3, _ := b.locker()
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		slow := &late{Backend: client}
		l2 := b.lockerOn(slow)
		lock := b.acquire(l1, "key")
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- b.acquire(l2, "key") }()
		synctest.Wait()
		client.Faults().Inject(
			memhold.Fault{Err: &driver.Error{Err: errors.New("connection refused")}})
		b.release(lock) // hands over to the waiter, which does not hear of it
		time.Sleep(4 * time.Second)
		lock = b.acquire(l3, "key")
		client.Faults().Clear()
		time.Sleep(2 * time.Second) // it has queued once more
		slow.deliver()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a late notice gave the key to a waiter while another process held it")
		default:
		}
		b.release(lock)
		synctest.Wait()
		slow.deliver()
		b.release(<-got)
	})
}

// unqueued is a backend that takes the first waiter out of its queue again, as a quorum does if too
// few of its nodes have one.
type unqueued struct {
	*late
	meanwhile func() // when that waiter is in the queue; then nil
}

func (u *unqueued) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	result, err := u.late.Acquire(ctx, c)
	if u.meanwhile == nil || result.State != driver.Busy {
		return result, err
	}
	u.meanwhile()
	u.meanwhile = nil
	if _, err := u.Release(ctx, c); err != nil {
		return driver.Result{}, err
	}
	result.Place, result.Presence, result.Clock = 0, 0, 0
	return result, nil
}

// A waiter that was told that it does not wait may have waited before that, and been granted the
// key. A notice of that does not count when it waits later.
func TestR1LateNoticeOfAnEarlierPlaceIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(3*time.Second))
		l1, _ := b.locker()
		l3, _ := b.locker()
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		lock := b.acquire(l1, "key")
		slow := &unqueued{late: &late{Backend: client}, meanwhile: func() { b.release(lock) }}
		l2 := b.lockerOn(slow)
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- b.acquire(l2, "key") }()
		synctest.Wait()
		lock = b.acquire(l3, "key")
		time.Sleep(2 * time.Second) // it has queued once more
		slow.deliver()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a late notice gave the key to a waiter while another process held it")
		default:
		}
		b.release(lock)
		synctest.Wait()
		slow.deliver()
		b.release(<-got)
	})
}

// The reply to a waiter's first request is lost, and another waiter comes before its second one.
// After an outage that both survive, the waiter that came first is still served first.
func TestPlaceOfAFirstRequestWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const presence = 3 * time.Second
		b := newBench(t, memhold.WithPresence(presence))
		holder, _ := b.locker()
		lock := b.acquire(holder, "key")
		var lockers []*holdfast.Locker
		var faults []memhold.Faults
		for range 2 {
			l, f := b.locker()
			lockers, faults = append(lockers, l), append(faults, f)
		}
		served := make(chan int, len(lockers))
		var released sync.WaitGroup
		faults[0].Inject(memhold.Fault{CutReply: true, Times: 1})
		for i, l := range lockers {
			released.Go(func() {
				lock := b.acquire(l, "key")
				served <- i
				b.release(lock)
			})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(presence / 2)
		for _, f := range faults {
			f.Inject(memhold.Fault{Err: errors.New("connection refused")})
		}
		time.Sleep(2 * presence)
		for _, f := range faults {
			f.Clear()
		}
		time.Sleep(presence)
		b.release(lock)
		if first := <-served; first != 0 {
			t.Error("the waiter that came second was served first")
		}
		released.Wait() // before the Lockers are closed
	})
}

// R2: a holder that is gone blocks others for its TTL, a waiter that is gone for its presence.
func TestR2DeadHolderCostsItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(3*time.Second))
		l, faults := b.locker()
		dead := b.memory.Client()
		dead.Acquire(background, driver.Claim{Key: "key", Owner: "dead holder",
			TTL: 20 * time.Second})
		dead.Acquire(background, driver.Claim{Key: "key", Owner: "dead waiter",
			TTL: 20 * time.Second, Queue: true})
		dead.Close()
		start := time.Now()
		faults.LoseNotices(true)
		lock := b.acquire(l, "key")
		if waited := time.Since(start); waited < 20*time.Second || waited > 21*time.Second {
			t.Errorf("got the key after %v, want soon after the dead holder's 20s", waited)
		}
		b.release(lock)
	})
}

// freeing is a backend without a queue that tells everybody when a key was released.
type freeing struct {
	*memhold.Backend
	tell  func(driver.Notice)
	asked map[string]int // by key
}

func (f *freeing) Notify(tell func(driver.Notice)) (stop func()) {
	f.tell = tell
	return func() {}
}

func (f *freeing) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	f.asked[c.Key]++
	c.Queue = false
	return f.Backend.Acquire(ctx, c)
}

func (f *freeing) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	defer f.tell(driver.Notice{Kind: driver.Freed, Key: c.Key})
	return f.Backend.Release(ctx, c)
}

// A notice to all who wait for a key wakes them, and nobody else.
func TestNoticeToEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		backend := &freeing{Backend: b.memory, asked: make(map[string]int)}
		l := b.lockerOn(backend, holdfast.WithCohort(1, 0))
		lock, another := b.acquire(l, "key"), b.acquire(l, "another")
		got := next(l, background)
		go l.Acquire(t.Context(), "another")
		synctest.Wait()
		start, asked := time.Now(), backend.asked["another"]
		b.release(lock)
		b.release(<-got)
		if took := time.Since(start); took != 0 {
			t.Errorf("got the key %v after the notice; want at once", took)
		}
		synctest.Wait()
		if again := backend.asked["another"] - asked; again != 0 {
			t.Errorf("asked %d times for a key that the notice is not about; want no time", again)
		}
		b.release(another)
	})
}

// A waiter without a place in a queue asks when the holder's lease ends.
func TestDeadHolderIsNotWaitedForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.memory.Acquire(background, driver.Claim{Key: "key", Owner: "dead holder",
			TTL: 20 * time.Second})
		start := time.Now()
		lock := b.acquire(b.lockerOn(&freeing{Backend: b.memory, asked: make(map[string]int)}),
			"key")
		if waited := time.Since(start); waited > 20*time.Second+5*time.Millisecond {
			t.Errorf("got the key after %v, want it within 5ms of the dead holder's 20s", waited)
		}
		b.release(lock)
	})
}

// polling is a backend without queue and notices.
type polling struct {
	driver.Backend
	asked []time.Time
}

func (p *polling) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	p.asked = append(p.asked, time.Now())
	c.Queue = false
	return p.Backend.Acquire(ctx, c)
}

// R21, R22: if a backend has only polling, delays are random and longer than an acquisition takes.
func TestR21R22PollingDelaysAreRandomAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, roundTrip := range []time.Duration{0, 100 * time.Millisecond} {
			b := newBench(t)
			l1, _ := b.locker()
			client := b.memory.Client()
			b.clients = append(b.clients, client)
			client.Faults().Inject(memhold.Fault{ReplyDelay: roundTrip})
			p := &polling{Backend: client}
			l2 := b.lockerOn(p)
			lock := b.acquire(l1, "key")
			var released time.Time
			time.AfterFunc(time.Minute, func() { released = time.Now(); b.release(lock) })
			next := b.acquire(l2, "key")
			if late := time.Since(released); late > time.Second+roundTrip {
				t.Errorf("round trip %v: got the key %v after the release, want 1s and a trip",
					roundTrip, late)
			}
			distinct := make(map[time.Duration]bool)
			for i := 1; i < len(p.asked); i++ {
				pause := p.asked[i].Sub(p.asked[i-1]) - roundTrip
				distinct[pause] = true
				if pause < 10*time.Millisecond || pause < 2*roundTrip {
					t.Errorf("round trip %v: asked again after %v, want 10ms and two trips",
						roundTrip, pause)
				}
			}
			if n := len(p.asked); n < 60 || n > 1000 || len(distinct) < n/2 {
				t.Errorf("round trip %v: asked %d times in a minute, in %d pauses; want 60 to 1,000",
					roundTrip, n, len(distinct))
			}
			b.release(next)
		}
	})
}

func TestWaitEndsWithPermanentErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l1, _ := b.locker()
		l2, faults := b.locker()
		lock := b.acquire(l1, "key")
		refusal := &driver.Error{Permanent: true, Err: errors.New("READONLY")}
		start := time.Now()
		time.AfterFunc(5*time.Second, func() {
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1, Err: refusal})
		})
		_, err := l2.Acquire(background, "key")
		mustBe(t, err, refusal, holdfast.ErrUnavailable)
		if waited := time.Since(start); waited > 7*time.Second {
			t.Errorf("told after %v, want 7s at most", waited)
		}
		b.release(lock)
	})
}

func TestOutage(t *testing.T) {
	down := &driver.Error{Err: errors.New("connection refused")}
	t.Run("from the start ends the wait at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			defer faults.Inject(memhold.Fault{Err: down})()
			start := time.Now()
			_, err := l.Acquire(background, "key")
			mustBe(t, err, holdfast.ErrUnavailable, down)
			if time.Since(start) != 0 {
				t.Errorf("told after %v, want at once", time.Since(start))
			}
		})
	})
	t.Run("in a wait is sat out for a TTL", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l1, _ := b.locker(holdfast.WithTTL(10 * time.Second))
			l2, faults := b.locker(holdfast.WithTTL(10 * time.Second))
			lock := b.acquire(l1, "key")
			fail := func() { faults.Inject(memhold.Fault{Err: down}) }
			time.AfterFunc(5*time.Second, fail)
			time.AfterFunc(13*time.Second, func() { faults.Clear(); b.release(lock) })
			b.release(b.acquire(l2, "key"))

			lock = b.acquire(l1, "key")
			start := time.Now()
			time.AfterFunc(5*time.Second, fail)
			_, err := l2.Acquire(background, "key")
			mustBe(t, err, holdfast.ErrUnavailable, down)
			if waited := time.Since(start); waited < 13*time.Second || waited > 17*time.Second {
				t.Errorf("told after %v, want about 15s: 10s after the last answer", waited)
			}
			faults.Clear()
			b.release(lock)
		})
	})
	t.Run("after a run of turns is sat out for a TTL from its last answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker(holdfast.WithTTL(time.Minute), holdfast.WithoutRenewal())
			other, _ := b.locker()
			lock := b.acquire(l, "key")
			var wait sync.WaitGroup
			wait.Go(func() {
				next := b.acquire(other, "key")
				time.Sleep(50 * time.Second)
				b.release(next)
			})
			synctest.Wait()
			wait.Go(func() {
				last, err := l.Acquire(background, "key")
				if err != nil {
					t.Errorf("an outage of 30 s ended the wait: %v", err)
					return
				}
				b.release(last)
			})
			time.Sleep(55 * time.Second)
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: down})
			time.AfterFunc(30*time.Second, faults.Clear)
			b.release(lock) // a Renew is answered, and the key passes to the other
			wait.Wait()
		})
	})
	t.Run("tells all goroutines that wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			faults.Freeze()
			start := time.Now()
			together(100, func(int) {
				_, err := l.Acquire(background, "key")
				mustBe(t, err, holdfast.ErrUnknown)
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v blames a context that has no deadline", err)
				}
			})
			// Two requests of 5 s each, since the first has an unknown outcome.
			if waited := time.Since(start); waited > 11*time.Second {
				t.Errorf("the last was told after %v, want 11s at most", waited)
			}
			faults.Thaw()
			time.Sleep(time.Minute) // clean-up
		})
	})
}

// If a reply is lost, the key may be ours. Asking again settles it.
func TestLostReplyIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1, CutReply: true})
		lock := b.acquire(l, "key")
		b.mustBeHeld(other, "key")
		b.release(lock)

		// With a single attempt there is no second question; the key is cleaned up.
		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Times: 1, CutReply: true})
		_, err := l.TryAcquire(background, "key")
		mustBe(t, err, holdfast.ErrUnknown)
		synctest.Wait()
		b.mustBeFree(other, "key")
	})
}

// Goroutines of one Locker are served in the order in which they asked.
func TestLocalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithCohort(1000, time.Hour))
		lock := b.acquire(l, "key")
		var order []int
		var wait sync.WaitGroup
		for i := range 100 {
			wait.Go(func() {
				lock := b.acquire(l, "key")
				order = append(order, i)
				b.release(lock)
			})
			synctest.Wait()
		}
		b.release(lock)
		wait.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v, want 0, 1, 2 and so on", order)
			}
		}
		if s := l.Stats(); s.HandedOver != 100 {
			t.Errorf("%d handoffs in memory, want 100", s.HandedOver)
		}
	})
}

// Fairness between processes is part of the contract: while another Locker waits, a run of turns is
// bounded by count...
func TestCohortIsBoundedByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns = 8
		b := newBench(t)
		greedy, _ := b.locker(holdfast.WithCohort(turns, time.Hour))
		modest, _ := b.locker()
		testCohortBound(t, b, greedy, modest, time.Millisecond, turns)
	})
}

// ... and by time.
func TestCohortIsBoundedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		greedy, _ := b.locker(holdfast.WithCohort(1000, 50*time.Millisecond))
		modest, _ := b.locker()
		// The turn in which the span ends is the last: 50 ms are 6 turns of 10 ms, counted from the
		// start of the first.
		testCohortBound(t, b, greedy, modest, 10*time.Millisecond, 6)
	})
}

// By default a process has 64 turns, or as many as begin within 50 ms.
func TestCohortDefaults(t *testing.T) {
	for work, want := range map[time.Duration]int64{0: 64, 9 * time.Millisecond: 6} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			greedy, _ := b.locker()
			modest, _ := b.locker()
			var turns atomic.Int64
			var wait sync.WaitGroup
			first := b.acquire(greedy, "key")
			for range 100 {
				wait.Go(func() {
					lock := b.acquire(greedy, "key")
					turns.Add(1)
					time.Sleep(work)
					b.release(lock)
				})
			}
			wait.Go(func() {
				lock := b.acquire(modest, "key")
				if got := turns.Load(); got != want {
					t.Errorf(
						"with %v of work: %d turns before another process had its own, want %d",
						work, got, want)
				}
				b.release(lock)
			})
			synctest.Wait()
			turns.Add(1)
			time.Sleep(work)
			b.release(first)
			wait.Wait()
		})
	}
}

// With local handoff switched off, no turn is given in memory.
func TestCohortOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		greedy, _ := b.locker(holdfast.WithCohort(1, 0))
		modest, _ := b.locker(holdfast.WithCohort(1, 0))
		// The backend's queue has one goroutine of modest among ten of greedy.
		testCohortBound(t, b, greedy, modest, time.Millisecond, 10)
		if n := greedy.Stats().HandedOver + modest.Stats().HandedOver; n != 0 {
			t.Errorf("%d handoffs in memory, want none", n)
		}
	})
}

func testCohortBound(t *testing.T, b *bench, greedy, modest *holdfast.Locker, work time.Duration,
	bound int) {
	t.Helper()
	var run atomic.Int64 // turns of greedy since modest last had the key
	var last holdfast.Token
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lock := b.acquire(greedy, "key")
				if lock.Token() <= last {
					t.Errorf("token %d after %d, want a larger one", lock.Token(), last)
				}
				last = lock.Token()
				run.Add(1)
				time.Sleep(work)
				b.release(lock)
			}
		})
	}
	synctest.Wait()
	for range 50 {
		time.Sleep(7 * time.Millisecond)
		run.Store(0)
		lock := b.acquire(modest, "key")
		if n := run.Load(); n > int64(bound)+1 { // one turn may have been under way
			t.Errorf("waited for %d turns of the other process, want %d at most", n, bound)
		}
		if lock.Token() <= last {
			t.Errorf("token %d after %d, want a larger one", lock.Token(), last)
		}
		last = lock.Token()
		b.release(lock)
	}
	close(stop)
	wait.Wait()
}

// A turn checks what is left of the lease. If it is over, the cohort asks for the key anew.
func TestHandoffChecksValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithTTL(9*time.Second), holdfast.WithCohort(100, time.Hour))
		lock := b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable})
		got := make(chan *holdfast.Lock)
		go func() { got <- b.acquire(l, "key") }()
		time.Sleep(8 * time.Second)
		b.release(lock)
		next := <-got
		if left := time.Until(next.Deadline()); left != validity(9*time.Second) {
			t.Errorf("handed over with %v of validity left, want %v", left, validity(9*time.Second))
		}
		faults.Clear()
		b.release(next)
	})
}

// A turn without renewal, or with another TTL, works on a lease of its own.
func TestHandoffWithOtherTermsRenewsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(30*time.Second), holdfast.WithCohort(100, time.Hour))
		lock := b.acquire(l, "key")
		got := make(chan *holdfast.Lock)
		go func() {
			got <- b.acquire(l, "key", holdfast.WithTTL(12*time.Second), holdfast.WithoutRenewal())
		}()
		time.Sleep(5 * time.Second)
		b.release(lock)
		next := <-got
		start := time.Now()
		if next.Token() <= lock.Token() {
			t.Errorf("token %d after %d, want a larger one", next.Token(), lock.Token())
		}
		b.endsAfter(next, start, validity(12*time.Second))
	})
}

// R9, R35: a renewal from a turn that is over may reach the backend after the first renewal of the
// next turn, whose lease is longer. Then the lease is the short one, and the holder knows, even if
// every later renewal is lost.
func TestRenewalOfAnEarlierTurnComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		defer client.Close()
		late := &spy{Backend: client}
		const short, long = 6 * time.Second, time.Minute
		sent := 0
		late.renew = func(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
			switch {
			case c[0].TTL == short:
				time.Sleep(time.Second) // on its way
			case sent > 0:
				return nil, &driver.Error{Err: errors.New("cut off")}
			default:
				sent++
			}
			return client.Renew(ctx, c)
		}
		l := b.lockerOn(late, holdfast.WithCohort(100, time.Hour))
		other, _ := b.locker()
		lock := b.acquire(l, "key", holdfast.WithTTL(short))
		got := make(chan *holdfast.Lock)
		go func() { got <- b.acquire(l, "key", holdfast.WithTTL(long)) }()
		time.Sleep(short/3 + 100*time.Millisecond)
		b.release(lock)
		next := <-got
		b.acquire(other, "key")
		if next.Err() == nil {
			t.Errorf("another process has the key, and this one still counts on it for %v",
				time.Until(next.Deadline()))
		}
	})
}
