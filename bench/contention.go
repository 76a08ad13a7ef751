package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

var errTwo = errors.New("two holders at once")

// contendedHere measures goroutines of this process that take turns on a key.
func contendedHere(ctx context.Context, e *env, name string) (sample, error) {
	key := e.key()
	if err := e.giveToken(name, key); err != nil {
		return nil, err
	}
	c := newCircle(e.contenders, 1)
	for i := range c.keys {
		c.keys[i] = key
	}
	return e.takeTurns(ctx, name, c)
}

// takeTurns measures the goroutines of the circle.
func (e *env) takeTurns(ctx context.Context, name string, c *circle) (sample, error) {
	l, err := e.driver(ctx, name)
	if err != nil {
		return nil, err
	}
	c.locker = l
	// Fill the connection pools first.
	warm := e.key()
	if err := forAll(len(c.keys), func(i int) error {
		own := fmt.Sprintf("%s/%d", warm, i)
		return errors.Join(e.giveToken(name, own), pair(ctx, l, own))
	}); err != nil {
		return nil, err
	}
	runtime.GC()
	span, cancel := context.WithTimeout(ctx, e.span)
	defer cancel()
	start := time.Now()
	if err := forAll(len(c.keys), func(i int) error {
		return untilOver(span, func() error { return c.turn(span, i) })
	}); err != nil {
		return nil, err
	}
	// After the span each goroutine finishes one turn; more time than that does not count.
	took := max(e.span, min(time.Since(start), 2*e.span))
	total := 0.0
	for i := range c.shares {
		total += c.shares[i]
		if i > 0 {
			c.waits[0].Merge(&c.waits[i])
		}
	}
	s := sample{"locks": total / took.Seconds(), "jain": stats.Jain(c.shares)}
	s.addWaits(&c.waits[0])
	return s, nil
}

// circle is the state of goroutines that take turns.
type circle struct {
	*locker
	keys   []string // of each goroutine
	shares []float64
	waits  []stats.Histogram
	inside []atomic.Int64          // holders now, by place; one may hold a place
	place  func(i int, h held) int // what goroutine i holds with h
}

// newCircle returns a circle of n goroutines without keys. They hold place 0.
func newCircle(n, places int) *circle {
	return &circle{keys: make([]string, n), shares: make([]float64, n),
		waits: make([]stats.Histogram, n), inside: make([]atomic.Int64, places),
		place: func(int, held) int { return 0 }}
}

// turn is one turn of goroutine i. It returns nil if the context has ended.
func (c *circle) turn(ctx context.Context, i int) error {
	begin := time.Now()
	h, err := c.acquire(ctx, c.keys[i])
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	inside := &c.inside[c.place(i, h)]
	if inside.Add(1) != 1 {
		return errTwo
	}
	c.shares[i]++
	c.waits[i].Add(time.Since(begin))
	inside.Add(-1)
	if err := c.release(context.WithoutCancel(ctx), h); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// untilOver calls f until the context ends.
func untilOver(ctx context.Context, f func() error) error {
	for ctx.Err() == nil {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (s sample) addWaits(h *stats.Histogram) {
	s["p50"], s["p99"], s["max"] = h.Percentile(0.5).Seconds(), h.Percentile(0.99).Seconds(),
		h.Percentile(1).Seconds()
}

// giveToken puts the token into the list at key if the driver is blpop.
func (e *env) giveToken(name, key string) error {
	if name != blpop {
		return nil
	}
	_, err := e.nodes[0].do("LPUSH", key, "token")
	return err
}

// contend starts workers with goroutines each that compete for a key, and takes a sample.
func (e *env) contend(ctx context.Context, name string, goroutines int, hold, settle time.Duration,
	then func(s sample, used info, locks, handoffs float64) error) (sample, error) {
	key := e.key()
	if err := e.giveToken(name, key); err != nil {
		return nil, err
	}
	j := job{Kind: "contend", Driver: name, Key: key, Goroutines: goroutines, Hold: hold, TTL: ttl}
	return e.compete(ctx, j, settle, func(_ *board, s sample, used info,
		locks, handoffs float64) error {
		if then == nil {
			return nil
		}
		return then(s, used, locks, handoffs)
	})
}

// compete starts workers for the job. It waits until all their goroutines have asked for the key,
// and then for settle, and takes a sample. Then it calls then while they go on.
func (e *env) compete(ctx context.Context, j job, settle time.Duration,
	then func(b *board, s sample, used info, locks, handoffs float64) error) (sample, error) {
	workers, b, err := e.startWorkers(ctx, e.workers, j)
	if err != nil {
		return nil, err
	}
	defer b.close()
	defer stopAll(workers...)
	tellAll(workers)
	if err := b.awaitAsking(ctx, j.Goroutines*e.workers); err != nil {
		return nil, err
	}
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	m, err := e.meter()
	if err != nil {
		return nil, err
	}
	from := b.begin()
	if err := b.watch(ctx, from, e.contention); err != nil {
		return nil, err
	}
	to, longest := b.end(e.workers)
	used, _, err := m.usage()
	if err != nil {
		return nil, err
	}
	seconds, locks, handoffs := (to.at - from.at).Seconds(), to.locks-from.locks,
		to.handoffs-from.handoffs
	waits, shares, worked := b.shared(e.workers, e.each)
	s := sample{
		"handoffs":  handoffs / seconds,
		"locks":     locks / seconds,
		"jain":      stats.Jain(shares),
		"held":      worked.Seconds() / seconds,
		"wait":      longest.Seconds(),
		"server":    perEach(used.cpu(), locks),
		"occupancy": used.cpu() / seconds,
	}
	s.addWaits(&waits)
	err = then(b, s, used, locks, handoffs)
	if n := b.overlaps.Load(); n > 0 && err == nil {
		err = fmt.Errorf("%w, %d times", errTwo, n)
	}
	return s, err
}

// perEach returns the quotient, or NaN if n is 0.
func perEach(total, n float64) float64 {
	if n == 0 {
		return math.NaN()
	}
	return total / n
}

// contended measures processes that take turns on a key, and hold it for hold each time.
func contended(hold time.Duration) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		return e.contend(ctx, name, e.each, hold, e.contention/5, nil)
	}
}

// crowd measures n waiters on one key.
func crowd(n int) measurement {
	return func(ctx context.Context, e *env, name string) (sample, error) {
		settle := e.settle/10 + e.settle*time.Duration(n)/10_000
		return e.contend(ctx, name, n/e.workers, 0, settle,
			func(s sample, used info, locks, handoffs float64) error {
				// INFO also counts the commands that scripts call. A second look, with MONITOR,
				// finds their share.
				sent, inner, err := e.monitored(func() error { return sleep(ctx, e.contention/2) })
				total := used["total_commands_processed"]
				share := sent / max(1, sent+inner)
				s["server"] = s["occupancy"]
				s["commands"] = perEach(total*share, locks)
				s["per-handoff"] = perEach(total*share, handoffs)
				s["inner"] = perEach(total*(1-share), locks)
				return err
			})
	}
}

// handoverHold is how long a holder keeps the key before it releases.
const handoverHold = 2 * time.Millisecond

// handovers measures two processes that take turns. Each queues before the other releases.
func handovers(ctx context.Context, e *env, name string) (sample, error) {
	const limit = 10 * time.Second
	key := e.key()
	if err := e.giveToken(name, key); err != nil {
		return nil, err
	}
	workers, b, err := e.startWorkers(ctx, 2, job{Kind: "handover", Driver: name, Key: key,
		Hold: handoverHold, TTL: ttl})
	if err != nil {
		return nil, err
	}
	defer b.close()
	tellAll(workers)
	enough := func(past time.Duration) bool {
		return past > limit || past > e.handovers && b.taken.Load() >= int64(e.minHandovers)
	}
	for begin := time.Now(); err == nil && !enough(time.Since(begin)); {
		err = sleep(ctx, max(time.Millisecond, e.handovers/20))
	}
	seconds := make([]float64, b.taken.Load())
	// Before they are stopped: a lock that ends with its connection passes on from a holder that is
	// stopped, which does not say that it has left.
	overlaps := b.overlaps.Load()
	stopAll(workers...)
	if err := errors.Join(err, failure(workers)); err != nil {
		return nil, err
	}
	if len(seconds) == 0 {
		return nil, fmt.Errorf("not one handover in %v", limit)
	}
	if overlaps > 0 {
		return nil, fmt.Errorf("%w, %d times", errTwo, overlaps)
	}
	for i := range seconds {
		seconds[i] = time.Duration(b.samples[i].Load()).Seconds()
	}
	s := sample{"samples": float64(len(seconds))}
	s.addTimes(seconds)
	return s, nil
}
