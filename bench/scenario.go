package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// sample is the result of one measurement of one driver: values by metric, in seconds, bytes,
// counts and parts of 1.
type sample map[string]float64

// measurement measures one driver once.
type measurement func(ctx context.Context, e *env, driver string) (sample, error)

// metric is one column of a scenario's table.
type metric struct {
	Name     string `json:"name"`
	Unit     string `json:"unit,omitempty"`
	Better   int    `json:"better"` // 1 if more is better, -1 if less is better, 0 if neither
	Decimals int    `json:"decimals"`
}

// factors convert a value of a sample to a unit that begins with unit.
var factors = []struct {
	unit   string
	factor float64
}{{"us", 1e6}, {"ms", 1e3}, {"KiB", 1.0 / 1024}, {"%", 100}}

func (m *metric) factor() float64 {
	for _, f := range factors {
		if strings.HasPrefix(m.Unit, f.unit) {
			return f.factor
		}
	}
	return 1
}

// scenario is a situation in which drivers are compared.
type scenario struct {
	name, title string
	drivers     []string
	metrics     []metric // ratios are about the first one
	floor       string   // the driver that others are compared with; may be ""
	rounds      int      // 0 for the plan's
	// rounds of peers, if a round of theirs takes long; 0 for rounds
	peerRounds int
	nodes      int           // how many servers it has; 0 for the one that scenarios share
	proxies    int           // how many of these servers have a proxy in front of them
	files      bool          // it has a directory and no server
	delay      time.Duration // how much later answers arrive through the proxies
	patience   time.Duration // bound for one measurement; 0 for the plan's
	measure    measurement
	goals      []goal
}

// inUnits converts a sample to the units of the scenario's metrics, and drops other values.
func (s *scenario) inUnits(values sample) sample {
	converted := make(sample)
	for _, m := range s.metrics {
		// NaN: a quotient whose divisor was 0.
		if v, ok := values[m.Name]; ok && !math.IsNaN(v) {
			converted[m.Name] = v * m.factor()
		}
	}
	return converted
}

// results are the samples of a scenario by driver, in the order of rounds, and the last error of
// each driver.
type results struct {
	scenario *scenario
	samples  map[string][]sample
	errors   map[string]error
}

// values returns the values of a metric of a driver, in the order of rounds.
func (r *results) values(driver, metric string) (values []float64) {
	for _, s := range r.samples[driver] {
		if v, ok := s[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}

func (r *results) median(driver, metric string) float64 {
	return stats.Median(r.values(driver, metric))
}

// ratio returns the median of the ratios of two drivers, round by round.
func (r *results) ratio(metric, driver, reference string) float64 {
	return stats.Ratio(r.values(driver, metric), r.values(reference, metric))
}

// best returns the driver with the best median, or "" if none was measured.
func (r *results) best(drivers []string, m metric) (best string) {
	for _, name := range drivers {
		v := r.median(name, m.Name)
		if math.IsNaN(v) {
			continue
		}
		if best == "" || (v-r.median(best, m.Name))*float64(m.Better) > 0 {
			best = name
		}
	}
	return best
}

// bestOf is the reference of a goal that stands for the best peer.
const bestOf = "the best peer"

// reference returns the driver that a name stands for: bestOf is the best peer, floor the best
// floor.
func (r *results) reference(name string, m metric) string {
	switch name {
	case bestOf:
		return r.best(peers, m)
	case floor:
		return r.best(floors, m)
	}
	return name
}

// goal is a bound that a result should keep.
type goal struct {
	text  string
	value func(r *results) float64 // NaN if not measured
	limit float64
	least bool // limit is the least allowed value, not the most
}

const (
	atMost  = false
	atLeast = true
)

func (g *goal) reached(value float64) bool {
	if g.least {
		return value >= g.limit
	}
	return value <= g.limit
}

// ratioGoal bounds the ratio of a metric of two drivers.
func ratioGoal(text, metric, driver, reference string, least bool, limit float64) goal {
	return goal{text: text, limit: limit, least: least, value: func(r *results) float64 {
		i := slices.IndexFunc(r.scenario.metrics, named(metric))
		return r.ratio(metric, driver, r.reference(reference, r.scenario.metrics[i]))
	}}
}

// valueGoal bounds a metric of a driver.
func valueGoal(text, metric, driver string, least bool, limit float64) goal {
	return goal{text: text, limit: limit, least: least, value: func(r *results) float64 {
		return r.median(driver, metric)
	}}
}

func named(name string) func(metric) bool {
	return func(m metric) bool { return m.Name == name }
}
