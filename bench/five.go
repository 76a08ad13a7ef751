package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// nodesScenarios are about one lock over five independent servers.
func nodesScenarios(p plan) []*scenario {
	const nodes = 5
	uncontended := []string{ours, floor, redsyncGoRedis, redsyncRueidis}
	contended := []string{ours, oursAlone, redsyncGoRedis, redsyncRueidis}
	second := metric{"second", "% of pairs", -1, 2}
	seldom := valueGoal("a second round in less than 1 % of acquisitions", "second", ours, atMost, 1)
	all := []*scenario{{
		name: "five-latency", title: "five nodes, uncontended acquire and release, one goroutine",
		drivers: uncontended, floor: floor, measure: latency, nodes: nodes,
		metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"allocs", "/pair", -1, 1}, {"commands", "/pair", -1, 1},
			{"in", "B/pair", -1, 0}, {"out", "B/pair", -1, 0}, {"server", "us/pair", -1, 1}, {"client", "us/pair", -1, 1}, second},
		goals: []goal{ratioGoal("p50 at most 1.15 x the floor", "p50", ours, floor, atMost, 1.15), seldom},
	}, {
		name: "five-throughput-64", title: "five nodes, uncontended acquire and release, 64 goroutines on keys of their own",
		drivers: uncontended, floor: floor, nodes: nodes,
		measure: func(ctx context.Context, e *env, driver string) (sample, error) {
			return throughput(ctx, e, driver, 64)
		},
		metrics: []metric{{"pairs", "/s", 1, 0}, {"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"client", "us/pair", -1, 1}, {"server", "us/pair", -1, 1}, second},
		goals: []goal{
			ratioGoal("at least 0.8 x the floor", "pairs", ours, floor, atLeast, 0.8),
			ratioGoal("at least 1.2 x the best peer", "pairs", ours, bestOf, atLeast, 1.2),
			seldom,
		},
	}}
	for _, f := range faults {
		all = append(all, faultScenario(p, f))
	}
	all = append(all, &scenario{
		name: "five-processes", title: fmt.Sprintf("five nodes, one key, %d processes of %d goroutines, nothing to do inside", p.workers, p.each),
		drivers: contended, measure: contendedProcesses, nodes: nodes,
		metrics: processMetrics,
		goals: []goal{
			ratioGoal("handoffs between processes at least 20 x the best peer", "handoffs", ours, bestOf, atLeast, 20),
			valueGoal("Jain index at least 0.95", "jain", ours, atLeast, 0.95),
		},
	}, &scenario{
		name: "five-handover", title: "five nodes, from the call of release to the next holder, in another process",
		drivers: []string{ours, roundTrip, redsyncGoRedis, redsyncRueidis}, floor: roundTrip, measure: nodesHandovers, nodes: nodes,
		metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"samples", "", 0, 0}},
		goals:   []goal{ratioGoal("p50 at most 2.5 x the round trip to a majority", "p50", ours, roundTrip, atMost, 2.5)},
	})
	h := holdingScenario(p, p.nodesHolding)
	h.name, h.title, h.nodes = "five-"+h.name, "five nodes, "+h.title, nodes
	h.drivers = []string{ours, bare}
	h.metrics = append(h.metrics, metric{"renewed", "locks/command", 1, 1})
	h.goals = []goal{
		valueGoal("at most 20 goroutines, and 5 for each node", "goroutines", ours, atMost, 20+5*nodes),
		valueGoal("a command per second to a node for at least 50 locks renewed per second", "renewed", ours, atLeast, 50),
	}
	return append(all, h)
}

// secondRounds is how many of a quorum's acquisitions needed a second round, in percent; not a number, if it is none.
func secondRounds(l locker) float64 {
	q, ok := l.(*quorumLocker)
	if !ok {
		return math.NaN()
	}
	counts := q.quorum.Status().Counts
	return float64(counts.SecondRounds) / float64(counts.Acquired) * 100
}

// nodesHandovers measures also what a handover is compared with.
func nodesHandovers(ctx context.Context, e *env, name string) (sample, error) {
	if name != roundTrip {
		return handovers(ctx, e, name)
	}
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	var times []time.Duration
	for start := time.Now(); time.Since(start) < e.handovers || len(times) < e.minHandovers; {
		begin := time.Now()
		h, err := l.acquire(ctx, e.key())
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(begin))
		if err := l.release(ctx, h); err != nil {
			return nil, err
		}
		// Handovers happen after some time in which nothing does, too.
		if err := sleep(ctx, handoverHold); err != nil {
			return nil, err
		}
	}
	return sample{
		"p50":     microseconds(stats.Percentile(times, 0.5)),
		"p99":     microseconds(stats.Percentile(times, 0.99)),
		"samples": float64(len(times)),
	}, nil
}
