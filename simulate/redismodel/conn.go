package redismodel

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// conn is one connection for the whole of its life. All of it is guarded by server.mu, but for what
// does not change.
type conn struct {
	client *Client
	server *Server
	id     int64  // on the server
	route  string // does not change once greeted
	known  atomic.Pointer[protocol.Server]

	greeted bool
	emptied bool // the server has lost its data since it was looked at

	// At the server:
	channels []string
	tracking bool // it is told when all data are gone
	multi    bool // between MULTI and EXEC
	queued   []protocol.Command

	// On the way to the server:
	in      []*request // in order; the first may be under way
	lastIn  time.Time  // when the last one arrives
	inTimer *time.Timer
	serving bool // somebody is in serve
	dropped bool // the server takes nothing any more

	// On the way back:
	out        []delivery // in order
	outTimer   *time.Timer
	delivering bool // somebody is in deliver
	gone       bool // the client hears nothing any more; dead is closed, after err is set
	dead       chan struct{}
	err        error

	unanswered []*request // in order; of which nothing was delivered
	watching   bool       // a timer looks for silence
}

// request is one call of Do.
type request struct {
	commands []protocol.Command
	replies  []protocol.Reply
	next     int // of commands
	sent     time.Time
	arrives  time.Time // the next command
	// how many commands the server gets before the connection breaks; -1 if it does not
	arrive int
	done   chan struct{}
	err    error
}

// delivery is what travels back: the replies to a request, or a message, or that all data are gone,
// or the end of the connection.
type delivery struct {
	at      time.Time
	request *request
	message string
	emptied bool
	end     error
}

// Server returns what is known about the server by now.
func (c *conn) Server() *protocol.Server { return c.known.Load() }

// Route returns the route of the one channel that the connection has subscribed to.
func (c *conn) Route(context.Context, uint16) string { return c.route }

// Do sends the commands and waits for their replies.
func (c *conn) Do(ctx context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	s := c.server
	s.mu.Lock()
	if err := c.refuse(ctx); err != nil {
		s.mu.Unlock()
		return err
	}
	delay := draw(c.client.link.Request)
	arrive := c.drawCut(len(commands))
	if delay == 0 && arrive < 0 && c.direct(len(commands)) {
		for i, command := range commands {
			replies[i] = s.perform(c, command)
		}
		c.notice(replies)
		s.unlock()
		return nil
	}
	now := time.Now()
	r := &request{sent: now, arrives: now.Add(delay), arrive: arrive, done: make(chan struct{})}
	r.replies = make([]protocol.Reply, len(commands))
	for _, command := range commands {
		// the caller may leave, and use it again
		r.commands = append(r.commands, slices.Clone(command))
	}
	if r.arrives.Before(c.lastIn) {
		r.arrives = c.lastIn
	}
	c.lastIn = r.arrives
	c.in = append(c.in, r)
	c.unanswered = append(c.unanswered, r)
	c.watch()
	c.serve(0)
	s.unlock()
	select {
	case <-r.done:
		if r.err != nil {
			return r.err // what has been sent may still be carried out, and answered to nobody
		}
		copy(replies, r.replies)
		return nil
	case <-ctx.Done():
		return &driver.Error{Node: s.name, Maybe: true, Err: ctx.Err()}
	}
}

// refuse returns why nothing can be sent, or nil.
func (c *conn) refuse(ctx context.Context) error {
	if c.gone {
		return &driver.Error{Node: c.server.name, Err: c.err}
	}
	if err := ctx.Err(); err != nil {
		return &driver.Error{Node: c.server.name, Err: err}
	}
	return nil
}

// drawCut returns how many commands arrive before the connection breaks, or -1. A greeting is left
// alone.
func (c *conn) drawCut(commands int) int {
	if c.client.link.Cut != nil && c.greeted {
		if arrive, cut := c.client.link.Cut(commands); cut {
			return min(max(0, arrive), commands)
		}
	}
	return -1
}

// direct reports whether a request that has arrived can be answered at once, which saves its copy.
func (c *conn) direct(commands int) bool {
	l := &c.client.link
	return len(c.in) == 0 && len(c.out) == 0 && !c.serving && !c.dropped && !c.stuck() &&
		c.client.held == 0 &&
		l.Reply == nil && c.client.lose == nil &&
		(commands == 1 || l.Gap == nil && c.server.between == nil)
}

// stuck reports whether the server gets nothing from the connection for now, or takes nothing.
func (c *conn) stuck() bool {
	return c.client.held&Requests != 0 || c.server.paused || c.server.stopped
}

// due reports whether the server can go on with the connection.
func (c *conn) due() bool {
	return len(c.in) > 0 && !c.serving && !c.dropped && !c.stuck() &&
		!time.Now().Before(c.in[0].arrives)
}

// serve makes the server carry out what has arrived: at most limit commands, or all if limit is 0.
// Called with mu held, which it may unlock for a while.
func (c *conn) serve(limit int) {
	for n := 0; c.due() && (limit == 0 || n < limit); n++ {
		r := c.in[0]
		if r.next == r.arrive {
			c.sever(errCut, true)
			return
		}
		if r.next > 0 && c.server.between != nil && c.greeted {
			c.serving = true
			next := r.commands[r.next]
			c.server.mu.Unlock()
			c.server.between(c.client, next)
			c.server.mu.Lock()
			c.serving = false
			if c.dropped || c.stuck() {
				break
			}
		}
		r.replies[r.next] = c.server.perform(c, r.commands[r.next])
		r.next++
		switch {
		case c.dropped:
			return
		case r.next < len(r.commands):
			if c.greeted { // nobody cares about a greeting
				if gap := draw(c.client.link.Gap); gap > 0 {
					r.arrives = time.Now().Add(gap)
				}
			}
		case r.next == r.arrive:
			c.sever(errCut, true)
			return
		default:
			c.in = c.in[1:]
			c.answer(r)
		}
	}
	c.await()
}

// await sets a timer for the next request that has not arrived, if nothing else goes on with it.
func (c *conn) await() {
	if len(c.in) == 0 {
		if c.gone && !c.dropped {
			c.server.drop(c) // it was cut, and all of it has arrived
		}
		return
	}
	if c.dropped || c.stuck() || c.serving {
		return
	}
	wait := max(1, time.Until(c.in[0].arrives)) // never a timer that is due: see DESIGN.md
	if c.inTimer == nil {
		c.inTimer = time.AfterFunc(wait, func() {
			c.server.mu.Lock()
			defer c.server.unlock()
			c.serve(0)
		})
	} else {
		c.inTimer.Reset(wait)
	}
}

// answer sends the replies to a request back.
func (c *conn) answer(r *request) {
	if lose := c.client.lose; lose != nil && c.greeted && !c.gone && lose(r.commands, r.replies) {
		c.client.lose = nil
		c.sever(errCut, true)
		return
	}
	c.push(delivery{request: r})
}

// push sends something back, behind everything that was sent before.
func (c *conn) push(d delivery) {
	if c.gone {
		return
	}
	d.at = time.Now().Add(draw(c.client.link.Reply))
	if n := len(c.out); n > 0 && d.at.Before(c.out[n-1].at) {
		d.at = c.out[n-1].at
	}
	c.out = append(c.out, d)
	c.server.ready = append(c.server.ready, c)
}

// deliver gives the client what has arrived. Called without mu.
func (c *conn) deliver() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.delivering {
		return
	}
	c.delivering = true
	for len(c.out) > 0 && !c.gone && c.client.held&Replies == 0 {
		d := c.out[0]
		if wait := time.Until(d.at); wait > 0 {
			if c.outTimer == nil {
				c.outTimer = time.AfterFunc(wait, c.deliver)
			} else {
				c.outTimer.Reset(wait)
			}
			break
		}
		c.out = c.out[1:]
		switch {
		case d.end != nil:
			c.sever(d.end, true)
		case d.request != nil:
			c.finish(d.request, nil)
			c.notice(d.request.replies)
		case d.emptied:
			c.empty(time.Now())
		default:
			hear := c.client.hear
			s.mu.Unlock()
			hear(c.Server(), d.message)
			s.mu.Lock()
		}
	}
	c.delivering = false
}

// empty notes that the server lost its data, at that time or before.
func (c *conn) empty(at time.Time) {
	c.emptied = true
	if known := c.known.Load(); known != nil {
		c.known.Store(known.Emptied(at))
	}
}

// finish wakes the caller of a request.
func (c *conn) finish(r *request, err error) {
	if i := slices.Index(c.unanswered, r); i >= 0 {
		c.unanswered = slices.Delete(c.unanswered, i, i+1)
	}
	r.err = err
	close(r.done)
}

// notice gives the connection up when a reply says that the server has become a replica.
func (c *conn) notice(replies []protocol.Reply) {
	for _, reply := range replies {
		if reply.Kind == protocol.Failure &&
			protocol.IsServerError(protocol.ServerFailure("", reply.Str, false), "READONLY") {
			c.sever(protocol.ServerError(reply.Str), true)
			return
		}
	}
}

// sever ends the connection for the client, at once, and drops what has not arrived if lost is set.
// Called with mu held.
func (c *conn) sever(err error, lost bool) {
	if lost && !c.dropped {
		c.dropped = true
		c.in = nil
		c.server.drop(c)
	}
	if c.gone {
		return
	}
	c.gone, c.err = true, err
	c.out, c.channels = nil, nil
	close(c.dead)
	c.client.lost(c)
	for _, r := range slices.Clone(c.unanswered) {
		c.finish(r, &driver.Error{Node: c.server.name, Maybe: true, Err: err})
	}
	c.await()
}

// end is the server's end of the connection: what it has sent arrives first. Called with mu held.
func (c *conn) end(err error) {
	if !c.dropped {
		c.dropped = true
		c.in, c.channels = nil, nil
		c.push(delivery{end: err})
	}
}

// drop makes the server forget a connection.
func (s *Server) drop(c *conn) {
	s.conns = slices.DeleteFunc(slices.Clone(s.conns), func(other *conn) bool { return other == c })
}

// watch sets a timer that gives the connection up if it owes an answer for too long. What was sent
// may still arrive.
func (c *conn) watch() {
	if c.watching || len(c.unanswered) == 0 || c.gone {
		return
	}
	c.watching = true
	time.AfterFunc(time.Until(c.unanswered[0].sent.Add(silence)), func() {
		c.server.mu.Lock()
		defer c.server.unlock()
		c.watching = false
		if len(c.unanswered) > 0 && !time.Now().Before(c.unanswered[0].sent.Add(silence)) {
			c.sever(errSilence, false)
		}
		c.watch()
	})
}
