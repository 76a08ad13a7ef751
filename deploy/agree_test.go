package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast/deploy/workload"
	"github.com/holdfast-go/holdfast/otelhold"
	"github.com/holdfast-go/holdfast/promhold"
)

// gatherSeries gathers, and writes down each series: help, type, labels, values, classic buckets.
func gatherSeries(t *testing.T, from prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = fmt.Sprintf("%v %s # %s",
				f.GetType(), values(m), f.GetHelp())
		}
	}
	return all
}

// values are those of a metric. Sums are rounded, as they may be added up in another order.
func values(m *dto.Metric) string {
	switch h := m.Histogram; {
	case m.Counter != nil:
		return fmt.Sprint(m.Counter.GetValue())
	case m.Gauge != nil:
		return fmt.Sprint(m.Gauge.GetValue())
	case h != nil:
		text := fmt.Sprintf("%d, %.6f", h.GetSampleCount(), h.GetSampleSum())
		for _, b := range h.Bucket {
			text += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
		}
		return text
	default:
		return "?"
	}
}

// The metrics of otelhold, once Prometheus has them, are those of promhold: the rules, the
// dashboard and docs/alerts.md hold for both.
func TestPrometheusSeesTheSameOfOpenTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		metrics := promhold.New(promhold.WithResource(promhold.UpTo("/")))
		registry.MustRegister(metrics)

		converted := prometheus.NewRegistry()
		reader, err := exporter.New(exporter.WithRegisterer(converted),
			exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
		if err != nil {
			t.Fatal(err)
		}
		telemetry, err := otelhold.New(otelhold.WithResource(otelhold.UpTo("/")),
			otelhold.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- workload.Run(ctx, func() {}, metrics, telemetry) }()
		time.Sleep(5*time.Second + 5*time.Millisecond)
		synctest.Wait()
		want, got := gatherSeries(t, registry), gatherSeries(t, converted)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		if len(want) < 100 {
			t.Errorf("only %d series: nothing was shown", len(want))
		}
		for _, series := range slices.Sorted(maps.Keys(want)) {
			_, there := got[series]
			if empty := strings.HasPrefix(want[series], "HISTOGRAM 0,"); empty && !there {
				continue // a histogram of OpenTelemetry begins with its first sample
			}
			if got[series] != want[series] {
				t.Errorf("%s\nof otelhold: %s\nof promhold: %s", series, got[series], want[series])
			}
			delete(got, series)
		}
		for series := range got {
			t.Errorf("only otelhold has %s", series)
		}
	})
}
