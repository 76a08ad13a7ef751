package otelhold

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Other is the resource of keys whose own resource would be one too many, or has a name of more
// than 128 bytes.
const Other = "other"

// maxResourceLen is how long the name of a resource may be: it is in each data point.
const maxResourceLen = 128

// sample is a histogram with the attributes of one series.
type sample struct {
	histogram  metric.Float64Histogram
	attributes metric.MeasurementOption
}

func (s sample) record(ctx context.Context, value float64) {
	s.histogram.Record(ctx, value, s.attributes)
}

// count is a counter with the attributes of one series.
type count struct {
	counter    metric.Int64Counter
	attributes metric.MeasurementOption
}

func (c count) add(ctx context.Context) { c.counter.Add(ctx, 1, c.attributes) }

// series are the series of one resource.
type series struct {
	resource attribute.KeyValue

	wait, hold, margin, renewal sample

	handovers, answers, unconfirmed count

	acquisitions, failures, losses, renewals map[string]count // by cause and so on
}

// of returns the series that count what happens to the key.
func (t *Telemetry) of(key string) *series {
	name := t.resource(key)
	if len(name) > maxResourceLen {
		name = Other
	}
	if s, ok := t.byResource.Load(name); ok {
		return s.(*series)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if name != Other && t.resources >= t.max {
		name = Other
	}
	if s, ok := t.byResource.Load(name); ok {
		return s.(*series)
	}
	if name != Other {
		t.resources++
	}
	s := t.newSeries(strings.ToValidUTF8(name, "\uFFFD"))
	t.byResource.Store(name, s)
	return s
}

func (t *Telemetry) newSeries(name string) *series {
	i := &t.instruments
	resource := attribute.String("resource", name)
	alone := metric.WithAttributeSet(attribute.NewSet(resource))
	by := func(counter metric.Int64Counter, key string, values []string) map[string]count {
		counts := make(map[string]count, len(values))
		for _, v := range values {
			counts[v] = newCount(counter, metric.WithAttributeSet(
				attribute.NewSet(resource, attribute.String(key, v))))
		}
		return counts
	}
	return &series{
		resource:     resource,
		wait:         sample{i.wait, alone},
		hold:         sample{i.hold, alone},
		margin:       sample{i.margin, alone},
		renewal:      sample{i.renewal, alone},
		handovers:    newCount(i.handovers, alone),
		answers:      newCount(i.answers, alone),
		unconfirmed:  newCount(i.unconfirmed, alone),
		acquisitions: by(i.acquisitions, "kind", kinds),
		failures:     by(i.failures, "cause", failureCauses),
		losses:       by(i.losses, "cause", lossCauses),
		renewals:     by(i.renewals, "outcome", outcomes),
	}
}

// newCount begins a series at 0, so that an increase to 1 shows.
func newCount(counter metric.Int64Counter, attributes metric.MeasurementOption) count {
	counter.Add(context.Background(), 0, attributes)
	return count{counter, attributes}
}
