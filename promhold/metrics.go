package promhold

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultMaxResources is the largest number of resources, unless [WithMaxResources] sets another.
const DefaultMaxResources = 100

// Option sets an option of [New].
type Option interface{ apply(*Metrics) }

type option func(*Metrics)

func (f option) apply(m *Metrics) { f(m) }

// WithResource sets the function that returns the resource of a key, for the label resource. It is
// called for every event, by several goroutines at once. If it panics, the event is not counted,
// and the Locker writes to its log. The default, also for nil, is one resource for all keys, "all".
func WithResource(resource func(key string) string) Option {
	return option(func(m *Metrics) { m.resource = resource })
}

// WithMaxResources sets the largest number of resources, without the one for all further resources.
// The default, also for numbers below 1, is [DefaultMaxResources].
func WithMaxResources(n int) Option {
	return option(func(m *Metrics) { m.max = n })
}

// Metrics is a collector with the metrics of any number of Lockers. Make one with [New], and
// register it. All methods are safe for concurrent use. It starts no goroutines and need not be
// closed.
type Metrics struct {
	resource func(key string) string
	max      int

	wait, hold, margin, renewal *prometheus.HistogramVec

	acquisitions, failures, handovers, answers, losses, unconfirmed, renewals *prometheus.CounterVec

	byResource sync.Map // of *series, by the name of the resource

	mu        sync.Mutex
	resources int // in byResource, without the one for what is too many
	followed  followed
}

var _ prometheus.Collector = (*Metrics)(nil)

// The buckets of the classic histograms, in seconds but for marginBuckets. The rules in deploy need
// one at 1 s for waits, and one at a third for margins.
var (
	waitBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets = []float64{.001, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	callBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

	marginBuckets = []float64{.1, .2, .33, .4, .5, .6, .65, .7}
)

// New returns Metrics to register, for example with prometheus.MustRegister, and to give to
// Lockers: see [Metrics.Hooks] and [Metrics.Follow]. Register only one Metrics with a registry. New
// panics if an option is nil.
func New(options ...Option) *Metrics {
	m := &Metrics{}
	for i, o := range options {
		if o == nil {
			panic(fmt.Sprintf("promhold: option %d is nil: leave it out", i+1))
		}
		o.apply(m)
	}
	if m.resource == nil {
		m.resource = func(string) string { return "all" }
	}
	if m.max < 1 {
		m.max = DefaultMaxResources
	}
	m.wait = histogram("distributed_lock_wait_seconds",
		"Time from the call to the grant of a lock.", waitBuckets)
	m.hold = histogram("holdfast_hold_seconds",
		"Time from the grant of a lock to its release or loss.", holdBuckets)
	m.renewal = histogram("holdfast_renewal_seconds",
		"Time from the request for a renewal to its answer.", callBuckets)
	m.margin = histogram("holdfast_renewal_margin_ratio",
		"Share of the lease that was left when a renewal was confirmed.", marginBuckets)

	m.failures = counter("distributed_lock_failures_total",
		"Acquisitions that failed, by cause.", "cause")
	m.acquisitions = counter("holdfast_acquisitions_total",
		"Acquisitions that succeeded, by kind.", "kind")
	m.handovers = counter("holdfast_handovers_total",
		"Locks handed over to another goroutine of the process.")
	m.answers = counter("holdfast_waiting_answers_total",
		"Answers of the backend to those who wait that the lock is held.")
	m.losses = counter("holdfast_losses_total", "Locks lost, by cause.", "cause")
	m.unconfirmed = counter("holdfast_releases_unconfirmed_total",
		"Releases that the backend did not confirm at once.")
	m.renewals = counter("holdfast_renewals_total", "Renewals, by outcome.", "outcome")
	return m
}

// histogram returns a classic and native histogram by resource.
func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                            name,
		Help:                            help,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"resource"})
}

// counter returns a counter by resource and the other labels.
func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		append([]string{"resource"}, labels...))
}

// vectors are all that is by resource.
func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.wait, m.hold, m.margin, m.renewal, m.acquisitions, m.failures,
		m.handovers, m.answers, m.losses, m.unconfirmed, m.renewals}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(descs)
	}
	for _, d := range followedDescs {
		descs <- d
	}
}

// Collect implements prometheus.Collector. Its cost depends on the number of resources, Lockers and
// nodes, not on the number of locks. It asks no server.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(metrics)
	}
	m.collectFollowed(metrics)
}
