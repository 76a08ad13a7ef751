package redishold

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

const (
	// dialTimeout bounds each of connecting, greeting and looking at the server.
	dialTimeout = 5 * time.Second

	// silence is how long a connection may owe an answer before a new one replaces it. Until then
	// requests to a server that hangs queue in order, so a release takes effect after the
	// acquisition that it undoes.
	silence = 5 * time.Second

	// queueScale makes the library's queue of a connection hold 2^9 requests: more than
	// maxRequests. Each takes 330 bytes, in use or not, on every connection. With 2^11 a connection
	// costs 901 KiB, not 384. In five pairs of runs in turn, an acquisition with its release took
	// 0.97 times the CPU of 2^11 with 64 callers at once (0.75 to 1.10), 1.2 times with 1,000 (1.0
	// to 1.4), which then queue here, and 0.8 times with 3,000 (0.8 to 1.1).
	queueScale = 9
)

// conn is one TCP connection from its start to its end. It is verified once, carries all commands
// to its server in order, and hears the server's notices. If it breaks, it is never mended. So it
// is known which run of which server took a command.
type conn struct {
	node   *node
	name   string // address of the server
	wire   rueidis.DedicatedClient
	client rueidis.Client
	net    net.Conn                        // guarded by mu while the connection is made
	server *protocol.Server                // as found when the connection was made
	known  atomic.Pointer[protocol.Server] // what is known now
	broken atomic.Bool                     // a read has failed
	id     int64                           // of the connection on the server; 0 if not known

	requests *requests
	first    firstWords

	mu        sync.Mutex
	emptied   bool       // the server has lost its data since it was looked at
	abandoned []*request // requests still on their way whose callers have left
	sweeping  bool       // a goroutine waits for those
	routes    routes

	dying sync.Once
	dead  chan struct{} // closed when the connection is gone, after err is set
	err   error
}

// errSkipped refuses the library's own attempt to connect: nothing would use that connection.
var errSkipped = errors.New("no connection wanted")

// dial makes a connection to the server at address and verifies it. It has the server close a
// former connection to the same run, so that no request that is still on that one takes effect
// after requests on the new one.
func (n *node) dial(ctx context.Context, address string, former *conn) (_ *conn, err error) {
	c := &conn{node: n, name: address, requests: new(requests), dead: make(chan struct{})}
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
			n.reached.Store(true)
			c.mu.Lock()
			c.net = conn
			c.mu.Unlock()
			if ctx.Err() != nil {
				c.hangUp()
			}
			conn = &gathering{conn, c}
		}
		return conn, dialed
	}
	// With ForceSingleClient, NewClient returns a client although it has not connected.
	c.client, err = rueidis.NewClient(option)
	if c.client == nil {
		return nil, &driver.Error{Node: address, Permanent: true, Err: err}
	}
	// The library ignores ctx while it connects and says HELLO.
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
	greet := c.greet
	if n.config.options.ReadOnly {
		greet = c.greetToRead
	}
	if err := greet(ctx, former); err != nil {
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
	case errors.Is(err, errPlain):
		failure.Permanent = true
	case errors.As(err, &notTLS):
		failure.Permanent = true
		failure.Err = fmt.Errorf("the server does not speak TLS: %w", err)
	case errors.As(err, &unknownCA), errors.As(err, &alert):
		failure.Permanent = true
	}
	return failure
}

// greet looks at the server and sets the connection up.
func (c *conn) greet(ctx context.Context, former *conn) error {
	// The library has said HELLO and logged in by now; the first command tells how that went.
	info, err := c.ask(ctx, c.wire.B().Info().Build())
	if err != nil {
		return c.greetFailure(err)
	}
	if err := c.look(info, time.Now(), former != nil); err != nil {
		return err
	}
	c.wire.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: c.onMessage,
		OnSubscription: c.onSubscription})
	c.watch()
	// Look again, now that the server tells when it loses its data. Tracking may be forbidden.
	b := c.wire.B()
	results, err := c.askAll(ctx, []rueidis.Completed{b.ClientTracking().On().Optin().Build(),
		b.Info().Build()})
	if err != nil {
		return c.greetFailure(err)
	}
	if info, err = results[1].ToMessage(); err != nil {
		return c.greetFailure(err)
	}
	now := time.Now()
	if err := c.look(info, now, former != nil); err != nil {
		return err
	}
	_, refused := serverText(results[0].Error())
	c.server.Blind = refused
	sameRun := c.compare(former, now)
	if c.node.config.options.Durable {
		if err := c.checkDurable(ctx); err != nil {
			return err
		}
	}
	c.learned()

	commands := []rueidis.Completed{b.ClientId().Build()}
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
	if results, err = c.askAll(ctx, commands); err != nil {
		return c.greetFailure(err)
	}
	for _, result := range results[optional:] {
		var reply protocol.Reply
		c.read(result, &reply)
		if err := protocol.Lacks(c.name, reply); err != nil {
			return err
		}
	}
	// The commands before those may be forbidden; none is indispensable.
	c.id, _ = results[0].AsInt64()
	return c.subscribe(ctx)
}

// watch closes the connection here when it has ended there.
func (c *conn) watch() {
	gone := c.wire.SetOnInvalidations(c.onInvalidations)
	go func() {
		err, ok := <-gone
		if !ok {
			err = rueidis.ErrClosing
		}
		c.close(err)
	}()
}

// look reads what the server says of itself, and returns an error if it cannot be used. served says
// that it could be used before.
func (c *conn) look(info rueidis.RedisMessage, answered time.Time, served bool) (err error) {
	text, _ := info.ToString()
	if c.server, err = protocol.ParseInfo(c.name, text, answered); err != nil {
		return &driver.Error{Node: c.name, Permanent: true, Err: err}
	}
	c.server.Failover = c.node.config.mode != standalone
	if err := c.node.suits(c.server, served); err != nil {
		return err
	}
	if failure := c.first.failure(c.name); failure != nil {
		return failure // HELLO is disabled: the library can do without it, notices cannot
	}
	return nil
}

// compare corrects what was found with what the former connection knew (nil if there was none). It
// reports whether both connections lead to the same run of the server.
func (c *conn) compare(former *conn, now time.Time) (sameRun bool) {
	if former == nil {
		c.server.Follow(nil, now)
		return false
	}
	before := former.Server()
	c.server.Follow(before, now)
	if before.RunID == c.server.RunID {
		return true
	}
	if c.server.Booted.Before(c.node.absent()) {
		// This run began after the one that the former connection led to. The uptime that a server
		// tells follows its wall clock, which may have been set forward. A server that has taken
		// over from another one counts as just started, because it may not have heard of the last
		// locks.
		c.server.Booted = c.node.absent()
	}
	return false
}

// learned publishes what was found out about the server.
func (c *conn) learned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.emptied {
		c.server = c.server.Emptied(time.Now())
	}
	c.known.Store(c.server)
}

// empty notes that the server has lost its data.
func (c *conn) empty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emptied = true
	if server := c.known.Load(); server != nil {
		c.known.Store(server.Emptied(time.Now()))
	}
}

// sharded reports whether notices come on a channel for each slot.
func (c *conn) sharded() bool { return c.server.Cluster && c.server.AtLeast(7, 0) }

// askAll sends commands of the greeting. An error is one of the connection.
func (c *conn) askAll(ctx context.Context,
	commands []rueidis.Completed) ([]rueidis.RedisResult, error) {
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

// serverText tells an error of the server from one of the connection.
func serverText(err error) (string, bool) {
	if err, ok := rueidis.IsRedisErr(err); ok {
		return err.Error(), true
	}
	return "", false
}

// Server returns what is known about the server by now.
func (c *conn) Server() *protocol.Server { return c.known.Load() }

// Do sends the commands and waits for their replies.
func (c *conn) Do(ctx context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
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
func (c *conn) enter(ctx context.Context) (*request, error) {
	select {
	case <-c.dead:
		return nil, &driver.Error{Node: c.name, Err: c.err}
	default:
	}
	if f := c.requests.begin(ctx, c.dead); f != nil {
		return f, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, &driver.Error{Node: c.name, Err: err}
	}
	return nil, &driver.Error{Node: c.name, Err: c.err}
}

// leave gives the place back, and returns how the request ended.
func (c *conn) leave(f *request, err error) error {
	if err == nil {
		c.requests.end(f, false)
		return nil
	}
	if ended := f.Err(); ended != nil {
		c.requests.end(f, true)
		c.abandon(f)
		c.node.trouble()
		return &driver.Error{Node: c.name, Maybe: true, Err: ended}
	}
	c.requests.end(f, false)
	if errors.Is(err, rueidis.ErrDedicatedClientRecycled) {
		// The connection was closed when the request had just got its place, so it was not sent.
		<-c.dead
		return &driver.Error{Node: c.name, Err: c.err}
	}
	c.close(err)
	return &driver.Error{Node: c.name, Maybe: true, Err: err}
}

func (c *conn) build(command protocol.Command) rueidis.Completed {
	return c.wire.B().Arbitrary(command...).Build()
}

// read reads the result of a request, and notes what it says about the server.
func (c *conn) read(result rueidis.RedisResult, reply *protocol.Reply) (err error) {
	*reply, err = replyOfResult(result)
	if reply.Kind == protocol.Failure &&
		protocol.IsServerError(protocol.ServerFailure("", reply.Str, false), "READONLY") {
		// The server is no longer the primary. The next connection finds the one that is.
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
	if message.IsMap() {
		return replyOfMap(message)
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

// replyOfMap lists each key and then its value, as the older form of the protocol does.
func replyOfMap(message *rueidis.RedisMessage) protocol.Reply {
	fields, _ := message.ToMap()
	list := make([]protocol.Reply, 0, 2*len(fields))
	for key, value := range fields {
		list = append(list, protocol.Reply{Kind: protocol.String, Str: key}, replyOf(&value))
	}
	return protocol.Reply{Kind: protocol.List, List: list}
}

// abandon notes a request that goes on without its caller. Answers come in order, so its place is
// free when a PING that was sent after it is answered.
func (c *conn) abandon(f *request) {
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
		// Any answer is enough, and so is the end of the connection.
		c.wire.Do(context.Background(), c.wire.B().Ping().Build())
		c.requests.vacate(abandoned)
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

// close ends the connection. Requests on their way fail; those that the server has received still
// take effect.
func (c *conn) close(err error) {
	c.dying.Do(func() {
		c.err = err
		close(c.dead)
		c.node.forget(c)
		c.hangUp()
		// This needs a goroutine of its own, because it waits for goroutines of the library, one of
		// which may have called close.
		go func() {
			c.wire.Close()
			c.client.Close()
		}()
	})
}
