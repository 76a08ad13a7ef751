package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// fault is what befalls nodes of a scenario. Its end is awaited until the nodes answer again.
type fault struct {
	name, title string
	proxies     int
	begin       func(ctx context.Context, e *env) (end func() error, err error)
}

// lateness is how long a slow node takes to answer.
const lateness = time.Second

var faults = []fault{
	{"one-stopped", "one of five stopped", 0, stopNodes(1)},
	{"one-killed", "one of five killed, and later started again with nothing", 0, killNode},
	{"two-stopped", "two of five stopped", 0, stopNodes(2)},
	{"one-slow", "one of five answers after a second", 1, slowDown},
}

// stopNodes has the first n nodes stand still, with connections open.
func stopNodes(n int) func(ctx context.Context, e *env) (func() error, error) {
	return func(ctx context.Context, e *env) (func() error, error) {
		for _, node := range e.nodes[:n] {
			if err := node.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				return nil, err
			}
		}
		return func() error {
			for _, node := range e.nodes[:n] {
				if err := node.cmd.Process.Signal(syscall.SIGCONT); err != nil {
					return err
				}
				if err := node.awaitAnswer(ctx); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
}

func killNode(ctx context.Context, e *env) (func() error, error) {
	node := e.nodes[0]
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	node.stop()
	return func() error { return node.run(ctx, path) }, nil
}

func slowDown(_ context.Context, e *env) (func() error, error) {
	if err := e.proxies[0].delay(lateness); err != nil {
		return nil, err
	}
	return func() error { return e.proxies[0].delay(0) }, nil
}

func faultScenario(p plan, f fault) *scenario {
	drivers := []string{ours, floor, redsyncFast}
	if p.hanging {
		drivers = append(drivers, redsyncGoRedis, redsyncRueidis)
	}
	return &scenario{
		name: "five-" + f.name, title: "five nodes, one goroutine, " + f.title,
		drivers: drivers, floor: floor, rounds: p.rounds, peerRounds: 1, nodes: 5, proxies: f.proxies, patience: 2*p.faultPatience + grace,
		measure: func(ctx context.Context, e *env, driver string) (sample, error) { return faulty(ctx, e, driver, f) },
		metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"first", "ms", -1, 2}, {"p50-x", "x healthy", -1, 2},
			{"p99-x", "x healthy", -1, 2}, {"left", "keys", -1, 0}, {"tries", "", 0, 0}},
		goals: []goal{
			valueGoal("p50 at most 1.2 x healthy", "p50-x", ours, atMost, 1.2),
			valueGoal("p99 at most 1.2 x healthy", "p99-x", ours, atMost, 1.2),
			valueGoal("the first pair after the fault at most 60 ms", "first", ours, atMost, 60),
			valueGoal(fmt.Sprintf("no key left behind on any node, in %d tries", p.tries), "left", ours, atMost, 0),
		},
	}
}

// faulty measures pairs before a fault and while it lasts, and looks for keys that are left after it.
func faulty(ctx context.Context, e *env, name string, f fault) (s sample, err error) {
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	// What the fault did to the driver's connections is of no concern to its next turn.
	defer func() {
		if l := e.forget(name); l != nil {
			l.close()
		}
		if err := e.flush(); err != nil && s != nil {
			s = nil
		}
	}()
	key := e.key()
	next := 0
	timed := func() (time.Duration, error) {
		next++
		begin := time.Now()
		err := pair(context.Background(), l, fmt.Sprintf("%s/%d", key, next))
		return time.Since(begin), err
	}
	for range e.warm {
		if _, err := timed(); err != nil {
			return nil, err
		}
	}
	var healthy, during []time.Duration
	for start := time.Now(); time.Since(start) < e.span; {
		took, err := timed()
		if err != nil {
			return nil, err
		}
		healthy = append(healthy, took)
	}
	end, err := f.begin(ctx, e)
	if err != nil {
		return nil, err
	}
	end = sync.OnceValue(end)
	defer end()
	// A driver that hangs goes on when the nodes do.
	var impatient atomic.Bool
	defer time.AfterFunc(e.faultPatience, func() {
		impatient.Store(true)
		end()
	}).Stop()
	for start := time.Now(); ctx.Err() == nil; {
		took, err := timed()
		if impatient.Load() {
			return nil, fmt.Errorf("%w: no end of pair %d after the fault within %v", errStuck, len(during)+1, e.faultPatience)
		}
		if err != nil {
			return nil, fmt.Errorf("pair %d after the fault: %w", len(during)+1, err)
		}
		during = append(during, took)
		if past := time.Since(start); past > e.span && len(during) >= e.tries || past > e.faultSpan {
			break
		}
	}
	s = sample{
		"tries": float64(len(during)),
		"first": microseconds(during[0]) / 1000,
	}
	s["p50"], s["p99"] = microseconds(stats.Percentile(during, 0.5)), microseconds(stats.Percentile(during, 0.99))
	s["p50-x"] = s["p50"] / microseconds(stats.Percentile(healthy, 0.5))
	s["p99-x"] = s["p99"] / microseconds(stats.Percentile(healthy, 0.99))

	if err := end(); err != nil {
		return nil, err
	}
	// What is still under way gets time to arrive, whether it sets keys or deletes them. A key that nobody will delete stays for the whole lease, which is longer.
	for begin := time.Now(); ; {
		left, err := e.locksLeft()
		if err != nil {
			return nil, err
		}
		s["left"] = float64(left)
		if past := time.Since(begin); left == 0 && past > e.faultSettle/10 || past > e.faultSettle+lateness {
			return s, nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
