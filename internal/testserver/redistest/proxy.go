//go:build unix

package redistest

import (
	"net"
	"slices"
	"strings"
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
	made    int
	kept    int // requests that are stranded
	replies Replies
	spare   []string
	refuse  bool
	closed  bool
}

// pong is the reply to a PING, which libraries send by themselves over idle connections. It is
// never cut, because it is not what a test is about.
const pong = "+PONG\r\n"

// Replies says what becomes of what the server sends.
type Replies int

const (
	Pass    Replies = iota // they are passed on
	Hold                   // they are kept back until the next SetReplies
	Cut                    // instead of being passed on they close the connection, on both sides
	CutOnce                // as Cut, for the next one only
)

type link struct {
	client, server net.Conn
	stranded       chan struct{} // requests wait for it to be closed; nil for none
	done           chan struct{} // closed when no more requests are passed on
}

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

// Dial connects to the server through the proxy.
func (p *Proxy) Dial() (*Client, error) { return (&Server{Addr: p.Addr}).Dial() }

// URL returns redis:// for the proxy.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// SetReplies says what becomes of replies from now on.
func (p *Proxy) SetReplies(r Replies) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = r
	p.changed.Broadcast()
}

// Spare lets replies pass that begin with one of these, whatever SetReplies says.
func (p *Proxy) Spare(prefixes ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = prefixes
}

// Refuse sets whether new connections are closed as soon as they are made.
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

// Conns returns how many connections there are.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Made returns how many connections there have been.
func (p *Proxy) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Kept returns how many requests Strand has ever kept back.
func (p *Proxy) Kept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
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
		l := &link{client: client, server: server, done: make(chan struct{})}
		if !p.add(l) {
			l.close()
			continue
		}
		go p.passRequests(l)
		go func() {
			p.passReplies(l)
			l.close()
			p.mu.Lock()
			delete(p.conns, l)
			p.mu.Unlock()
		}()
	}
}

// add adds the link to those that Break closes. It refuses a link that was made while Refuse was
// called or the test ended. Break may be over then, and the link would pass on what must not arrive
// any more.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.conns[l] = true
	p.made++
	return true
}

// passRequests passes on what the client sends. When the client is gone, it leaves the server after
// everything was sent.
func (p *Proxy) passRequests(l *link) {
	defer close(l.done)
	defer l.close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		stranded := l.stranded
		if stranded != nil {
			p.kept++
		}
		p.mu.Unlock()
		if stranded != nil {
			<-stranded
		}
		if _, err := l.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Strand keeps back what clients send over the connections that there are now. deliver passes it
// on, and returns when their clients are gone.
func (p *Proxy) Strand() (deliver func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stranded := make(chan struct{})
	var links []*link
	for l := range p.conns {
		l.stranded = stranded
		links = append(links, l)
	}
	return func() {
		close(stranded)
		for _, l := range links {
			<-l.done
		}
	}
}

// BreakClients closes all connections on the clients' side. The server's side stays open for what
// was sent.
func (p *Proxy) BreakClients() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.client.Close()
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
		spared := string(buffer[:n]) == pong ||
			slices.ContainsFunc(p.spare, func(prefix string) bool {
				return strings.HasPrefix(string(buffer[:n]), prefix)
			})
		cut := !spared && (p.replies == Cut || p.replies == CutOnce)
		if cut && p.replies == CutOnce {
			p.replies = Pass
		}
		p.mu.Unlock()
		if cut {
			return
		}
		// If the client is gone, passRequests closes the link, when what was sent has arrived. A
		// reply or a notice must not do that before.
		_, _ = l.client.Write(buffer[:n])
	}
}
