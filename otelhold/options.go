package otelhold

import (
	"strings"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// DefaultMaxResources is how many resources there are at most, if WithMaxResources does not say.
const DefaultMaxResources = 100

// Option sets an option of [New].
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// config is what options set.
type config struct {
	meters   metric.MeterProvider
	tracers  trace.TracerProvider
	resource func(key string) string
	max      int
	keys     bool
}

// WithMeterProvider says where metrics go. Default, also for nil: the global provider, as it is or
// will be set with otel.SetMeterProvider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = provider })
}

// WithTracerProvider says where spans go. Default, also for nil: the global provider, as it is or
// will be set with otel.SetTracerProvider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = provider })
}

// WithResource has resource return the resource of a key, for the attribute resource. It is called
// for every event, by several goroutines at once. Default, also for nil: one resource for all keys,
// "all".
func WithResource(resource func(key string) string) Option {
	return option(func(c *config) { c.resource = resource })
}

// WithMaxResources says how many resources there are at most, the one for further ones not counted.
// Default, also for numbers below 1: DefaultMaxResources.
func WithMaxResources(n int) Option {
	return option(func(c *config) { c.max = n })
}

// WithKeys has spans carry the attribute key. Metrics never have it. Default: no keys, as they may
// name what is nobody's business, such as a customer.
func WithKeys() Option {
	return option(func(c *config) { c.keys = true })
}

// UpTo returns a function for WithResource: the part of a key before the first separator, or the
// whole key if that has none. So UpTo("/") makes "invoice" of "invoice/42/lines". separator must
// not be empty: else all keys are one resource, "".
func UpTo(separator string) func(key string) string {
	return func(key string) string {
		resource, _, _ := strings.Cut(key, separator)
		return resource
	}
}
