package redishold

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
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

	replicas       int
	replicaTimeout time.Duration
	lazy           bool

	maxChannels int // of a connection, see routes
	channelIdle time.Duration

	id   string       // of the Backend
	hear func(string) // takes the messages
}

// mode is how the deployment is made up.
type mode uint8

const (
	standalone mode = iota
	sentinel
	cluster
)

func newConfig() *config {
	return &config{maxChannels: defaultMaxChannels, channelIdle: defaultChannelIdle, id: rand.Text(), hear: func(string) {}}
}

// channel is where this Backend hears of the slot, or of everything if the slot is protocol.Slots.
func (g *config) channel(slot uint16) string { return protocol.Channel(slot, g.id) }

// client is the library's configuration of one connection. It is told not to do what is done here, once for
// all libraries: retry, reconnect, cache, look for a cluster.
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

		// One connection, and all commands through its queue: what the library otherwise does for a lone
		// caller is to read and write itself, bound to that caller's deadline, after which the connection is
		// broken.
		PipelineMultiplex: -1,
		AlwaysPipelining:  true,
		RingScaleEachConn: queueScale,

		ReadBufferEachConn:  1 << 16,
		WriteBufferEachConn: 1 << 16,

		// A connection that is silent for a second is sent a PING, and given up if that is not answered.
		Dialer:           net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second},
		ConnWriteTimeout: silence,
	}
}

// dialer gives dial the form that the library wants, bound to ctx.
func (g *config) dialer(ctx context.Context) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
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
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil || g.tls == nil {
		return conn, err
	}
	config := g.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			// A Redis without TLS waits for the end of what it takes for a command.
			err = fmt.Errorf("no answer to the TLS handshake, as from a server without TLS: %w", err)
		}
		return nil, err
	}
	return secure, nil
}
