package redishold

import "time"

// WithChannels changes how many sharded channels are kept, and for how long one that nobody uses.
func WithChannels(most int, idle time.Duration) Option {
	return func(g *config) { g.maxChannels, g.channelIdle = most, idle }
}
