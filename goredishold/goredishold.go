// Package goredishold keeps locks in Redis or Valkey through a go-redis client that the application
// has already.
//
//	backend, err := goredishold.New(client) // *redis.Client or *redis.ClusterClient
//	locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
//
// It speaks the same protocol as package redishold. That package's documentation is true here too:
// what is stored, the caveats, and the commands that an ACL user needs. Both may be used on one
// deployment, side by side.
//
// # What it cannot promise
//
// redishold has one connection to each server, which carries everything in order. A go-redis client
// has a pool of connections. So here requests for one lock are sent one after the other, each when
// the one before it has returned. None is sent twice, whatever MaxRetries says. If a connection
// breaks before the answer, the outcome is unknown, as with redishold. A request may still arrive
// later then, if the library had given up its connection. So requests have numbers, and the next
// one about the lock by the same holder or waiter tells the server which came before it. The server
// ignores those when they arrive: an acquisition after its release, and a release after a waiter
// over several nodes (package quorum) has asked again. It remembers that for a minute. An
// acquisition that arrives later locks the key for its TTL, and nobody holds it.
//
// A call that ends while an earlier request for its lock is under way is not sent, and fails with
// ErrUnavailable. Only a release is still sent later. If it takes longer to make a connection than
// a call may take, the connection is still made, and the next calls use it.
//
// Each request takes a round trip of its own; redishold puts many into one. Notices take one more
// connection to each server at which somebody waits. With go-redis' default ReadTimeout a server
// that hangs is noticed late. That does not delay callers, because every call returns when its
// context ends.
package goredishold

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Backend keeps locks in a Redis deployment. It implements driver.Backend, driver.Notifier,
// driver.BatchInspector, driver.Checker, driver.Sharer, driver.Guarder, driver.Member and
// driver.Identifier, and is safe for concurrent use.
//
// The client is the application's own, so no connection is told when the server loses its data.
// Under a restart guard, or as a node of a quorum, the Backend asks the server before each claim
// for its set, and since when it has had its data. That is one more round trip.
type Backend = protocol.Backend

// Option sets an option of [New].
type Option interface{ apply(*protocol.Options) }

type option func(*protocol.Options)

func (f option) apply(o *protocol.Options) { f(o) }

// WithReplicas has each acquisition and renewal wait until that many replicas, 0 to 255, have
// confirmed it, for at most timeout: 1 ms to 1 s; 0 means 100 ms. Default none.
func WithReplicas(replicas int, timeout time.Duration) Option {
	return option(func(o *protocol.Options) { o.Replicas, o.ReplicaTimeout = replicas, timeout })
}

// New returns a Backend over client: a *redis.Client, a failover client among them, or a
// *redis.ClusterClient. New does not connect, and the Backend's Close leaves the client open. New
// fails with ErrInvalid if client is nil or of another type, such as a *redis.Ring, whose servers
// are not one deployment. It also does so if an address has an '@', because a URL is for
// redis.ParseURL, and if an option is nil or out of range.
func New(client redis.UniversalClient, options ...Option) (*Backend, error) {
	var o protocol.Options
	for i, option := range options {
		if option == nil {
			return nil, fmt.Errorf("goredishold: %w: option %d is nil: leave it out",
				driver.ErrInvalid, i+1)
		}
		option.apply(&o)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("goredishold: %w", err)
	}
	l := new(library)
	switch c := client.(type) {
	case *redis.Client:
		l.single = c
	case *redis.ClusterClient:
		l.cluster = c
	}
	if l.single == nil && l.cluster == nil {
		return nil, &driver.Error{Invalid: true,
			Err: fmt.Errorf(
				"goredishold: client is %s: give a *redis.Client or a *redis.ClusterClient",
				described(client))}
	}
	if l.hasLogin() {
		// The library's errors repeat addresses.
		return nil, &driver.Error{Invalid: true,
			Err: errors.New(
				"goredishold: an address of the client has an '@': of a URL make options with redis.ParseURL")}
	}
	return protocol.New(protocol.Shared(l), o), nil
}

// described says what kind of client it is.
func described(client redis.UniversalClient) string {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return "nil"
	}
	return fmt.Sprintf("a %T", client)
}

var _ interface {
	driver.Backend
	driver.Notifier
	driver.BatchInspector
	driver.Checker
	driver.Sharer
	driver.Guarder
	driver.Member
	driver.Identifier
} = (*Backend)(nil)

// library is a go-redis client. One of single and cluster is set.
type library struct {
	single  *redis.Client
	cluster *redis.ClusterClient
	refusal atomic.Pointer[refusal] // of the last subscription; nil for none

	learned atomic.Bool // the client of a cluster knows who serves what
	mu      sync.Mutex
	lookup  *lookup // under way
}

// hasLogin reports whether an address looks like a URL with user and password.
func (l *library) hasLogin() bool {
	if l.single != nil {
		o := l.single.Options()
		return o.Network != "unix" && strings.Contains(o.Addr, "@")
	}
	return slices.ContainsFunc(l.cluster.Options().Addrs, func(address string) bool {
		return strings.Contains(address, "@")
	})
}

// node is one server.
type node struct{ client *redis.Client }

// lookup is the client's first look at which server serves what. All callers that need it share
// one.
type lookup struct {
	done chan struct{} // closed when err is set
	err  error
}

// learn waits until the client knows who serves what. The library ignores the caller's context when
// it first asks; later it answers from what it knows.
func (l *library) learn(ctx context.Context) error {
	if l.learned.Load() {
		return nil
	}
	l.mu.Lock()
	question := l.lookup
	if question == nil {
		question = &lookup{done: make(chan struct{})}
		l.lookup = question
		go func() {
			_, question.err = l.cluster.MasterForKey(context.Background(), protocol.Tag(0))
			if question.err == nil {
				l.learned.Store(true)
			}
			l.mu.Lock()
			l.lookup = nil
			l.mu.Unlock()
			close(question.done)
		}()
	}
	l.mu.Unlock()
	select {
	case <-question.done:
		return question.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Shard names the server of the slot, or the slot if the client does not know that yet.
func (l *library) Shard(slot uint16) string {
	if l.single != nil {
		return ""
	}
	if l.learned.Load() {
		if client, err := l.cluster.MasterForKey(context.Background(),
			protocol.Tag(slot)); err == nil {
			return client.Options().Addr
		}
	}
	return strconv.Itoa(int(slot))
}

// Node returns the server that the client believes to serve the slot.
func (l *library) Node(ctx context.Context, slot uint16) (protocol.Node, error) {
	if l.single != nil {
		return &node{l.single}, nil
	}
	if err := l.learn(ctx); err != nil {
		return nil, err
	}
	client, err := l.cluster.MasterForKey(ctx, protocol.Tag(slot))
	if err != nil {
		return nil, err
	}
	return &node{client}, nil
}

// At returns the server at the address, if the client knows it: it knows those that serve slots.
func (l *library) At(ctx context.Context, address string) (protocol.Node, error) {
	nodes, err := l.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.(*node).client.Options().Addr == address {
			return n, nil
		}
	}
	return nil, fmt.Errorf("a slot is being moved to %s, of which the client does not know yet",
		address)
}

// Nodes returns all primaries.
func (l *library) Nodes(ctx context.Context) ([]protocol.Node, error) {
	if l.single != nil {
		return []protocol.Node{&node{l.single}}, nil
	}
	type answer struct {
		nodes []protocol.Node
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var mu sync.Mutex
		var a answer
		a.err = l.cluster.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			a.nodes = append(a.nodes, &node{client})
			return nil
		})
		answers <- a
	}()
	select {
	case a := <-answers:
		return a.nodes, a.err
	case <-ctx.Done(): // which the library may ignore
		return nil, ctx.Err()
	}
}

// Cluster reports whether slots are served by different servers.
func (l *library) Cluster() bool { return l.cluster != nil }

// Reload has the client ask who serves what.
func (l *library) Reload() {
	if l.cluster != nil {
		l.cluster.ReloadState(context.Background())
	}
}

// NotSent reports whether err says that the library had no connection to send on.
func (l *library) NotSent(err error) bool {
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted)
}

// once is a command that the library does not send again when its connection breaks. The first copy
// might arrive after the second was answered, and hand over a lock that its holder was just told to
// hold.
type once struct{ *redis.Cmd }

// NoRetry tells the library not to send the command again.
func (once) NoRetry() bool { return true }

// bounded returns the client, with timeouts if it has none. Otherwise an answer that is lost would
// delay the lock until the operating system gives the connection up, which may take a quarter of an
// hour.
func (n *node) bounded() *redis.Client {
	if o := n.client.Options(); o.ReadTimeout > 0 && o.WriteTimeout > 0 {
		return n.client
	}
	return n.client.WithTimeout(protocol.LibraryPatience)
}

// Pipeline sends the commands on one connection of the pool.
func (n *node) Pipeline(ctx context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	pipeline := n.bounded().Pipeline()
	results := make([]once, len(commands))
	for i, command := range commands {
		args := make([]any, len(command))
		for j, arg := range command {
			args[j] = arg
		}
		results[i] = once{redis.NewCmd(ctx, args...)}
		_ = pipeline.Process(ctx, results[i]) // sends nothing yet
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

// Sharded is false. When the library connects again, it asks for sharded channels of different
// slots in one command, which servers refuse. So a notice goes to all servers of a cluster, on one
// channel of this process.
func (l *library) Sharded() bool { return false }

// refusalAge is how long a server that refused a subscription is not asked again.
const refusalAge = 30 * time.Second

// refusal is a server's refusal of a subscription, and when it came.
type refusal struct {
	err error
	at  time.Time
}

// Subscribe takes a connection of its own. The library makes it again when it breaks, on another
// server if need be. It would also repeat a refused subscription for ever and silently, so
// Subscribe reads the server's first answer itself.
func (l *library) Subscribe(ctx context.Context, channel string, hear func(string)) (stop func(),
	err error) {
	if r := l.refusal.Load(); r != nil && time.Since(r.at) < refusalAge {
		return nil, r.err
	}
	var pubsub *redis.PubSub
	if l.single != nil {
		pubsub = l.single.Subscribe(ctx, channel)
	} else {
		pubsub = l.cluster.Subscribe(ctx, channel)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := pubsub.Receive(ctx) // ignores ctx if the server hangs
		answered <- err
	}()
	select {
	case err = <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		pubsub.Close()
		if server := redis.Error(nil); errors.As(err, &server) {
			l.refusal.Store(&refusal{err, time.Now()})
		}
		return nil, err
	}
	go func() {
		for message := range pubsub.Channel() {
			hear(message.Payload)
		}
	}()
	return func() { pubsub.Close() }, nil
}
