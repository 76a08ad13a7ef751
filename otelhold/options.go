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

// WithMeterProvider sets the provider for metrics. The default, also for nil, is the global
// provider, even if otel.SetMeterProvider sets it later.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = provider })
}

// WithTracerProvider sets the provider for spans. The default, also for nil, is the global
// provider, even if otel.SetTracerProvider sets it later.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = provider })
}

// WithResource sets the function that returns the resource of a key, for the attribute resource. It
// is called for every event, by several goroutines at once. The default, also for nil, is one
// resource for all keys, "all".
func WithResource(resource func(key string) string) Option {
	return option(func(c *config) { c.resource = resource })
}

// WithMaxResources sets the largest number of resources, without the one for all further resources.
// The default, also for numbers below 1, is [DefaultMaxResources].
func WithMaxResources(n int) Option {
	return option(func(c *config) { c.max = n })
}

// WithKeys adds the attribute key to spans. Metrics never have it. By default there are no keys,
// because a key may be confidential, such as the name of a customer.
func WithKeys() Option {
	return option(func(c *config) { c.keys = true })
}

// UpTo returns a function for [WithResource] that returns the part of a key before the first
// separator, or the whole key if there is none. So UpTo("/") makes "invoice" of "invoice/42/lines".
// If separator is empty, all keys are one resource, "".
func UpTo(separator string) func(key string) string {
	return func(key string) string {
		resource, _, _ := strings.Cut(key, separator)
		return resource
	}
}
