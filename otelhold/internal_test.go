package otelhold

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// newObserver returns what the hooks of one Locker know.
func newObserver(t *testing.T, options ...sdktrace.TracerProviderOption) *observer {
	t.Helper()
	telemetry, err := New(WithTracerProvider(sdktrace.NewTracerProvider(options...)))
	if err != nil {
		t.Fatal(err)
	}
	return &observer{telemetry, holdfast.DefaultTTL, newQueuedLeases(), newAnswers(), newHolds()}
}

// use makes several goroutines of two processes use, wait for and share a few keys.
func use(t *testing.T, o *observer) {
	memory := memhold.New()
	defer memory.Close()
	var users sync.WaitGroup
	for range 2 {
		l, err := holdfast.New(memory.Client(), holdfast.WithHooks(o.hooks()))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i := range 4 {
			users.Go(func() {
				for n := range 50 {
					ctx, cancel := context.WithTimeout(t.Context(),
						time.Duration(n)*time.Millisecond)
					var options []holdfast.AcquireOption
					if (n+i)%3 == 0 {
						options = append(options, holdfast.WithShared())
					}
					lock, err := l.Acquire(ctx, fmt.Sprint("key", n%3), options...)
					if err == nil {
						time.Sleep(time.Duration(i) * time.Millisecond)
						lock.Release(t.Context())
					}
					cancel()
				}
			})
		}
	}
	users.Wait()
}

// Nothing is remembered of locks that have ended and of calls that have returned.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		o := newObserver(t, sdktrace.WithSpanProcessor(spans))
		use(t, o)
		synctest.Wait()
		if n := o.holds.all.Len(); n > 0 || len(o.holds.byID) > 0 {
			t.Errorf("%d locks, %d IDs", n, len(o.holds.byID))
		}
		if n := len(o.said.byWait); n > 0 {
			t.Errorf("answers to %d waits", n)
		}
		if started, ended := len(spans.Started()), len(spans.Ended()); started != ended ||
			started < 200 {
			t.Errorf("%d spans began and %d ended", started, ended)
		}
	})
}

// What is not sampled is not remembered.
func TestUnsampledLocksCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver(t, sdktrace.WithSampler(sdktrace.NeverSample()))
		hooks := o.hooks()
		for i := range 100 {
			hooks.Acquired(holdfast.AcquiredEvent{Key: "key", Token: holdfast.Token(i + 1),
				Slot: -1, Context: t.Context()})
		}
		if n := o.holds.all.Len(); n > 0 {
			t.Errorf("%d locks", n)
		}
	})
}

// Ends and answers that hooks were not told of are forgotten in the end, the oldest first.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	o := newObserver(t)
	hooks := o.hooks()
	for i := range maxHolds + 5 {
		key := fmt.Sprint(i)
		hooks.Waiting(holdfast.WaitingEvent{Key: key, Context: t.Context()})
		hooks.Waiting(holdfast.WaitingEvent{Key: key, Context: t.Context()})
		o.holds.add(&openHold{id: holdID{key: key}, span: trace.SpanFromContext(t.Context())})
	}
	if n := o.holds.all.Len(); n != maxHolds || len(o.holds.byID) != maxHolds {
		t.Errorf("%d locks, %d IDs", n, len(o.holds.byID))
	}
	if o.holds.take(holdID{key: "4"}, 0) != nil || o.holds.take(holdID{key: "5"}, 0) == nil {
		t.Error("not the oldest ones were forgotten")
	}
	if n := len(o.said.byWait); n > maxWaits {
		t.Errorf("answers to %d waits", n)
	}
}

// A span shows the first answers to a wait, and the last one.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := newAnswers()
		const last = 3 * maxAnswers
		for place := last; place > 0; place-- {
			for range 2 {
				said.add(&holdfast.WaitingEvent{Key: "key", Place: place, Context: t.Context()})
			}
		}
		kept := said.byWait[waitOf("key", t.Context())].said
		if len(kept) != maxAnswers || kept[0].place != last || kept[1].place != last-1 ||
			kept[maxAnswers-1].place != 1 {
			t.Errorf("kept %v", kept)
		}
	})
}
