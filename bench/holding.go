package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// holdingScenario is about many locks held, and renewed, at once.
func holdingScenario(p plan, h holdingPlan) *scenario {
	drivers := []string{ours, bare}
	rounds := 1
	if h.locks <= 10_000 {
		// With a goroutine and timers for each lock, ten times as many would take a gigabyte.
		drivers = append(drivers, rueidisLock)
		rounds = max(1, p.rounds-1)
	}
	return &scenario{
		name: fmt.Sprintf("held-%d", h.locks), title: fmt.Sprintf("%d locks held by one process, each renewed every %v", h.locks, h.ttl/3),
		drivers: drivers, floor: bare, rounds: rounds,
		measure: func(ctx context.Context, e *env, driver string) (sample, error) { return holdMany(ctx, e, driver, h) },
		metrics: []metric{{"cpu", "% of a core", -1, 2}, {"heap", "B/lock", -1, 0}, {"goroutines", "", -1, 0}, {"commands", "/s", -1, 0},
			{"scripts", "/s", -1, 0}, {"server", "% of a core", -1, 2}},
		goals: []goal{
			ratioGoal("client CPU at most 1.2 x bare pipelined renewals", "cpu", ours, bare, atMost, 1.2),
			valueGoal("at most 20 goroutines in all", "goroutines", ours, atMost, 20),
			valueGoal("at most 1.5 KiB per lock", "heap", ours, atMost, 1536),
		},
	}
}

func holdMany(ctx context.Context, e *env, name string, h holdingPlan) (sample, error) {
	workers, b, err := e.startWorkers(ctx, 1, job{Kind: "hold", Driver: name, Key: e.key(), Locks: h.locks, TTL: h.ttl, Span: h.span})
	if err != nil {
		return nil, err
	}
	defer b.close()
	defer stopWorkers(workers)
	before, err := e.info()
	if err != nil {
		return nil, err
	}
	workers[0].tell()
	line, err := workers[0].line()
	if err != nil {
		return nil, err
	}
	after, err := e.info()
	if err != nil {
		return nil, err
	}
	var s sample
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return nil, err
	}
	seconds := h.span.Seconds()
	nodes := float64(len(e.nodes))
	s["commands"] = (after["total_commands_processed"] - before["total_commands_processed"] - float64(len(e.nodes))) / seconds
	s["scripts"] = (after["evalsha"] - before["evalsha"]) / seconds
	s["renewed"] = float64(h.locks) / (h.ttl / 3).Seconds() / ((after.sent() - before.sent()) / nodes / seconds)
	s["server"] = (after.cpu() - before.cpu()) / seconds * 100
	// The worker has ended with what it held, and the next one needs the room.
	return s, e.flush()
}
