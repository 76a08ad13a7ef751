//go:build unix

package lab

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// target is a server that a link leads to.
type target interface {
	label() string // n1 and so on
	entry() string // host:port
	// requests returns a reader of what a client sends, in parts that may be split from each other
	requests(from io.Reader) func(single func() bool) ([]byte, error)
}

// link is the network between one client and one server: a proxy that can spoil each direction by
// itself. A fault concerns the present connections, and those that are made while it lasts.
type link struct {
	client   string
	node     target
	latency  time.Duration // each way, also without any fault
	listener net.Listener

	mu     sync.Mutex
	addr   string // address of the node, as its client knows it
	faulty *sync.Cond
	up     way // from client to node
	down   way
	refuse bool // new connections
	conns  map[*pipe]bool
	closed bool
	sender func(head []byte) string // who sends what begins with head; nil if it does not matter
}

// way says what happens to what travels in one direction.
type way struct {
	hold  bool          // all waits until the fault is over, as in a partition that TCP survives
	lose  bool          // everything is lost, and so is the connection when the fault is over
	delay time.Duration // everything is late by this
	// requests of one pipeline do not arrive together: each takes up to this much longer
	split time.Duration
	only  string // the only sender that this concerns, both ways; empty: all
}

// hits reports whether the fault concerns the connection.
func (w *way) hits(p *pipe) bool { return w.only == "" || w.only == p.sender }

// stops reports whether nothing gets through on the connection.
func (w *way) stops(p *pipe) bool { return (w.hold || w.lose) && w.hits(p) }

// lateness draws how late the next part on the connection is.
func (w *way) lateness(p *pipe) (by time.Duration) {
	if !w.hits(p) {
		return 0
	}
	if w.split > 0 {
		by = rand.N(w.split)
	}
	return w.delay + by
}

// pipe is a connection through the link.
type pipe struct {
	client, node *net.TCPConn
	spoiled      bool // something was lost, so it cannot go on
	sender       string
}

func (p *pipe) close() {
	p.client.Close()
	p.node.Close()
}

func newLink(client string, node target, latency time.Duration) (*link, error) {
	host, _, _ := net.SplitHostPort(node.entry())
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	l := &link{client: client, node: node, addr: node.entry(), latency: latency, listener: listener,
		conns: make(map[*pipe]bool)}
	l.faulty = sync.NewCond(&l.mu)
	go l.serve()
	return l, nil
}

func (l *link) url() string {
	if n, ok := l.node.(*Node); ok && n.secure != nil {
		return n.secure.url(l.address())
	}
	return "redis://" + l.address()
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) serve() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(conn.(*net.TCPConn))
	}
}

func (l *link) carry(client *net.TCPConn) {
	l.mu.Lock()
	// A packet that asks for a connection is lost with the rest, and TCP sends it again.
	for (l.up.hold || l.up.lose || l.down.hold || l.down.lose) && l.up.only == "" && !l.closed {
		l.faulty.Wait()
	}
	refuse, addr, identify := l.refuse || l.closed, l.addr, l.sender != nil
	l.mu.Unlock()
	if refuse {
		client.Close()
		return
	}
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		client.Close()
		return
	}
	p := &pipe{client: client, node: conn.(*net.TCPConn)}
	l.mu.Lock()
	if l.closed {
		p.close()
	}
	l.conns[p] = true
	l.mu.Unlock()
	var both sync.WaitGroup
	up := l.node.requests(p.client)
	if identify {
		up = l.identified(p, up)
	}
	both.Go(func() { l.pass(p, p.client, p.node, up, &l.up) })
	both.Go(func() { l.pass(p, p.node, p.client, whatever(p.node), &l.down) })
	both.Wait()
	p.close()
	l.mu.Lock()
	delete(l.conns, p)
	l.mu.Unlock()
}

// pass carries one direction, in the parts that next reads. Like everything else, it does not pass
// on the end of the stream during a fault.
func (l *link) pass(p *pipe, from, to *net.TCPConn, next func(single func() bool) ([]byte, error),
	w *way) {
	split := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return w.split > 0
	}
	for {
		part, err := next(split)
		l.mu.Lock()
		delay := l.latency + w.lateness(p)
		l.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		l.mu.Lock()
		if w.lose && w.hits(p) {
			p.spoiled = true
		}
		for w.stops(p) && !l.closed {
			l.faulty.Wait()
		}
		gone := p.spoiled
		l.mu.Unlock()
		if !gone && err != nil {
			to.Write(part) // what was left of a request
		}
		if gone || err != nil {
			to.CloseWrite()
			if gone {
				p.close()
			}
			return
		}
		if _, err := to.Write(part); err != nil {
			// The other direction ends by itself: what is on its way there still arrives.
			from.CloseRead()
			return
		}
	}
}

// identify makes the link tell senders apart, by how what they send begins.
func (l *link) identify(sender func(head []byte) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sender = sender
}

// identified notes who sends on a connection, from the first bytes.
func (l *link) identified(p *pipe,
	next func(func() bool) ([]byte, error)) func(func() bool) ([]byte, error) {
	known := false
	return func(single func() bool) ([]byte, error) {
		part, err := next(single)
		if !known {
			known = true
			l.mu.Lock()
			p.sender = l.sender(part)
			l.mu.Unlock()
		}
		return part, err
	}
}

// open returns how many connections there are.
func (l *link) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// set puts a fault on each direction; the zero way ends it.
func (l *link) set(up, down way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = up, down
	if !up.lose && !down.lose {
		for p := range l.conns {
			if p.spoiled {
				p.close()
			}
		}
	}
	l.faulty.Broadcast()
}

// cut closes all connections, and refuses new ones if refuse is set.
func (l *link) cut(refuse bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
	for p := range l.conns {
		p.client.SetLinger(0) // a reset, not an orderly end
		p.close()
	}
}

// lead makes the link lead to where the node is now, and ends its connections.
func (l *link) lead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = l.node.entry()
	for p := range l.conns {
		p.close()
	}
}

// halfClose ends the connections on the node's side only. With a fault on the way back the client's
// side stays open, and nothing comes from it any more.
func (l *link) halfClose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.conns {
		p.node.CloseWrite()
	}
}

func (l *link) close() {
	l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for p := range l.conns {
		p.close()
	}
	l.faulty.Broadcast()
}
