package protocol

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Library is a client of some library that its application uses for other things too: it spreads requests over
// connections, makes those and repeats requests as it likes. Its methods are safe for concurrent use.
type Library interface {
	// Node returns what talks to the server that serves the slot.
	Node(ctx context.Context, slot uint16) (Node, error)

	// Nodes returns one Node for each server that serves slots.
	Nodes(ctx context.Context) ([]Node, error)

	// Cluster reports whether slots are served by different servers.
	Cluster() bool

	// Subscribe has hear called with all messages of the channel. It returns when the server has confirmed
	// it, or ctx has ended. The subscription is kept up over broken connections, until stop is called.
	Subscribe(ctx context.Context, channel string, hear func(message string)) (stop func(), err error)

	// Sharded reports whether Subscribe makes it a sharded channel, one for each slot.
	Sharded() bool

	// Reload has the client find out, without waiting for it, which server serves which slot: one has said
	// that it does not.
	Reload()

	// NotSent reports whether an error of Pipeline says that nothing was sent.
	NotSent(err error) bool
}

// Node talks to one server.
type Node interface {
	// Name differs for different servers. Commands of different slots may be sent to Nodes of one name
	// together.
	Name() string

	// Pipeline sends the commands, on one connection, and waits for the replies. It may ignore the end of
	// ctx. An error means that no reply is known.
	Pipeline(ctx context.Context, commands []Command, replies []Reply) error
}

const (
	// libraryPatience is how long a request may take the library, all its attempts and waiting for a
	// connection included. The callers' contexts bound their own waiting only.
	libraryPatience = 10 * time.Second

	// maxQueued is how many requests may wait for those of their slots to come back.
	maxQueued = 4096
)

// Shared returns a Transport over a client that others use, too. It is not ordered, as the library can have
// two connections carry the two requests. What it does about it is to send a request when the one before it,
// of the same slot, has come back; the caller's context bounds the caller's wait, not that. So two processes'
// worth of requests for one slot take turns, and everything else goes side by side. Close leaves the client
// alone.
func Shared(library Library) Transport {
	return &shared{
		library: library,
		id:      rand.Text(),
		last:    make(map[uint16]chan struct{}),
		routes:  make(map[uint16]*subscription),
		closed:  make(chan struct{}),
	}
}

type shared struct {
	library Library
	id      string
	hear    func(string)

	closing sync.Once
	closed  chan struct{}

	mu     sync.Mutex
	queued int
	last   map[uint16]chan struct{} // of each slot with requests, closed when the last of them is back
	routes map[uint16]*subscription // by slot, or all under Slots
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

// Follow leaves it to the library to find out where the slot is. In a slot that is just being moved nothing
// can be done.
func (t *shared) Follow(ctx context.Context, slot uint16, address string) (Conn, error) {
	if slot < Slots && t.library.Cluster() {
		t.library.Reload()
		return t.Conn(ctx, slot)
	}
	return nil, &driver.Error{Permanent: !t.library.Cluster(), Err: fmt.Errorf("the slot is served by %s, says the server", address)}
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
	if !t.library.Cluster() {
		return ""
	}
	node, err := t.library.Node(context.Background(), slot)
	if err != nil {
		return ""
	}
	return node.Name()
}

func (t *shared) Ordered() bool         { return false }
func (t *shared) Cluster() bool         { return t.library.Cluster() }
func (t *shared) Listen(f func(string)) { t.hear = f }

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

// failure judges an error of the library.
func (t *shared) failure(err error, sent bool) error {
	var dial *net.OpError
	if t.library.NotSent(err) || errors.As(err, &dial) && dial.Op == "dial" {
		sent = false
	}
	return &driver.Error{Maybe: sent, Err: err}
}

// sharedConn is the way to the server of one slot.
type sharedConn struct {
	t    *shared
	node Node
	slot uint16 // Slots for requests that need no order
}

func (c *sharedConn) Server() *Server { return nil }

// Do hands the commands over when the slot's earlier ones are back. Once it is their turn or not, they are
// sent: the caller may have given up a release, and it is not to be lost behind an acquisition that hangs.
func (c *sharedConn) Do(ctx context.Context, commands []Command, replies []Reply) error {
	before, mine, err := c.t.join(c.slot)
	if err != nil {
		return err
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
	go func() {
		if before != nil {
			<-before
		}
		ctx, cancel := context.WithTimeout(context.Background(), libraryPatience)
		defer cancel()
		a := answer{replies: make([]Reply, len(copies))}
		a.err = c.node.Pipeline(ctx, copies, a.replies)
		c.t.leave(c.slot, mine)
		answers <- a
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return c.t.failure(a.err, true)
		}
		copy(replies, a.replies)
		return nil
	case <-ctx.Done():
		return &driver.Error{Maybe: true, Err: ctx.Err()}
	case <-c.t.closed:
		return &driver.Error{Maybe: true, Err: errClosed}
	}
}

// join puts a request behind those of its slot.
func (t *shared) join(slot uint16) (before, mine chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.routes == nil {
		return nil, nil, &driver.Error{Permanent: true, Err: errClosed}
	}
	if slot == Slots {
		return nil, nil, nil
	}
	if t.queued == maxQueued {
		return nil, nil, &driver.Error{Err: fmt.Errorf("%d requests are on their way already", maxQueued)}
	}
	t.queued++
	before = t.last[slot]
	mine = make(chan struct{})
	t.last[slot] = mine
	return before, mine, nil
}

func (t *shared) leave(slot uint16, mine chan struct{}) {
	if mine == nil {
		return
	}
	close(mine)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued--
	if t.last[slot] == mine {
		delete(t.last, slot)
	}
}

// Route subscribes once or, to sharded channels, once for each slot.
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

// prune ends subscriptions that nobody waits on any more. Called with t.mu held.
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

// subscribe is not bound to a caller's context: others wait for it, too.
func (t *shared) subscribe(slot uint16, s *subscription) {
	ctx, cancel := context.WithTimeout(context.Background(), libraryPatience)
	defer cancel()
	s.stop, s.err = t.library.Subscribe(ctx, s.channel, t.hear)
	if s.err != nil {
		t.mu.Lock()
		if t.routes[slot] == s {
			delete(t.routes, slot)
		}
		t.mu.Unlock()
	}
	close(s.ready)
}
