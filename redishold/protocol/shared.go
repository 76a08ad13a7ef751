package protocol

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Library is a client that the application uses for other things too. It makes connections and
// spreads requests over them as it likes. Its methods are safe for concurrent use.
type Library interface {
	// Node returns what talks to the server that serves the slot.
	Node(ctx context.Context, slot uint16) (Node, error)

	// At returns what talks to the server that another server named in an ASK, because a slot is
	// being moved there. It is not called if the library follows such redirections itself.
	At(ctx context.Context, address string) (Node, error)

	// Shard returns a name for the slot. Slots have the same name only if one server serves them,
	// so commands for them may be sent together. It asks no server.
	Shard(slot uint16) string

	// Nodes returns one Node for each server that serves slots.
	Nodes(ctx context.Context) ([]Node, error)

	// Cluster reports whether slots are served by different servers.
	Cluster() bool

	// Subscribe has hear called with all messages of the channel. It returns when the server has
	// confirmed it, or ctx has ended. The subscription is kept up over broken connections, until
	// stop is called.
	Subscribe(ctx context.Context, channel string, hear func(message string)) (stop func(),
		err error)

	// Sharded reports whether Subscribe makes it a sharded channel, one for each slot.
	Sharded() bool

	// Reload has the client find out which server serves which slot, because a server has said that
	// it does not serve one. It does not wait for that.
	Reload()

	// NotSent reports whether an error of Pipeline says that nothing was sent.
	NotSent(err error) bool
}

// Node talks to one server.
type Node interface {
	// Pipeline sends the commands, once, on one connection, and waits for the replies. It may
	// ignore the end of ctx, but must not wait for ever, because requests for the same slot wait
	// behind it. An error means that no reply is known. Pipeline must not send commands again that
	// may have reached a server: the first ones could arrive after the second ones were answered.
	Pipeline(ctx context.Context, commands []Command, replies []Reply) error
}

const (
	// LibraryPatience bounds a request to the library, including its wait for a connection. The
	// callers' contexts bound only their own waits.
	LibraryPatience = 10 * time.Second

	// maxQueued is how many requests may wait for those of their slots to come back. Those that are
	// on their way, one for each slot, do not count: a server that hangs may have more slots.
	maxQueued = 4096
)

// Shared returns a Transport over a client that others use too. It is not ordered, because the
// library may send two requests on two connections. So it sends a request only when the one before
// it for the same slot has returned. The caller's context bounds the caller's wait, not the
// request. Requests of different slots go side by side. Close leaves the client open.
func Shared(library Library) Transport {
	return &shared{
		library:  library,
		id:       rand.Text(),
		last:     make(map[uint16]*place),
		releases: make(map[string]*place),
		routes:   make(map[uint16]*subscription),
		closed:   make(chan struct{}),
	}
}

type shared struct {
	library Library
	id      string
	hear    func(*Server, string)

	closing sync.Once
	closed  chan struct{}

	mu       sync.Mutex
	queued   int               // those that wait for others
	last     map[uint16]*place // in the line of each slot that has requests
	joined   uint64
	releases map[string]*place        // of those that are the same and were given up: the last one
	routes   map[uint16]*subscription // by slot, or all under Slots
}

type subscription struct {
	channel string
	used    time.Time     // guarded by shared.mu
	ready   chan struct{} // closed when stop or err is set
	stop    func()
	err     error
}

func (t *shared) Conn(ctx context.Context, slot uint16) (Conn, error) {
	node, err := t.library.Node(ctx, slot)
	if err != nil {
		return nil, t.failure(err, false)
	}
	return &sharedConn{t: t, node: node, slot: slot}, nil
}

// Follow leaves it to the library to find out where a slot is. Requests after an ASK are in no
// order with others, and need none: a renewal sets nothing anew, and an acquisition fails in a slot
// that is being moved, because the key for its late requests never exists there yet.
func (t *shared) Follow(ctx context.Context, slot uint16, address string) (Conn, error) {
	switch {
	case !t.library.Cluster():
		return nil, &driver.Error{Permanent: true,
			Err: fmt.Errorf("the slot is served by %s, says the server", address)}
	case slot < Slots:
		t.library.Reload()
		return t.Conn(ctx, slot)
	}
	node, err := t.library.At(ctx, address)
	if err != nil {
		return nil, t.failure(err, false)
	}
	return &sharedConn{t: t, node: node, slot: Slots}, nil
}

func (t *shared) All(ctx context.Context) ([]Conn, error) {
	nodes, err := t.library.Nodes(ctx)
	if err != nil {
		return nil, t.failure(err, false)
	}
	conns := make([]Conn, len(nodes))
	for i, node := range nodes {
		conns[i] = &sharedConn{t: t, node: node, slot: Slots}
	}
	return conns, nil
}

func (t *shared) Shard(slot uint16) string {
	return t.library.Shard(slot)
}

func (t *shared) Ordered() bool                  { return false }
func (t *shared) Cluster() bool                  { return t.library.Cluster() }
func (t *shared) Listen(f func(*Server, string)) { t.hear = f }

func (t *shared) Close() error {
	t.closing.Do(func() {
		close(t.closed)
		t.mu.Lock()
		routes := t.routes
		t.routes = nil
		t.mu.Unlock()
		for _, s := range routes {
			go s.end()
		}
	})
	return nil
}

// failure returns the driver's error for an error of the library.
func (t *shared) failure(err error, sent bool) error {
	var dial *net.OpError
	if t.library.NotSent(err) || errors.As(err, &dial) && dial.Op == "dial" {
		sent = false
	}
	switch text := err.Error(); {
	case repeated().MatchString(text):
		err = ServerError(repeated().ReplaceAllString(text, ""))
	case strings.Contains(text, "@"):
		// The error repeats an address, which may be a URL by mistake. No part of a login is kept
		// in a cause.
		err = errors.New(login().ReplaceAllString(text, "...@"))
	}
	if strings.Contains(err.Error(), "\n") {
		err = &line{err}
	}
	return &driver.Error{Maybe: sent, Err: err}
}

// login is what may be user and password in front of a host.
var login = pattern(`(?s)\S+://.*@|\S*@`)

// line is an error in one line.
type line struct{ error }

func (l *line) Error() string { return strings.ReplaceAll(l.error.Error(), "\n", "; ") }

func (l *line) Unwrap() error { return l.error }

// sharedConn is the way to the server of one slot.
type sharedConn struct {
	t    *shared
	node Node
	slot uint16 // Slots for requests that need no order
}

func (c *sharedConn) Server() *Server { return nil }

// Do sends the commands when the slot's earlier ones have returned. If nobody waits for them any
// more by then, they are not sent, so that slow requests do not delay more and more others. A
// release is always sent, because it must not be lost behind an acquisition that hangs.
func (c *sharedConn) Do(ctx context.Context, commands []Command, replies []Reply) error {
	if err := ctx.Err(); err != nil {
		return &driver.Error{Err: err}
	}
	copies := make([]Command, len(commands))
	for i, command := range commands {
		copies[i] = append(Command(nil), command...)
	}
	type answer struct {
		replies []Reply
		err     error
	}
	answers := make(chan answer, 1)
	p := &place{slot: c.slot}
	p.send = func() {
		ctx, cancel := context.WithTimeout(context.Background(), LibraryPatience)
		defer cancel()
		a := answer{replies: make([]Reply, len(copies))}
		a.err = c.node.Pipeline(ctx, copies, a.replies)
		c.t.leave(p)
		answers <- a
	}
	if err := c.t.join(p, copies); err != nil {
		return err
	}
	select {
	case a := <-answers:
		if a.err != nil {
			return c.t.failure(a.err, true)
		}
		copy(replies, a.replies)
		return nil
	case <-ctx.Done():
		return c.t.giveUp(p, ctx.Err())
	case <-c.t.closed:
		return c.t.giveUp(p, errClosed)
	}
}

// place is the place of a request in the line of its slot. Only the first of a line is on its way.
// Those behind it have no goroutine but their callers', and leave if they are not to be sent any
// more. So callers who give up on a slot that hangs cost nothing, however many they are.
type place struct {
	slot    uint16
	send    func() // sends it, and leaves
	release string // of a release: which one; else empty

	// Guarded by shared.mu:
	ahead, behind *place // in the line; nil if there is none
	number        uint64 // rises along the line
	sent          bool   // or about to be
}

// join puts a request behind those of its slot, and sends it if there is none.
func (t *shared) join(p *place, commands []Command) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.routes == nil {
		return &driver.Error{Permanent: true, Err: errClosed}
	}
	if p.slot == Slots {
		t.start(p)
		return nil
	}
	last := t.last[p.slot]
	if last != nil && t.queued == maxQueued {
		return &driver.Error{Err: fmt.Errorf("%d requests wait for others already", maxQueued)}
	}
	t.joined++
	p.number, p.release = t.joined, releaseOf(commands)
	t.last[p.slot] = p
	if last == nil {
		t.start(p)
		return nil
	}
	t.queued++
	p.ahead, last.behind = last, p
	return nil
}

// start sends a request whose turn has come. Called with t.mu held.
func (t *shared) start(p *place) {
	p.sent = true
	go p.send()
}

// releaseOf returns a text that is the same for equal releases, and empty for other requests. Two
// equal releases have the effect of one, whatever their numbers.
func releaseOf(commands []Command) string {
	if len(commands) != 1 || len(commands[0]) < 3 {
		return ""
	}
	script, args := commands[0][1], commands[0][2:]
	if _, ends := ending.Load(script); !ends {
		return ""
	}
	keys, _ := strconv.Atoi(args[0])
	return fmt.Sprintf("%q", args[:min(1+keys+1, len(args))]) // up to the owner value
}

// giveUp notes that the caller does not wait any longer, and returns its error; err is the reason.
// A request that waits in the line leaves it, unless it is a release, of which the last one stays
// of those that are equal and were given up.
func (t *shared) giveUp(p *place, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.sent:
	case p.release == "":
		t.remove(p)
		return &driver.Error{Err: fmt.Errorf(
			"not sent, as an earlier request for its slot has not come back: %w", err)}
	default:
		last := t.releases[p.release]
		if last != nil && last.number > p.number {
			t.remove(p)
			break
		}
		if last != nil && !last.sent {
			t.remove(last)
		}
		t.releases[p.release] = p
	}
	return &driver.Error{Maybe: true, Err: err}
}

// leave ends a request that has returned, and lets the next one of the slot go.
func (t *shared) leave(p *place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.slot == Slots {
		return
	}
	t.remove(p)
	if p.behind != nil {
		t.queued--
		t.start(p.behind)
	}
}

// remove takes a request out of the line. Called with t.mu held.
func (t *shared) remove(p *place) {
	if p.ahead != nil {
		p.ahead.behind = p.behind
	}
	switch {
	case p.behind != nil:
		p.behind.ahead = p.ahead
	case p.ahead != nil:
		t.last[p.slot] = p.ahead
	default:
		delete(t.last, p.slot)
	}
	if !p.sent {
		t.queued--
	}
	if p.release != "" && t.releases[p.release] == p {
		delete(t.releases, p.release)
	}
}

// Route subscribes once or, to sharded channels, once for each slot. A subscription needs a
// connection of its own, which may take longer to make than the call may take. So Route waits for
// half of the call's time, and then the request goes without a route.
func (c *sharedConn) Route(ctx context.Context, slot uint16) string {
	t := c.t
	mark := "S"
	if !t.library.Sharded() {
		slot, mark = Slots, "P"
	}
	t.mu.Lock()
	if t.routes == nil {
		t.mu.Unlock()
		return ""
	}
	s := t.routes[slot]
	if s == nil {
		t.prune()
		s = &subscription{channel: Channel(slot, t.id), ready: make(chan struct{})}
		t.routes[slot] = s
		go t.subscribe(slot, s)
	}
	s.used = time.Now()
	t.mu.Unlock()
	if deadline, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = half
	}
	select {
	case <-s.ready:
		if s.err == nil {
			return mark + s.channel
		}
	case <-ctx.Done():
	case <-t.closed:
	}
	return ""
}

const (
	maxRoutes = 256
	routeIdle = time.Minute
)

// prune ends subscriptions that nobody uses any more. Called with t.mu held.
func (t *shared) prune() {
	if len(t.routes) < maxRoutes {
		return
	}
	for slot, s := range t.routes {
		if time.Since(s.used) > routeIdle {
			delete(t.routes, slot)
			go s.end()
		}
	}
}

func (s *subscription) end() {
	<-s.ready
	if s.stop != nil {
		s.stop()
	}
}

// subscribe makes the subscription. No caller's context bounds it, because others wait for it too.
func (t *shared) subscribe(slot uint16, s *subscription) {
	ctx, cancel := context.WithTimeout(context.Background(), LibraryPatience)
	defer cancel()
	s.stop, s.err = t.library.Subscribe(ctx, s.channel, func(message string) {
		t.hear(nil, message)
	})
	if s.err != nil {
		t.mu.Lock()
		if t.routes[slot] == s {
			delete(t.routes, slot)
		}
		t.mu.Unlock()
	}
	close(s.ready)
}
