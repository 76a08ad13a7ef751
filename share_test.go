package holdfast_test

import (
	"context"
	"fmt"
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

// tap is a backend that counts calls. It calls hook with the claim of each call, and then after
// each answer to a renewal.
type tap struct {
	*memhold.Backend
	acquires, renewals, releases atomic.Int64
	mu                           sync.Mutex
	hook                         func(call string, c driver.Claim)
	then                         func()
}

// tapped returns a Locker on a tap.
func (b *bench) tapped(options ...holdfast.Option) (*holdfast.Locker, *tap) {
	b.t.Helper()
	t := &tap{Backend: b.memory.Client()}
	b.clients = append(b.clients, t.Backend)
	return b.lockerOn(t, options...), t
}

func (t *tap) before(hook func(call string, c driver.Claim)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hook = hook
}

// answered sets what is called after each answer to a renewal.
func (t *tap) answered(then func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.then = then
}

func (t *tap) call(count *atomic.Int64, name string, claims ...driver.Claim) {
	count.Add(1)
	t.mu.Lock()
	hook := t.hook
	t.mu.Unlock()
	if hook != nil {
		for _, c := range claims {
			hook(name, c)
		}
	}
}

func (t *tap) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	t.call(&t.acquires, "acquire", c)
	return t.Backend.Acquire(ctx, c)
}

func (t *tap) Renew(ctx context.Context, c []driver.Claim) ([]driver.Result, error) {
	t.call(&t.renewals, "renew", c...)
	results, err := t.Backend.Renew(ctx, c)
	t.mu.Lock()
	then := t.then
	t.mu.Unlock()
	if then != nil {
		then()
	}
	return results, err
}

func (t *tap) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	t.call(&t.releases, "release", c)
	return t.Backend.Release(ctx, c)
}

// expect fails the test unless the backend has had these numbers of calls.
func (t *tap) expect(test *testing.T, when string, acquires, renewals, releases int64) {
	test.Helper()
	if a, r, x := t.acquires.Load(), t.renewals.Load(), t.releases.Load(); a != acquires ||
		r != renewals || x != releases {
		test.Errorf("%s: %d acquisitions, %d renewals, %d releases; want %d, %d, %d", when, a, r,
			x, acquires, renewals, releases)
	}
}

// read acquires the key shared.
func (b *bench) read(l *holdfast.Locker, options ...holdfast.AcquireOption) *holdfast.Lock {
	b.t.Helper()
	return b.acquire(l, "key", append(options, holdfast.WithShared())...)
}

// mustBeShared fails the test unless a reader may join those who hold the key, but no writer.
func (b *bench) mustBeShared(l *holdfast.Locker) {
	b.t.Helper()
	b.mustBeHeld(l, "key")
	lock, err := l.TryAcquire(background, "key", holdfast.WithShared())
	if err != nil {
		b.t.Errorf("a reader was refused: %v", err)
		return
	}
	b.release(lock)
}

// sharers returns how many claims share the key at the backend.
func (b *bench) sharers() int {
	b.t.Helper()
	e, err := b.memory.Inspect(background, "key")
	if err != nil {
		b.t.Fatal(err)
	}
	return len(e.Sharers)
}

// readAnew returns a reader on a lease of its own, because the backend does not say whether
// somebody waits when the span of the lease before it ends.
func (b *bench) readAnew(l *holdfast.Locker, backend *tap) *holdfast.Lock {
	b.t.Helper()
	time.Sleep(holdfast.DefaultCohortSpan)
	backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable})
	defer backend.Faults().Clear()
	return b.read(l)
}

// All goroutines of a Locker that read a key are one claim, one renewal and one release.
func TestReadersShareOneClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers = 1000
		b := newBench(t)
		l, backend := b.tapped(holdfast.WithCohort(2, time.Second))
		other, _ := b.locker()
		backend.before(func(call string, c driver.Claim) {
			if call == "acquire" && c.Block != 1 {
				t.Errorf("asks for %d tokens, want 1", c.Block)
			}
		})
		backend.Faults().Freeze()
		locks := make([]*holdfast.Lock, readers)
		var wait sync.WaitGroup
		for i := range locks {
			wait.Go(func() { locks[i] = b.read(l) })
		}
		synctest.Wait()
		backend.Faults().Thaw()
		wait.Wait()
		backend.expect(t, "all inside", 1, 0, 0)
		for _, lock := range locks {
			if lock.Token() != locks[0].Token() {
				t.Fatalf("tokens %d and %d on one claim, want the same",
					lock.Token(), locks[0].Token())
			}
		}
		if s := l.Stats(); s.Held != readers || s.HandedOver != 0 || s.Acquired != readers {
			t.Errorf("counted %+v, want %d held and acquired, none handed over", s, readers)
		}
		b.mustBeHeld(other, "key")

		time.Sleep(holdfast.DefaultTTL/3 + time.Second)
		backend.expect(t, "after a third of the TTL", 1, 1, 0)
		for _, lock := range locks[1:] {
			b.release(lock)
		}
		backend.expect(t, "all but one gone", 1, 1, 0)
		b.mustBeHeld(other, "key")
		b.release(locks[0])
		backend.expect(t, "all gone", 1, 1, 1)
		b.mustBeFree(other, "key")
		if s := l.Stats(); s.Held != 0 || s.Released != readers {
			t.Errorf("counted %+v, want none held, %d released", s, readers)
		}
	})
}

// A reader that finds another one inside does not ask the backend.
func TestReaderJoinsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var r recorder
		l, backend := b.tapped(holdfast.WithHooks(r.hooks()))
		first := b.read(l)
		backend.Faults().Freeze()
		start := time.Now()
		second := b.read(l)
		third, err := l.TryAcquire(background, "key", holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("joining took %v, want no time", took)
		}
		if first.Token() != second.Token() || second.Token() != third.Token() {
			t.Errorf("tokens %d, %d, %d, want the same three times",
				first.Token(), second.Token(), third.Token())
		}
		b.release(first)
		b.release(third)
		backend.Faults().Thaw()
		b.release(second)
		backend.expect(t, "at the end", 1, 0, 1)
		synctest.Wait()
		want := strings.Join([]string{"acquired key after 0s, local false",
			"acquired key after 0s, local true", "acquired key after 0s, local true",
			"released key after 0s, local true: <nil>", "released key after 0s, local true: <nil>",
			"released key after 0s, local false: <nil>"}, "\n")
		if got := r.take(); got != want {
			t.Errorf("hooks were told\n%s\nwant\n%s", got, want)
		}
	})
}

// spans are the reasons for which readers no longer join a lease in memory.
var spans = map[string]struct {
	span  time.Duration
	after time.Duration // when the span is over
	cut   bool          // no renewal is answered before
}{
	"span": {span: 50 * time.Millisecond, after: 50 * time.Millisecond},
	"lease": {span: time.Hour, cut: true,
		after: validity(holdfast.DefaultTTL) - holdfast.DefaultTTL/3},
}

// When the span is over, or less than a third of the lease is left, the next reader asks whether
// somebody waits. If nobody does, the lease is renewed, and the next span begins.
func TestNextSpan(t *testing.T) {
	for name, c := range spans {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.tapped(holdfast.WithCohort(2, c.span))
				if c.cut {
					backend.Faults().Inject(memhold.Fault{Calls: memhold.Renewals,
						Err: driver.ErrUnavailable})
				}
				first := b.read(l)
				time.Sleep(c.after - time.Millisecond)
				locks := []*holdfast.Lock{b.read(l), b.read(l)}
				if n := backend.acquires.Load(); n != 1 {
					t.Errorf("%d acquisitions before the span's end, want 1", n)
				}
				time.Sleep(time.Millisecond)
				// The watchdog may have tried again within that millisecond.
				synctest.Wait()
				before := backend.renewals.Load()
				backend.Faults().Clear()
				locks = append(locks, b.read(l))
				if n := backend.renewals.Load() - before; n != 1 {
					t.Errorf("%d renewals, want 1", n)
				}
				if left := time.Until(first.Deadline()); left != validity(holdfast.DefaultTTL) {
					t.Errorf("%v are left of the lease, want all", left)
				}
				time.Sleep(min(c.span, holdfast.DefaultTTL/3) - time.Millisecond)
				locks = append(locks, b.read(l), b.read(l)) // in the next span
				backend.expect(t, "all inside", 1, before+1, 0)
				for _, lock := range locks {
					if got, want := lock.Token(), first.Token(); got != want {
						t.Errorf("token %d, want that of the first, %d", got, want)
					}
					b.release(lock)
				}
				b.release(first)
				backend.expect(t, "all gone", 1, before+1, 1)
				if n := b.sharers(); n != 0 {
					t.Errorf("%d claims are left, want none", n)
				}
			})
		})
	}
}

// If a writer waits when a span is over, or the backend does not say whether one does, later
// readers make a new claim. Those inside stay, and their claim ends with the last of them.
func TestLastSpan(t *testing.T) {
	for name, c := range spans {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s silent=%v", name, silent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					l, backend := b.tapped(holdfast.WithCohort(2, c.span))
					other, _ := b.locker()
					noRenewals := memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable}
					if c.cut {
						backend.Faults().Inject(noRenewals)
					}
					locks := []*holdfast.Lock{b.read(l), b.read(l)}
					time.Sleep(c.after - time.Millisecond)
					locks = append(locks, b.read(l))
					written := make(chan struct{})
					if silent {
						close(written)
						backend.Faults().Inject(noRenewals)
					} else {
						go func() {
							defer close(written)
							b.release(b.acquire(other, "key"))
						}()
					}
					synctest.Wait()
					time.Sleep(time.Millisecond)
					synctest.Wait()
					if !silent {
						// Not before: the watchdog would be answered if it tried again just then.
						backend.Faults().Clear()
					}
					read := make(chan *holdfast.Lock, 2)
					for range 2 {
						go func() { read <- b.read(l) }()
					}
					synctest.Wait()
					if n := len(read); silent != (n == 2) {
						t.Fatalf("%d of 2 readers joined; want both: %v, or else one or none",
							n, silent)
					}
					backend.Faults().Clear()
					time.Sleep(time.Hour) // what is held is renewed
					if silent {
						if n := b.sharers(); n != 2 {
							t.Errorf("%d claims share the key, want 2", n)
						}
					}
					for i, lock := range locks {
						if n := len(read); !silent && n != 0 {
							t.Errorf("%d readers are inside before the writer, want none", n)
						}
						b.release(lock)
						if n := b.sharers(); silent && i == 2 && n != 1 {
							t.Errorf("%d claims are left after the first span's last, want 1", n)
						}
					}
					<-written
					for range 2 {
						if lock := <-read; lock.Token() <= locks[0].Token() {
							t.Errorf("token %d of a later claim after %d, want a larger one",
								lock.Token(), locks[0].Token())
						} else {
							b.release(lock)
						}
					}
					b.mustBeFree(other, "key")
				})
			})
		}
	}
}

// While one reader asks for the next span, the others come and go. Those that come wait for the
// answer, and the lease stays when the last one inside has left.
func TestReadersComeAndGoBetweenSpans(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("waiting=%v", waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.tapped()
				other, _ := b.locker()
				first, second := b.read(l), b.read(l)
				time.Sleep(holdfast.DefaultCohortSpan)
				written := make(chan struct{})
				if waiting {
					go func() {
						defer close(written)
						b.release(b.acquire(other, "key"))
					}()
					synctest.Wait()
				} else {
					close(written)
				}
				backend.Faults().Freeze()
				read := make(chan *holdfast.Lock, 3)
				for range 3 {
					go func() { read <- b.read(l) }()
				}
				synctest.Wait()
				b.release(first)
				b.release(second) // asks nobody: the backend is frozen
				if n := len(read); n != 0 {
					t.Errorf("%d readers are inside before the answer, want none", n)
				}
				backend.Faults().Thaw()
				locks := []*holdfast.Lock{<-read, <-read, <-read}
				<-written
				want := 1
				if waiting {
					want = 2
				}
				if n := backend.acquires.Load(); !waiting && n != 1 || waiting && n < 2 {
					t.Errorf("%d acquisitions, want %d", n, want)
				}
				for _, lock := range locks {
					if same := lock.Token() == first.Token(); same == waiting {
						t.Errorf("token %d, after %d; want the same: %v",
							lock.Token(), first.Token(), !waiting)
					}
					b.release(lock)
				}
				b.mustBeFree(other, "key")
			})
		})
	}
}

// A reader whose context ends when it asks for the next span, or just before or after that, does no
// harm to those inside, nor to those that wait with it.
func TestReaderGivesUpBetweenSpans(t *testing.T) {
	for _, moment := range []string{"before", "asking", "after"} {
		for _, inside := range []bool{false, true} {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s inside=%v waits=%v", moment, inside, waits),
					func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							giveUpBetweenSpans(t, moment, inside, waits)
						})
					})
			}
		}
	}
}

func giveUpBetweenSpans(t *testing.T, moment string, inside, waits bool) {
	b := newBench(t)
	l, backend := b.tapped()
	other, _ := b.locker()
	first := b.read(l)
	time.Sleep(holdfast.DefaultCohortSpan)
	backend.Faults().Freeze()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var extended sync.WaitGroup
	switch moment {
	case "before": // another request that changes the lease is under way
		extended.Go(func() { first.Extend(background) })
	case "after":
		backend.answered(cancel)
	}
	synctest.Wait()
	gaveUp := make(chan error)
	go func() {
		_, err := l.Acquire(ctx, "key", holdfast.WithShared())
		gaveUp <- err
	}()
	synctest.Wait()
	read := make(chan *holdfast.Lock, 1)
	if waits {
		go func() { read <- b.read(l) }()
		synctest.Wait()
	}
	if !inside {
		b.release(first)
	}
	if moment == "after" {
		backend.Faults().Thaw()
	} else {
		cancel()
	}
	mustBe(t, <-gaveUp, context.Canceled)
	backend.Faults().Thaw()
	extended.Wait()
	if waits {
		reader := <-read
		if same := reader.Token() == first.Token(); same != (moment != "asking") {
			t.Errorf("token %d, after %d; want the same: %v", reader.Token(), first.Token(), !same)
		}
		b.release(reader)
	}
	synctest.Wait()
	if inside {
		b.mustBeHeld(other, "key")
		if err := first.Err(); err != nil {
			t.Errorf("the first reader has lost the key: %v", err)
		}
		b.release(b.read(l)) // the cohort goes on
		b.release(first)
	}
	synctest.Wait()
	if n := b.sharers(); n != 0 {
		t.Errorf("%d claims are left, want none", n)
	}
	b.mustBeFree(other, "key")
}

// A writer of another Locker or the same one gets the key within the span and the longest hold,
// however many readers come.
func TestReadersDoNotStarveAWriter(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprintf("same=%v", same), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hold = 30 * time.Millisecond
				b := newBench(t)
				l, _ := b.locker(holdfast.WithCohort(10_000, holdfast.DefaultCohortSpan))
				writers := l
				if !same {
					writers, _ = b.locker()
				}
				var readers, inside atomic.Int64
				stop := make(chan struct{})
				var wait sync.WaitGroup
				for range 20 {
					wait.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
							}
							lock := b.read(l)
							readers.Add(1)
							inside.Add(1)
							time.Sleep(hold)
							inside.Add(-1)
							b.release(lock)
						}
					})
					time.Sleep(hold / 20)
				}
				for range 20 {
					time.Sleep(11 * time.Millisecond)
					start := time.Now()
					lock := b.acquire(writers, "key")
					if took := time.Since(start); took > holdfast.DefaultCohortSpan+hold {
						t.Errorf("the writer waited for %v, want the span and a hold at most", took)
					}
					if n := inside.Load(); n != 0 {
						t.Errorf("%d readers hold the key beside the writer, want none", n)
					}
					b.release(lock)
				}
				close(stop)
				wait.Wait()
				if readers.Load() < 200 {
					t.Errorf("only %d readers got in, want 200 at least", readers.Load())
				}
			})
		})
	}
}

// While no writer waits, a reader that stays keeps no other one waiting.
func TestLongReaderDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		long := b.read(l)
		start := time.Now()
		for i := range 100 {
			time.Sleep(7 * time.Minute)
			second, third := b.read(l), b.read(other)
			if took := time.Since(start); took != time.Duration(i+1)*7*time.Minute {
				t.Fatalf("the readers had the key after %v, want at once", took)
			}
			b.release(second)
			b.release(third)
		}
		b.release(long)
	})
}

// Without renewal, and without local handoff, each reader has a lease of its own.
func TestReadersWithALeaseOfTheirOwn(t *testing.T) {
	for name, c := range map[string]struct {
		locker  holdfast.Option
		acquire holdfast.AcquireOption
	}{
		"without renewal": {holdfast.WithPrefix(""), holdfast.WithoutRenewal()},
		"without handoff": {holdfast.WithCohort(1, 0), holdfast.WithLabel("")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				l, backend := b.tapped(c.locker)
				first := b.read(l, c.acquire)
				time.Sleep(time.Second)
				second := b.read(l, c.acquire)
				if left := time.Until(second.Deadline()); left != validity(holdfast.DefaultTTL) {
					t.Errorf("the second reader's lease ends in %v, want %v", left,
						validity(holdfast.DefaultTTL))
				}
				b.release(first)
				third, err := l.TryAcquire(background, "key", holdfast.WithShared(), c.acquire)
				if err != nil {
					t.Fatal(err)
				}
				b.release(second)
				b.release(third)
				backend.expect(t, "at the end", 3, 0, 3)
			})
		})
	}
}

// While another reader waits for the backend's answer, TryAcquire asks with a claim of its own.
func TestTryAcquireDoesNotWaitForAnotherReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		other, _ := b.locker()
		writer := b.acquire(other, "key")
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- b.read(l) }()
		synctest.Wait()
		_, err := l.TryAcquire(background, "key", holdfast.WithShared())
		mustBe(t, err, holdfast.ErrHeld)
		if n := backend.acquires.Load(); n != 2 {
			t.Errorf("%d acquisitions, want 2", n)
		}
		b.release(writer)
		b.release(<-got)
	})
}

// On a backend that cannot share, nothing is asked for and nothing held.
func TestSharedNeedsASharer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		client := b.memory.Client()
		b.clients = append(b.clients, client)
		plain := &spy{Backend: client}
		plain.acquire = func(context.Context, driver.Claim) (driver.Result, error) {
			t.Error("the backend was asked")
			return driver.Result{}, driver.ErrUnavailable
		}
		l := b.lockerOn(plain)
		_, err := l.Acquire(background, "key", holdfast.WithShared())
		mustBe(t, err, holdfast.ErrInvalid)
		for _, want := range []string{`"key"`, "WithShared", "driver.Sharer"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v does not name %s", err, want)
			}
		}
		_, err = l.TryAcquire(background, "key", holdfast.WithShared())
		mustBe(t, err, holdfast.ErrInvalid)
		for _, backend := range []driver.Backend{plain, shareless{client}} {
			_, err = holdfast.New(backend, holdfast.WithShared())
			mustBe(t, err, holdfast.ErrInvalid)
		}
		plain.acquire = nil
		lock := b.acquire(l, "key")
		mustBe(t, lock.Downgrade(background), holdfast.ErrInvalid)
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		inner, err := l.Acquire(lock.Context(background), "key")
		if err != nil {
			t.Errorf("a nested acquisition after a refused Downgrade: %v", err)
		} else {
			b.release(inner)
		}
		b.release(lock)
	})
}

// shareless is a Sharer that does not share.
type shareless struct{ *memhold.Backend }

func (shareless) Shares() bool { return false }

// WithShared may be a Locker's default.
func TestSharedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker(holdfast.WithShared())
		other, _ := b.locker(holdfast.WithShared())
		lock := b.acquire(l, "key")
		b.mustBeFree(other, "key")
		b.release(lock)
	})
}

// With the context of a lock, an acquisition that shares is nested in a shared or exclusive lock.
// An exclusive one in a shared lock is refused at once.
func TestReentrancyOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, _ := b.locker()
		other, _ := b.locker()
		writer := b.acquire(l, "key")
		inner, err := l.Acquire(writer.Context(background), "key", holdfast.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != writer.Token() {
			t.Error("a reader inside its own writer has another token")
		}
		inner2, err := l.TryAcquire(inner.Context(background), "key")
		if err != nil {
			t.Fatalf("a writer inside a reader inside its own writer: %v", err)
		}
		b.release(inner2)
		b.release(inner)
		b.release(writer)

		reader, second := b.read(l), b.read(l)
		ctx := reader.Context(second.Context(background))
		inner, err = l.Acquire(ctx, "key", holdfast.WithShared(), holdfast.WithTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != reader.Token() {
			t.Error("a reader inside its own reader has another token")
		}
		start := time.Now()
		for _, acquire := range []func() (*holdfast.Lock, error){
			func() (*holdfast.Lock, error) { return l.Acquire(ctx, "key") },
			func() (*holdfast.Lock, error) { return l.TryAcquire(inner.Context(ctx), "key") },
			func() (*holdfast.Lock, error) {
				return l.Acquire(ctx, "key", holdfast.WithTTL(time.Second))
			},
		} {
			_, err := acquire()
			mustBe(t, err, holdfast.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), `"key"`) ||
				!strings.Contains(err.Error(), "wait for") {
				t.Errorf("the error %v does not name the key and say why", err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v, want at once", took)
		}
		_, err = other.TryAcquire(ctx, "key") // another Locker is another holder
		mustBe(t, err, holdfast.ErrHeld)
		b.release(reader)
		_, err = l.TryAcquire(context.WithoutCancel(ctx), "key")
		mustBe(t, err, holdfast.ErrInvalid) // the other one is still held
		b.release(second)
		lock, err := l.Acquire(context.WithoutCancel(ctx), "key")
		if err != nil {
			t.Fatalf("the key is not free after the release: %v", err)
		}
		b.release(lock)
	})
}

// A lease on which no more turns begin may end. The next lease stays as it is.
func TestEndOfALeaseLeavesTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l, backend := b.tapped()
		first := b.read(l)
		second := b.readAnew(l, backend)
		b.release(first)
		third := b.read(l)
		backend.expect(t, "the third inside", 2, 1, 1)
		b.release(second)
		b.release(third)
	})
}
