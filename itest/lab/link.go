//go:build unix

package lab

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// link is the network between one client and one node: a proxy that can spoil each direction by
// itself. A fault is on for connections that are there and for those that are made while it is.
type link struct {
	client   string
	node     *Node
	latency  time.Duration // each way, also without any fault
	listener net.Listener

	mu     sync.Mutex
	addr   string // of the node, as its client knows it
	faulty *sync.Cond
	up     way // from client to node
	down   way
	refuse bool // new connections
	conns  map[*pipe]bool
	closed bool
}

// way is what happens to what travels in one direction.
type way struct {
	hold  bool          // it waits until the fault is over, as in a partition that TCP survives
	lose  bool          // it vanishes, and the connection with it when the fault is over
	delay time.Duration // it is late
	// requests of one pipeline do not arrive together: each takes up to so long more
	split time.Duration
}

// pipe is a connection through the link.
type pipe struct {
	client, node *net.TCPConn
	spoiled      bool // something was lost: it can not go on
}

func (p *pipe) close() {
	p.client.Close()
	p.node.Close()
}

func newLink(client string, node *Node, latency time.Duration) (*link, error) {
	host, _, _ := net.SplitHostPort(node.Addr)
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
	if l.node.secure != nil {
		return l.node.secure.url(l.address())
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
	// A packet that asks for a connection is lost with the rest, and sent again by TCP.
	for (l.up.hold || l.up.lose || l.down.hold || l.down.lose) && !l.closed {
		l.faulty.Wait()
	}
	refuse, addr := l.refuse || l.closed, l.addr
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
	up := requests
	if l.node.secure != nil {
		up = whatever // what a request is can not be seen
	}
	both.Go(func() { l.pass(p, p.client, p.node, up(p.client), &l.up) })
	both.Go(func() { l.pass(p, p.node, p.client, whatever(p.node), &l.down) })
	both.Wait()
	p.close()
	l.mu.Lock()
	delete(l.conns, p)
	l.mu.Unlock()
}

// pass carries one direction, in the parts that next reads. The end of it is passed on as
// everything else is: not through a fault.
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
		delay := l.latency + w.delay
		if w.split > 0 {
			delay += rand.N(w.split)
		}
		l.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		l.mu.Lock()
		if w.lose {
			p.spoiled = true
		}
		for (w.hold || w.lose) && !l.closed {
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

// lead has the link lead to where the node is now, and ends the connections that there are.
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
