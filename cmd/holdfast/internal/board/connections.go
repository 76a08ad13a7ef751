package board

import (
	"io"
	"log"
	"net"
	"sync"
)

// mostConnections is how many connections there are at a time. Further ones wait for their turn.
const mostConnections = 128

// limited is a listener with a bounded number of connections.
type limited struct {
	net.Listener
	slots chan struct{}
	close func() error
	done  chan struct{}
}

func bounded(l net.Listener) net.Listener {
	done := make(chan struct{})
	return &limited{Listener: l, slots: make(chan struct{}, mostConnections), done: done,
		close: sync.OnceValue(func() error {
			close(done)
			return l.Close()
		})}
}

// Accept waits until there is room for one more.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &connection{Conn: conn, leave: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends Accept. It may be called twice.
func (l *limited) Close() error { return l.close() }

// connection makes room when it is closed.
type connection struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// silence is where the server writes what others have done wrong, such as a bad request.
func silence() *log.Logger { return log.New(io.Discard, "", 0) }
