package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

func (b *bench) acquireAll(l *holdfast.Locker, keys []string,
	options ...holdfast.AcquireOption) *holdfast.LockSet {
	b.t.Helper()
	set, err := l.AcquireAll(background, keys, options...)
	if err != nil {
		b.t.Fatal(err)
	}
	return set
}

func (b *bench) releaseAll(set *holdfast.LockSet) {
	b.t.Helper()
	if err := set.Release(background); err != nil {
		b.t.Errorf("release: %v", err)
	}
}

// later runs AcquireAll on another goroutine, and says when it waits.
func (b *bench) later(l *holdfast.Locker, keys []string,
	options ...holdfast.AcquireOption) chan *holdfast.LockSet {
	got := make(chan *holdfast.LockSet, 1)
	go func() {
		defer close(got)
		set, err := l.AcquireAll(background, keys, options...)
		if err != nil {
			b.t.Error(err)
			return
		}
		got <- set
	}()
	synctest.Wait()
	return got
}

// counting counts the requests.
type counting struct {
	*memhold.Backend
	acquires, releases atomic.Int32
}

func (c *counting) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	c.acquires.Add(1)
	return c.Backend.Acquire(ctx, claim)
}

func (c *counting) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	c.releases.Add(1)
	return c.Backend.Release(ctx, claim)
}

func newCounting(b *bench) *counting {
	client := b.memory.Client()
	b.clients = append(b.clients, client)
	return &counting{Backend: client}
}

func TestAllKeysTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithPrefix("p/"))
		other, _ := b.locker(holdfast.WithPrefix("p/"))
		start := time.Now()
		set := b.acquireAll(l, []string{"c", "a", "c", "b", "a"})
		var keys []string
		for _, lock := range set.Locks() {
			keys = append(keys, lock.Key())
			if lock != set.Lock(lock.Key()) || lock.Token() != set.Token(lock.Key()) ||
				lock.Token() == 0 || lock.Err() != nil {
				t.Errorf("%v: token %d, error %v; want a lock of the set that is held",
					lock, set.Token(lock.Key()), lock.Err())
			}
			b.mustBeHeld(other, lock.Key())
		}
		if !slices.Equal(keys, []string{"c", "a", "b"}) {
			t.Errorf("the locks are on %q, want the order in which the keys were named", keys)
		}
		if set.Lock("d") != nil || set.Token("d") != 0 || set.Err() != nil {
			t.Errorf("lock on another key: %v, token %d; error %v; want none",
				set.Lock("d"), set.Token("d"), set.Err())
		}
		if want := `locks on "c", "a", "b"`; set.String() != want {
			t.Errorf("the set is %q, want %q", set, want)
		}
		set.Locks()[0] = nil // the caller's own slice
		if got := set.Deadline().Sub(start); got != validity(holdfast.DefaultTTL) {
			t.Errorf("deadline %v after the start, want %v", got, validity(holdfast.DefaultTTL))
		}
		time.Sleep(time.Hour) // all are renewed
		done, ctx := set.Done(), set.Context(background)
		b.releaseAll(set)
		<-done
		mustBe(t, context.Cause(ctx), holdfast.ErrReleased)
		mustBe(t, set.Err(), holdfast.ErrReleased)
		err := set.Release(background)
		mustBe(t, err, holdfast.ErrReleased)
		if want := `holdfast: "c", "a", "b": lock released`; err.Error() != want {
			t.Errorf("the second Release says %q, want %q", err, want)
		}
		mustBe(t, set.Extend(background), holdfast.ErrReleased)
		mustBe(t, context.Cause(set.Context(background)), holdfast.ErrReleased)
		if set.Deadline().After(time.Now()) {
			t.Error("the deadline of a set that has ended is in the future")
		}
		<-set.Done()
		for _, key := range keys {
			mustBe(t, set.Lock(key).Err(), holdfast.ErrReleased)
			b.mustBeFree(other, key)
		}
	})
}

// All free keys cost one round trip, and so do the releases.
func TestAllCostsOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		const trip = 20 * time.Millisecond
		faults.Inject(memhold.Fault{Delay: trip / 2, ReplyDelay: trip / 2})
		keys := make([]string, 100)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		start := time.Now()
		set := b.acquireAll(l, keys)
		if took := time.Since(start); took != trip {
			t.Errorf("AcquireAll took %v, want %v", took, trip)
		}
		start = time.Now()
		if err := set.Extend(background); err != nil || time.Since(start) != trip {
			t.Errorf("Extend: %v, took %v, want %v", err, time.Since(start), trip)
		}
		start = time.Now()
		b.releaseAll(set)
		if took := time.Since(start); took != trip {
			t.Errorf("Release took %v, want %v", took, trip)
		}
		faults.Clear()
	})
}

// A set of one key that is taken asks no more often than Acquire would.
func TestAllOfOneKeyAsksAsOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := newCounting(b)
		l := b.lockerOn(client)
		other, _ := b.locker()
		lock := b.acquire(other, "key")
		got := b.later(l, []string{"key", "key"})
		if n := client.acquires.Load(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		b.release(lock)
		b.releaseAll(<-got)
	})
}

func TestTryAllLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker(holdfast.WithLabel("elsewhere"))
		set, err := l.TryAcquireAll(background, []string{"d", "a"})
		if err != nil {
			t.Fatal(err)
		}
		b.releaseAll(set)
		c, d := b.acquire(other, "c"), b.acquire(other, "d")
		_, err = l.TryAcquireAll(background, []string{"d", "a", "c", "b"})
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Key != "c" || held.Holder.Label != "elsewhere" {
			t.Errorf("got %v, want that \"c\" is held elsewhere", err)
		}
		// They are put back before the set returns its error: the next caller must not be refused
		// because of a set that has failed.
		for _, key := range []string{"a", "b"} {
			b.mustBeFree(l, key)
			b.mustBeFree(other, key)
		}
		b.release(c)
		b.release(d)

		mine := b.acquire(l, "a")
		if _, err = l.TryAcquireAll(background, []string{"a", "b"}); !errors.As(err, &held) {
			t.Errorf("TryAcquireAll with a key that another goroutine holds: %v, want a HeldError",
				err)
		}
		b.mustBeFree(other, "b")
		b.release(mine)
	})
}

// Whatever is held while a set waits comes before the key that it waits for.
func TestAllWaitsInTheOrderOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		holders := map[string]*holdfast.Lock{}
		for _, key := range []string{"b", "d"} {
			holders[key] = b.acquire(other, key)
		}
		got := b.later(l, []string{"e", "d", "c", "b", "a"})
		b.mustBeHeld(other, "a")
		for _, key := range []string{"c", "e"} {
			b.mustBeFree(other, key)
		}
		b.release(holders["b"])
		synctest.Wait()
		for _, key := range []string{"a", "b", "c"} {
			b.mustBeHeld(other, key)
		}
		b.mustBeFree(other, "e")
		b.release(holders["d"])
		set := <-got
		for _, lock := range set.Locks() {
			b.mustBeHeld(other, lock.Key())
		}
		b.releaseAll(set)
	})
}

// Callers name the same keys in all orders, in one process and several, on the same terms and
// others. All of them get the keys.
func TestAllOrdersEndWithoutDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l1, _ := b.locker()
		l2, _ := b.locker(holdfast.WithCohort(1, 0))
		l3, _ := b.locker(holdfast.WithTTL(10 * time.Second))
		orders := [][]string{{"a", "b", "c"}, {"a", "c", "b"}, {"b", "a", "c"}, {"b", "c", "a"},
			{"c", "a", "b"}, {"c", "b", "a"}, {"c", "a"}, {"b", "a"}, {"c", "b"}}
		ctx, cancel := context.WithTimeout(background, time.Hour)
		defer cancel()
		var inside [3]atomic.Int32
		var wait sync.WaitGroup
		for _, l := range []*holdfast.Locker{l1, l2, l3} {
			for i, order := range orders {
				wait.Go(func() {
					options := []holdfast.AcquireOption{holdfast.WithTTL(20 * time.Second)}
					for range 20 {
						set, err := l.AcquireAll(ctx, order, options[:i%2]...)
						if err != nil {
							t.Errorf("%q: %v", order, err)
							return
						}
						for _, key := range order {
							if n := inside[key[0]-'a'].Add(1); n != 1 {
								t.Errorf("%d sets hold %q at once, want 1", n, key)
							}
						}
						time.Sleep(10 * time.Millisecond)
						for _, key := range order {
							inside[key[0]-'a'].Add(-1)
						}
						b.releaseAll(set)
					}
				})
			}
		}
		wait.Wait()
	})
}

// Two that want the same keys again and again take turns: neither starves the other.
func TestAllAlternates(t *testing.T) {
	for _, turns := range []int{1, holdfast.DefaultCohortTurns} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			var got [2]int
			stop := make(chan struct{})
			var wait sync.WaitGroup
			for i, order := range [][]string{{"a", "b"}, {"b", "a"}} {
				l, _ := b.locker(holdfast.WithCohort(turns, 50*time.Millisecond))
				wait.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						set := b.acquireAll(l, order)
						got[i]++
						time.Sleep(time.Millisecond)
						b.releaseAll(set)
					}
				})
			}
			time.Sleep(time.Second)
			close(stop)
			wait.Wait()
			if got[0] < 200 || got[1] < 200 {
				t.Errorf("one got %d turns and the other %d of about 1,000, want at least 200 each",
					got[0], got[1])
			}
		})
	}
}

// A set that finds many of its keys taken makes few attempts that fail.
func TestAllAsksInLinearNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memhold.WithPresence(time.Hour))
		client := newCounting(b)
		l := b.lockerOn(client)
		other, _ := b.locker()
		const n = 100
		var keys []string
		var locks []*holdfast.Lock
		for i := range n {
			keys = append(keys, fmt.Sprintf("key %03d", i))
			locks = append(locks, b.acquire(other, keys[i]))
		}
		got := b.later(l, keys)
		for _, lock := range locks {
			b.release(lock)
			synctest.Wait()
		}
		set := <-got
		if a, r := client.acquires.Load(), client.releases.Load(); a > 5*n || r > 2*n {
			t.Errorf("%d requests and %d releases for %d keys, want at most 5 and 2 for each",
				a, r, n)
		}
		b.releaseAll(set)
	})
}

func TestAllCancelledHalfWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(other, "b")
		ctx, cancel := context.WithTimeoutCause(background, time.Minute, errors.New("my own cause"))
		defer cancel()
		_, err := l.AcquireAll(ctx, []string{"c", "b", "a"})
		mustBe(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), `"b"`) || !strings.Contains(err.Error(), "my own cause") {
			t.Errorf("%v: does not say which key was waited for, and why that ended", err)
		}
		synctest.Wait() // with a context that has ended, the releases are in the background
		for _, key := range []string{"a", "c"} {
			b.mustBeFree(other, key)
		}
		_, err = l.AcquireAll(ctx, []string{"c", "b", "a"})
		mustBe(t, err, context.DeadlineExceeded)
		b.release(lock)
	})
}

// A key that is lost while another is waited for is acquired again.
func TestLossBeforeAllAreHeld(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			other, faults := b.locker()
			lock := b.acquire(other, "b")
			got := b.later(l, []string{"a", "b", "c"})
			faults.Lose("a")
			var next *holdfast.Lock
			if taken {
				next = b.acquire(other, "a")
			}
			time.Sleep(time.Minute) // the renewal finds out
			b.release(lock)
			synctest.Wait()
			if taken {
				// It waits for a, so it may not hold the keys after a.
				b.mustBeFree(other, "b")
				b.mustBeFree(other, "c")
				b.release(next)
			}
			set := <-got
			if err := set.Err(); err != nil {
				t.Errorf("the set was returned without being held: %v", err)
			}
			for _, key := range []string{"a", "b", "c"} {
				b.mustBeHeld(other, key)
			}
			b.releaseAll(set)
		})
	}
}

// Without renewal, leases run down during a wait. The set still begins with full leases.
func TestAllWithoutRenewalBeginsWithFullLeases(t *testing.T) {
	for _, waits := range []time.Duration{20 * time.Second, 50 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker(holdfast.WithTTL(30*time.Second), holdfast.WithoutRenewal())
			other, _ := b.locker()
			lock := b.acquire(other, "b")
			got := b.later(l, []string{"c", "b", "a"})
			time.Sleep(waits)
			b.release(lock)
			set := <-got
			if left := time.Until(set.Deadline()); left != validity(30*time.Second) {
				t.Errorf("after a wait of %v: %v left, want %v", waits, left,
					validity(30*time.Second))
			}
			b.releaseAll(set)
		})
	}
}

// If the leases that ran down cannot be extended, there is no set.
func TestAllWithoutRenewalAndWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithoutRenewal())
		other, _ := b.locker()
		lock := b.acquire(other, "b")
		released := make(chan struct{})
		time.AfterFunc(10*time.Second, func() {
			faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: errors.New("refused")})
			b.release(lock)
			close(released)
		})
		_, err := l.AcquireAll(background, []string{"a", "b"})
		mustBe(t, err, holdfast.ErrUnavailable)
		<-released // other has the key until its release has returned
		for _, key := range []string{"a", "b"} {
			b.mustBeFree(other, key)
		}
	})
}

// The maximum hold counts from when the set is complete.
func TestMaxHoldOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(other, "b")
		got := b.later(l, []string{"a", "b", "c"}, holdfast.WithMaxHold(time.Minute))
		time.Sleep(10 * time.Minute)
		if s := l.Stats(); s.Held != 1 {
			t.Errorf("%d locks are held before the set is complete, want that on \"a\"", s.Held)
		}
		b.release(lock)
		set := <-got
		start := time.Now()
		<-set.Done()
		if held := time.Since(start); held != time.Minute {
			t.Errorf("held for %v, want a minute", held)
		}
		synctest.Wait()
		mustBe(t, set.Err(), holdfast.ErrMaxHold)
		for _, lock := range set.Locks() {
			mustBe(t, lock.Err(), holdfast.ErrMaxHold)
			b.mustBeHeld(other, lock.Key()) // until it is released
		}
		mustBe(t, set.Release(background), holdfast.ErrMaxHold)
		b.mustBeFree(other, "a")
	})
}

func TestFirstLossEndsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b", "c"})
		ctx := set.Context(background)
		token := set.Token("b")
		faults.Lose("b")
		<-set.Done()
		var lost *holdfast.LostError
		if err := set.Err(); !errors.As(err, &lost) || lost.Key != "b" || lost.Token != token {
			t.Errorf("the set ended with %v, want the loss of \"b\"", err)
		}
		if context.Cause(ctx) != set.Err() {
			t.Errorf("the context ended with %v, want %v", context.Cause(ctx), set.Err())
		}
		if err := set.Extend(background); err != set.Err() {
			t.Errorf("Extend: %v, want %v", err, set.Err())
		}
		if set.Deadline().After(time.Now()) {
			t.Error("the deadline of a set that has ended is in the future")
		}
		for _, key := range []string{"a", "c"} {
			b.mustBeHeld(other, key) // until the holder has stopped
		}
		faults.Lose("c")
		time.Sleep(holdfast.DefaultTTL)
		if err := set.Err(); !errors.Is(err, error(lost)) {
			t.Errorf("a later loss changed the reason to %v, want %v", err, lost)
		}
		err := set.Release(background)
		mustBe(t, err, holdfast.ErrLost)
		for key, want := range map[string]bool{"a": false, "b": true, "c": true} {
			if strings.Contains(err.Error(), `lock on "`+key+`"`) != want {
				t.Errorf("Release says %v: lock on %q lost should be %v", err, key, want)
			}
			b.mustBeFree(other, key)
		}
	})
}

// Err does not wait for timers: a process that was paused learns of the loss from the clock. After
// the end of a set, Deadline does not say that other locks go on.
func TestErrOfASetReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithTTL(time.Second), holdfast.WithoutRenewal())
		for range 100 {
			set := b.acquireAll(l, []string{"a", "b"})
			// At the same instant the watchdog wakes up: either may come first.
			time.Sleep(validity(time.Second))
			mustBe(t, set.Err(), holdfast.ErrLost)
			synctest.Wait()
			mustBe(t, set.Release(background), holdfast.ErrLost)
		}
		set := b.acquireAll(l, []string{"a", "b"})
		time.Sleep(time.Millisecond)
		ctx := set.Context(background)
		b.release(set.Lock("a"))
		if d := set.Deadline(); d.After(time.Now()) || ctx.Err() == nil {
			t.Errorf("a set that has ended goes on for %v", time.Until(d))
		}
		mustBe(t, set.Release(background), holdfast.ErrReleased)
	})
}

// The deadline of a set that is being released is not in the future, although its locks are held
// until its contexts have ended.
func TestDeadlineOfASetThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b"})
		newEnding(t, set.Context, slowness)
		go set.Release(background)
		synctest.Wait()
		mustBe(t, set.Err(), holdfast.ErrReleased)
		if d := set.Deadline(); d.After(time.Now()) {
			t.Errorf("a set that has ended goes on for %v", time.Until(d))
		}
	})
}

// A set waits for a key that it has lost only after it has put back the keys behind it.
func TestLossOfAnEarlierKeyPutsLaterOnesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithoutRenewal(), holdfast.WithTTL(10*time.Second))
		other, _ := b.locker()
		lock := b.acquire(other, "b")
		got := b.later(l, []string{"a", "b"})
		time.Sleep(11 * time.Second) // the lease of a is over
		next := b.acquire(other, "a")
		b.release(lock)
		synctest.Wait()
		b.mustBeFree(other, "b") // not held while a is waited for
		b.release(next)
		b.releaseAll(<-got)
	})
}

// Release tells of a loss that only the release finds, and so does Err after it.
func TestReleaseOfASetFindsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		set := b.acquireAll(l, []string{"a", "b"})
		faults.Lose("b")
		err := set.Release(background)
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Key != "b" {
			t.Errorf("Release: %v, want the loss of \"b\"", err)
		}
		mustBe(t, set.Err(), holdfast.ErrLost)
		mustBe(t, set.Release(background), holdfast.ErrReleased)
	})
}

// If one lock of the set is released by itself, the set ends, and Release sees to the others.
func TestReleaseOfOneLockEndsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b"})
		b.release(set.Lock("a"))
		<-set.Done()
		mustBe(t, set.Err(), holdfast.ErrReleased)
		if !strings.Contains(set.Err().Error(), `"a"`) {
			t.Errorf("%v: does not name the key", set.Err())
		}
		b.mustBeFree(other, "a")
		b.mustBeHeld(other, "b")
		mustBe(t, set.Release(background), holdfast.ErrReleased)
		b.mustBeFree(other, "b")
	})
}

// Every lock is released, even if the release of another fails.
func TestReleaseOfASetJoinsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b", "c", "d"})
		faults.Lose("d")
		for _, key := range []string{"a", "b"} {
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Key: key, Times: 1,
				Err: errors.New("refused")})
		}
		err := set.Release(background)
		mustBe(t, err, holdfast.ErrUnavailable, holdfast.ErrLost)
		for key, want := range map[string]bool{"a": true, "b": true, "c": false, "d": true} {
			if strings.Contains(err.Error(), `"`+key+`"`) != want {
				t.Errorf("%v: names %q should be %v", err, key, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: has several lines", err)
		}
		b.mustBeFree(other, "c")
		time.Sleep(time.Second) // the others go on in the background
		b.mustBeFree(other, "a")
		b.mustBeFree(other, "b")
	})
}

// For the release of a set, a context of one of its locks counts as the background context, even if
// another lock has ended the set before.
func TestReleaseOfASetWithAContextOfALockThatEndedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b", "c"})
		ctx := set.Lock("b").Context(background)
		faults.Lose("a")
		mustBe(t, set.Extend(background), holdfast.ErrLost) // that ends the set
		b.release(set.Lock("b"))
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), holdfast.ErrLost) {
			t.Fatalf("the context of b ended with %v, want with its release", context.Cause(ctx))
		}
		err := set.Release(ctx)
		b.mustBeFree(other, "c")
		mustBe(t, err, holdfast.ErrLost, holdfast.ErrReleased)
		if errors.Is(err, context.Canceled) {
			t.Errorf("Release did not wait: %v", err)
		}
	})
}

// A context of the set, or of one of its locks, counts as the background context for its release.
func TestReleaseOfASetWithItsOwnContext(t *testing.T) {
	contexts := map[string]func(*holdfast.LockSet) context.Context{
		"the set's": func(s *holdfast.LockSet) context.Context { return s.Context(background) },
		"a lock's": func(s *holdfast.LockSet) context.Context {
			return s.Lock("b").Context(background)
		},
		"none": func(*holdfast.LockSet) context.Context { return nil },
		"one from both": func(s *holdfast.LockSet) context.Context {
			return s.Context(s.Lock("a").Context(background))
		},
	}
	for name, own := range contexts {
		for _, lose := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, faults := b.locker()
				other, _ := b.locker()
				set := b.acquireAll(l, []string{"a", "b", "c"})
				ctx := own(set)
				if lose {
					faults.Lose("c")
					<-set.Done()
				}
				err := set.Release(ctx)
				if lose {
					mustBe(t, err, holdfast.ErrLost)
				} else if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if errors.Is(err, context.Canceled) {
					t.Errorf("%s, lost %v: Release did not wait: %v", name, lose, err)
				}
				for _, key := range []string{"a", "b", "c"} {
					b.mustBeFree(other, key)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b"})
		ctx, cancel := context.WithCancel(set.Context(background))
		cancel()
		mustBe(t, set.Release(ctx), context.Canceled)
		synctest.Wait()
		b.mustBeFree(other, "a")
		b.mustBeFree(other, "b")
	})
}

func TestContextOfASetCarriesAllLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithPrefix("p/"))
		other, _ := b.locker(holdfast.WithPrefix("p/"))
		between := b.acquire(l, "between")
		set := b.acquireAll(l, []string{"c", "a", "b"})
		ctx := between.Context(set.Context(between.Context(background)))
		for _, key := range []string{"a", "b", "c"} {
			nested, err := l.TryAcquire(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if nested.Token() != set.Token(key) {
				t.Errorf("nested lock on %q has token %d, want %d", key, nested.Token(),
					set.Token(key))
			}
			b.release(nested)
		}
		if _, err := l.TryAcquire(background, "a"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryAcquire with a context of no lock: %v, want ErrHeld", err)
		}

		// A set within a set: keys that ctx holds are nested, and the others are acquired.
		inner, err := l.AcquireAll(ctx, []string{"d", "between", "b", "a"},
			holdfast.WithMaxHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token("a") != set.Token("a") || inner.Token("between") != between.Token() {
			t.Error("the inner set has other tokens than the locks it is nested in")
		}
		innerCtx := inner.Context(ctx)
		b.releaseAll(inner)
		mustBe(t, context.Cause(innerCtx), holdfast.ErrReleased)
		b.mustBeFree(other, "d")
		for _, key := range []string{"a", "b", "c", "between"} {
			b.mustBeHeld(other, key)
		}

		inner, err = l.TryAcquireAll(ctx, []string{"d", "a"})
		if err != nil {
			t.Fatal(err)
		}
		b.releaseAll(set)
		<-inner.Done()
		mustBe(t, inner.Err(), holdfast.ErrReleased)
		b.mustBeFree(other, "a")
		b.mustBeHeld(other, "d")
		mustBe(t, inner.Release(background), holdfast.ErrReleased)
		b.mustBeFree(other, "d")
		b.release(between)
	})
}

// When the parent ends, the context ends, and what it needs is freed.
func TestContextOfASetEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		set := b.acquireAll(l, []string{"a", "b"})
		parent, cancel := context.WithCancelCause(background)
		ctx := set.Context(parent)
		reason := errors.New("over")
		cancel(reason)
		mustBe(t, context.Cause(ctx), reason)
		if set.Err() != nil {
			t.Error("the context has ended the set")
		}
		b.releaseAll(set)
	})
}

func TestAllRefusesWhatIsNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithPrefix("p/"))
		many := make([]string, holdfast.MaxSetKeys+1)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		var none context.Context
		var noOption holdfast.AcquireOption
		long := strings.Repeat("x", driver.MaxKeyLen-1)
		with := func(o holdfast.AcquireOption) []holdfast.AcquireOption {
			return []holdfast.AcquireOption{o}
		}
		a := []string{"a"}
		for text, ask := range map[string]struct {
			ctx     context.Context
			keys    []string
			options []holdfast.AcquireOption
		}{
			"no keys: name 1 to 1000":                       {background, nil, nil},
			"1001 different keys: at most 1000 are allowed": {background, many, nil},
			`key "": must have 1 to 1022 bytes`:             {background, []string{"a", ""}, nil},
			"has 1025 bytes with its prefix: at most 1024":  {background, []string{"a", long}, nil},
			`context is nil for "d", "c", "b" and 1 more`: {none, []string{"d", "c", "b", "a"},
				nil},
			"option 1 is nil":                {background, a, with(noOption)},
			"TTL 1ms: must be at least 10ms": {background, a, with(holdfast.WithTTL(1e6))},
			"maximum hold 1s is shorter than the TTL 30s: it": {background, a,
				with(holdfast.WithMaxHold(1e9))},
		} {
			both := []func(context.Context, []string,
				...holdfast.AcquireOption) (*holdfast.LockSet, error){l.AcquireAll, l.TryAcquireAll}
			for _, acquire := range both {
				set, err := acquire(ask.ctx, ask.keys, ask.options...)
				mustBe(t, err, holdfast.ErrInvalid)
				if set != nil || err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("got %v and %v, want an error with %q", set, err, text)
				}
			}
		}
		err := l.DoAll(background, []string{"a"}, nil)
		mustBe(t, err, holdfast.ErrInvalid)
		set := b.acquireAll(l, append(many[1:], many[1:]...)) // a thousand, twice
		var no context.Context
		mustBe(t, set.Extend(no), holdfast.ErrInvalid)
		b.releaseAll(set)
	})
}

// A panic of the backend goes to the caller of AcquireAll, and leaves nothing.
func TestPanicWhileAllAreAcquired(t *testing.T) {
	for _, call := range []string{"acquire", "acquired"} {
		for _, try := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				client := &fragile{Backend: b.memory.Client()}
				b.clients = append(b.clients, client.Backend)
				l := b.lockerOn(client)
				other, _ := b.locker()
				client.breakIn(call)
				keys := []string{"a", "b", "c", "d"}
				recovered(t, func() {
					if try {
						l.TryAcquireAll(background, keys)
					} else {
						l.AcquireAll(background, keys)
					}
				})
				synctest.Wait()
				for _, key := range keys {
					b.mustBeFree(other, key)
					b.mustBeFree(l, key)
				}
			})
		}
	}
	t.Run("in the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, memhold.WithPresence(3*time.Second))
			client := &fragile{Backend: b.memory.Client()}
			b.clients = append(b.clients, client.Backend)
			l := b.lockerOn(client)
			other, _ := b.locker()
			lock := b.acquire(other, "b")
			time.AfterFunc(1500*time.Millisecond, func() { client.breakIn("acquire") })
			recovered(t, func() { l.AcquireAll(background, []string{"c", "a", "b"}) })
			b.mustBeFree(other, "a")
			b.mustBeFree(other, "c")
			b.release(lock)
			synctest.Wait()
			b.mustBeFree(other, "b")
		})
	})
	t.Run("in the release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			client := &fragile{Backend: b.memory.Client()}
			b.clients = append(b.clients, client.Backend)
			l := b.lockerOn(client)
			other, _ := b.locker()
			set := b.acquireAll(l, []string{"a", "b", "c"})
			client.breakIn("release")
			recovered(t, func() { set.Release(background) })
			synctest.Wait()
			for _, key := range []string{"a", "b", "c"} {
				b.mustBeFree(other, key)
			}
		})
	})
}

// If a backend ends its goroutine, as a failing test does, the caller's goroutine ends too.
func TestGoexitWhileAllAreAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		l := b.lockerOn(&spy{Backend: client, acquire: func(ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			if c.Key == "b" {
				runtime.Goexit()
			}
			return client.Acquire(ctx, c)
		}})
		other, _ := b.locker()
		returned := false
		var wait sync.WaitGroup
		wait.Go(func() {
			l.AcquireAll(background, []string{"a", "b", "c"})
			returned = true
		})
		wait.Wait()
		if returned {
			t.Error("the caller's goroutine went on after a call had ended its own")
		}
		synctest.Wait()
		b.mustBeFree(other, "a")
		b.mustBeFree(other, "c")
	})
}

func TestCloseWhileAllAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		held := b.acquireAll(l, []string{"x", "y"})
		lock := b.acquire(other, "b")
		ended := make(chan error, 1)
		go func() {
			_, err := l.AcquireAll(background, []string{"a", "b", "c"})
			ended <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		mustBe(t, <-ended, holdfast.ErrClosed)
		<-held.Done()
		mustBe(t, held.Err(), holdfast.ErrLost, holdfast.ErrClosed)
		mustBe(t, held.Release(background), holdfast.ErrClosed)
		for _, key := range []string{"a", "c", "x", "y"} {
			b.mustBeFree(other, key)
		}
		_, err := l.AcquireAll(background, []string{"a", "b"})
		mustBe(t, err, holdfast.ErrClosed)
		b.release(lock)
	})
}

// If the backend refuses one key, the set fails. If an answer is lost, the set asks again.
func TestAllWithErrorsOfTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Key: "b", Times: 2,
			Err: errors.New("refused")})
		for _, acquire := range []func(context.Context, []string,
			...holdfast.AcquireOption) (*holdfast.LockSet, error){l.AcquireAll, l.TryAcquireAll} {
			_, err := acquire(background, []string{"c", "b", "a"})
			mustBe(t, err, holdfast.ErrUnavailable)
			if !strings.Contains(err.Error(), `acquire "b"`) {
				t.Errorf("%v: does not name the key", err)
			}
			for _, key := range []string{"a", "b", "c"} {
				b.mustBeFree(other, key)
			}
		}

		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Key: "b", Times: 1, CutReply: true})
		set := b.acquireAll(l, []string{"c", "b", "a"})
		b.releaseAll(set)

		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Key: "b", Times: 1, CutReply: true})
		_, err := l.TryAcquireAll(background, []string{"c", "b", "a"})
		mustBe(t, err, holdfast.ErrUnknown)
		synctest.Wait()
		for _, key := range []string{"a", "b", "c"} {
			b.mustBeFree(other, key)
		}

		// "Held" is an answer, whatever the other attempts say.
		lock := b.acquire(other, "c")
		faults.Inject(memhold.Fault{Calls: memhold.Acquires, Key: "b", Times: 1,
			Err: errors.New("refused")})
		_, err = l.TryAcquireAll(background, []string{"c", "b", "a"})
		mustBe(t, err, holdfast.ErrHeld)
		b.release(lock)
	})
}

func TestExtendOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker(holdfast.WithoutRenewal())
		set := b.acquireAll(l, []string{"a", "b", "c"})
		time.Sleep(10 * time.Second)
		if err := set.Extend(background); err != nil {
			t.Error(err)
		}
		if left := time.Until(set.Deadline()); left != validity(holdfast.DefaultTTL) {
			t.Errorf("%v left, want %v", left, validity(holdfast.DefaultTTL))
		}
		// The earliest deadline counts.
		time.Sleep(time.Second)
		if err := set.Lock("a").Extend(background); err != nil {
			t.Error(err)
		}
		want := validity(holdfast.DefaultTTL) - time.Second
		if left := time.Until(set.Deadline()); left != want {
			t.Errorf("%v left, want %v", left, want)
		}
		// Without an answer all are still held.
		for _, key := range []string{"a", "b"} {
			faults.Inject(memhold.Fault{Calls: memhold.Renewals, Key: key, Times: 1,
				Err: errors.New("refused")})
		}
		err := set.Extend(background)
		mustBe(t, err, holdfast.ErrUnavailable)
		for key, want := range map[string]bool{"a": true, "b": true, "c": false} {
			if strings.Contains(err.Error(), `"`+key+`"`) != want {
				t.Errorf("%v: names %q should be %v", err, key, want)
			}
		}
		if set.Err() != nil {
			t.Error(set.Err())
		}
		faults.Lose("c")
		err = set.Extend(background)
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Key != "c" || err != set.Err() {
			t.Errorf("got %v, want the loss of \"c\"", err)
		}
		set.Release(background)
	})
}

func TestDoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		keys := []string{"b", "a", "c"}
		mine := errors.New("mine")
		err := l.DoAll(background, keys, func(ctx context.Context, set *holdfast.LockSet) error {
			for _, key := range keys {
				b.mustBeHeld(other, key)
				if _, err := l.TryAcquire(ctx, key); err != nil {
					t.Errorf("the context does not carry the lock: %v", err)
				}
			}
			return mine
		})
		if err != mine {
			t.Errorf("got %v, want the function's own error", err)
		}
		for _, key := range keys {
			b.mustBeFree(other, key)
		}

		err = l.DoAll(background, keys, func(ctx context.Context, set *holdfast.LockSet) error {
			faults.Lose("a")
			<-ctx.Done()
			faults.Lose("b") // only the release finds these
			faults.Lose("c")
			return errors.Join(mine, context.Cause(ctx))
		})
		mustBe(t, err, mine, holdfast.ErrLost)
		for _, key := range keys {
			if n := strings.Count(err.Error(), `lock on "`+key+`"`); n != 1 {
				t.Errorf("%v: tells the loss of %q %d times, want once", err, key, n)
			}
		}

		ctx, cancel := context.WithCancel(background)
		recovered(t, func() {
			l.DoAll(ctx, keys, func(context.Context, *holdfast.LockSet) error {
				cancel()
				panic("a function's fault")
			})
		})
		for _, key := range keys {
			b.mustBeFree(other, key)
		}
		err = l.DoAll(ctx, keys, func(context.Context, *holdfast.LockSet) error {
			t.Error("DoAll called the function with a context that has ended")
			return nil
		})
		mustBe(t, err, context.Canceled)
	})
}

// DoAll tells of a loss even if its function has released the set, or one lock of it, as Do does.
func TestDoAllTellsALossAfterAReleaseByItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		type release func(*holdfast.LockSet)
		for name, end := range map[string]release{
			"all": func(set *holdfast.LockSet) { set.Release(background) },
			"one": func(set *holdfast.LockSet) { set.Lock("a").Release(background) },
		} {
			for _, told := range []bool{true, false} { // by Done, or by the release alone
				err := l.DoAll(background, []string{"a", "b"},
					func(ctx context.Context, set *holdfast.LockSet) error {
						faults.Lose("a")
						if told {
							<-ctx.Done()
						}
						end(set)
						return nil
					})
				var lost *holdfast.LostError
				if !errors.As(err, &lost) || lost.Key != "a" {
					t.Errorf("%s, told %v: DoAll = %v, want the loss of \"a\"", name, told, err)
				}
			}
		}
	})
}

// Hooks and counters report the keys of a set only when it is complete, and one refusal for a set.
func TestHooksTellOfCompleteSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var events []string
		note := func(format string, args ...any) {
			events = append(events, fmt.Sprintf(format, args...))
		}
		l, _ := b.locker(holdfast.WithHooks(holdfast.Hooks{
			Acquired: func(e holdfast.AcquiredEvent) { note("acquired %s %v", e.Key, e.Waited) },
			Refused:  func(e holdfast.RefusedEvent) { note("refused %s %v", e.Key, e.Waited) },
			Released: func(e holdfast.ReleasedEvent) { note("released %s %v", e.Key, e.Held) },
			Lost:     func(e holdfast.LostEvent) { note("lost %s", e.Key) },
		}))
		other, _ := b.locker()
		lock := b.acquire(other, "b")
		_, err := l.TryAcquireAll(background, []string{"c", "b", "a"})
		mustBe(t, err, holdfast.ErrHeld)
		time.AfterFunc(time.Minute, func() { b.release(lock) })
		set := b.acquireAll(l, []string{"b", "a"})
		time.Sleep(time.Second)
		b.releaseAll(set)
		synctest.Wait()
		slices.Sort(events[3:])
		want := []string{"refused b 0s", "acquired a 0s", "acquired b 1m0s", "released a 1m1s",
			"released b 1s"}
		if !slices.Equal(events, want) {
			t.Errorf("told %q, want %q", events, want)
		}
		if s := l.Stats(); s.Acquired != 2 || s.Released != 2 || s.Refused != 1 || s.Held != 0 {
			t.Errorf("counted %+v, want 2 acquired and released, 1 refused, none held", s)
		}
	})
}

// If a set gives back a key for which others of the Locker wait, the key goes to them.
func TestAllGivesBackToLocalWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		lock := b.acquire(other, "a")
		backend.Faults().Inject(memhold.Fault{Calls: memhold.Acquires, Key: "a",
			ReplyDelay: 100 * time.Millisecond})
		var asked atomic.Int64
		backend.before(func(call string, c driver.Claim) {
			if call == "acquire" && c.Key == "b" {
				asked.Add(1)
			}
		})
		got := make(chan *holdfast.LockSet, 1)
		go func() { got <- b.acquireAll(l, []string{"a", "b"}) }()
		time.Sleep(50 * time.Millisecond) // it has b, and does not know about a
		local := b.acquire(l, "b")
		if n := asked.Load(); n != 1 {
			t.Errorf("the backend was asked %d times for what the set gave back, want 1", n)
		}
		b.release(local)
		b.release(lock)
		b.releaseAll(<-got)
	})
}

// A set whose leases are not renewed is extended when it is complete. If a key turns out to be lost
// then, the key is acquired again.
func TestLossFoundByTheExtensionOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithoutRenewal())
		other, faults := b.locker()
		lock := b.acquire(other, "b")
		got := make(chan *holdfast.LockSet, 1)
		go func() {
			set, err := l.AcquireAll(background, []string{"a", "b"})
			if err != nil {
				t.Error(err)
			}
			got <- set
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		faults.Lose("a")
		b.release(lock)
		if set := <-got; set != nil {
			if err := set.Err(); err != nil {
				t.Error(err)
			}
			b.mustBeHeld(other, "a")
			set.Release(background)
		}
	})
}

// A key of a set may be nested in a lock that ends before the set is complete. Then the key is
// acquired.
func TestNestedKeyThatIsLostIsAcquiredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		outer := b.acquire(l, "a")
		lock := b.acquire(other, "b")
		ctx := context.WithoutCancel(outer.Context(background))
		got := make(chan *holdfast.LockSet, 1)
		go func() {
			set, err := l.AcquireAll(ctx, []string{"a", "b"})
			if err != nil {
				t.Error(err)
			}
			got <- set
		}()
		synctest.Wait()
		b.release(outer)
		b.release(lock)
		if set := <-got; set != nil {
			if err := set.Err(); err != nil {
				t.Error(err)
			}
			set.Release(background)
		}
	})
}

// The maximum hold of a set counts from when the set is complete, even if its leases are not
// renewed.
func TestMaxHoldOfASetWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithoutRenewal(), holdfast.WithTTL(time.Minute))
		set, err := l.AcquireAll(background, []string{"a", "b"},
			holdfast.WithMaxHold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-set.Done()
		if took := time.Since(start); took != time.Second {
			t.Errorf("Done was closed after %v, want a second", took)
		}
		set.Release(background)
	})
}

// A set that lacks one key, and holds no later one but a nested one, asks for it once and waits: no
// attempt goes before, as there is nothing to put back.
//
// Fails if the code is broken like this: holdsAfter without own.
func TestSetWithANestedKeyAsksOnceWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		backend := newCounting(b)
		l := b.lockerOn(backend)
		other, _ := b.locker()
		taken := b.acquire(other, "a")
		outer := b.acquire(l, "b")
		before := backend.acquires.Load()
		ctx, cancel := context.WithCancel(outer.Context(background))
		go func() {
			synctest.Wait()
			if n := backend.acquires.Load() - before; n != 1 {
				t.Errorf("asked %d times, want once", n)
			}
			cancel()
		}()
		if _, err := l.AcquireAll(ctx, []string{"a", "b"}); !errors.Is(err, context.Canceled) {
			t.Errorf("AcquireAll: %v, want the error of its context", err)
		}
		b.release(outer)
		b.release(taken)
	})
}
