package otelhold_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/otelhold"
)

// world is Telemetry, what comes of it, and a memory to make Lockers on. Its time is that of a
// bubble, if it was made in one.
type world struct {
	t         *testing.T
	telemetry *otelhold.Telemetry
	reader    *sdkmetric.ManualReader
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
	memory    *memhold.Backend
}

func newWorld(t *testing.T, options ...otelhold.Option) *world {
	t.Helper()
	w := &world{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder(),
		memory: memhold.New()}
	w.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))
	var err error
	w.telemetry, err = otelhold.New(append([]otelhold.Option{otelhold.WithMeterProvider(meters),
		otelhold.WithTracerProvider(w.tracers)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.telemetry.Close(); err != nil {
			t.Error(err)
		}
		w.memory.Close()
	})
	return w
}

// bubble runs f in a bubble of fake time.
func bubble(t *testing.T, f func(t *testing.T, w *world), options ...otelhold.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, options...)) })
}

// locker makes a Locker of another process that is watched, and its faults.
func (w *world) locker(options ...holdfast.Option) (*holdfast.Locker, memhold.Faults) {
	w.t.Helper()
	client := w.memory.Client()
	w.t.Cleanup(func() { client.Close() })
	l, err := holdfast.New(client, append(options,
		holdfast.WithHooks(w.telemetry.Hooks(holdfast.DefaultTTL)))...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l, client.Faults()
}

func (w *world) acquire(ctx context.Context, l *holdfast.Locker, key string,
	options ...holdfast.AcquireOption) *holdfast.Lock {
	w.t.Helper()
	lock, err := l.Acquire(ctx, key, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	return lock
}

func (w *world) release(lock *holdfast.Lock) {
	w.t.Helper()
	if err := lock.Release(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// samples are the values of a collection by their series, as name{attribute=value}. Of a histogram
// there are .count and .sum.
type samples map[string]float64

// collect reads all metrics of the scope.
func (w *world) collect() []metricdata.Metrics {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &all); err != nil {
		w.t.Fatal(err)
	}
	switch len(all.ScopeMetrics) {
	case 0:
		return nil
	case 1:
		return all.ScopeMetrics[0].Metrics
	}
	w.t.Fatalf("%d scopes, want one", len(all.ScopeMetrics))
	return nil
}

// samples waits until hooks have been told all that has happened, and collects.
func (w *world) samples() samples {
	w.t.Helper()
	synctest.Wait()
	all := make(samples)
	for _, m := range w.collect() {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				all[m.Name+series(p.Attributes)] = float64(p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				all[m.Name+series(p.Attributes)] = float64(p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				all[m.Name+".count"+series(p.Attributes)] = float64(p.Count)
				all[m.Name+".sum"+series(p.Attributes)] = p.Sum
			}
		default:
			w.t.Fatalf("%s is a %T", m.Name, data)
		}
	}
	return all
}

func series(attributes attribute.Set) string {
	var all []string
	for _, a := range attributes.ToSlice() {
		all = append(all, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// want compares some series of a collection.
func (s samples) want(t *testing.T, want samples) {
	t.Helper()
	for series, value := range want {
		if got, ok := s[series]; !ok {
			t.Errorf("there is no %s", series)
		} else if got-value > 1e-9 || value-got > 1e-9 {
			t.Errorf("%s is %v, want %v", series, got, value)
		}
	}
}

// ended waits until hooks have been told all that has happened, and returns the spans of that name
// that have ended.
func (w *world) ended(name string) (spans []sdktrace.ReadOnlySpan) {
	w.t.Helper()
	synctest.Wait()
	for _, s := range w.spans.Ended() {
		if s.Name() == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// one returns the only span of that name that has ended.
func (w *world) one(name string) sdktrace.ReadOnlySpan {
	w.t.Helper()
	spans := w.ended(name)
	if len(spans) != 1 {
		w.t.Fatalf("%d spans %s have ended, want one", len(spans), name)
	}
	return spans[0]
}

// text writes attributes down in the order of their keys.
func text(attributes []attribute.KeyValue) string {
	var all []string
	for _, a := range attributes {
		all = append(all, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// value returns the attribute with the key, or "" if there is none.
func value(attributes []attribute.KeyValue, key attribute.Key) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}
