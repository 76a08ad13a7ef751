package redishold

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

const (
	// dialTimeout bounds making a connection: each of connecting, greeting and looking around.
	dialTimeout = 5 * time.Second

	// silence is for how long a connection may owe an answer before it is given up for a new one. Until then
	// requests to a server that hangs queue up in order, which is what lets a release take effect behind the
	// acquisition it undoes.
	silence = 5 * time.Second

	// queueScale makes the library's queue of a connection hold 2^11 requests: more than maxPending.
	queueScale = 11
)

// conn is one TCP connection for the whole of its life: it is verified once, carries all commands to its
// server in order, hears its notices, and when it breaks it is not mended. That is what makes it possible to
// say which server, since when up, took a command.
type conn struct {
	node   *node
	name   string // address of the server
	wire   rueidis.DedicatedClient
	client rueidis.Client
	net    net.Conn         // guarded by mu while the connection is made
	server *protocol.Server // does not change once dial has returned
	id     int64            // of the connection on the server; 0 if not known

	flights *flights

	mu        sync.Mutex
	abandoned []*flight // requests whose callers have left and which are still on their way
	sweeping  bool      // a goroutine waits for those
	routes    routes

	dying sync.Once
	dead  chan struct{} // closed when the connection is gone, after err is set
	err   error
}

// errSkipped answers the library's own attempt to connect: it would make a connection that is not used.
var errSkipped = errors.New("no connection wanted")

// dial makes a connection to the server at address and verifies it. A former connection to the same run of
// the server is closed there, so that nothing it still carries takes effect after what the new one will.
func (n *node) dial(ctx context.Context, address string, former *conn) (_ *conn, err error) {
	c := &conn{node: n, name: address, flights: new(flights), dead: make(chan struct{})}
	var dialed error
	var calls int
	option := n.config.client()
	option.InitAddress = []string{address}
	option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		if calls++; calls != 2 {
			return nil, errSkipped // the second call is the one for the wire
		}
		var conn net.Conn
		conn, dialed = n.config.dial(ctx, address)
		if dialed == nil {
			c.mu.Lock()
			c.net = conn
			c.mu.Unlock()
			if ctx.Err() != nil {
				c.hangUp()
			}
			conn = &gathering{conn, c.flights}
		}
		return conn, dialed
	}
	// With ForceSingleClient the client comes even though it has not connected.
	c.client, err = rueidis.NewClient(option)
	if c.client == nil {
		return nil, &driver.Error{Node: address, Permanent: true, Err: err}
	}
	// The library does not know of ctx while it connects and says HELLO.
	stop := context.AfterFunc(ctx, c.hangUp)
	defer stop()
	c.wire, _ = c.client.Dedicate()
	defer func() {
		if err != nil {
			c.close(err)
		}
	}()
	if dialed != nil {
		return nil, dialFailure(address, dialed)
	}
	if err := c.greet(ctx, former); err != nil {
		return nil, err
	}
	return c, nil
}

// dialFailure judges an error of connecting.
func dialFailure(address string, err error) error {
	failure := &driver.Error{Node: address, Err: err}
	var unknownCA *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &notTLS):
		failure.Permanent = true
		failure.Err = fmt.Errorf("the server does not speak TLS: %w", err)
	case errors.As(err, &unknownCA), errors.As(err, &alert):
		failure.Permanent = true
	}
	return failure
}

// greet finds out about the server and prepares it for what comes.
func (c *conn) greet(ctx context.Context, former *conn) error {
	// The library has said HELLO and logged in by now; the first command tells how that went.
	info, err := c.ask(ctx, c.wire.B().Info().Build())
	if err != nil {
		return c.greetFailure(err)
	}
	text, _ := info.ToString()
	if c.server, err = protocol.ParseInfo(c.name, text, time.Now()); err != nil {
		return &driver.Error{Node: c.name, Permanent: true, Err: err}
	}
	c.server.Failover = c.node.config.mode != standalone
	if err := c.node.suits(c.server); err != nil {
		return err
	}
	sameRun := former != nil && former.server.RunID == c.server.RunID
	if former != nil && !sameRun && c.server.Booted.Before(c.node.absent()) {
		// This run began after the one that the former connection led to. The uptime that a server tells
		// follows its wall clock, which may have been set forward. And a server that has taken over from
		// another one counts as just started, as it may not have heard of the last locks.
		c.server.Booted = c.node.absent()
	}

	hooks := rueidis.PubSubHooks{OnMessage: c.onMessage, OnSubscription: c.onSubscription}
	gone := c.wire.SetPubSubHooks(hooks)
	go func() {
		err, ok := <-gone
		if !ok {
			err = rueidis.ErrClosing
		}
		c.close(err)
	}()

	b := c.wire.B()
	commands := []rueidis.Completed{b.ClientId().Build(), b.ConfigGet().Parameter("append*").Build()}
	if sameRun && former.id != 0 {
		commands = append(commands, b.ClientKill().Id(former.id).Build())
	}
	for _, script := range protocol.Scripts() {
		commands = append(commands, b.ScriptLoad().Script(script.Source).Build())
	}
	optional := len(commands)
	for _, need := range protocol.Needs(c.sharded()) {
		commands = append(commands, c.build(need))
	}
	results, err := c.askAll(ctx, commands)
	if err != nil {
		return c.greetFailure(err)
	}
	for _, result := range results[optional:] {
		var reply protocol.Reply
		c.read(result, &reply)
		if err := protocol.Lacks(c.name, reply); err != nil {
			return err
		}
	}
	// What comes before those may be forbidden; none of it is indispensable.
	c.id, _ = results[0].AsInt64()
	settings, _ := results[1].AsStrMap()
	c.server.Durable = settings["appendonly"] == "yes" && settings["appendfsync"] == "always"
	return c.subscribe(ctx)
}

// sharded reports whether notices come on a channel for each slot.
func (c *conn) sharded() bool { return c.server.Cluster && c.server.AtLeast(7, 0) }

// askAll sends commands of the greeting. An error is one of the connection.
func (c *conn) askAll(ctx context.Context, commands []rueidis.Completed) ([]rueidis.RedisResult, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	results := c.wire.DoMulti(ctx, commands...)
	for _, result := range results {
		if err := result.NonRedisError(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// ask sends one command of the greeting.
func (c *conn) ask(ctx context.Context, command rueidis.Completed) (rueidis.RedisMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return c.wire.Do(ctx, command).ToMessage()
}

func (c *conn) greetFailure(err error) error {
	if text, ok := serverText(err); ok {
		failure := protocol.ServerFailure(c.name, text, false)
		if protocol.IsServerError(failure, "NOPROTO") {
			failure.Err = fmt.Errorf("the server is older than the oldest supported, Redis %s: %w", oldest, failure.Err)
		}
		return failure
	}
	hint := ""
	switch g := c.node.config; {
	case g.tls == nil && !g.unix:
		hint = " (as from a server that wants TLS)"
	case g.tls != nil && len(g.tls.Certificates) == 0 && g.tls.GetClientCertificate == nil:
		hint = " (as from a server that wants a client certificate)"
	}
	return &driver.Error{Node: c.name, Err: fmt.Errorf("connected, and then%s: %w", hint, err)}
}

// serverText tells an error of the server from one of the connection.
func serverText(err error) (string, bool) {
	if err, ok := rueidis.IsRedisErr(err); ok {
		return err.Error(), true
	}
	return "", false
}

// Server returns what was found out when the connection was made.
func (c *conn) Server() *protocol.Server { return c.server }

// Do sends the commands and waits for their replies.
func (c *conn) Do(ctx context.Context, commands []protocol.Command, replies []protocol.Reply) error {
	f, err := c.enter(ctx)
	if err != nil {
		return err
	}
	if len(commands) == 1 {
		return c.leave(f, c.read(c.wire.Do(f, c.build(commands[0])), &replies[0]))
	}
	f.multi = f.multi[:0]
	for _, command := range commands {
		f.multi = append(f.multi, c.build(command))
	}
	for i, result := range c.wire.DoMulti(f, f.multi...) {
		if e := c.read(result, &replies[i]); e != nil && err == nil {
			err = e
		}
	}
	return c.leave(f, err)
}

// enter waits for a place among the requests.
func (c *conn) enter(ctx context.Context) (*flight, error) {
	select {
	case <-c.dead:
		return nil, &driver.Error{Node: c.name, Err: c.err}
	default:
	}
	if f := c.flights.begin(ctx, c.dead); f != nil {
		return f, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, &driver.Error{Node: c.name, Err: err}
	}
	return nil, &driver.Error{Node: c.name, Err: c.err}
}

// leave gives the place back and judges how the request ended.
func (c *conn) leave(f *flight, err error) error {
	if err == nil {
		c.flights.end(f, false)
		return nil
	}
	if ended := f.Err(); ended != nil {
		c.flights.end(f, true)
		c.abandon(f)
		c.node.trouble()
		return &driver.Error{Node: c.name, Maybe: true, Err: ended}
	}
	c.flights.end(f, false)
	c.close(err)
	return &driver.Error{Node: c.name, Maybe: true, Err: err}
}

func (c *conn) build(command protocol.Command) rueidis.Completed {
	return c.wire.B().Arbitrary(command...).Build()
}

// read reads the result of a request, and takes note of what it says about the server.
func (c *conn) read(result rueidis.RedisResult, reply *protocol.Reply) (err error) {
	*reply, err = replyOfResult(result)
	if reply.Kind == protocol.Failure && protocol.IsServerError(protocol.ServerFailure("", reply.Str, false), "READONLY") {
		// What was a primary is none any more. The next connection finds out who is.
		c.close(protocol.ServerError(reply.Str))
	}
	return err
}

// replyOfResult turns a result into a reply. An error is one of the connection.
func replyOfResult(result rueidis.RedisResult) (protocol.Reply, error) {
	message, err := result.ToMessage()
	if err == nil {
		return replyOf(&message), nil
	}
	if rueidis.IsRedisNil(err) {
		return protocol.Reply{}, nil
	}
	if text, ok := serverText(err); ok {
		return protocol.Reply{Kind: protocol.Failure, Str: text}, nil
	}
	return protocol.Reply{}, err
}

func replyOf(message *rueidis.RedisMessage) protocol.Reply {
	switch {
	case message.IsInt64():
		n, _ := message.ToInt64()
		return protocol.Reply{Kind: protocol.Integer, Int: n}
	case message.IsArray():
		items, _ := message.ToArray()
		list := make([]protocol.Reply, len(items))
		for i := range items {
			list[i] = replyOf(&items[i])
		}
		return protocol.Reply{Kind: protocol.List, List: list}
	}
	text, err := message.ToString() // of any of the kinds of string
	switch {
	case err == nil:
		return protocol.Reply{Kind: protocol.String, Str: text}
	case message.IsNil():
		return protocol.Reply{}
	}
	return protocol.Reply{Kind: protocol.Failure, Str: err.Error()}
}

// abandon takes note of a request that goes on without its caller. Its place is free when a PING sent after
// it is answered, since answers come in order.
func (c *conn) abandon(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = append(c.abandoned, f)
	if !c.sweeping {
		c.sweeping = true
		go c.sweep()
	}
}

func (c *conn) sweep() {
	for {
		c.mu.Lock()
		abandoned := c.abandoned
		c.abandoned = nil
		c.sweeping = len(abandoned) > 0
		c.mu.Unlock()
		if len(abandoned) == 0 {
			return
		}
		// Any answer will do, and so will the end of the connection.
		c.wire.Do(context.Background(), c.wire.B().Ping().Build())
		c.flights.vacate(abandoned)
	}
}

// hangUp closes the network connection, which the library notices.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.net != nil {
		c.net.Close()
	}
}

// close ends the connection. What is on its way fails; what the server has received takes effect all the same.
func (c *conn) close(err error) {
	c.dying.Do(func() {
		c.err = err
		close(c.dead)
		c.node.forget(c)
		c.hangUp()
		// By itself: it waits for goroutines of the library's, one of which may have called this.
		go func() {
			c.wire.Close()
			c.client.Close()
		}()
	})
}
