package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// A waiter that is cancelled, at whatever step, gets the context's error and cause, and leaves
// nothing: the next one is served.
func TestCancelAtEveryStep(t *testing.T) {
	why := errors.New("why")
	steps := []struct {
		name string
		// prepare brings things to where the waiter, about to call l.Acquire, will be at that step;
		// undo takes it back.
		prepare func(b *bench, l *holdfast.Locker, faults memhold.Faults) (undo func())
	}{
		{"before the call", func(*bench, *holdfast.Locker, memhold.Faults) func() {
			return func() {}
		}},
		{"in the local queue", func(b *bench, l *holdfast.Locker, _ memhold.Faults) func() {
			lock := b.acquire(l, "key")
			return func() { b.release(lock) }
		}},
		{"in the backend's queue", func(b *bench, _ *holdfast.Locker, _ memhold.Faults) func() {
			other, _ := b.locker()
			lock := b.acquire(other, "key")
			return func() { b.release(lock) }
		}},
		{"in a request that hangs",
			func(_ *bench, _ *holdfast.Locker, faults memhold.Faults) func() {
				faults.Freeze()
				return faults.Thaw
			}},
		{"in a request whose answer hangs",
			func(_ *bench, _ *holdfast.Locker, faults memhold.Faults) func() {
				return faults.Inject(memhold.Fault{Calls: memhold.Acquires,
					ReplyDelay: 4 * time.Second})
			}},
		{"in a heartbeat that hangs",
			func(b *bench, _ *holdfast.Locker, faults memhold.Faults) func() {
				other, _ := b.locker()
				lock := b.acquire(other, "key")
				time.AfterFunc(500*time.Millisecond, faults.Freeze)
				return func() { faults.Thaw(); b.release(lock) }
			}},
		{"in an outage", func(b *bench, _ *holdfast.Locker, faults memhold.Faults) func() {
			other, _ := b.locker()
			lock := b.acquire(other, "key")
			time.AfterFunc(500*time.Millisecond, func() {
				faults.Inject(memhold.Fault{Err: driver.ErrUnavailable})
			})
			return func() { faults.Clear(); b.release(lock) }
		}},
		{"in the moment of the grant", func(b *bench, _ *holdfast.Locker, _ memhold.Faults) func() {
			other, _ := b.locker()
			lock := b.acquire(other, "key")
			time.AfterFunc(3*time.Second, func() { b.release(lock) })
			return func() {}
		}},
		{"in the moment of the local handoff",
			func(b *bench, l *holdfast.Locker, _ memhold.Faults) func() {
				lock := b.acquire(l, "key")
				time.AfterFunc(3*time.Second, func() { b.release(lock) })
				return func() {}
			}},
	}
	for _, step := range steps {
		for _, others := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, %d behind", step.name, others), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					l, faults := b.locker(holdfast.WithTTL(30 * time.Second))
					undo := step.prepare(b, l, faults)
					ctx, cancel := context.WithCancelCause(background)
					delay := 3 * time.Second
					if step.name == "before the call" {
						cancel(why)
					} else {
						time.AfterFunc(delay, func() { cancel(why) })
					}
					start := time.Now()
					var wait sync.WaitGroup
					wait.Go(func() {
						lock, err := l.Acquire(ctx, "key")
						if err == nil {
							// The grant came first: that is success.
							b.release(lock)
							return
						}
						mustBe(t, err, context.Canceled, why)
						if took := time.Since(start); took > delay {
							t.Errorf("returned %v after the cancel, want at once", took-delay)
						}
					})
					synctest.Wait()
					for range others {
						wait.Go(func() {
							// If the backend hangs, those behind fail as well. They must all
							// return.
							if lock, err := l.Acquire(background, "key"); err == nil {
								b.release(lock)
							}
						})
					}
					time.Sleep(delay + time.Millisecond)
					undo()
					wait.Wait()
					faults.Clear()
					checker, _ := b.locker()
					b.release(b.acquire(checker, "key"))
					if waited := time.Since(start); waited > 10*time.Second {
						t.Errorf("the key came free after %v, want 10s at most", waited)
					}
				})
			})
		}
	}
}

// A waiter may be cancelled in the very moment in which it is to lead, or gets its turn. Whichever
// it sees first, the next one is served.
func TestCancelMeetsVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, turns := range []int{2, 64} {
			l, _ := b.locker(holdfast.WithCohort(turns, time.Hour))
			both := 0
			for range 300 {
				lock := b.acquire(l, "key")
				spare := b.acquire(l, fmt.Sprint(turns))
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				var wait sync.WaitGroup
				for i, c := range []context.Context{background, ctx, background} {
					wait.Go(func() {
						lock, err := l.Acquire(c, "key")
						if err != nil {
							mustBe(t, err, context.Canceled)
							both++
							return
						}
						if i == 0 {
							cancel()
						}
						b.release(lock)
					})
					synctest.Wait()
				}
				b.release(lock)
				wait.Wait()
				b.release(spare)
			}
			if both == 0 {
				t.Errorf("turns %d: no waiter was cancelled", turns)
			}
		}
	})
}

// 1,000 goroutines of three processes on one key, with random deadlines, work, options and faults
// of the network. Invariants:
//
//  1. at most one of them is inside with a valid lock;
//  2. tokens are unique, and larger than that of every acquisition that was complete when theirs
//     began; unless the key was taken away under a lease whose turns are handed over in memory, for
//     the span of such a run (see the package documentation);
//  3. whoever does not get the key gets an error of its context, or one that says that the backend
//     did not answer;
//  4. everybody returns;
//  5. in the end the key is free, and nothing is held, waited for or running (bench checks, and the
//     bubble).
func TestStressRandomCancels(t *testing.T) {
	for _, turns := range []int{1, 3, 64} {
		for _, trouble := range []bool{false, true} {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("turns %d, trouble %v, seed %d", turns, trouble, seed),
				func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { stress(t, seed, turns, trouble) })
				})
		}
	}
}

func stress(t *testing.T, seed uint64, turns int, trouble bool) {
	// of a run, and of an answer
	const span, slowest = 20 * time.Millisecond, time.Second + 200*time.Millisecond
	b := newBench(t, memhold.WithPresence(2*time.Second))
	var lockers []*holdfast.Locker
	var paths []memhold.Faults
	for range 3 {
		l, faults := b.locker(holdfast.WithTTL(3*time.Second), holdfast.WithCohort(turns, span))
		lockers, paths = append(lockers, l), append(paths, faults)
	}
	done := make(chan struct{})
	var mu sync.Mutex
	var takenAway atomic.Int64 // when the key was, last; 0 if it never was
	excused := func() bool {
		at := takenAway.Load()
		return turns > 1 && at != 0 && time.Now().UnixNano()-at <= int64(slowest+span)
	}
	var chaos sync.WaitGroup
	if trouble {
		chaos.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for {
				select {
				case <-done:
					return
				default:
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				}
				path := paths[random.IntN(len(paths))]
				switch random.IntN(6) {
				case 0:
					path.Freeze()
					time.AfterFunc(time.Duration(random.IntN(1000))*time.Millisecond, path.Clear)
				case 1:
					path.Inject(memhold.Fault{Times: 1 + random.IntN(3), CutReply: true})
				case 2:
					path.Inject(memhold.Fault{Times: 1 + random.IntN(3),
						Err: driver.ErrUnavailable})
				case 3:
					path.Inject(memhold.Fault{Times: 3,
						Delay: time.Duration(random.IntN(50)) * time.Millisecond})
				case 4:
					path.LoseNotices(true)
					time.AfterFunc(time.Second, func() { path.LoseNotices(false) })
				case 5:
					// Under the mutex, so that nobody notes a later token before takenAway is set.
					mu.Lock()
					if path.Lose("key") {
						takenAway.Store(time.Now().UnixNano())
					}
					mu.Unlock()
				}
			}
		})
	}

	var inside atomic.Int64
	var last holdfast.Token
	seen := make(map[holdfast.Token]bool)
	latest := func() holdfast.Token {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
	var got, cancelled, failed atomic.Int64
	together(1000, func(i int) {
		random := rand.New(rand.NewPCG(seed, uint64(i)+1))
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(background,
			time.Duration(random.IntN(4000))*time.Millisecond)
		defer cancel()
		var options []holdfast.AcquireOption
		if random.IntN(10) == 0 {
			options = append(options, holdfast.WithoutRenewal())
		}
		if random.IntN(10) == 0 {
			options = append(options, holdfast.WithTTL(2*time.Second))
		}
		before := latest()
		lock, err := lockers[random.IntN(len(lockers))].Acquire(ctx, "key", options...)
		switch {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			cancelled.Add(1)
			return
		case trouble && (errors.Is(err, holdfast.ErrUnavailable) ||
			errors.Is(err, holdfast.ErrUnknown)):
			failed.Add(1)
			return
		default:
			t.Errorf("unexpected error: %v", err)
			return
		}
		got.Add(1)
		mu.Lock()
		if seen[lock.Token()] || lock.Token() <= before && !excused() {
			t.Errorf("token %d, used before: %v; the largest when it was asked for was %d",
				lock.Token(), seen[lock.Token()], before)
		}
		seen[lock.Token()] = true
		last = max(last, lock.Token())
		mu.Unlock()
		// If a key is taken away from its holder, there are two holders for a while. Tokens are for
		// that.
		if n := inside.Add(1); n != 1 && !trouble && lock.Err() == nil {
			t.Errorf("%d hold the key at once, want 1", n)
		}
		work, stop := context.WithTimeout(lock.Context(background),
			time.Duration(random.IntN(8))*time.Millisecond)
		<-work.Done()
		stop()
		inside.Add(-1)
		if err := lock.Release(background); err != nil && !trouble {
			t.Errorf("release: %v", err)
		}
	})
	close(done)
	chaos.Wait()
	for _, path := range paths {
		path.Clear()
	}
	t.Logf("%d got the key, %d gave up, %d failed", got.Load(), cancelled.Load(), failed.Load())
	if got.Load() < 10 {
		t.Errorf("only %d of 1000 got the key, want 10 at least", got.Load())
	}
	b.release(b.acquire(lockers[0], "key"))
}

func TestReleaseWithDeadContextReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		ctx, cancel := context.WithCancel(background)
		cancel()
		mustBe(t, lock.Release(ctx), context.Canceled)
		mustBe(t, lock.Err(), holdfast.ErrReleased)
		synctest.Wait()
		b.mustBeFree(other, "key")
	})
}

// The caller's context ends the wait for the answer; the release itself goes on.
func TestReleaseAtFrozenBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, faults := b.locker()
		other, _ := b.locker()
		lock := b.acquire(l, "key")
		faults.Freeze()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		start := time.Now()
		mustBe(t, lock.Release(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Release returned after %v, want a second", took)
		}
		time.Sleep(10 * time.Second)
		faults.Thaw()
		synctest.Wait()
		b.mustBeFree(other, "key") // long before the TTL

		lock = b.acquire(l, "key")
		faults.Freeze()
		err := lock.Release(background)
		mustBe(t, err, holdfast.ErrUnknown)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v blames a context that has no deadline", err)
		}
		faults.Thaw()
	})
}

// R8: a holder that holds beyond its lease does not touch the next holder's lock.
func TestR8LateReleaseDoesNotTouchNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l1, faults := b.locker(holdfast.WithTTL(3 * time.Second))
		l2, _ := b.locker()
		l3, _ := b.locker()
		late := b.acquire(l1, "key")
		faults.Freeze()
		next := b.acquire(l2, "key")
		if late.Err() == nil {
			t.Fatal("two Lockers hold the key at once")
		}
		faults.Thaw()
		mustBe(t, late.Release(background), holdfast.ErrLost)
		mustBe(t, late.Extend(background), holdfast.ErrLost)
		time.Sleep(time.Minute)
		b.mustBeHeld(l3, "key")
		b.release(next)
	})
}

// A caller gives up while its request waits to be sent. If the backend knows that it was never
// sent, nothing is released: with impatient callers, that would be a request for each.
func TestGivenUpBeforeItWasSent(t *testing.T) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent=%v", sent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				client := b.memory.Client()
				b.clients = append(b.clients, client)
				backend := &unsent{tap: tap{Backend: client}, sent: sent}
				l := b.lockerOn(backend)
				for i, acquire := range []func(context.Context, string,
					...holdfast.AcquireOption) (*holdfast.Lock, error){l.Acquire, l.TryAcquire} {
					ctx, cancel := context.WithTimeout(background, time.Second)
					_, err := acquire(ctx, "key")
					cancel()
					mustBe(t, err, context.DeadlineExceeded)
					time.Sleep(time.Minute)
					want := int64(0)
					if sent {
						want = int64(i + 1)
					}
					if n := backend.releases.Load(); n != want {
						t.Errorf("%d releases, want %d", n, want)
					}
				}
			})
		})
	}
}

// unsent answers no acquisition, and says whether it was sent.
type unsent struct {
	tap
	sent bool
}

func (u *unsent) Acquire(ctx context.Context, _ driver.Claim) (driver.Result, error) {
	<-ctx.Done()
	return driver.Result{}, &driver.Error{Maybe: u.sent, Err: ctx.Err()}
}

// silent is a context of a caller's own kind, which has an end of its own and does not tell it: a
// type that has a context, and of the four methods only Done.
type silent struct {
	context.Context
	done chan struct{}
}

func (s silent) Done() <-chan struct{} { return s.done }

// A call whose context ends without an error fails as if that had been cancelled.
func TestContextThatEndsWithoutAnError(t *testing.T) {
	for _, here := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, _ := b.locker()
			holder := l
			if !here {
				holder, _ = b.locker()
			}
			lock := b.acquire(holder, "key")
			ctx := silent{background, make(chan struct{})}
			time.AfterFunc(time.Second, func() { close(ctx.done) })
			time.AfterFunc(time.Minute, func() { b.release(lock) })
			start := time.Now()
			got, err := l.Acquire(ctx, "key")
			mustBe(t, err, context.Canceled)
			if took := time.Since(start); got != nil || took != time.Second {
				t.Errorf("Acquire = %v after %v", got, took)
			}
			<-lock.Done()
		})
	}
}

// hooked is a silent context with an AfterFunc of its own.
type hooked struct{ silent }

func (h hooked) AfterFunc(f func()) (stop func() bool) {
	var once sync.Once
	go func() {
		<-h.done
		once.Do(f)
	}()
	return func() (stopped bool) {
		once.Do(func() { stopped = true })
		return stopped
	}
}

// So does one that ends while a request is under way, from which backends derive a context. Those
// behind it wait on.
func TestContextThatEndsWithoutAnErrorInARequest(t *testing.T) {
	for _, of := range []func(silent) context.Context{
		func(ctx silent) context.Context { return ctx },
		func(ctx silent) context.Context { return hooked{ctx} },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			l, faults := b.locker()
			remove := faults.Inject(memhold.Fault{Calls: memhold.Acquires,
				ReplyDelay: 3 * time.Second})
			ctx := silent{background, make(chan struct{})}
			time.AfterFunc(time.Second, func() { close(ctx.done) })
			second := make(chan *holdfast.Lock)
			time.AfterFunc(time.Second/2, func() {
				lock, _ := l.Acquire(background, "key")
				second <- lock
			})
			start := time.Now()
			_, err := l.Acquire(of(ctx), "key")
			mustBe(t, err, context.Canceled)
			if took := time.Since(start); took != time.Second {
				t.Errorf("it failed after %v", took)
			}
			remove()
			lock := <-second
			extending := silent{background, make(chan struct{})}
			remove = faults.Inject(memhold.Fault{Calls: memhold.Renewals,
				ReplyDelay: 3 * time.Second})
			time.AfterFunc(time.Second, func() { close(extending.done) })
			mustBe(t, lock.Extend(of(extending)), context.Canceled)
			remove()
			b.release(lock)
		})
	}
}

// Those who wait behind such a call wait on.
func TestContextThatEndsWithoutAnErrorEndsNoOtherWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		lock := b.acquire(other, "key")
		ctx := silent{background, make(chan struct{})}
		first := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "key")
			first <- err
		}()
		synctest.Wait()
		second := next(l, background)
		close(ctx.done)
		mustBe(t, <-first, context.Canceled)
		b.release(lock)
		b.release(<-second)
	})
}
