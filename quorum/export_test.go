package quorum

// WithRandom replaces the source of the random waits, so that a simulation can be repeated.
func WithRandom(f func() float64) Option {
	return option(func(c *config) { c.random = f })
}

// Tracks returns how many keys and claims are remembered.
func (q *Quorum) Tracks() (keys, claims int) {
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		keys += len(s.tracks)
		for _, t := range s.tracks {
			claims += len(t.records)
		}
		s.mu.Unlock()
	}
	return keys, claims
}
