package redishold

import "time"

// WithChannels changes how many sharded channels are kept, and for how long an unused one is.
func WithChannels(most int, idle time.Duration) Option {
	return option(func(g *config) { g.maxChannels, g.channelIdle = most, idle })
}

// Parsed is what a URL amounts to.
type Parsed struct {
	Addresses                    []string
	Username, Password           string
	SentinelUser, SentinelSecret string
	Primary                      string
	Database, Replicas           int
	WaitTimeout                  time.Duration
	TLS, Unix                    bool
}

// Parse reads a URL as Open does.
func Parse(url string) (Parsed, error) {
	g := newConfig()
	if err := g.parse(url); err != nil {
		return Parsed{}, err
	}
	return Parsed{
		Addresses: g.addresses, Username: g.username, Password: g.password,
		SentinelUser:   g.sentinelUsername,
		SentinelSecret: g.sentinelPassword, Primary: g.primary, Database: g.database,
		Replicas:    g.options.Replicas,
		WaitTimeout: g.options.ReplicaTimeout, TLS: g.tls != nil, Unix: g.unix,
	}, nil
}
