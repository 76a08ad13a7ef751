package redishold

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// topologyRefresh is how often a client asks the Sentinels again.
const topologyRefresh = 5 * time.Second

// ClientOption reads a URL as [Open] does, and returns the options with which a client of rueidis
// reaches the same servers. Use it for what else is kept there, such as the tokens of a guard.
// ClientOption does not connect. The client repeats no command whose answer did not come, and
// caches nothing. The parameters about locks (wait, wait-timeout and durable) have no effect on it.
//
// It fails with ErrInvalid, and says which part of the URL is wrong. No error contains a password.
func ClientOption(url string) (rueidis.ClientOption, error) {
	g := newConfig()
	if err := g.parse(url); err != nil {
		return rueidis.ClientOption{},
			fmt.Errorf("redishold: %w", &driver.Error{Invalid: true, Err: err})
	}
	option := g.client()
	option.InitAddress = g.addresses
	option.TLSConfig = g.tls
	option.ForceSingleClient = g.mode == standalone
	option.DialCtxFn = func(ctx context.Context, address string, _ *net.Dialer,
		_ *tls.Config) (net.Conn, error) {
		return g.dial(ctx, address)
	}
	if g.mode == sentinel {
		option.Sentinel = rueidis.SentinelOption{
			MasterSet:  g.primary,
			Username:   g.sentinelUsername,
			Password:   g.sentinelPassword,
			ClientName: option.ClientName,
			TLSConfig:  g.tls,

			// or a message that was missed binds it to what was the primary
			TopologyRefreshInterval: topologyRefresh,
		}
	}
	return option, nil
}
