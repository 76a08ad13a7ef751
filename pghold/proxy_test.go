package pghold_test

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// proxy stands between a client and the server, and can spoil what passes.
type proxy struct {
	listener net.Listener
	target   string // the server's socket

	mu      sync.Mutex
	changed *sync.Cond
	links   map[*link]bool
	frozen  bool
	cut     bool // the next answer ends its connection instead of being passed on
	closed  bool
	kept    int // pieces of requests that are kept back
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	stranded       bool // what the client has said is kept back
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, links: make(map[*link]bool)}
	p.changed = sync.NewCond(&p.mu)
	go p.serve()
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed, p.frozen = true, false
		p.changed.Broadcast()
		p.mu.Unlock()
		l.Close()
		p.breakAll()
	})
	return p
}

func (p *proxy) url() string {
	return "postgres://holdfast@" + p.listener.Addr().String() +
		"/postgres?sslmode=disable&application_name=proxied"
}

// noneProxied waits until the server has no session left that came through a proxy. Such a session
// may still execute what it was asked, although its client is gone.
func noneProxied(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	testserver.Eventually(t, "sessions of earlier clients have ended", func() error {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity "+
			"WHERE application_name = 'proxied'").Scan(&n)
		return errors.Join(err, testserver.Not(n == 0, "there are %d", n))
	})
}

// freeze keeps back what both sides say. thaw passes it on.
func (p *proxy) freeze() (thaw func()) {
	p.set(func() { p.frozen = true })
	return func() { p.set(func() { p.frozen = false }) }
}

// cutReply loses the next answer over a connection that is set up.
func (p *proxy) cutReply() { p.set(func() { p.cut = true }) }

func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// breakAll closes all connections.
func (p *proxy) breakAll() {
	p.set(func() {
		for l := range p.links {
			l.client.Close()
			l.server.Close()
		}
	})
}

// strand keeps back what clients send over the connections that there are now. cut waits until
// something is kept back, and closes these connections for the clients. deliver still passes on to
// the server what was kept back.
func (p *proxy) strand() (cut, deliver func()) {
	var links []*link
	p.set(func() {
		for l := range p.links {
			l.stranded = true
			links = append(links, l)
		}
	})
	return func() {
			p.mu.Lock()
			for p.kept == 0 {
				p.changed.Wait()
			}
			p.mu.Unlock()
			for _, l := range links {
				l.client.Close()
			}
		}, func() {
			p.set(func() {
				for _, l := range links {
					l.stranded = false
				}
			})
		}
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.link(client)
	}
}

func (p *proxy) link(client net.Conn) {
	l := &link{client: client}
	if !p.pass(l) {
		client.Close()
		return
	}
	var err error
	if l.server, err = net.Dial("unix", p.target); err != nil {
		client.Close()
		return
	}
	p.set(func() { p.links[l] = true })
	go func() {
		defer l.server.Close()
		p.copy(l.server, client, func([]byte) bool { return p.pass(l) })
	}()
	ready := false
	p.copy(client, l.server, func(b []byte) bool {
		if !p.pass(nil) {
			return false
		}
		if !ready { // it is greeted until the server says that it is ready, which comes last
			ready = bytes.HasSuffix(b, []byte("Z\x00\x00\x00\x05I"))
			return true
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		// That a statement is prepared is not yet the answer to a call.
		cut := p.cut && bytes.Contains(b, []byte("2\x00\x00\x00\x04"))
		if cut {
			p.cut = false
			l.server.Close()
		}
		return !cut
	})
	client.Close()
	p.set(func() { delete(p.links, l) })
}

// pass waits while the proxy is frozen, or the link is stranded. It returns false if that is over
// for good.
func (p *proxy) pass(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil && l.stranded {
		p.kept++
		p.changed.Broadcast()
	}
	for (p.frozen || l != nil && l.stranded) && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}

func (p *proxy) copy(to, from net.Conn, may func([]byte) bool) {
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if !may(b[:n]) {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
