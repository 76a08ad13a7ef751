package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy stands between a client and a server and can spoil what passes.
type Proxy struct {
	Addr     string // host:port that it listens on
	target   string
	listener net.Listener

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[*link]bool
	replies Replies
	spare   []byte
	refuse  bool
	closed  bool
}

// Replies says what becomes of what the server sends.
type Replies int

const (
	Pass    Replies = iota // they are passed on
	Hold                   // they are kept back until something else is said
	Cut                    // instead of being passed on they close the connection, on both sides
	CutOnce                // as Cut, for the next one only
)

type link struct{ client, server net.Conn }

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// NewProxy starts a proxy in front of the server.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: s.Addr, listener: l, conns: make(map[*link]bool)}
	p.changed = sync.NewCond(&p.mu)
	go p.serve()
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.changed.Broadcast()
		p.mu.Unlock()
		l.Close()
		p.Break()
	})
	return p
}

// URL returns redis:// for the proxy.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// SetReplies says what becomes of replies from now on.
func (p *Proxy) SetReplies(r Replies) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = r
	p.changed.Broadcast()
}

// Spare has replies that begin so passed on, whatever is said about replies.
func (p *Proxy) Spare(prefix string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = []byte(prefix)
}

// Refuse has new connections closed as soon as they are made, or not.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Break closes all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.close()
	}
}

// Conns is how many connections there are.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		if refuse {
			client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client, server}
		p.mu.Lock()
		p.conns[l] = true
		p.mu.Unlock()
		go func() {
			io.Copy(server, client)
			l.close()
		}()
		go func() {
			p.passReplies(l)
			l.close()
			p.mu.Lock()
			delete(p.conns, l)
			p.mu.Unlock()
		}()
	}
}

func (p *Proxy) passReplies(l *link) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		for p.replies == Hold && !p.closed {
			p.changed.Wait()
		}
		spared := p.spare != nil && bytes.HasPrefix(buffer[:n], p.spare)
		cut := !spared && (p.replies == Cut || p.replies == CutOnce)
		if cut && p.replies == CutOnce {
			p.replies = Pass
		}
		p.mu.Unlock()
		if cut {
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
