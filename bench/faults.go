package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// fault is a fault of nodes. end ends it, and waits until the nodes answer again.
type fault struct {
	name, title string
	proxies     int
	begin       func(ctx context.Context, e *env) (end func() error, err error)
}

// lateness is how late a slow node answers.
const lateness = time.Second

var faults = []fault{
	{"one-stopped", "one of five stopped", 0, stopNodes(1)},
	{"one-killed", "one of five killed, and later started again with nothing", 0, killNode},
	{"two-stopped", "two of five stopped", 0, stopNodes(2)},
	{"one-slow", "one of five answers after a second", 1, slowDown},
}

// stopNodes stops the first n nodes by SIGSTOP, so their connections stay open.
func stopNodes(n int) func(ctx context.Context, e *env) (func() error, error) {
	signal := func(e *env, s os.Signal) (err error) {
		for _, node := range e.nodes[:n] {
			err = errors.Join(err, node.cmd.Process.Signal(s))
		}
		return err
	}
	return func(ctx context.Context, e *env) (func() error, error) {
		return func() error {
			err := signal(e, syscall.SIGCONT)
			for _, node := range e.nodes[:n] {
				err = errors.Join(err, node.awaitAnswer(ctx))
			}
			return err
		}, signal(e, syscall.SIGSTOP)
	}
}

func killNode(ctx context.Context, e *env) (func() error, error) {
	node := e.nodes[0]
	node.stop()
	return func() error { return node.run(ctx) }, nil
}

func slowDown(_ context.Context, e *env) (func() error, error) {
	if err := e.proxies[0].delay(lateness); err != nil {
		return nil, err
	}
	return func() error { return e.proxies[0].delay(0) }, nil
}

// faulty measures pairs before and during a fault, and counts the keys that are left after it.
func faulty(f fault) measurement {
	return func(ctx context.Context, e *env, name string) (s sample, err error) {
		l, err := e.driver(ctx, name)
		if err != nil {
			return nil, err
		}
		// The next turn must not inherit connections that the fault has broken.
		defer func() {
			if l := e.forget(name); l != nil {
				l.close()
			}
			err = errors.Join(err, e.flush())
		}()
		key, next := e.key(), 0
		once := func(int) error {
			next++
			return pair(context.Background(), l, fmt.Sprintf("%s/%d", key, next))
		}
		if err := times(e.warm, func() error { return once(0) }); err != nil {
			return nil, err
		}
		healthy, err := timedBy(ctx, 1, e.span, 1, once)
		if err != nil {
			return nil, err
		}
		end, err := f.begin(ctx, e)
		if err != nil {
			return nil, err
		}
		end = sync.OnceValue(end)
		defer end()
		during, err := e.during(ctx, end, once)
		if err != nil {
			return nil, err
		}
		s = sample{"tries": float64(len(during)), "first": during[0]}
		s.addTimes(during)
		s["p50-x"], s["p99-x"] = s["p50"]/stats.Quantile(healthy, 0.5),
			s["p99"]/stats.Quantile(healthy, 0.99)
		if err := end(); err != nil {
			return nil, err
		}
		s["left"], err = e.leftBehind(ctx)
		return s, err
	}
}

// during measures pairs during a fault. If a driver hangs, it ends the fault, so that the driver
// goes on, and returns errStuck.
func (e *env) during(ctx context.Context, end func() error,
	once func(int) error) (seconds []float64, err error) {
	var impatient atomic.Bool
	defer time.AfterFunc(e.faultPatience, func() {
		impatient.Store(true)
		end()
	}).Stop()
	for start := time.Now(); ; {
		begin := time.Now()
		err := once(0)
		switch {
		case impatient.Load():
			return nil, fmt.Errorf("%w: no end of pair %d after the fault within %v", errStuck,
				len(seconds)+1, e.faultPatience)
		case err != nil:
			return nil, fmt.Errorf("pair %d after the fault: %w", len(seconds)+1, err)
		}
		seconds = append(seconds, time.Since(begin).Seconds())
		if past := time.Since(start); past > e.span && len(seconds) >= e.tries ||
			past > e.faultSpan || ctx.Err() != nil {
			return seconds, nil
		}
	}
}

// leftBehind counts the keys of locks that stay. It gives requests under way time to set or delete
// keys. A key that nobody deletes stays for its lease, which is longer than that.
func (e *env) leftBehind(ctx context.Context) (float64, error) {
	for begin := time.Now(); ; {
		left, err := e.locksLeft()
		if err != nil {
			return 0, err
		}
		if past := time.Since(begin); left == 0 && past > e.faultSettle/10 || past > e.faultSettle+
			lateness {
			return float64(left), nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// heldBy measures a process that holds and renews many locks.
func heldBy(h holdingPlan) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		var m *meter
		var used info
		s, err := e.whileHeld(ctx, name, h, func() (err error) {
			m, err = e.meter()
			return err
		}, func() (err error) {
			used, _, err = m.usage()
			return err
		})
		if err != nil {
			return nil, err
		}
		seconds := h.span.Seconds()
		s["commands"] = used["total_commands_processed"] / seconds
		s["scripts"] = used["evalsha"] / seconds
		s["renewed"] = float64(h.locks) / (h.ttl / 3).Seconds() / (used.sent() / float64(
			len(e.nodes)) / seconds)
		s["server"] = used.cpu() / seconds
		// The worker never releases. Empty the servers for the next one.
		return s, e.flush()
	}
}

// whileHeld makes a worker hold the locks, and returns what it measured. It calls before when the
// worker has them all, and after at the end of the span.
func (e *env) whileHeld(ctx context.Context, name string, h holdingPlan,
	before, after func() error) (s sample, err error) {
	workers, b, err := e.startWorkers(ctx, 1, job{Kind: "hold", Driver: name, Key: e.key(),
		Locks: h.locks, TTL: h.ttl, Span: h.span})
	if err != nil {
		return nil, err
	}
	defer b.close()
	defer stopAll(workers...)
	if err := before(); err != nil {
		return nil, err
	}
	line, err := workers[0].ask("go")
	if err != nil {
		return nil, err
	}
	if err := after(); err != nil {
		return nil, err
	}
	return s, json.Unmarshal([]byte(line), &s)
}
