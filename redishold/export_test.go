package redishold

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

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

// SendOnClosed connects to the address, closes the connection for that reason when a request has
// got its place and is not sent yet, and returns what the request says.
func SendOnClosed(ctx context.Context, address string, reason error) error {
	g := newConfig()
	if err := g.parse("redis://" + address); err != nil {
		return err
	}
	t := newStandalone(g)
	defer t.node.close()
	c, err := t.node.connect(ctx)
	if err != nil {
		return err
	}
	f, err := c.enter(ctx)
	if err != nil {
		return err
	}
	c.close(reason)
	for {
		var reply protocol.Reply
		err := c.read(c.wire.Do(f, c.build(protocol.Command{"PING"})), &reply)
		if ctx.Err() != nil || errors.Is(err, rueidis.ErrDedicatedClientRecycled) {
			return c.leave(f, err)
		}
	}
}
