package redismodel

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

const (
	// longestTrip is how long a request may be on its way, by the server's clock. Later ones are
	// lost: the protocol knows late requests for a minute.
	longestTrip = 50 * time.Second

	// subscribePause is how long a subscription that broke is left alone, as in redishold.
	subscribePause = 200 * time.Millisecond
)

// Library is a client that an application uses for other things, too: what [protocol.Shared] makes
// a Transport of. Each request has a connection of its own. If no answer comes in time, or a
// connection breaks, Pipeline returns an error, but what was sent may be on its way, and arrive
// after what is sent later. Nothing is sent twice. Its methods are safe for concurrent use.
type Library struct {
	server  *Server
	timeout func() time.Duration

	// Guarded by server.mu:
	link      Link
	held      Direction // what does not get through
	trips     []*trip   // whose callers wait
	listeners []*Client
}

// Library returns a client of the server, with requests that travel over the link: each by itself.
// timeout is for how long a request waits for its answer. It is called like the Link's functions.
func (s *Server) Library(link Link, timeout func() time.Duration) *Library {
	return &Library{server: s, link: link, timeout: timeout}
}

// Backend returns the protocol's Backend over this client.
func (l *Library) Backend() *protocol.Backend {
	return protocol.New(protocol.Shared(l), protocol.Options{})
}

// Cut breaks all connections. Calls that have not been answered fail. If arrive is set, what they
// sent still reaches the server when it would have. Otherwise it is lost.
func (l *Library) Cut(arrive bool) {
	l.server.mu.Lock()
	for _, t := range slices.Clone(l.trips) {
		t.lost = t.lost || !arrive
		t.end(errCut)
	}
	listeners := l.listeners
	l.server.unlock()
	for _, c := range listeners {
		c.Cut(arrive)
	}
}

// Hang lets nothing through in that direction until [Library.Resume].
func (l *Library) Hang(d Direction) {
	l.server.mu.Lock()
	l.held |= d
	listeners := l.listeners
	l.server.mu.Unlock()
	for _, c := range listeners {
		c.Hang(d)
	}
}

// Resume lets everything through again. What was on its way is sent on, in no order.
func (l *Library) Resume() {
	l.server.mu.Lock()
	l.held = 0
	l.server.wake()
	listeners := l.listeners
	l.server.unlock()
	for _, c := range listeners {
		c.Resume()
	}
}

// trip is a request on its way to the server and back.
type trip struct {
	library  *Library
	run      string // of the server that it was sent to
	at       *conn  // what the server knows the connection as
	commands []protocol.Command
	replies  []protocol.Reply
	next     int       // of commands
	sent     time.Time // by the server's clock
	arrive   int       // how many commands the server gets; -1: all, and the replies come back
	lost     bool
	done     chan struct{} // closed when there is an answer
	err      error
}

// Pipeline sends the commands, once.
func (l *Library) Pipeline(ctx context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	s := l.server
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errRefused
	}
	s.lastID++
	t := &trip{library: l, run: s.runID, at: &conn{server: s, id: s.lastID},
		replies: make([]protocol.Reply, len(commands)), sent: s.wall.now(), arrive: -1,
		done: make(chan struct{})}
	for _, command := range commands {
		// the caller may leave, and use it again
		t.commands = append(t.commands, slices.Clone(command))
	}
	if l.link.Cut != nil {
		if arrive, cut := l.link.Cut(len(commands)); cut {
			t.arrive = min(max(0, arrive), len(commands))
		}
	}
	l.trips = append(l.trips, t)
	t.after(draw(l.link.Request), t.serve)
	patience := max(1, draw(l.timeout))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
		s.mu.Lock()
		t.end(ctx.Err())
		s.mu.Unlock()
	}
	if t.err == nil { // else the server may carry out, and write replies, later
		copy(replies, t.replies)
	}
	return t.err
}

// after has f called after d, with the server's mu held.
func (t *trip) after(d time.Duration, f func()) {
	time.AfterFunc(max(1, d), func() { // never a timer that is due: see DESIGN.md
		t.library.server.mu.Lock()
		defer t.library.server.unlock()
		f()
	})
}

// end gives the caller the error, or the replies if it is nil. Called with mu held.
func (t *trip) end(err error) {
	l := t.library
	if i := slices.Index(l.trips, t); i >= 0 {
		l.trips = slices.Delete(l.trips, i, i+1)
		t.err = err
		close(t.done)
	}
}

// serve makes the server carry out the next command that has arrived, and those after it. Called
// with mu held.
func (t *trip) serve() {
	l, s := t.library, t.library.server
	switch {
	case t.lost:
		return
	case s.stopped || s.runID != t.run || s.wall.now().Sub(t.sent) > longestTrip:
		t.end(errReset)
		return
	case l.held&Requests != 0 || s.paused:
		s.stranded = append(s.stranded, stranded{t, t.serve})
		return
	}
	if t.next == 0 && t.arrive != 0 && l.link.Arrived != nil {
		l.link.Arrived(s.wall.now().Sub(t.sent), t.commands[0])
	}
	for t.next != t.arrive && t.next < len(t.commands) {
		t.replies[t.next] = s.perform(t.at, t.commands[t.next])
		t.next++
		if gap := draw(l.link.Gap); gap > 0 && t.next < len(t.commands) {
			t.after(gap, t.serve)
			return
		}
	}
	if t.next == t.arrive {
		t.end(errCut)
		return
	}
	t.after(draw(l.link.Reply), t.answer)
}

// answer brings the replies back. Called with mu held.
func (t *trip) answer() {
	if l := t.library; l.held&Replies != 0 {
		l.server.stranded = append(l.server.stranded, stranded{t, t.answer})
		return
	}
	t.end(nil)
}

// stranded is what cannot go on: a request, or the replies to it.
type stranded struct {
	trip *trip
	goOn func()
}

// Node returns the Library: there is one server.
func (l *Library) Node(context.Context, uint16) (protocol.Node, error) { return l, nil }

// At returns the Library, and is never called, as there is no cluster.
func (l *Library) At(context.Context, string) (protocol.Node, error) { return l, nil }

// Shard is the same for all slots.
func (l *Library) Shard(uint16) string { return "" }

// Nodes returns the one server.
func (l *Library) Nodes(context.Context) ([]protocol.Node, error) {
	return []protocol.Node{l}, nil
}

// Cluster is false.
func (l *Library) Cluster() bool { return false }

// Sharded is false, as there is no cluster.
func (l *Library) Sharded() bool { return false }

// Reload does nothing.
func (l *Library) Reload() {}

// NotSent reports whether there was no connection.
func (l *Library) NotSent(err error) bool { return err == errRefused }

// Subscribe hears the messages of the channel over a connection of its own.
func (l *Library) Subscribe(ctx context.Context, channel string, hear func(string)) (stop func(),
	err error) {
	c := l.server.Client(Link{})
	c.id = strings.TrimPrefix(channel, protocol.Channel(protocol.Slots, ""))
	transport := c.Transport()
	transport.Listen(func(_ *protocol.Server, message string) { hear(message) })
	l.server.mu.Lock()
	c.link.Reply, c.held = l.link.Reply, l.held
	l.listeners = append(slices.Clone(l.listeners), c)
	l.server.mu.Unlock()
	end := func() {
		transport.Close()
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		l.listeners = slices.DeleteFunc(slices.Clone(l.listeners), func(other *Client) bool {
			return other == c
		})
	}
	first, err := transport.Conn(ctx, protocol.Slots)
	if err != nil {
		end()
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	go func() {
		defer end()
		for now := first; ; {
			if now != nil {
				select {
				case <-now.(*conn).dead:
				case <-life.Done():
					return
				}
			}
			if pause(life, subscribePause) != nil {
				return
			}
			now = nil
			if again, err := transport.Conn(life, protocol.Slots); err == nil {
				now = again
			}
		}
	}()
	return cancel, nil
}
