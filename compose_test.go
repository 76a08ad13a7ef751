package holdfast_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
)

// Several hooks and the log are told in parallel: one that blocks or panics does not hold up the
// others.
func TestObserversDoNotDisturbEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		until := make(chan struct{})
		var blocked, told atomic.Int32
		var log, slow bytes.Buffer
		l, faults := b.locker(
			holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) {
				blocked.Add(1)
				<-until
			}}),
			holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) {
				panic("a hook's fault")
			}}),
			holdfast.WithHooks(holdfast.Hooks{Lost: func(holdfast.LostEvent) { told.Add(1) }}),
			holdfast.WithHooks(holdfast.Hooks{Acquired: func(holdfast.AcquiredEvent) {
				told.Add(1)
			}}),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		slowly, gone := b.locker(
			holdfast.WithHooks(holdfast.Hooks{Acquired: func(holdfast.AcquiredEvent) {
				told.Add(1)
			}, Released: func(holdfast.ReleasedEvent) { told.Add(1) }}),
			holdfast.WithLogger(slog.New(blockingHandler{slog.NewTextHandler(&slow, nil), until})))
		for _, key := range []string{"a", "b"} {
			lock := b.acquire(l, key)
			faults.Lose(key)
			<-lock.Done()
		}
		lock := b.acquire(slowly, "c")
		gone.Lose("c")
		<-lock.Done()
		b.release(b.acquire(slowly, "d"))
		synctest.Wait()
		if blocked.Load() != 1 {
			t.Errorf("the hook that blocks was called %d times, want 1", blocked.Load())
		}
		if told.Load() != 7 {
			t.Errorf("the others were told %d events, want 7: 2 losses, 4 acquisitions, 1 release",
				told.Load())
		}
		for text, want := range map[string]int{"lock lost": 2, "a hook's fault": 2} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("the log has %q %d times, want %d:\n%s", text, n, want, log.String())
			}
		}
		close(until)
		synctest.Wait()
		if blocked.Load() != 2 {
			t.Errorf("the hook that blocked was called %d times, want 2", blocked.Load())
		}
	})
}
