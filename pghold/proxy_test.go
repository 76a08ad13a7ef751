package pghold_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and the server, and can spoil what passes.
type proxy struct {
	listener net.Listener
	target   string // the server's socket

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]bool
	frozen  bool
	cut     bool // the next answer ends its connection instead of being passed on
	closed  bool
	made    int
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: make(map[net.Conn]bool)}
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
	return "postgres://holdfast@" + p.listener.Addr().String() + "/postgres?sslmode=disable"
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
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
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
	if !p.pass(nil) {
		client.Close()
		return
	}
	server, err := net.Dial("unix", p.target)
	if err != nil {
		client.Close()
		return
	}
	p.set(func() { p.conns[client], p.conns[server] = true, true; p.made++ })
	go p.copy(server, client, func([]byte) bool { return true })
	ready := false
	p.copy(client, server, func(b []byte) bool {
		if !ready { // it is greeted until the server says that it is ready, which comes last
			ready = bytes.HasSuffix(b, []byte("Z\x00\x00\x00\x05I"))
			return true
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		cut := p.cut
		p.cut = false
		return !cut
	})
	p.set(func() { delete(p.conns, client); delete(p.conns, server) })
}

// pass waits while the proxy is frozen. It returns false if that is over for good.
func (p *proxy) pass(may func() bool) bool {
	p.mu.Lock()
	for p.frozen && !p.closed {
		p.changed.Wait()
	}
	closed := p.closed
	p.mu.Unlock()
	return !closed && (may == nil || may())
}

func (p *proxy) copy(to, from net.Conn, may func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if !p.pass(func() bool { return may(b[:n]) }) {
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
