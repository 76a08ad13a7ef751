package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// processMetrics are those of processes that compete for a key.
var processMetrics = []metric{{"handoffs", "/s", 1, 0}, {"locks", "/s", 1, 0}, {"wait", "ms", -1, 2}, {"jain", "", 1, 3},
	{"p50", "ms", -1, 2}, {"p99", "ms", -1, 2}, {"max", "ms", -1, 2}, {"server", "us/lock", -1, 1}}

const (
	atMost  = false
	atLeast = true
)

func allScenarios(p plan) []*scenario {
	uncontended := slices.Concat([]string{ours, oursGoRedis, floor, floorStock}, singlePeers)
	contended := slices.Concat([]string{ours, oursAlone, oursGoRedis, blpop}, singlePeers, []string{etcdMutex, advisory})
	all := []*scenario{{
		name: "latency", title: "uncontended acquire and release, one goroutine",
		drivers: slices.Concat(uncontended, outside), floor: floor, measure: latency,
		metrics: []metric{{"p50", "us", -1, 1}, {"p99", "us", -1, 1}, {"allocs", "/pair", -1, 1}, {"reads", "/pair", -1, 2},
			{"commands", "/pair", -1, 1}, {"inner", "/pair", -1, 1}, {"in", "B/pair", -1, 0}, {"out", "B/pair", -1, 0},
			{"server", "us/pair", -1, 1}, {"client", "us/pair", -1, 1}},
		goals: []goal{
			ratioGoal("p50 at most 1.15 x the floor", "p50", ours, floor, atMost, 1.15),
			valueGoal("one round trip each for acquire and release: reads of the server per pair", "reads", ours, atMost, 2.02),
			valueGoal("at most 14 allocations per pair", "allocs", ours, atMost, 14.05),
		},
	}}
	for _, n := range p.parallel {
		s := &scenario{
			name: fmt.Sprintf("throughput-%d", n), title: fmt.Sprintf("uncontended acquire and release, %d goroutines on keys of their own", n),
			drivers: uncontended, floor: floor,
			measure: func(ctx context.Context, e *env, driver string) (sample, error) { return throughput(ctx, e, driver, n) },
			metrics: []metric{{"pairs", "/s", 1, 0}, {"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"client", "us/pair", -1, 1}, {"server", "us/pair", -1, 1}},
			goals: []goal{
				ratioGoal("at least 0.8 x the floor", "pairs", ours, floor, atLeast, 0.8),
				ratioGoal("at least 1.3 x the best peer", "pairs", ours, bestOf, atLeast, 1.3),
			},
		}
		if n <= 64 {
			// With more, PostgreSQL would need a connection for each, and Python's threads take turns anyway.
			s.drivers = slices.Concat(uncontended, []string{etcdMutex, advisory, redlockNode})
		}
		if n >= 1000 {
			s.goals = []goal{valueGoal("at least 100,000 operations per second, that is 50,000 pairs", "pairs", ours, atLeast, 50_000)}
		}
		all = append(all, s)
	}
	all = append(all, &scenario{
		name: "contended", title: fmt.Sprintf("one key, one process, %d goroutines, nothing to do inside", p.contenders),
		drivers: contended, floor: blpop, measure: contendedHere,
		metrics: []metric{{"locks", "/s", 1, 0}, {"jain", "", 1, 3}, {"p50", "us", -1, 1}, {"p99", "us", -1, 1}, {"max", "us", -1, 0}},
		goals: []goal{
			ratioGoal("at least 100 x the best peer", "locks", ours, bestOf, atLeast, 100),
			valueGoal("Jain index at least 0.95", "jain", ours, atLeast, 0.95),
			ratioGoal("without local handoff at least 0.9 x BLPOP", "locks", oursAlone, blpop, atLeast, 0.9),
		},
	}, &scenario{
		name: "processes", title: fmt.Sprintf("one key, %d processes of %d goroutines, nothing to do inside", p.workers, p.each),
		drivers: contended, floor: blpop, measure: contendedProcesses,
		metrics: processMetrics,
		goals: []goal{
			ratioGoal("without local handoff: handoffs between processes at least 0.9 x BLPOP", "handoffs", oursAlone, blpop, atLeast, 0.9),
			ratioGoal("with local handoff: locks at least 20 x those without", "locks", ours, oursAlone, atLeast, 20),
			ratioGoal("with local handoff: longest wait of any process at most twice that without", "wait", ours, oursAlone, atMost, 2),
		},
	}, &scenario{
		name: "handover", title: "from the call of release to the next holder, in another process",
		drivers: []string{ours, oursGoRedis, blpop, rueidisLock, redsyncRueidis, etcdMutex, advisory}, floor: blpop, measure: handovers,
		metrics: []metric{{"p50", "us", -1, 0}, {"p99", "us", -1, 0}, {"samples", "", 0, 0}},
		goals: []goal{
			ratioGoal("p50 at most 1.2 x BLPOP", "p50", ours, blpop, atMost, 1.2),
			ratioGoal("p99 no worse than BLPOP", "p99", ours, blpop, atMost, 1),
		},
	}, &scenario{
		name: "work", title: fmt.Sprintf("one key, %d processes of %d goroutines, %v inside", p.workers, p.each, p.work),
		drivers: contended, floor: blpop, rounds: max(1, p.rounds-1),
		measure: func(ctx context.Context, e *env, driver string) (sample, error) {
			return contendedWork(ctx, e, driver, e.work)
		},
		metrics: append([]metric{{"held", "% of the time", 1, 1}}, processMetrics...),
	})
	for _, n := range p.crowds {
		all = append(all, &scenario{
			name: fmt.Sprintf("crowd-%d", n), title: fmt.Sprintf("%d waiters on one key over %d processes", n, p.workers),
			drivers: []string{ours, oursAlone, rueidisLock}, rounds: 1,
			measure: func(ctx context.Context, e *env, driver string) (sample, error) { return crowd(ctx, e, driver, n) },
			metrics: []metric{{"commands", "/lock", -1, 2}, {"per-handoff", "commands", -1, 2}, {"inner", "/lock", -1, 1}, {"locks", "/s", 1, 0},
				{"handoffs", "/s", 1, 0}, {"server", "% of a core", 0, 0}},
			goals: []goal{
				valueGoal("at most 4 server commands per handoff between processes", "per-handoff", ours, atMost, 4),
				valueGoal("without local handoff: at most 4 server commands per lock", "commands", oursAlone, atMost, 4),
			},
		})
	}
	for _, h := range p.holding {
		all = append(all, holdingScenario(p, h))
	}
	for _, d := range p.delays {
		all = append(all, delayedScenarios(p, d)...)
	}
	all = append(all, nodesScenarios(p)...)
	for _, n := range p.stored {
		all = append(all, &scenario{
			name: fmt.Sprintf("stored-%d", n), title: fmt.Sprintf("memory of the server after %d distinct keys were locked and released", n),
			drivers: []string{ours, floor}, rounds: 1,
			measure: func(ctx context.Context, e *env, driver string) (sample, error) { return stored(ctx, e, driver, n) },
			metrics: []metric{{"memory", "KiB", -1, 0}, {"keys", "", -1, 0}, {"others", "keys", -1, 0}, {"pairs", "/s", 1, 0}, {"peak", "KiB", 0, 0},
				{"seconds", "", 0, 2}},
			goals: []goal{
				valueGoal("only fence counters remain: other keys", "others", ours, atMost, 0),
				valueGoal("at most one for each of 16,384 slots", "keys", ours, atMost, 16384),
			},
		})
	}
	return all
}

// pair acquires and releases once.
func pair(ctx context.Context, l locker, key string) error {
	h, err := l.acquire(ctx, key)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if err := l.release(ctx, h); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// keysInTurn returns a key with every call. On one server it is the same: what is sent first is done first. Where a majority
// is waited for, the rest of a pair may still be under way when the next one begins, which only Holdfast keeps in order: so
// there it is another one, for as long as it takes.
func (e *env) keysInTurn() func() string {
	keys := make([]string, 1)
	if len(e.nodes) > 1 {
		keys = make([]string, 64)
	}
	for i := range keys {
		keys[i] = e.key()
	}
	next := 0
	return func() string {
		next++
		return keys[next%len(keys)]
	}
}

func latency(ctx context.Context, e *env, name string) (sample, error) {
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	if p, ok := l.(*program); ok {
		return p.measure(e, 1)
	}
	// The libraries get a context that never ends, with which they are fastest.
	never := context.Background()
	keys := e.keysInTurn()
	for range e.warm {
		if err := pair(never, l, keys()); err != nil {
			return nil, err
		}
	}
	runtime.GC()

	before, err := e.info()
	if err != nil {
		return nil, err
	}
	used := cpuTime()
	var times []time.Duration
	for start := time.Now(); time.Since(start) < e.span && ctx.Err() == nil; {
		begin := time.Now()
		if err := pair(never, l, keys()); err != nil {
			return nil, err
		}
		times = append(times, time.Since(begin))
	}
	used = cpuTime() - used
	second := secondRounds(l)
	after, err := e.info()
	if err != nil {
		return nil, err
	}
	n := float64(len(times))
	s := sample{
		"p50":    microseconds(stats.Percentile(times, 0.5)),
		"p99":    microseconds(stats.Percentile(times, 0.99)),
		"client": microseconds(used) / n,
	}
	s.addServer(e, before, after, n)

	if !math.IsNaN(second) {
		s["second"] = second
	}

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	mallocs := m.Mallocs
	for range e.counted {
		if err := pair(never, l, keys()); err != nil {
			return nil, err
		}
	}
	runtime.ReadMemStats(&m)
	s["allocs"] = float64(m.Mallocs-mallocs) / float64(e.counted)

	watch, err := e.monitor()
	if err != nil {
		return nil, err
	}
	for range e.counted {
		if err := pair(never, l, keys()); err != nil {
			return nil, err
		}
	}
	sent, inner, err := watch.stop()
	s["commands"], s["inner"] = sent/float64(e.counted), inner/float64(e.counted)
	return s, err
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func throughput(ctx context.Context, e *env, name string, goroutines int) (sample, error) {
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	if p, ok := l.(*program); ok {
		return p.measure(e, goroutines)
	}
	never := context.Background()
	keys := make([]func() string, goroutines)
	for i := range keys {
		keys[i] = e.keysInTurn()
	}
	// Connections of a pool are made when they are needed, and not while it is measured.
	if err := forAll(goroutines, func(i int) error { return pair(never, l, keys[i]()) }); err != nil {
		return nil, err
	}
	runtime.GC()
	before, err := e.info()
	if err != nil {
		return nil, err
	}
	used := cpuTime()
	start := time.Now()
	var mu sync.Mutex
	var times []time.Duration
	err = forAll(goroutines, func(i int) error {
		var mine []time.Duration
		for begin := time.Now(); begin.Sub(start) < e.span && ctx.Err() == nil; {
			if err := pair(never, l, keys[i]()); err != nil {
				return err
			}
			end := time.Now()
			mine = append(mine, end.Sub(begin))
			begin = end
		}
		mu.Lock()
		defer mu.Unlock()
		times = append(times, mine...)
		return nil
	})
	took := time.Since(start)
	used = cpuTime() - used
	if err != nil {
		return nil, err
	}
	after, err := e.info()
	if err != nil {
		return nil, err
	}
	n := float64(len(times))
	s := sample{
		"pairs":  n / took.Seconds(),
		"p50":    microseconds(stats.Percentile(times, 0.5)),
		"p99":    microseconds(stats.Percentile(times, 0.99)),
		"client": microseconds(used) / n,
		"server": (after.cpu() - before.cpu()) * 1e6 / n,
	}
	if !math.IsNaN(secondRounds(l)) {
		s["second"] = secondRounds(l)
	}
	return s, nil
}

func contendedHere(ctx context.Context, e *env, name string) (sample, error) {
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	key := e.key()
	if p, ok := l.(preparer); ok {
		if err := p.prepare(ctx, key); err != nil {
			return nil, err
		}
	}
	if err := e.warmUp(ctx, l, e.contenders); err != nil {
		return nil, err
	}
	runtime.GC()
	span, cancel := context.WithTimeout(ctx, e.span)
	defer cancel()
	shares := make([]float64, e.contenders)
	waits := make([]stats.Histogram, e.contenders)
	var inside atomic.Int64
	start := time.Now()
	err = forAll(e.contenders, func(i int) error {
		for span.Err() == nil {
			begin := time.Now()
			h, err := l.acquire(span, key)
			if err != nil {
				if span.Err() != nil {
					return nil
				}
				return fmt.Errorf("acquire: %w", err)
			}
			if inside.Add(1) != 1 {
				return errTwo
			}
			shares[i]++
			waits[i].Add(time.Since(begin))
			inside.Add(-1)
			if err := l.release(context.WithoutCancel(ctx), h); err != nil {
				return fmt.Errorf("release: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// What happens after the span, as goroutines find out that it is over, is a matter of one turn each.
	total := 0.0
	for _, n := range shares {
		total += n
	}
	took := max(e.span, min(time.Since(start), 2*e.span))
	for i := range waits[1:] {
		waits[0].Merge(&waits[1+i])
	}
	return sample{
		"locks": total / took.Seconds(),
		"jain":  stats.Jain(shares),
		"p50":   microseconds(waits[0].Percentile(0.5)),
		"p99":   microseconds(waits[0].Percentile(0.99)),
		"max":   microseconds(waits[0].Percentile(1)),
	}, nil
}

// warmUp has a pool make its connections.
func (e *env) warmUp(ctx context.Context, l locker, n int) error {
	base := e.key()
	return forAll(n, func(i int) error {
		key := fmt.Sprintf("%s/%d", base, i)
		if p, ok := l.(preparer); ok {
			if err := p.prepare(ctx, key); err != nil {
				return err
			}
		}
		return pair(ctx, l, key)
	})
}

var errTwo = fmt.Errorf("two holders at once")

// contention is what the board counted between two times.
type contention struct{ from, to boardCount }

func (c *contention) seconds() float64  { return (c.to.at - c.from.at).Seconds() }
func (c *contention) locks() float64    { return c.to.locks - c.from.locks }
func (c *contention) handoffs() float64 { return c.to.handoffs - c.from.handoffs }

// contend starts workers with goroutines each, waits until all of them have asked for the key and then for settle, and
// calls measure.
func (e *env) contend(ctx context.Context, name string, goroutines int, hold, settle time.Duration, measure func(b *board) error) error {
	key := e.key()
	if name == blpop {
		if _, err := e.nodes[0].do("LPUSH", key, "token"); err != nil {
			return err
		}
	}
	workers, b, err := e.startWorkers(ctx, e.workers, job{Kind: "contend", Driver: name, Key: key, Goroutines: goroutines, Hold: hold, TTL: ttl})
	if err != nil {
		return err
	}
	defer b.close()
	defer stopWorkers(workers)
	for _, w := range workers {
		w.tell()
	}
	deadline := time.Now().Add(30 * time.Second)
	for b.asking.Load() < int64(goroutines*e.workers) {
		if time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d goroutines have asked for the key", b.asking.Load(), goroutines*e.workers)
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	if err := measure(b); err != nil {
		return err
	}
	if n := b.overlaps.Load(); n > 0 {
		return fmt.Errorf("%w, %d times", errTwo, n)
	}
	return nil
}

// watch waits for span, and a little longer if nobody has got the lock until then: on a busy machine a short span may
// pass without the workers having been scheduled.
func (b *board) watch(ctx context.Context, from boardCount, span time.Duration) error {
	if err := sleep(ctx, span); err != nil {
		return err
	}
	for limit := time.Now().Add(grace); b.count().locks == from.locks && time.Now().Before(limit); {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// perEach is not a number if there is none.
func perEach(total, n float64) float64 {
	if n == 0 {
		return math.NaN()
	}
	return total / n
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func contendedProcesses(ctx context.Context, e *env, name string) (sample, error) {
	return contendedWork(ctx, e, name, 0)
}

// contendedWork has the processes do something with the key for as long as hold.
func contendedWork(ctx context.Context, e *env, name string, hold time.Duration) (s sample, err error) {
	err = e.contend(ctx, name, e.each, hold, e.contention/5, func(b *board) error {
		before, err := e.info()
		if err != nil {
			return err
		}
		from := b.begin()
		if err := b.watch(ctx, from, e.contention); err != nil {
			return err
		}
		to, longest := b.end(e.workers)
		after, err := e.info()
		if err != nil {
			return err
		}
		c := contention{from, to}
		waits, shares, worked := b.shared(e.workers, e.each)
		s = sample{
			"handoffs": c.handoffs() / c.seconds(),
			"locks":    c.locks() / c.seconds(),
			"jain":     stats.Jain(shares),
			"p50":      microseconds(waits.Percentile(0.5)) / 1000,
			"p99":      microseconds(waits.Percentile(0.99)) / 1000,
			"max":      microseconds(waits.Percentile(1)) / 1000,
			"held":     worked.Seconds() / c.seconds() * 100,
			"wait":     microseconds(longest) / 1000,
			"server":   perEach((after.cpu()-before.cpu())*1e6, c.locks()),
		}
		return nil
	})
	return s, err
}

// handoverHold is for how long the key is held before it is handed over.
const handoverHold = 2 * time.Millisecond

func handovers(ctx context.Context, e *env, name string) (sample, error) {
	const limit = 10 * time.Second
	key := e.key()
	if name == blpop {
		if _, err := e.nodes[0].do("LPUSH", key, "token"); err != nil {
			return nil, err
		}
	}
	workers, b, err := e.startWorkers(ctx, 2, job{Kind: "handover", Driver: name, Key: key, Hold: handoverHold, TTL: ttl})
	if err != nil {
		return nil, err
	}
	defer b.close()
	for _, w := range workers {
		w.tell()
	}
	for begin := time.Now(); ; {
		if err := sleep(ctx, max(time.Millisecond, e.handovers/20)); err != nil {
			stopWorkers(workers)
			return nil, err
		}
		if past := time.Since(begin); past > limit || past > e.handovers && b.taken.Load() >= int64(e.minHandovers) {
			break
		}
	}
	n := b.taken.Load()
	stopWorkers(workers)
	if err := failure(workers); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("not one handover in %v", limit)
	}
	if overlaps := b.overlaps.Load(); overlaps > 0 {
		return nil, fmt.Errorf("%w, %d times", errTwo, overlaps)
	}
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = time.Duration(b.samples[i].Load())
	}
	return sample{
		"p50":     microseconds(stats.Percentile(times, 0.5)),
		"p99":     microseconds(stats.Percentile(times, 0.99)),
		"samples": float64(n),
	}, nil
}

func crowd(ctx context.Context, e *env, name string, n int) (s sample, err error) {
	err = e.contend(ctx, name, n/e.workers, 0, e.settle/10+e.settle*time.Duration(n)/10_000, func(b *board) error {
		before, err := e.info()
		if err != nil {
			return err
		}
		from := b.begin()
		if err := b.watch(ctx, from, e.contention); err != nil {
			return err
		}
		to, _ := b.end(e.workers)
		after, err := e.info()
		if err != nil {
			return err
		}
		c := contention{from, to}
		// INFO counts what scripts call, too. The share of that is found out in a second look.
		watch, err := e.monitor()
		if err != nil {
			return err
		}
		if err := sleep(ctx, e.contention/2); err != nil {
			return err
		}
		sent, inner, err := watch.stop()
		if err != nil {
			return err
		}
		total := after["total_commands_processed"] - before["total_commands_processed"] - float64(len(e.nodes))
		share := sent / max(1, sent+inner)
		s = sample{
			"commands":    perEach(total*share, c.locks()),
			"per-handoff": perEach(total*share, c.handoffs()),
			"inner":       perEach(total*(1-share), c.locks()),
			"locks":       c.locks() / c.seconds(),
			"handoffs":    c.handoffs() / c.seconds(),
			"server":      (after.cpu() - before.cpu()) / c.seconds() * 100,
		}
		return nil
	})
	return s, err
}

func stored(ctx context.Context, e *env, name string, n int) (sample, error) {
	if err := e.flush(); err != nil {
		return nil, err
	}
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := pair(ctx, l, "first"); err != nil {
		return nil, err
	}
	if err := e.flush(); err != nil {
		return nil, err
	}
	before, err := e.info()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var next atomic.Int64
	if err := forAll(256, func(int) error {
		for i := next.Add(1); i <= int64(n); i = next.Add(1) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := pair(context.Background(), l, fmt.Sprintf("invoice/%d", i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := e.info()
	if err != nil {
		return nil, err
	}
	locks, beside, err := e.nodes[0].keys()
	return sample{
		"memory":  (after["used_memory"] - before["used_memory"]) / 1024,
		"peak":    (after["used_memory_peak"] - before["used_memory"]) / 1024,
		"seconds": took.Seconds(),
		"pairs":   float64(n) / took.Seconds(),
		"keys":    float64(locks + beside),
		"others":  float64(locks),
	}, err
}
