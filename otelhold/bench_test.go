package otelhold_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/otelhold"
)

// newBench returns Telemetry with spans that are recorded and thrown away, and its reader.
func newBench(b *testing.B, sampler trace.Sampler) (*otelhold.Telemetry, *metric.ManualReader) {
	b.Helper()
	reader := metric.NewManualReader()
	telemetry, err := otelhold.New(otelhold.WithResource(otelhold.UpTo("/")),
		otelhold.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		otelhold.WithTracerProvider(trace.NewTracerProvider(trace.WithSampler(sampler))))
	if err != nil {
		b.Fatal(err)
	}
	return telemetry, reader
}

func newLocker(b *testing.B, options ...holdfast.Option) *holdfast.Locker {
	b.Helper()
	memory := memhold.New()
	l, err := holdfast.New(memory, options...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.Close()
		memory.Close()
	})
	return l
}

// BenchmarkCollect collects while few locks are held, and while very many are.
func BenchmarkCollect(b *testing.B) {
	for _, locks := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("held=%d", locks), func(b *testing.B) {
			telemetry, reader := newBench(b, trace.NeverSample())
			l := newLocker(b, holdfast.WithHooks(telemetry.Hooks(0)))
			telemetry.Follow("main", l)
			for i := range locks {
				if _, err := l.Acquire(b.Context(), fmt.Sprintf("key/%08d", i)); err != nil {
					b.Fatal(err)
				}
			}
			var all metricdata.ResourceMetrics
			b.ReportAllocs()
			for b.Loop() {
				if err := reader.Collect(context.Background(), &all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPair acquires and releases: without hooks, and with spans that are recorded or not.
func BenchmarkPair(b *testing.B) {
	unsampled, _ := newBench(b, trace.NeverSample())
	sampled, _ := newBench(b, trace.AlwaysSample())
	for name, options := range map[string][]holdfast.Option{
		"silent":    nil,
		"unsampled": {holdfast.WithHooks(unsampled.Hooks(0))},
		"sampled":   {holdfast.WithHooks(sampled.Hooks(0))},
	} {
		b.Run(name, func(b *testing.B) {
			l := newLocker(b, options...)
			b.ReportAllocs()
			for b.Loop() {
				lock, err := l.TryAcquire(b.Context(), "invoice/42")
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
