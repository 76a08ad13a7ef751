// Package goredishold keeps locks in Redis or Valkey through a go-redis client that the application has
// already.
//
//	backend, err := goredishold.New(client) // *redis.Client or *redis.ClusterClient
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// It is the same protocol as package redishold, whose documentation holds here too: what is stored, the
// caveats, and the commands that an ACL user needs. Both may be used on one deployment, side by side.
//
// # What it can not promise
//
// redishold has one connection to each server, which carries everything in order. A go-redis client has a
// pool of them, and repeats requests that fail. So here requests for one lock are sent one after the other,
// each when the one before it has come back; and an acquisition that arrives after its release in spite of
// that, since the library had given up on its connection, finds a mark that the release has left for it. The
// mark is kept for a minute; what arrives later still locks the key for its TTL, on behalf of nobody.
//
// A request takes a round trip of its own, where redishold puts many into one, and notices take one more
// connection to each server that somebody waits at. With ReadTimeout as long as go-redis has it by default, a
// server that hangs is noticed late; callers are not held up by that, as every call returns when its context
// ends.
package goredishold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Backend keeps locks in a Redis deployment. It implements driver.Backend, driver.Notifier, driver.Inspector,
// driver.Guarded and driver.Identified, and is safe for concurrent use.
type Backend = protocol.Backend

// Option sets an option of [New].
type Option func(*protocol.Options)

// WithReplicas has each acquisition and renewal wait until that many replicas have confirmed it, for at most
// timeout (100 ms if it is 0). Default none.
func WithReplicas(replicas int, timeout time.Duration) Option {
	return func(o *protocol.Options) { o.Replicas, o.ReplicaTimeout = replicas, timeout }
}

// New returns a Backend over client: a *redis.Client, a failover client among them, or a
// *redis.ClusterClient. It does not connect, and its Close leaves the client open. It fails with a permanent
// *driver.Error if client is nil or of another type: a *redis.Ring for example, whose servers are not one
// deployment.
func New(client redis.UniversalClient, options ...Option) (*Backend, error) {
	var o protocol.Options
	for _, option := range options {
		option(&o)
	}
	l := new(library)
	switch c := client.(type) {
	case *redis.Client:
		l.single = c
	case *redis.ClusterClient:
		l.cluster = c
	}
	if l.single == nil && l.cluster == nil {
		return nil, &driver.Error{Permanent: true, Err: fmt.Errorf("goredishold: client %T: must be a *redis.Client or a *redis.ClusterClient, and not nil", client)}
	}
	return protocol.New(protocol.Shared(l), o), nil
}

var _ interface {
	driver.Backend
	driver.Notifier
	driver.Inspector
	driver.Guarded
	driver.Identified
} = (*Backend)(nil)

// library is a go-redis client. One of single and cluster is set.
type library struct {
	single  *redis.Client
	cluster *redis.ClusterClient
}

// node is one server.
type node struct{ client *redis.Client }

// Node returns the server that the client believes to serve the slot.
func (l *library) Node(ctx context.Context, slot uint16) (protocol.Node, error) {
	if l.single != nil {
		return &node{l.single}, nil
	}
	client, err := l.cluster.MasterForKey(ctx, protocol.Tag(slot))
	if err != nil {
		return nil, err
	}
	return &node{client}, nil
}

// Nodes returns all primaries.
func (l *library) Nodes(ctx context.Context) ([]protocol.Node, error) {
	if l.single != nil {
		return []protocol.Node{&node{l.single}}, nil
	}
	var mu sync.Mutex
	var nodes []protocol.Node
	err := l.cluster.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, &node{client})
		return nil
	})
	return nodes, err
}

// Cluster reports whether slots are served by different servers.
func (l *library) Cluster() bool { return l.cluster != nil }

// Reload has the client ask who serves what.
func (l *library) Reload() {
	if l.cluster != nil {
		l.cluster.ReloadState(context.Background())
	}
}

// NotSent reports whether the library had no connection to send on.
func (l *library) NotSent(err error) bool {
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Pipeline sends the commands on one connection of the pool.
func (n *node) Pipeline(ctx context.Context, commands []protocol.Command, replies []protocol.Reply) error {
	pipeline := n.client.Pipeline()
	results := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		args := make([]any, len(command))
		for j, arg := range command {
			args[j] = arg
		}
		results[i] = pipeline.Do(ctx, args...)
	}
	_, _ = pipeline.Exec(ctx) // its error is that of one of the results
	for i, result := range results {
		value, err := result.Result()
		var server redis.Error
		switch {
		case err == nil, errors.Is(err, redis.Nil):
			replies[i] = replyOf(value)
		case errors.As(err, &server) && !errors.Is(err, redis.TxFailedErr):
			replies[i] = protocol.Reply{Kind: protocol.Failure, Str: server.Error()}
		default:
			return err
		}
	}
	return nil
}

func replyOf(value any) protocol.Reply {
	switch v := value.(type) {
	case nil:
		return protocol.Reply{}
	case int64:
		return protocol.Reply{Kind: protocol.Integer, Int: v}
	case string:
		return protocol.Reply{Kind: protocol.String, Str: v}
	case []any:
		list := make([]protocol.Reply, len(v))
		for i, item := range v {
			list[i] = replyOf(item)
		}
		return protocol.Reply{Kind: protocol.List, List: list}
	case map[any]any: // of RESP3
		var list []protocol.Reply
		for key, item := range v {
			list = append(list, replyOf(key), replyOf(item))
		}
		return protocol.Reply{Kind: protocol.List, List: list}
	case error:
		return protocol.Reply{Kind: protocol.Failure, Str: v.Error()}
	}
	return protocol.Reply{Kind: protocol.Failure, Str: fmt.Sprintf("ERR reply of type %T", value)}
}

// Name is the server's address.
func (n *node) Name() string { return n.client.Options().Addr }

// Sharded is false: the library, when it connects again, asks for sharded channels of different slots by one
// command, which servers refuse. A notice of a cluster goes to all its servers instead, and to one channel of
// this process.
func (l *library) Sharded() bool { return false }

// Subscribe takes a connection of its own, which the library makes again, on another server if need be, when
// it breaks.
func (l *library) Subscribe(ctx context.Context, channel string, hear func(string)) (stop func(), err error) {
	var pubsub *redis.PubSub
	if l.single != nil {
		pubsub = l.single.Subscribe(ctx, channel)
	} else {
		pubsub = l.cluster.Subscribe(ctx, channel)
	}
	confirmed := make(chan struct{})
	confirm := sync.OnceFunc(func() { close(confirmed) })
	go func() {
		for event := range pubsub.ChannelWithSubscriptions() {
			switch e := event.(type) {
			case *redis.Subscription:
				confirm()
			case *redis.Message:
				hear(e.Payload)
			}
		}
	}()
	select {
	case <-confirmed:
		return func() { pubsub.Close() }, nil
	case <-ctx.Done():
		pubsub.Close()
		return nil, ctx.Err()
	}
}
