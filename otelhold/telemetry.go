package otelhold

import (
	"fmt"
	"runtime/debug"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// Scope is the name of the instrumentation scope of all metrics and spans. Its version is that of
// this module in the program.
const Scope = "github.com/holdfast-go/holdfast/otelhold"

// Telemetry makes the metrics and spans of any number of Lockers. Make it with [New]. All methods
// are safe for concurrent use. It starts no goroutines.
type Telemetry struct {
	resource func(key string) string
	max      int
	keys     bool

	tracer       trace.Tracer
	instruments  instruments
	registration metric.Registration

	byResource sync.Map // of *series, by the name of the resource

	mu        sync.Mutex
	resources int // in byResource, without the one for what is too many
	followed  followed
}

// New returns Telemetry to give to Lockers: see [Telemetry.Hooks] and [Telemetry.Follow]. Make one
// for each provider. New fails with holdfast.ErrInvalid for an option that is nil, and with the
// provider's error if the provider refuses an instrument.
func New(options ...Option) (*Telemetry, error) {
	var c config
	for i, o := range options {
		if o == nil {
			return nil, fmt.Errorf("otelhold: %w: option %d is nil: leave it out",
				holdfast.ErrInvalid, i+1)
		}
		o.apply(&c)
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.resource == nil {
		c.resource = func(string) string { return "all" }
	}
	if c.max < 1 {
		c.max = DefaultMaxResources
	}
	t := &Telemetry{resource: c.resource, max: c.max, keys: c.keys,
		tracer: c.tracers.Tracer(Scope, trace.WithInstrumentationVersion(version()))}
	meter := c.meters.Meter(Scope, metric.WithInstrumentationVersion(version()))
	var err error
	if t.instruments, err = newInstruments(meter); err != nil {
		return nil, fmt.Errorf("otelhold: %w", err)
	}
	t.registration, err = meter.RegisterCallback(t.observe, t.instruments.observed()...)
	if err != nil {
		return nil, fmt.Errorf("otelhold: %w", err)
	}
	return t, nil
}

// Close ends what is observed at each collection: held locks, waiting calls, and the nodes of
// quorums. Hooks go on, and end with their Locker. Close Lockers first, so that the spans of their
// locks end. The error is that of the meter provider. Calling Close again does nothing.
func (t *Telemetry) Close() error { return t.registration.Unregister() }

// version is the version of this module in the program, or "" if the program does not know it.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == Scope {
			return m.Version
		}
	}
	return ""
})
