package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// recorder records what hooks are told.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.Join(r.lines, "\n")
	r.lines = nil
	return s
}

func (r *recorder) hooks() holdfast.Hooks {
	return holdfast.Hooks{
		Acquired: func(e holdfast.AcquiredEvent) {
			r.add("acquired %s after %v, local %v", e.Key, e.Waited, e.Local)
		},
		Refused: func(e holdfast.RefusedEvent) {
			r.add("refused %s after %v: %v", e.Key, e.Waited, e.Err)
		},
		Waiting: func(e holdfast.WaitingEvent) {
			r.add("waiting for %s after %v, place %d, holder %s, for %v", e.Key, e.Waited, e.Place,
				e.Holder.Label, e.ExpiresIn)
		},
		Renewed: func(e holdfast.RenewedEvent) {
			r.add("renewed %s with %v left: %v", e.Key, e.Margin, e.Err)
		},
		Lost: func(e holdfast.LostEvent) { r.add("lost %s after %v", e.Key, e.Held) },
		HandedOver: func(e holdfast.HandedOverEvent) {
			r.add("handed over %s, turn %d, %d wait", e.Key, e.Turns, e.Waiting)
		},
		Released: func(e holdfast.ReleasedEvent) {
			r.add("released %s after %v, local %v: %v", e.Key, e.Held, e.Local, e.Err)
		},
	}
}

func TestHooksAndStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var r recorder
		var log bytes.Buffer
		l, faults := b.locker(holdfast.WithTTL(30*time.Second), holdfast.WithPrefix("p:"),
			holdfast.WithLabel("mine"),
			holdfast.WithHooks(r.hooks()),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		other, _ := b.locker(holdfast.WithPrefix("p:"), holdfast.WithLabel("theirs"))
		expect := func(step, want string) {
			t.Helper()
			synctest.Wait()
			if got := r.take(); got != want {
				t.Errorf("%s: hooks were told\n%s\nwant\n%s", step, got, want)
			}
		}

		lock := b.acquire(l, "key")
		time.Sleep(11 * time.Second)
		go func() { b.release(b.acquire(l, "key")) }()
		synctest.Wait()
		time.Sleep(time.Second)
		if s := l.Stats(); s.Held != 1 || s.Waiting != 1 {
			t.Errorf("%d held, %d waiting; want 1 and 1", s.Held, s.Waiting)
		}
		// The run of turns has lasted longer than its span, so the backend is asked for a fresh
		// one. With an answer at once, the next turn might be told of before the release.
		const trip = time.Millisecond
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, ReplyDelay: trip})
		b.release(lock)
		time.Sleep(trip)
		expect("release", "acquired key after 0s, local false\n"+
			"renewed key with 19.698s left: <nil>\n"+
			"released key after 12s, local true: <nil>\n"+
			"acquired key after 1.001s, local false\n"+
			"released key after 0s, local false: <nil>")

		lock = b.acquire(other, "key")
		ctx, cancel := context.WithTimeout(background, 500*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, "key")
		mustBe(t, err, context.DeadlineExceeded)
		expect("wait", "waiting for key after 0s, place 1, holder theirs, for 30s\n"+
			`refused key after 500ms: holdfast: acquire "key": context deadline exceeded`)
		b.release(lock)

		lock = b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, Err: driver.ErrUnavailable})
		time.Sleep(12 * time.Second)
		if got := r.take(); !strings.Contains(got,
			"renewed key with 19.698s left: backend unavailable") ||
			!strings.HasSuffix(got, "left: <nil>") {
			t.Errorf("want a missed renewal and a successful one; hooks were told:\n%s", got)
		}
		faults.Lose("p:key")
		<-lock.Done()
		synctest.Wait()
		if got := r.take(); !strings.Contains(got, "lost key after 2") {
			t.Errorf("want a loss after 20s or so; hooks were told:\n%s", got)
		}
		for _, want := range []string{"renewal missed", "lock lost", "key=key"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, log.String())
			}
		}
		if n := strings.Count(log.String(), "renewal missed"); n != 1 {
			t.Errorf("the log has %d renewals that were missed, want 1 besides the loss:\n%s", n,
				log.String())
		}
		got := l.Stats()
		want := holdfast.Stats{Acquired: 3, Refused: 1, Released: 2, Lost: 1, Renewed: 2,
			RenewalsMissed: 1}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A renewal names the token of the lock whose lease it was.
func TestRenewalNamesTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var tokens []holdfast.Token
		l, faults := b.locker(holdfast.WithHooks(holdfast.Hooks{
			Renewed: func(e holdfast.RenewedEvent) { tokens = append(tokens, e.Token) },
		}))
		lock := b.acquire(l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, Err: driver.ErrUnavailable})
		time.Sleep(time.Minute)
		b.release(lock)
		synctest.Wait()
		if len(tokens) < 2 {
			t.Errorf("%d renewals; want one that failed, and some more", len(tokens))
		}
		for _, token := range tokens {
			if token != lock.Token() {
				t.Errorf("a renewal of a lock with token %d names %d", lock.Token(), token)
			}
		}
	})
}

// If a renewal finds the lock lost, its error has the words of every loss. Observers hear of it
// when they have heard of the loss of each lock on the lease, also if contexts take long to end.
func TestRenewalOfALostLockIsALoss(t *testing.T) {
	for name, lose := range map[string]func(memhold.Faults){
		"deleted": func(f memhold.Faults) { f.Lose("key") },
		"answered too late": func(f memhold.Faults) {
			f.Freeze()
			// Not at a time at which the watchdog looks for suspends, four times a second: the
			// answer comes first.
			time.AfterFunc(3700*time.Millisecond, func() {
				clock.SimulateSuspend(time.Minute)
				f.Thaw()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var last holdfast.RenewedEvent
				losses := 0
				l, faults := b.locker(holdfast.WithHooks(holdfast.Hooks{
					Lost: func(holdfast.LostEvent) { losses++ },
					Renewed: func(e holdfast.RenewedEvent) {
						if last = e; losses != 2 {
							t.Errorf("Renewed was called after %d losses, want both before", losses)
						}
					},
				}))
				b.read(l)
				lock := b.read(l)
				newEnding(t, lock.Context, slowness)
				time.Sleep(9 * time.Second)
				lose(faults)
				<-lock.Done()
				synctest.Wait()
				var lost *holdfast.LostError
				if !errors.As(last.Err, &lost) || lost.Key != "key" || lost.Token != lock.Token() {
					t.Errorf("the last renewal: %v; want a loss that names key and token", last.Err)
				}
			})
		})
	}
}

// Hooks run outside all locks: they may call the Locker.
func TestHooksMayCallTheLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var l *holdfast.Locker
		var current atomic.Pointer[holdfast.Lock]
		call := func() {
			l.Stats()
			if lock := current.Load(); lock != nil {
				_ = lock.Err()
				lock.Deadline()
			}
		}
		l, faults := b.locker(holdfast.WithTTL(3*time.Second), holdfast.WithHooks(holdfast.Hooks{
			Acquired:   func(holdfast.AcquiredEvent) { call() },
			Refused:    func(holdfast.RefusedEvent) { call() },
			Renewed:    func(holdfast.RenewedEvent) { call() },
			Lost:       func(holdfast.LostEvent) { call() },
			HandedOver: func(holdfast.HandedOverEvent) { call() },
			Released:   func(holdfast.ReleasedEvent) { call() },
		}))
		lock := b.acquire(l, "key")
		current.Store(lock)
		time.Sleep(10 * time.Millisecond)
		go func() { b.release(b.acquire(l, "key")) }()
		synctest.Wait()
		b.release(lock)
		synctest.Wait()
		lock = b.acquire(l, "key")
		current.Store(lock)
		faults.Lose("key")
		<-lock.Done()
	})
}
