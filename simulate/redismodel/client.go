package redismodel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

const (
	// dialTimeout bounds each step of making a connection. silence is how long a connection may owe
	// an answer. Both are as in redishold.
	dialTimeout = 5 * time.Second
	silence     = 5 * time.Second
)

var (
	errClosed    = errors.New("backend closed")
	errReset     = errors.New("connection reset by the server")
	errCut       = errors.New("connection cut")
	errRefused   = errors.New("connection refused")
	errUnreached = fmt.Errorf("no connection within %v", dialTimeout)
	errSilence   = fmt.Errorf("no answer for %v", silence)
)

// Client is one process's way to a server: a [protocol.Transport] with one connection at a time, as
// redishold's. Its own methods are safe for concurrent use and take effect at once.
type Client struct {
	server *Server
	id     string // of its channel

	// Guarded by server.mu:
	link    Link
	hear    func(*protocol.Server, string)
	held    Direction // what does not get through
	conns   []*conn   // from which something may still be heard
	live    *conn     // of these, the one that is greeted; nil if there is none
	former  *conn     // the last one
	gone    time.Time // when the server was last seen not to be there
	attempt *attempt
	closed  bool
	lose    func([]protocol.Command, []protocol.Reply) bool
}

// attempt is an attempt to connect, which all who need it share.
type attempt struct {
	done   chan struct{}
	cancel context.CancelFunc
	conn   *conn
	err    error
}

// Client returns a new client of the server, whose requests travel over the link.
func (s *Server) Client(link Link) *Client {
	return &Client{server: s, id: identifier(), link: link}
}

// Backend returns the protocol's Backend over this client. It is called once; the Backend's Close
// ends the client.
func (c *Client) Backend() *protocol.Backend {
	return protocol.New(c.Transport(), protocol.Options{})
}

// Transport returns the transport, for a Backend with other options or a test.
func (c *Client) Transport() protocol.Transport { return transport{c} }

// Server returns the server that it is a client of.
func (c *Client) Server() *Server { return c.server }

// SetLink makes requests travel over another link from now on. Requests on their way are not
// changed.
func (c *Client) SetLink(link Link) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.link = link
}

// Cut breaks the connection, if there is one. Calls that have not been answered fail. If arrive is
// set, what they sent and the server has not taken yet still reaches it, until the next connection
// has the server close this one. Otherwise it is lost. Replies and notices on their way are lost in
// any case.
func (c *Client) Cut(arrive bool) {
	c.server.mu.Lock()
	defer c.server.unlock()
	if c.live != nil {
		c.live.sever(errCut, !arrive)
	}
}

// CutReply breaks the connection in the next request for whose commands and replies lose returns
// true: the server has carried the request out, and the replies are lost. A nil lose takes the next
// request, whatever it is.
func (c *Client) CutReply(lose func([]protocol.Command, []protocol.Reply) bool) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if lose == nil {
		lose = func([]protocol.Command, []protocol.Reply) bool { return true }
	}
	c.lose = lose
}

// Hang lets nothing through in that direction until [Client.Resume]. The connection does not end.
func (c *Client) Hang(d Direction) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.held |= d
}

// Resume lets everything through again. What was on its way arrives at once, in order.
func (c *Client) Resume() {
	c.server.mu.Lock()
	defer c.server.unlock()
	c.held = 0
	c.server.wake()
	c.server.ready = append(c.server.ready, c.conns...)
}

// lost removes a connection from which nothing can be heard any more. Called with server.mu held.
func (c *Client) lost(gone *conn) {
	c.conns = slices.DeleteFunc(slices.Clone(c.conns), func(other *conn) bool {
		return other == gone
	})
	c.gone = time.Now()
	if c.live == gone {
		c.live = nil
	}
}

// Connected reports whether there is a connection.
func (c *Client) Connected() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.live != nil
}

// transport is the Client as the protocol uses it.
type transport struct{ c *Client }

func (t transport) Ordered() bool       { return true }
func (t transport) Cluster() bool       { return false }
func (t transport) Shard(uint16) string { return "" }

func (t transport) Listen(f func(*protocol.Server, string)) {
	t.c.server.mu.Lock()
	defer t.c.server.mu.Unlock()
	t.c.hear = f
}

func (t transport) Conn(ctx context.Context, _ uint16) (protocol.Conn, error) {
	s, c := t.c.server, t.c
	s.mu.Lock()
	if live := c.live; live != nil {
		s.mu.Unlock()
		return live, nil
	}
	if c.closed {
		s.mu.Unlock()
		return nil, &driver.Error{Permanent: true, Err: errClosed}
	}
	a := c.attempt
	if a == nil {
		// The caller's context does not bound this, because the next call needs the connection too.
		ctx, cancel := context.WithCancel(context.Background())
		a = &attempt{done: make(chan struct{}), cancel: cancel}
		c.attempt = a
		go c.connect(ctx, a, c.former)
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn, nil
	case <-ctx.Done():
		return nil, &driver.Error{Node: s.name, Err: ctx.Err()}
	}
}

func (t transport) Follow(_ context.Context, _ uint16, address string) (protocol.Conn, error) {
	return nil, &driver.Error{Node: t.c.server.name, Permanent: true,
		Err: fmt.Errorf("no cluster, but told to ask %s", address)}
}

func (t transport) All(ctx context.Context) ([]protocol.Conn, error) {
	conn, err := t.Conn(ctx, 0)
	if err != nil {
		return nil, err
	}
	return []protocol.Conn{conn}, nil
}

// Close ends the client: what was sent and has not arrived is lost.
func (t transport) Close() error {
	t.c.server.mu.Lock()
	defer t.c.server.unlock()
	t.c.closed = true
	if t.c.attempt != nil {
		t.c.attempt.cancel()
	}
	if t.c.live != nil {
		t.c.live.sever(errClosed, true)
	}
	return nil
}

// connect makes a connection and tells all who wait for it.
func (c *Client) connect(ctx context.Context, a *attempt, former *conn) {
	defer a.cancel()
	conn, err := c.open(ctx, former)
	c.server.mu.Lock()
	defer c.server.unlock()
	c.attempt = nil
	switch {
	case err != nil:
		c.gone = time.Now()
	case c.closed:
		err = &driver.Error{Permanent: true, Err: errClosed}
	default:
		a.conn, c.former = conn, conn
		if !conn.gone {
			c.live = conn
		}
	}
	if err != nil && conn != nil {
		conn.sever(err, true)
	}
	a.err = err
	close(a.done)
}

// dial makes a connection, which takes a round trip.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	s := c.server
	s.mu.Lock()
	arrival := draw(c.link.Request) + draw(c.link.Reply)
	if c.held != 0 {
		arrival = dialTimeout
	}
	s.mu.Unlock()
	if err := pause(ctx, arrival); err != nil {
		return nil, &driver.Error{Node: s.name, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.held != 0:
		return nil, &driver.Error{Node: s.name, Err: errUnreached}
	case s.stopped:
		return nil, &driver.Error{Node: s.name, Err: errRefused}
	}
	s.lastID++
	conn := &conn{client: c, server: s, id: s.lastID, dead: make(chan struct{})}
	s.conns = append(s.conns, conn)
	c.conns = append(c.conns, conn)
	return conn, nil
}

// open makes a connection and greets the server. With an error too it returns the connection, if
// there is one to give up.
func (c *Client) open(ctx context.Context, former *conn) (*conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return conn, conn.greet(ctx, former)
}

// pause waits for d, or for the end of ctx, whose error it returns then.
func pause(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer, cancel := context.WithTimeout(ctx, d)
		<-timer.Done()
		cancel()
	}
	return ctx.Err()
}

// greet looks at the server and sets the connection up, as redishold does.
func (c *conn) greet(ctx context.Context, former *conn) error {
	name := c.server.name
	replies, err := c.ask(ctx, protocol.Command{"INFO"})
	if err != nil {
		return err
	}
	if _, err := c.look(replies[0], time.Now()); err != nil {
		return err
	}
	// Look again, now that the server tells when it loses its data.
	if replies, err = c.ask(ctx, protocol.Command{"CLIENT", "TRACKING", "ON", "OPTIN"},
		protocol.Command{"INFO"}); err != nil {
		return err
	}
	now := time.Now()
	found, err := c.look(replies[1], now)
	if err != nil {
		return err
	}
	sameRun := c.compare(found, former, now)
	c.learned(found)

	commands := []protocol.Command{{"CLIENT", "ID"}}
	if sameRun {
		commands = append(commands,
			protocol.Command{"CLIENT", "KILL", "ID", strconv.FormatInt(former.id, 10)})
	}
	for _, script := range protocol.Scripts() {
		commands = append(commands, protocol.Command{"SCRIPT", "LOAD", script.Source})
	}
	optional := len(commands)
	commands = append(commands, protocol.Needs(false)...)
	if replies, err = c.ask(ctx, commands...); err != nil {
		return err
	}
	for _, reply := range replies[optional:] {
		if err := protocol.Lacks(name, reply); err != nil {
			return err
		}
	}

	channel := protocol.Channel(protocol.Slots, c.client.id)
	if replies, err = c.ask(ctx, protocol.Command{"SUBSCRIBE", channel}); err != nil {
		return err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if replies[0].Kind != protocol.Failure {
		c.route = "P" + channel
	}
	c.greeted = true
	return nil
}

// ask sends commands of the greeting.
func (c *conn) ask(ctx context.Context, commands ...protocol.Command) ([]protocol.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	replies := make([]protocol.Reply, len(commands))
	err := c.Do(ctx, commands, replies)
	if failed := (*driver.Error)(nil); errors.As(err, &failed) {
		// no claim was sent
		return nil, &driver.Error{Node: failed.Node, Err: fmt.Errorf("connected, and then: %w",
			failed.Err)}
	}
	return replies, err
}

// look reads what the server says of itself, and returns an error if it cannot be used.
func (c *conn) look(info protocol.Reply, answered time.Time) (*protocol.Server, error) {
	name := c.server.name
	if info.Kind == protocol.Failure {
		return nil, protocol.ServerFailure(name, info.Str, false)
	}
	found, err := protocol.ParseInfo(name, info.Str, answered)
	switch {
	case err != nil:
		return nil, &driver.Error{Node: name, Permanent: true, Err: err}
	case !found.AtLeast(6, 2):
		return nil, &driver.Error{Node: name, Permanent: true,
			Err: fmt.Errorf("version %s is too old", found.Version)}
	case found.Replica:
		return nil, &driver.Error{Node: name, Permanent: true,
			Err: fmt.Errorf("the server is a read-only replica of %s", found.Primary)}
	}
	return found, nil
}

// compare corrects what was found by what the former connection knew (nil if there was none). It
// reports whether both lead to the same run of the server.
func (c *conn) compare(found *protocol.Server, former *conn, now time.Time) (sameRun bool) {
	if former == nil {
		found.Follow(nil, now)
		return false
	}
	before := former.Server()
	found.Follow(before, now)
	if before.RunID == found.RunID {
		return true
	}
	if absent := c.client.absent(); found.Booted.Before(absent) {
		// The uptime follows the server's clock. This run began after the one that the former
		// connection led to.
		found.Booted = absent
	}
	return false
}

// learned publishes what was found out about the server.
func (c *conn) learned(found *protocol.Server) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.emptied {
		found = found.Emptied(time.Now())
	}
	c.known.Store(found)
}

// absent returns when the server was last seen not to be there.
func (c *Client) absent() time.Time {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.gone
}
