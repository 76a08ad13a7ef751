package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// delayedScenarios are about a network where round trips count and processor time does not: every answer arrives so
// much later.
func delayedScenarios(p plan, delay time.Duration) []*scenario {
	return []*scenario{{
		name: fmt.Sprintf("latency-%v", delay), title: fmt.Sprintf("uncontended acquire and release, one goroutine, %v more for each round trip", delay),
		drivers: slices.Concat([]string{ours, oursGoRedis, floor}, singlePeers), floor: floor, rounds: max(1, p.rounds-1), nodes: 1, proxies: 1, delay: delay,
		measure: delayedLatency,
		metrics: []metric{{"p50", "ms", -1, 2}, {"p99", "ms", -1, 2}},
		goals:   []goal{ratioGoal("p50 at most 1.15 x the floor", "p50", ours, floor, atMost, 1.15)},
	}, {
		name:    fmt.Sprintf("processes-%v", delay),
		title:   fmt.Sprintf("one key, %d processes of %d goroutines, nothing to do inside, %v more for each round trip", p.workers, p.each, delay),
		drivers: slices.Concat([]string{ours, oursAlone, oursGoRedis, blpop}, singlePeers), floor: blpop, rounds: max(1, p.rounds-1), nodes: 1, proxies: 1, delay: delay,
		measure: contendedProcesses,
		metrics: processMetrics,
	}}
}

func delayedLatency(ctx context.Context, e *env, name string) (sample, error) {
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	key := e.key()
	var times []time.Duration
	for start := time.Now(); time.Since(start) < e.span || len(times) < 2; {
		begin := time.Now()
		if err := pair(context.Background(), l, key); err != nil {
			return nil, err
		}
		times = append(times, time.Since(begin))
	}
	// The first one connects.
	times = times[1:]
	return sample{
		"p50": microseconds(stats.Percentile(times, 0.5)) / 1000,
		"p99": microseconds(stats.Percentile(times, 0.99)) / 1000,
	}, nil
}
