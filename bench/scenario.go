package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// sample is what one measurement of one driver brought: values by the names of metrics.
type sample map[string]float64

// metric is something that is measured.
type metric struct {
	Name     string `json:"name"`
	Unit     string `json:"unit,omitempty"`
	Better   int    `json:"better"` // 1 if more is better, -1 if less, 0 if it is only told
	Decimals int    `json:"decimals"`
}

// scenario is something that drivers are compared in.
type scenario struct {
	name, title string
	drivers     []string
	metrics     []metric      // the first one is what ratios are about
	floor       string        // the driver that others are compared with; may be none
	rounds      int           // 0 for the plan's
	peerRounds  int           // of those of other people, where a round of theirs takes long; 0 for as many
	nodes       int           // how many servers of its own it needs; 0 for the one that all share
	proxies     int           // how many of the servers have a proxy in front of them
	delay       time.Duration // by which the proxies have answers arrive later
	patience    time.Duration // with one measurement; 0 for the plan's
	measure     func(ctx context.Context, e *env, driver string) (sample, error)
	goals       []goal
}

// env is what measurements have in common.
type env struct {
	plan
	common   []*server // the one that scenarios share
	nodes    []*server // those of the scenario
	proxies  []*proxy  // in front of the first ones of nodes
	at       site      // where drivers find them
	outside  site      // where drivers find servers that are not Redis
	programs string    // directory of the libraries of other languages
	dir      string
	profile  string // directory for profiles; "" for none
	files    int    // so far, for their names
	keys     int    // so far, for their names

	mu     sync.Mutex
	opened map[string]locker
}

// driver returns the connected driver, in this process. It stays connected for the rest of the scenario.
func (e *env) driver(ctx context.Context, name string) (locker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.opened[name]; l != nil {
		return l, nil
	}
	var l locker
	var err error
	if name == redisPy || name == redlockNode {
		l, err = openProgram(context.WithoutCancel(ctx), name, e.programs, e.at.Redis[0])
	} else {
		l, err = open(ctx, name, e.at, ttl)
	}
	if err != nil {
		return nil, err
	}
	e.opened[name] = l
	return l, nil
}

// forget returns the driver if it is connected; the next one who wants it connects it again.
func (e *env) forget(name string) locker {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.opened[name]
	delete(e.opened, name)
	return l
}

// key returns a key that was not used before.
func (e *env) key() string {
	e.keys++
	return fmt.Sprintf("bench/%d", e.keys)
}

// reset closes the drivers and empties the servers.
func (e *env) reset() error {
	for name := range maps.Clone(e.opened) {
		e.forget(name).close()
	}
	return e.flush()
}

// results are the samples of a scenario by driver, in the order of rounds, and why a driver has none.
type results struct {
	scenario *scenario
	samples  map[string][]sample
	errors   map[string]error
}

// measureAll has the drivers take turns. A driver that hangs is left out from then on; one that fails gets its next turn, since a
// machine that stands still for a moment is enough for an error, but the failure is told.
func (s *scenario) measureAll(ctx context.Context, e *env) *results {
	r := &results{s, make(map[string][]sample), make(map[string]error)}
	leave, err := e.enter(ctx, s)
	if err != nil {
		r.errors["server"] = err
		return r
	}
	defer leave()
	rounds := cmp.Or(s.rounds, e.rounds)
	for round := range rounds {
		for _, name := range s.drivers {
			if ctx.Err() != nil || errors.Is(r.errors[name], errStuck) {
				continue
			}
			if s.peerRounds > 0 && round >= s.peerRounds && slices.Contains(peers, name) {
				continue
			}
			measured, err := s.measureOnce(ctx, e, name)
			if name == etcdMutex || name == advisory {
				// What Redis servers did meanwhile is none of theirs.
				for _, metric := range []string{"server", "reads", "commands", "inner", "in", "out"} {
					delete(measured, metric)
				}
			}
			switch {
			case ctx.Err() != nil:
			case err != nil:
				r.errors[name] = err
			default:
				r.samples[name] = append(r.samples[name], measured)
			}
		}
	}
	if err := e.reset(); err != nil {
		r.errors["server"] = err
	}
	return r
}

// grace is how long a measurement may go on after its end was called for.
const grace = 3 * time.Second

var errStuck = errors.New("it is stuck")

// measureOnce bounds a measurement. The libraries get contexts that do not end, and some wait for ever for what does not
// come; closing them is what helps.
func (s *scenario) measureOnce(ctx context.Context, e *env, name string) (sample, error) {
	type outcome struct {
		sample sample
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		measured, err := s.measure(ctx, e, name)
		done <- outcome{measured, err}
	}()
	allowed := cmp.Or(s.patience, e.patience)
	patience := time.NewTimer(allowed)
	defer patience.Stop()
	reason := fmt.Errorf("%w: no end after %v", errStuck, allowed)
	select {
	case o := <-done:
		return o.sample, o.err
	case <-patience.C:
	case <-ctx.Done():
		reason = ctx.Err()
		select {
		case <-done:
			return nil, reason
		case <-time.After(grace):
		}
	}
	if l := e.forget(name); l != nil {
		go l.close()
	}
	select {
	case <-done:
	case <-time.After(grace): // then it is left behind
	}
	return nil, reason
}

// values returns a metric of a driver, in the order of rounds.
func (r *results) values(driver, metric string) (values []float64) {
	for _, s := range r.samples[driver] {
		// Not a number is what was divided by nothing.
		if v, ok := s[metric]; ok && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

func (r *results) median(driver, metric string) float64 {
	return stats.Median(r.values(driver, metric))
}

// ratio is that of two drivers, round by round.
func (r *results) ratio(metric, driver, reference string) float64 {
	return stats.Ratio(r.values(driver, metric), r.values(reference, metric))
}

// bestPeer returns the one of other people's libraries with the best median, or "" if none was measured.
func (r *results) bestPeer(m metric) (best string) {
	for _, name := range peers {
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

// goal is what we want to reach.
type goal struct {
	text  string
	value func(r *results) float64 // NaN if it was not measured
	limit float64
	least bool // the limit is the least value, not the most
}

func (g *goal) reached(value float64) bool {
	if g.least {
		return value >= g.limit
	}
	return value <= g.limit
}

// bestOf names the best peer where a goal takes a reference.
const bestOf = "the best peer"

// ratioGoal compares a metric of a driver with that of another one.
func ratioGoal(text, metric, driver, reference string, least bool, limit float64) goal {
	return goal{text: text, limit: limit, least: least, value: func(r *results) float64 {
		other := reference
		if other == bestOf {
			i := slices.IndexFunc(r.scenario.metrics, named(metric))
			other = r.bestPeer(r.scenario.metrics[i])
		}
		return r.ratio(metric, driver, other)
	}}
}

// valueGoal looks at a metric of a driver.
func valueGoal(text, metric, driver string, least bool, limit float64) goal {
	return goal{text: text, limit: limit, least: least, value: func(r *results) float64 { return r.median(driver, metric) }}
}

func named(name string) func(metric) bool {
	return func(m metric) bool { return m.Name == name }
}
