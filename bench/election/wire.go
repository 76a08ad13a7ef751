//go:build linux

package main

import (
	"net"
	"sync"
)

// wire is the way of one candidate to the server. It can be cut: then nothing passes, and nobody is
// told.
type wire struct {
	listener net.Listener
	network  string
	target   string

	mu    sync.Mutex
	whole sync.Cond
	cut   bool
	conns []net.Conn
}

func newWire(network, target string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, network: network, target: target}
	w.whole.L = &w.mu
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(client)
		}
	}()
	return w, nil
}

func (w *wire) address() string { return w.listener.Addr().String() }

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.whole.Broadcast()
}

// pass waits until the wire is not cut.
func (w *wire) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut {
		w.whole.Wait()
	}
}

func (w *wire) keep(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
}

func (w *wire) serve(client net.Conn) {
	w.keep(client)
	w.pass()
	server, err := net.Dial(w.network, w.target)
	if err != nil {
		client.Close()
		return
	}
	w.keep(server)
	go w.copy(server, client)
	w.copy(client, server)
}

func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		w.pass()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// close closes the wire and all its connections.
func (w *wire) close() {
	w.listener.Close()
	w.setCut(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
}
