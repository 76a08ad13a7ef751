package otelhold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/otelhold"
)

const (
	acquireSpan = "holdfast.acquire"
	holdSpan    = "holdfast.hold"
)

// request returns a context with a span of a caller.
func (w *world) request(name string) context.Context {
	ctx, _ := w.tracers.Tracer("test").Start(w.t.Context(), name)
	return ctx
}

// lasted returns how long the span lasted.
func lasted(s sdktrace.ReadOnlySpan) time.Duration { return s.EndTime().Sub(s.StartTime()) }

// wantSpan compares what a span says, but for the token and its time.
func wantSpan(t *testing.T, s sdktrace.ReadOnlySpan, status codes.Code, d time.Duration,
	attributes string) {
	t.Helper()
	var kept []attribute.KeyValue
	for _, a := range s.Attributes() {
		if a.Key != "token" {
			kept = append(kept, a)
		}
	}
	if got := text(kept); got != attributes {
		t.Errorf("%s has the attributes\n%s\nwant\n%s", s.Name(), got, attributes)
	}
	if s.Status().Code != status {
		t.Errorf("%s has the status %v, want %v", s.Name(), s.Status(), status)
	}
	if lasted(s) != d {
		t.Errorf("%s lasted %v, want %v", s.Name(), lasted(s), d)
	}
	if s.SpanKind() != trace.SpanKindInternal {
		t.Errorf("%s is of the kind %v", s.Name(), s.SpanKind())
	}
}

func TestSpansOfALockThatWasWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other, err := holdfast.New(w.memory, holdfast.WithLabel("nightly"))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		theirs := w.acquire(t.Context(), other, "invoice/1")
		time.AfterFunc(2*time.Second, func() { w.release(theirs) })

		l, _ := w.locker()
		ctx := w.request("pay")
		start := time.Now()
		lock := w.acquire(ctx, l, "invoice/1")
		time.Sleep(5 * time.Second)
		w.release(lock)

		acquire, hold := w.one(acquireSpan), w.one(holdSpan)
		wantSpan(t, acquire, codes.Unset, 2*time.Second,
			"key=invoice/1 kind=exclusive local=false resource=invoice")
		wantSpan(t, hold, codes.Unset, 5*time.Second,
			"key=invoice/1 kind=exclusive resource=invoice")
		wantRelated(t, acquire, hold)
		request := trace.SpanContextFromContext(ctx)
		for _, s := range []sdktrace.ReadOnlySpan{acquire, hold} {
			if s.Parent().SpanID() != request.SpanID() {
				t.Errorf("the parent of %s is not the caller's span", s.Name())
			}
			if got := value(s.Attributes(), "token"); got != fmt.Sprint(uint64(lock.Token())) {
				t.Errorf("%s has token %s, want %d", s.Name(), got, lock.Token())
			}
			if scope := s.InstrumentationScope(); scope.Name != otelhold.Scope ||
				scope.Version != w.scopeVersion() {
				t.Errorf("%s is of the scope %v", s.Name(), scope)
			}
		}
		waited := acquire.Events()
		if !acquire.StartTime().Equal(start) {
			t.Errorf("called at %v, and the span begins at %v", start, acquire.StartTime())
		}
		if len(waited) != 1 || waited[0].Name != "waiting" || !waited[0].Time.Equal(start) ||
			!strings.HasPrefix(text(waited[0].Attributes), "expires_in=30 holder=nightly (pid ") ||
			!strings.HasSuffix(text(waited[0].Attributes), " place=1") {
			t.Errorf("of the wait it says %v", waited)
		}
	}, otelhold.WithKeys(), otelhold.WithResource(otelhold.UpTo("/")))
}

// wantRelated compares the span of a lock to which nothing has happened with that of its
// acquisition.
func wantRelated(t *testing.T, acquire, hold sdktrace.ReadOnlySpan) {
	t.Helper()
	if !hold.StartTime().Equal(acquire.EndTime()) {
		t.Errorf("acquired until %v, held from %v", acquire.EndTime(), hold.StartTime())
	}
	links := hold.Links()
	if len(links) != 1 || !links[0].SpanContext.Equal(acquire.SpanContext()) {
		t.Errorf("the lock is linked to %v, want the acquisition", links)
	}
	if len(hold.Events()) > 0 {
		t.Errorf("events of a lock that nothing has happened to: %v", hold.Events())
	}
}

// scopeVersion is the version of the scope of the metrics.
func (w *world) scopeVersion() string {
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &all); err != nil ||
		len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Scope.Name != otelhold.Scope {
		w.t.Fatal(all.ScopeMetrics, err)
	}
	return all.ScopeMetrics[0].Scope.Version
}

// Without a span of the caller, acquisition and lock are one trace.
func TestSpansWithoutACallersSpan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		w.release(w.acquire(t.Context(), l, "key"))
		acquire, hold := w.one(acquireSpan), w.one(holdSpan)
		if acquire.Parent().IsValid() || hold.Parent().SpanID() != acquire.SpanContext().SpanID() ||
			len(hold.Links()) != 1 {
			t.Errorf("parents %v and %v, links %v", acquire.Parent(), hold.Parent(), hold.Links())
		}
	})
}

// Goroutines that hand a lock over have the spans of their own requests.
func TestSpansOfHandovers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		first, second := w.request("first"), w.request("second")
		lock := w.acquire(first, l, "key")
		var waiter sync.WaitGroup
		waiter.Go(func() {
			next := w.acquire(second, l, "key")
			time.Sleep(2 * time.Second)
			w.release(next)
		})
		synctest.Wait()
		time.Sleep(20 * time.Millisecond)
		w.release(lock)
		waiter.Wait()
		acquires, holds := w.ended(acquireSpan), w.ended(holdSpan)
		if len(acquires) != 2 || len(holds) != 2 {
			t.Fatalf("%d acquisitions and %d locks", len(acquires), len(holds))
		}
		wantSpan(t, acquires[0], codes.Unset, 0, "kind=exclusive local=false resource=all")
		wantSpan(t, acquires[1], codes.Unset, 20*time.Millisecond,
			"kind=exclusive local=true resource=all")
		wantSpan(t, holds[0], codes.Unset, 20*time.Millisecond, "kind=exclusive resource=all")
		wantSpan(t, holds[1], codes.Unset, 2*time.Second, "kind=exclusive resource=all")
		for i, ctx := range []context.Context{first, second} {
			caller := trace.SpanContextFromContext(ctx).SpanID()
			if acquires[i].Parent().SpanID() != caller || holds[i].Parent().SpanID() != caller {
				t.Errorf("turn %d does not belong to the one who took it", i)
			}
		}
	})
}

// Readers that share a lease have one token, and each its own span.
func TestSpansOfReaders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		first, second := w.request("long"), w.request("short")
		long := w.acquire(first, l, "key", holdfast.WithShared())
		time.Sleep(10 * time.Millisecond)
		short := w.acquire(second, l, "key", holdfast.WithShared())
		if long.Token() != short.Token() {
			t.Fatal("they do not share a token: nothing is shown")
		}
		time.Sleep(time.Second)
		w.release(short)
		time.Sleep(time.Second)
		w.release(long)
		holds := w.ended(holdSpan)
		if len(holds) != 2 {
			t.Fatalf("%d locks", len(holds))
		}
		wantSpan(t, holds[0], codes.Unset, time.Second, "kind=shared resource=all")
		wantSpan(t, holds[1], codes.Unset, 2010*time.Millisecond, "kind=shared resource=all")
		// Whichever span ends, it lasts as long as the lock that has ended.
		for i, ctx := range []context.Context{second, first} {
			if holds[i].Parent().SpanID() != trace.SpanContextFromContext(ctx).SpanID() {
				t.Errorf("release %d has ended the span of another reader", i)
			}
		}
	})
}

func TestSpansOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		for range 2 {
			lock := w.acquire(t.Context(), l, "key", holdfast.WithPermits(2))
			defer w.release(lock)
			time.Sleep(time.Second)
		}
		lock := w.acquire(t.Context(), l, "key", holdfast.WithPermits(3))
		w.release(lock)
		wantSpan(t, w.one(holdSpan), codes.Unset, 0, "kind=permit resource=all slot=2")
	})
}

// In a set, the lock on each key lasts from its own grant.
func TestSpansOfASet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, _ := w.locker()
		other, err := holdfast.New(w.memory)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		theirs := w.acquire(t.Context(), other, "b")
		time.AfterFunc(3*time.Second, func() { w.release(theirs) })
		set, err := l.AcquireAll(w.request("both"), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := set.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]map[string]time.Duration{
			acquireSpan: {"a": 0, "b": 3 * time.Second},
			holdSpan:    {"a": 4 * time.Second, "b": time.Second},
		} {
			spans := w.ended(name)
			if len(spans) != 2 {
				t.Fatalf("%d spans %s", len(spans), name)
			}
			for _, s := range spans {
				if key := value(s.Attributes(), "key"); lasted(s) != want[key] {
					t.Errorf("%s of %s lasted %v, want %v", name, key, lasted(s), want[key])
				}
			}
		}
	}, otelhold.WithKeys())
}

func TestSpansOfFailures(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		failsInAllWays(t, w)
		got := make(map[string]codes.Code)
		for _, s := range w.ended(acquireSpan) {
			cause := value(s.Attributes(), "cause")
			if cause == "" {
				continue // it succeeded
			}
			got[cause] = s.Status().Code
			wantType := ""
			if s.Status().Code == codes.Error {
				wantType = cause
			}
			if got := value(s.Attributes(), "error.type"); got != wantType {
				t.Errorf("%s has the error.type %q", cause, got)
			}
			holder := value(s.Attributes(), "holder")
			if (cause == "held") != strings.Contains(holder, "pid") {
				t.Errorf("%s has the holder %q", cause, holder)
			}
			said := value(s.Attributes(), "error")
			if failed := cause == "unavailable" || cause == "unknown"; failed != (said != "") {
				t.Errorf("%s has the error %q", cause, said)
			}
			if wait := cause == "timeout"; wait != (lasted(s) == time.Second) ||
				wait != (len(s.Events()) == 1) {
				t.Errorf("%s lasted %v, with the events %v", cause, lasted(s), s.Events())
			}
		}
		want := map[string]codes.Code{"held": codes.Unset, "cancelled": codes.Unset,
			"timeout": codes.Error, "unavailable": codes.Error, "unknown": codes.Error,
			"closed": codes.Error, "invalid": codes.Error}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestSpansOfLosses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		losesInAllWays(t, w)
		missed := 0
		var got []string
		for _, s := range w.ended(holdSpan) {
			key, events := value(s.Attributes(), "key"), s.Events()
			for _, e := range events[:len(events)-1] {
				if key != "silent" || e.Name != "renewal missed" ||
					value(e.Attributes, "error") == "" || value(e.Attributes, "margin") == "" {
					t.Errorf("%s has the event %v", key, e)
				}
				missed++
			}
			last := events[len(events)-1]
			if last.Name != "lost" || !last.Time.Equal(s.EndTime()) ||
				value(last.Attributes, "held") != fmt.Sprint(lasted(s).Seconds()) ||
				value(last.Attributes, "reason") == "" || s.Status().Code != codes.Error {
				t.Errorf("%s ends with %v, status %v", key, last, s.Status())
			}
			cause := value(last.Attributes, "cause")
			if got := value(s.Attributes(), "error.type"); got != cause {
				t.Errorf("%s has the error.type %q, want %q", key, got, cause)
			}
			got = append(got, fmt.Sprintf("%s: %s after %v", key, cause,
				lasted(s).Round(100*time.Millisecond)))
		}
		want := []string{"removed: lease after 10s", "bounded: max_hold after 40s",
			"silent: lease after 29.7s", "open: closed after 0s"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if missed < 2 {
			t.Errorf("%d missed renewals", missed)
		}
	}, otelhold.WithKeys())
}

func TestSpanOfAReleaseWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		leavesRelease(t, w)
		hold := w.one(holdSpan)
		wantSpan(t, hold, codes.Unset, 0, "kind=exclusive resource=all")
		if events := hold.Events(); len(events) != 1 || events[0].Name != "release unconfirmed" ||
			value(events[0].Attributes, "error") == "" {
			t.Errorf("events %v", events)
		}
	})
}

// An Extend or a release whose context ends with the loss of another lock has lost nothing.
func TestSpanOfAReleaseWithTheContextOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, faults := w.locker()
		lock := w.acquire(t.Context(), l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Times: 1, ReplyDelay: time.Second})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second/2, func() {
			cancel(&holdfast.LostError{Key: "another", Reason: errors.New("gone")})
		})
		for _, call := range []func(context.Context) error{lock.Extend, lock.Release} {
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		hold := w.one(holdSpan)
		wantSpan(t, hold, codes.Unset, time.Second/2, "kind=exclusive resource=all")
		var got []string
		for _, e := range hold.Events() {
			got = append(got, e.Name)
		}
		if want := []string{"renewal missed", "release unconfirmed"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		if n := w.samples()["holdfast.renewals{outcome=missed,resource=all}"]; n != 1 {
			t.Errorf("%v missed renewals, want one", n)
		}
	})
}

// Without WithKeys no key shows, whatever becomes of the locks.
func TestNoKeysUnlessAsked(t *testing.T) {
	const secret = "ada@example.org"
	shows := func(options ...otelhold.Option) (shows bool) {
		bubble(t, func(t *testing.T, w *world) {
			for _, e := range events {
				if e.name != "nodes" {
					e.do(t, w)
				}
			}
			ctx, cancel := context.WithTimeout(w.request("pay"), time.Second)
			defer cancel()
			l, faults := w.locker()
			other, _ := w.locker()
			w.acquire(ctx, other, secret)
			l.Acquire(ctx, secret)
			l.TryAcquire(w.request("pay"), secret)
			l.TryAcquireAll(w.request("pay"), []string{secret, "b"})
			l.AcquireAll(w.request("pay"), []string{secret, ""})
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: driver.ErrUnavailable})
			l.TryAcquire(w.request("pay"), secret)
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, s := range w.spans.Ended() {
				all := fmt.Sprint(s.Name(), text(s.Attributes()), s.Status())
				for _, e := range s.Events() {
					all += e.Name + text(e.Attributes)
				}
				shows = shows || strings.Contains(all, secret)
			}
			for series := range w.samples() {
				if strings.Contains(series, secret) {
					t.Errorf("there is a series %s", series)
				}
			}
		}, options...)
		return shows
	}
	if shows() {
		t.Error("a span shows the key")
	}
	if !shows(otelhold.WithKeys()) {
		t.Error("no span shows the key with WithKeys either: nothing was shown")
	}
}

// Without WithKeys no key shows, even if an error of the backend names it, as those of filehold do.
func TestNoKeysInWordsOfTheBackend(t *testing.T) {
	const secret = "ada \"the first\""
	said := func(options ...otelhold.Option) (said string) {
		bubble(t, func(t *testing.T, w *world) {
			busy := &driver.Error{
				Err: fmt.Errorf("key %q is busy, and %s too", "p:"+secret, secret)}
			l, faults := w.locker()
			lock := w.acquire(t.Context(), l, secret)
			faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: busy})
			<-lock.Done()
			lock = w.acquire(t.Context(), l, secret)
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Times: 1, Err: busy})
			if err := lock.Release(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Fatal(err)
			}
			faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: busy})
			if _, err := l.TryAcquire(t.Context(), secret); !errors.Is(err,
				holdfast.ErrUnavailable) {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, s := range w.spans.Ended() {
				said += text(s.Attributes()) + "\n"
				for _, e := range s.Events() {
					said += e.Name + " " + text(e.Attributes) + "\n"
				}
			}
		}, options...)
		return said
	}
	hidden, shown := said(), said(otelhold.WithKeys())
	if strings.Contains(hidden, "ada") {
		t.Errorf("a span shows the key: %s", hidden)
	}
	for _, what := range []string{"\nlost cause", "renewal missed", "release unconfirmed",
		"cause=unavailable"} {
		for text, busy := range map[string]string{
			hidden: `key "p:..." is busy, and ... too`,
			shown:  `key "p:ada \"the first\"" is busy, and ada "the first" too`,
		} {
			_, line, _ := strings.Cut(text, what)
			line, _, _ = strings.Cut(line, "\n")
			if !strings.Contains(line, busy) {
				t.Errorf("%s: says %s, and not %s", what, line, busy)
			}
		}
	}
}

// A key may be any bytes. For one text that is not UTF-8, exporters drop all spans that they have
// gathered.
func TestTextsAreUTF8(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const key = "caf\xe9"
		l, faults := w.locker(holdfast.WithLabel("jos\xe9"))
		other, _ := w.locker()
		lock := w.acquire(t.Context(), l, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := other.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := other.TryAcquire(t.Context(), key); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		faults.Inject(memhold.Fault{Calls: memhold.Renewals,
			Err: &driver.Error{Err: errors.New("out of \xe9nergie")}})
		<-lock.Done()
		texts := 0
		check := func(attributes []attribute.KeyValue) {
			for _, a := range attributes {
				if a.Value.Type() != attribute.STRING {
					continue
				}
				if texts++; !utf8.ValidString(a.Value.AsString()) {
					t.Errorf("%s is %q", a.Key, a.Value.AsString())
				}
			}
		}
		synctest.Wait()
		for _, s := range w.spans.Ended() {
			check(s.Attributes())
			for _, e := range s.Events() {
				check(e.Attributes)
			}
		}
		if texts < 20 {
			t.Errorf("%d texts: nothing was shown", texts)
		}
	}, otelhold.WithKeys())
}

// A set that was not granted is reported for the key that was missing. Its waits for other keys do
// not count for the next acquisition, whether that waits or not.
func TestAnswersToAnEarlierSet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other, err := holdfast.New(w.memory)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		l, _ := w.locker()
		taken := make(map[string]*holdfast.Lock)
		for i, key := range []string{"a", "b", "c"} {
			taken[key] = w.acquire(t.Context(), other, key)
			if key != "c" {
				time.AfterFunc(time.Duration(i+1)*2*time.Second, func() { w.release(taken[key]) })
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.AcquireAll(ctx, []string{"a", "b", "c"}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		b := w.acquire(t.Context(), other, "b")
		time.AfterFunc(time.Minute, func() { w.release(b) })
		for _, key := range []string{"a", "b"} {
			w.release(w.acquire(t.Context(), l, key))
		}
		w.release(taken["c"])
		spans := w.ended(acquireSpan)
		if len(spans) != 3 {
			t.Fatalf("%d acquisitions", len(spans))
		}
		for i, want := range []int{1, 0, 1} { // c, a, b
			events := spans[i].Events()
			if len(events) != want {
				t.Errorf("acquisition %d has %d answers, want %d", i, len(events), want)
			}
			for _, e := range events {
				if e.Time.Before(spans[i].StartTime()) {
					t.Errorf("acquisition %d began at %v and has an answer of %v", i,
						spans[i].StartTime(), e.Time)
				}
			}
		}
	})
}

// Each measurement has its span, for exemplars.
func TestMetricsHaveTheirSpans(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, faults := w.locker()
		lock := w.acquire(w.request("pay"), l, "key")
		if _, err := l.TryAcquire(w.request("fail"), "key"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		faults.Lose("key")
		<-lock.Done()
		acquires, hold := w.ended(acquireSpan), w.one(holdSpan)
		if len(acquires) != 2 {
			t.Fatalf("%d acquisitions", len(acquires))
		}
		spans := map[string]sdktrace.ReadOnlySpan{
			"distributed_lock.wait":     acquires[0],
			"holdfast.acquisitions":     acquires[0],
			"distributed_lock.failures": acquires[1],
			"holdfast.hold":             hold,
			"holdfast.losses":           hold,
		}
		for _, m := range w.collect() {
			span, ok := spans[m.Name]
			if !ok {
				continue
			}
			delete(spans, m.Name)
			want := span.SpanContext().SpanID()
			if got := exemplars(m); len(got) != 1 || !slices.Equal(got[0], want[:]) {
				t.Errorf("%s has the exemplars %x, want one of span %v", m.Name, got, want)
			}
		}
		if len(spans) > 0 {
			t.Errorf("missing: %v", spans)
		}
	})
}

// exemplars are the spans of the exemplars of a metric.
func exemplars(m metricdata.Metrics) (spans [][]byte) {
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			for _, e := range p.Exemplars {
				spans = append(spans, e.SpanID)
			}
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			for _, e := range p.Exemplars {
				spans = append(spans, e.SpanID)
			}
		}
	}
	return spans
}

// record is what a log was told.
type record struct {
	message    string
	attributes map[string]any
}

// recorder is a handler of slog that keeps what it is told.
type recorder struct {
	slog.Handler
	mu      sync.Mutex // several goroutines of a Locker may log
	records []record
}

func (*recorder) Enabled(context.Context, slog.Level) bool { return true }

func (h *recorder) Handle(_ context.Context, r slog.Record) error {
	attributes := make(map[string]any)
	r.Attrs(func(a slog.Attr) bool {
		attributes[a.Key] = a.Value.Any()
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, record{r.Message, attributes})
	return nil
}

// What the log says of a lock, its span says too, under the same name.
func TestSpansAgreeWithTheLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := new(recorder)
		l, faults := w.locker(holdfast.WithLogger(slog.New(log)))
		lock := w.acquire(t.Context(), l, "key")
		faults.Inject(memhold.Fault{Calls: memhold.Renewals, Err: driver.ErrUnavailable})
		<-lock.Done()
		hold := w.one(holdSpan)

		events := map[string]string{"holdfast: lock lost": "lost",
			"holdfast: renewal missed": "renewal missed"}
		compared := make(map[string]int)
		for _, logged := range log.records {
			name, ok := events[logged.message]
			if ok && isLost(logged) {
				continue // the lock was lost before: the span has ended
			}
			if !ok {
				t.Errorf("the log says %q: does a span?", logged.message)
				continue
			}
			var event sdktrace.Event
			n := compared[name]
			compared[name]++
			for _, e := range hold.Events() {
				if e.Name == name {
					if n == 0 {
						event = e
						break
					}
					n--
				}
			}
			said := append(event.Attributes, hold.Attributes()...)
			for key, v := range logged.attributes {
				if d, ok := v.(time.Duration); ok {
					v = d.Seconds()
				}
				if got := value(said, attribute.Key(key)); got != fmt.Sprint(v) {
					t.Errorf("%s: the log says %s=%v, and the span %q", name, key, v, got)
				}
			}
		}
		if compared["lost"] != 1 || compared["renewal missed"] < 2 {
			t.Errorf("compared %v: nothing was shown", compared)
		}
	}, otelhold.WithKeys())
}

// isLost reports whether a record tells of a renewal that found the lock lost.
func isLost(r record) bool {
	_, ok := r.attributes["error"].(*holdfast.LostError)
	return ok
}

// blocks is a processor of spans that blocks and panics.
type blocks struct {
	sdktrace.SpanProcessor
	until chan struct{}
}

func (b blocks) OnStart(context.Context, sdktrace.ReadWriteSpan) { <-b.until }
func (b blocks) OnEnd(sdktrace.ReadOnlySpan)                     { panic("a processor's fault") }

// A provider that blocks or panics harms no lock.
func TestProviderThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		w := newWorld(t, otelhold.WithTracerProvider(sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(blocks{until: until}))))
		l, _ := w.locker()
		for range 100 {
			w.release(w.acquire(t.Context(), l, "key"))
		}
		close(until)
		w.release(w.acquire(t.Context(), l, "key"))
		synctest.Wait()
	})
}
