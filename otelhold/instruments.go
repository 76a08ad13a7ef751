package otelhold

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// instruments are all that New asks a meter for.
type instruments struct {
	wait, hold, renewal, margin metric.Float64Histogram

	acquisitions, failures, handovers, answers, losses, unconfirmed, renewals metric.Int64Counter

	held, waiting, calls, owed metric.Int64ObservableUpDownCounter

	needed, state metric.Int64ObservableGauge
}

// The buckets of the histograms, in seconds but for marginBuckets: those of promhold, as the alert
// rules need some of them.
var (
	waitBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets = []float64{.001, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	callBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

	marginBuckets = []float64{.1, .2, .33, .4, .5, .6, .65, .7}
)

// newInstruments makes the instruments. By Prometheus' rules for names they become those of
// promhold. They have the same descriptions.
func newInstruments(meter metric.Meter) (instruments, error) {
	m := maker{meter: meter}
	i := instruments{
		wait: m.histogram("distributed_lock.wait", "s",
			"Time from the call to the grant of a lock.", waitBuckets),
		hold: m.histogram("holdfast.hold", "s",
			"Time from the grant of a lock to its release or loss.", holdBuckets),
		renewal: m.histogram("holdfast.renewal", "s",
			"Time from the request for a renewal to its answer.", callBuckets),
		margin: m.histogram("holdfast.renewal_margin_ratio", "1",
			"Share of the lease that was left when a renewal was confirmed.", marginBuckets),

		failures: m.counter("distributed_lock.failures", "{failure}",
			"Acquisitions that failed, by cause."),
		acquisitions: m.counter("holdfast.acquisitions", "{acquisition}",
			"Acquisitions that succeeded, by kind."),
		handovers: m.counter("holdfast.handovers", "{handover}",
			"Locks handed over to another goroutine of the process."),
		answers: m.counter("holdfast.waiting_answers", "{answer}",
			"Answers of the backend to those who wait that the lock is held."),
		losses: m.counter("holdfast.losses", "{loss}", "Locks lost, by cause."),
		unconfirmed: m.counter("holdfast.releases_unconfirmed", "{release}",
			"Releases that the backend did not confirm at once."),
		renewals: m.counter("holdfast.renewals", "{renewal}", "Renewals, by outcome."),

		held:    m.sum("holdfast.held", "{lock}", "Locks held now."),
		waiting: m.sum("holdfast.waiting", "{call}", "Calls that wait for a lock now."),
		calls: m.sum("holdfast.node_calls", "{call}",
			"Calls that wait for the node's answer or for their turn."),
		owed: m.sum("holdfast.node_releases_owed", "{release}",
			"Releases that the node has not confirmed yet."),

		needed: m.gauge("holdfast.nodes_needed", "{node}", "How many nodes make a majority."),
		state:  m.gauge("holdfast.node_state", "{node}", "1 for the state that the node is in."),
	}
	return i, m.err
}

// observed are those that are looked at when metrics are collected.
func (i *instruments) observed() []metric.Observable {
	return []metric.Observable{i.held, i.waiting, i.calls, i.owed, i.needed, i.state}
}

// maker makes instruments, and remembers what went wrong.
type maker struct {
	meter metric.Meter
	err   error
}

func (m *maker) histogram(name, unit, description string,
	buckets []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit),
		metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
	m.err = errors.Join(m.err, err)
	return h
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit),
		metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}

// sum makes an instrument for values that can be added up.
func (m *maker) sum(name, unit, description string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit),
		metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}

// gauge makes an instrument for values that cannot be added up.
func (m *maker) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit),
		metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return g
}
