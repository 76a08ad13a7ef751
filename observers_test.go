package holdfast_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// blockingHandler is a log that hangs until it is told not to.
type blockingHandler struct {
	slog.Handler
	until chan struct{}
}

func (h blockingHandler) Handle(ctx context.Context, r slog.Record) error {
	<-h.until
	return h.Handler.Handle(ctx, r)
}

// A hook or a log that blocks delays no loss, no renewal, no acquisition and no release.
func TestBlockedObserversDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		until := make(chan struct{})
		var log bytes.Buffer
		wait := func() { <-until }
		hooks := holdfast.Hooks{
			Acquired:   func(holdfast.AcquiredEvent) { wait() },
			Refused:    func(holdfast.RefusedEvent) { wait() },
			Waiting:    func(holdfast.WaitingEvent) { wait() },
			Renewed:    func(holdfast.RenewedEvent) { wait() },
			Lost:       func(holdfast.LostEvent) { wait() },
			HandedOver: func(holdfast.HandedOverEvent) { wait() },
			Released:   func(holdfast.ReleasedEvent) { wait() },
		}
		for _, option := range []holdfast.Option{
			holdfast.WithHooks(hooks),
			holdfast.WithLogger(slog.New(blockingHandler{slog.NewTextHandler(&log, nil), until})),
		} {
			l, faults := b.locker(holdfast.WithTTL(3*time.Second), option)
			other, _ := b.locker()
			kept := b.acquire(l, "kept")
			lost := []*holdfast.Lock{b.acquire(l, "a"), b.acquire(l, "b"), b.acquire(l, "c")}
			elsewhere := b.acquire(other, "d")
			start := time.Now()
			time.AfterFunc(time.Second, func() { b.release(elsewhere) })
			b.release(b.acquire(l, "d"))
			if waited := time.Since(start); waited != time.Second {
				t.Errorf("waited for %v, want 1s: then the key was free", waited)
			}
			for _, lock := range lost {
				faults.Lose(lock.Key())
			}
			for _, lock := range lost {
				<-lock.Done()
			}
			if told := time.Since(start); told > 2*time.Second {
				t.Errorf("the last of three losses was told after %v, want the next renewal", told)
			}
			time.Sleep(time.Minute)
			if err := kept.Err(); err != nil {
				t.Errorf("a lock that was not lost has ended: %v", err)
			}
			b.release(kept)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		close(until)
		synctest.Wait()
		if !strings.Contains(log.String(), "lock lost") {
			t.Errorf("the log lacks what it was told while it was blocked:\n%s", log.String())
		}
	})
}

// Hooks may call everything, Close included, and may panic or end their goroutine.
func TestHooksMayDoAnything(t *testing.T) {
	deeds := map[string]func(l *holdfast.Locker, once func(func())){
		"close": func(l *holdfast.Locker, once func(func())) { once(func() { l.Close() }) },
		"panic": func(*holdfast.Locker, func(func())) { panic("a hook's fault") },
		"exit":  func(*holdfast.Locker, func(func())) { runtime.Goexit() },
		"acquire": func(l *holdfast.Locker, once func(func())) {
			once(func() {
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				if lock, err := l.Acquire(ctx, "another"); err == nil {
					lock.Release(ctx)
				}
			})
		},
	}
	for name, deed := range deeds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var l *holdfast.Locker
				var mu sync.Mutex
				told := make(map[string]int)
				var once sync.Once
				do := func(event string) {
					mu.Lock()
					told[event]++
					mu.Unlock()
					deed(l, once.Do)
				}
				l, faults := b.locker(holdfast.WithTTL(3*time.Second),
					holdfast.WithHooks(holdfast.Hooks{
						Acquired:   func(holdfast.AcquiredEvent) { do("acquired") },
						Refused:    func(holdfast.RefusedEvent) { do("refused") },
						Waiting:    func(holdfast.WaitingEvent) { do("waiting") },
						Renewed:    func(holdfast.RenewedEvent) { do("renewed") },
						Lost:       func(holdfast.LostEvent) { do("lost") },
						HandedOver: func(holdfast.HandedOverEvent) { do("handed over") },
						Released:   func(holdfast.ReleasedEvent) { do("released") },
					}))
				other, _ := b.locker()
				lock, err := l.Acquire(background, "key")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				faults.Lose("key")
				<-lock.Done()
				elsewhere := b.acquire(other, "key")
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				l.Acquire(ctx, "key")
				b.release(elsewhere)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				want := []string{"acquired", "renewed", "lost", "refused", "waiting"}
				if name == "close" {
					want = []string{"acquired", "lost", "refused"}
				}
				for _, event := range want {
					if told[event] == 0 {
						t.Errorf("%q was not told; told were %v", event, told)
					}
				}
			})
		})
	}
}

// The number of events that nobody takes is bounded, and the log says how many were dropped.
func TestObserversThatAreTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		until := make(chan struct{})
		var log bytes.Buffer
		told := 0
		l, _ := b.locker(holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			holdfast.WithHooks(holdfast.Hooks{
				Acquired: func(holdfast.AcquiredEvent) { <-until; told++ },
			}))
		const all = 25_000
		for range all {
			b.release(b.acquire(l, "key"))
		}
		close(until)
		synctest.Wait()
		if told == 0 || told > 10_001 {
			t.Errorf("%d of %d events were told, want about 10,000", told, all)
		}
		if !strings.Contains(log.String(), "events dropped") {
			t.Errorf("the log does not tell of dropped events:\n%s", log.String())
		}
		b.release(b.acquire(l, "key"))
		synctest.Wait()
		if told > 10_002 || told == 0 {
			t.Errorf("%d events were told, want 1 to 10,002", told)
		}
	})
}

// panickingHandler is a log that panics.
type panickingHandler struct {
	slog.Handler
	told *int
}

func (h panickingHandler) Handle(context.Context, slog.Record) error {
	*h.told++
	panic("a logger's fault")
}

// A logger that panics harms nobody, and gets the next event.
func TestLoggerMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		told := 0
		l, faults := b.locker(holdfast.WithLogger(slog.New(panickingHandler{
			slog.NewTextHandler(io.Discard, nil), &told})))
		for range 2 {
			lock := b.acquire(l, "key")
			faults.Lose("key")
			<-lock.Done()
			synctest.Wait()
		}
		if told < 4 { // each loss, and each panic
			t.Errorf("the logger was called %d times, want at least 4", told)
		}
	})
}

// A log that blocks does not keep a hook from being called, even if that hook's panics are logged.
func TestBlockedLogDelaysNoHookThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		until := make(chan struct{})
		told := 0
		l, _ := b.locker(
			holdfast.WithLogger(slog.New(blockingHandler{
				slog.NewTextHandler(io.Discard, nil), until})),
			holdfast.WithHooks(holdfast.Hooks{Acquired: func(holdfast.AcquiredEvent) {
				told++
				panic("a hook's fault")
			}}))
		for range 3 {
			b.release(b.acquire(l, "key"))
		}
		synctest.Wait()
		if told != 3 {
			t.Errorf("the hook was called %d times, want 3", told)
		}
		close(until)
	})
}

// The log says that events are dropped although the hook that they wait for never returns.
func TestDroppedEventsOfAHookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		until := make(chan struct{})
		var log bytes.Buffer
		l, _ := b.locker(holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			holdfast.WithHooks(holdfast.Hooks{
				Refused: func(holdfast.RefusedEvent) { <-until }}))
		for range 10_100 {
			l.TryAcquire(background, "")
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "dropped"); n != 1 {
			t.Errorf("the log tells %d times of dropped events, want once:\n%s", n, log.String())
		}
		close(until)
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "events dropped\" events=") {
			t.Errorf("the log does not tell how many events were dropped:\n%s", text)
		}
	})
}
