package redishold

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// config is what all connections of a Backend have in common.
type config struct {
	mode      mode
	addresses []string // of servers, or of Sentinels
	primary   string   // the name by which Sentinels know it
	unix      bool     // addresses are paths of sockets
	username  string
	password  string
	database  int
	tls       *tls.Config // nil for none

	sentinelUsername string
	sentinelPassword string

	options protocol.Options
	lazy    bool

	maxChannels int // of a connection, see routes
	channelIdle time.Duration

	id   string                         // of the Backend
	hear func(*protocol.Server, string) // takes the messages
}

// mode is the kind of deployment.
type mode uint8

const (
	standalone mode = iota
	sentinel
	cluster
)

func newConfig() *config {
	return &config{maxChannels: defaultMaxChannels, channelIdle: defaultChannelIdle,
		id: rand.Text(), hear: func(*protocol.Server, string) {}}
}

// channel returns the channel with this Backend's notices for the slot, or all notices if the slot
// is protocol.Slots.
func (g *config) channel(slot uint16) string { return protocol.Channel(slot, g.id) }

// client returns the library's configuration for one connection. The library must not retry,
// reconnect, cache or look for a cluster: this package does that itself, or package protocol for
// all libraries.
func (g *config) client() rueidis.ClientOption {
	return rueidis.ClientOption{
		Username:          g.username,
		Password:          g.password,
		SelectDB:          g.database,
		ClientName:        "holdfast",
		ClientSetInfo:     []string{"holdfast", "1"},
		ForceSingleClient: true,
		DisableRetry:      true,
		DisableCache:      true,

		// This makes one connection, with all commands in its queue. Otherwise the library lets a
		// lone caller read and write under the caller's deadline, and the connection breaks when
		// that deadline ends.
		PipelineMultiplex: -1,
		AlwaysPipelining:  true,
		RingScaleEachConn: queueScale,

		ReadBufferEachConn:  1 << 16,
		WriteBufferEachConn: 1 << 16,

		// A connection that is silent for a second is sent a PING, and given up if that is not
		// answered.
		Dialer:           net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second},
		ConnWriteTimeout: silence,
	}
}

// dialer returns dial, bound to ctx, in the form that the library wants.
func (g *config) dialer(ctx context.Context) func(context.Context, string, *net.Dialer,
	*tls.Config) (net.Conn, error) {
	return func(_ context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return g.dial(ctx, address)
	}
}

// dial opens the network connection.
func (g *config) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if g.unix {
		return new(net.Dialer).DialContext(ctx, "unix", address)
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true,
		Idle: 15 * time.Second}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil || g.tls == nil {
		return conn, err
	}
	config := g.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	return secure(ctx, conn, config)
}
