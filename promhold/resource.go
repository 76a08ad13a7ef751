package promhold

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the resource of keys whose own resource would be one too many, or has a name of more
// than 128 bytes.
const Other = "other"

// maxResourceLen is how long the name of a resource may be: it is in each line of a scrape.
const maxResourceLen = 128

// UpTo returns a function for [WithResource] that returns the part of a key before the first
// separator, or the whole key if there is none. So UpTo("/") makes "invoice" of "invoice/42/lines".
// If separator is empty, all keys are one resource, "".
func UpTo(separator string) func(key string) string {
	return func(key string) string {
		resource, _, _ := strings.Cut(key, separator)
		return resource
	}
}

// series are the series of one resource. All exist from the resource's first event on, so that an
// increase from 0 to 1 shows.
type series struct {
	wait, hold, margin, renewal prometheus.Observer

	handovers, answers, unconfirmed prometheus.Counter

	acquisitions, failures, losses, renewals map[string]prometheus.Counter // by cause and so on
}

// of returns the series that count what happens to the key.
func (m *Metrics) of(key string) *series {
	name := m.resource(key)
	if len(name) > maxResourceLen {
		name = Other
	}
	if s, ok := m.byResource.Load(name); ok {
		return s.(*series)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if name != Other {
		if m.resources >= m.max {
			name = Other
		}
	}
	if s, ok := m.byResource.Load(name); ok {
		return s.(*series)
	}
	if name != Other {
		m.resources++
	}
	s := m.newSeries(strings.ToValidUTF8(name, "\uFFFD"))
	m.byResource.Store(name, s)
	return s
}

func (m *Metrics) newSeries(resource string) *series {
	with := func(v *prometheus.CounterVec, labels []string) map[string]prometheus.Counter {
		counters := make(map[string]prometheus.Counter, len(labels))
		for _, l := range labels {
			counters[l] = v.WithLabelValues(resource, l)
		}
		return counters
	}
	return &series{
		wait:         m.wait.WithLabelValues(resource),
		hold:         m.hold.WithLabelValues(resource),
		margin:       m.margin.WithLabelValues(resource),
		renewal:      m.renewal.WithLabelValues(resource),
		handovers:    m.handovers.WithLabelValues(resource),
		answers:      m.answers.WithLabelValues(resource),
		unconfirmed:  m.unconfirmed.WithLabelValues(resource),
		acquisitions: with(m.acquisitions, kinds),
		failures:     with(m.failures, failureCauses),
		losses:       with(m.losses, lossCauses),
		renewals:     with(m.renewals, outcomes),
	}
}
