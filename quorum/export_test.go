package quorum

import "github.com/holdfast-go/holdfast/internal/clock"

// DrawsAtOnce is how many claims a healer draws tokens for in one step.
const DrawsAtOnce = drawsAtOnce

// WithRandom replaces the source of the random waits, so that a simulation can be repeated.
func WithRandom(f func() float64) Option {
	return option(func(c *config) { c.random = f })
}

// WithClock replaces this machine's clock, in microseconds since 1970.
func WithClock(f func() uint64) Option {
	return option(func(c *config) { c.microseconds = f })
}

// Doubts returns how many claims have a release that may take effect yet.
func (q *Quorum) Doubts() int { return int(q.doubts.Load()) }

// Remembered returns how many keys and claims are remembered.
func (q *Quorum) Remembered() (keys, claims int) {
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		keys += len(s.keys)
		for _, k := range s.keys {
			claims += len(k.records)
		}
		s.mu.Unlock()
	}
	return keys, claims
}

// Sweep forgets claims that are over, as a table does when it grows.
func (q *Quorum) Sweep() {
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		s.sweepLocked(clock.Now())
		s.mu.Unlock()
	}
}

// Unsure returns how many claims have nodes that are unsure of the last token.
func (q *Quorum) Unsure() int { return int(q.unsure.Load()) }
