package pghold

import "time"

// WithPresence sets how long waiters count as present, for tests that wait for the end of it.
func WithPresence(d time.Duration) Option { return option(func(c *config) { c.presence = d }) }

// Hears reports whether grants by other processes are heard.
func (b *Backend) Hears() bool { return b.channel.live.Load() }
