package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// pair acquires and releases once.
func pair(ctx context.Context, l *locker, key string) error {
	h, err := l.acquire(ctx, key)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if err := l.release(ctx, h); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// keysInTurn returns a function that returns the key of the next pair. On one server it is always
// the same key, because the server keeps the order of commands. Over several nodes a driver waits
// for a majority only, so the rest of a pair may still be under way when the next one begins. Only
// Holdfast keeps these in order, so there the function takes 64 keys in turn.
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

// forAll runs f in n goroutines and waits for them. It returns one error: if one fails, often all
// do.
func forAll(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = f(i) })
	}
	wait.Wait()
	return cmp.Or(errs...)
}

// timedBy makes n goroutines call f over and over, for span and at least least times each. It
// returns the seconds of each call.
func timedBy(ctx context.Context, n int, span time.Duration, least int,
	f func(i int) error) ([]float64, error) {
	var mu sync.Mutex
	var all []float64
	start := time.Now()
	err := forAll(n, func(i int) error {
		var mine []float64
		for begin := time.Now(); (begin.Sub(start) < span || len(mine) < least) &&
			ctx.Err() == nil; {
			if err := f(i); err != nil {
				return err
			}
			end := time.Now()
			mine = append(mine, end.Sub(begin).Seconds())
			begin = end
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, mine...)
		return nil
	})
	return all, err
}

func (s sample) addTimes(seconds []float64) {
	s["p50"], s["p99"] = stats.Quantile(seconds, 0.5), stats.Quantile(seconds, 0.99)
}

// load says how uncontended pairs are measured.
type load struct {
	goroutines int // each on keys of its own
	// pairs of each goroutine before the measurement; they also fill connection pools
	warm    int
	counted int // pairs whose commands and allocations are counted; may be 0
}

// pairs measures uncontended acquire and release. The libraries get a context that never ends: they
// are fastest with that.
func pairs(l load) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		d, err := e.driver(ctx, name)
		if err != nil {
			return nil, err
		}
		if d.program != nil {
			return d.program.measure(e, l)
		}
		return l.measure(ctx, e, d)
	}
}

func (l load) measure(ctx context.Context, e *env, d *locker) (sample, error) {
	keys := make([]func() string, l.goroutines)
	for i := range keys {
		keys[i] = e.keysInTurn()
	}
	once := func(i int) error { return pair(context.Background(), d, keys[i]()) }
	if err := forAll(l.goroutines, func(i int) error {
		return times(l.warm, func() error { return once(i) })
	}); err != nil {
		return nil, err
	}
	m, err := e.meter()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	seconds, err := timedBy(ctx, l.goroutines, e.span, 1, once)
	if err != nil {
		return nil, err
	}
	n := float64(len(seconds))
	s := sample{"pairs": n / time.Since(start).Seconds()}
	if d.second != nil {
		s["second"] = d.second()
	}
	if err := m.stop(s, n); err != nil {
		return nil, err
	}
	s.addTimes(seconds)
	return s, e.countPairs(s, l.counted, func() error { return once(0) })
}

func times(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// countPairs adds to the sample what a pair allocates and sends, as the mean of n.
func (e *env) countPairs(s sample, n int, once func() error) error {
	if n == 0 {
		return nil
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.Mallocs
	if err := times(n, once); err != nil {
		return err
	}
	runtime.ReadMemStats(&m)
	s["allocs"] = float64(m.Mallocs-before) / float64(n)
	return e.count(s, float64(n), func() error { return times(n, once) })
}

// stored measures what the server keeps of n keys that were locked and released.
func stored(n int) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		l, err := e.driver(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(e.flush(), pair(ctx, l, "first"), e.flush()); err != nil {
			return nil, err
		}
		before, err := e.info()
		if err != nil {
			return nil, err
		}
		start := time.Now()
		var next atomic.Int64
		if err := forAll(256, func(int) error {
			return lockEach(ctx, l, &next, int64(n))
		}); err != nil {
			return nil, err
		}
		took := time.Since(start).Seconds()
		after, err := e.info()
		if err != nil {
			return nil, err
		}
		locks, beside, err := e.nodes[0].keys()
		return sample{
			"memory":  after["used_memory"] - before["used_memory"],
			"peak":    after["used_memory_peak"] - before["used_memory"],
			"seconds": took,
			"pairs":   float64(n) / took,
			"keys":    float64(locks + beside),
			"others":  float64(locks),
		}, err
	}
}

// lockEach locks and releases keys up to number n. Goroutines that share next share the keys.
func lockEach(ctx context.Context, l *locker, next *atomic.Int64, n int64) error {
	for i := next.Add(1); i <= n && ctx.Err() == nil; i = next.Add(1) {
		if err := pair(context.Background(), l, fmt.Sprintf("invoice/%d", i)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// roundTrips measures handovers over several nodes. For the driver roundTrip it measures the round
// trip that they are compared with.
func roundTrips(ctx context.Context, e *env, name string) (sample, error) {
	if name != roundTrip {
		return handovers(ctx, e, name)
	}
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	var seconds []float64
	for start := time.Now(); time.Since(start) < e.handovers || len(seconds) < e.minHandovers; {
		begin := time.Now()
		h, err := l.acquire(ctx, e.key())
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, time.Since(begin).Seconds())
		// Before a handover there is also a pause.
		if err := errors.Join(l.release(ctx, h), sleep(ctx, handoverHold)); err != nil {
			return nil, err
		}
	}
	s := sample{"samples": float64(len(seconds))}
	s.addTimes(seconds)
	return s, nil
}
