package pghold

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// links are the network connections of a pool. Closing them ends requests that wait for a server
// that does not answer. pgx itself would wait for 15 seconds until the request is cancelled.
type links struct {
	dial pgconn.DialFunc

	mu     sync.Mutex
	closed bool
	open   map[*link]struct{}
}

type link struct {
	net.Conn
	of *links
}

// connect is a dial function.
func (l *links) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &link{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return nil, errClosed
	}
	if l.open == nil {
		l.open = make(map[*link]struct{})
	}
	l.open[c] = struct{}{}
	return c, nil
}

// Close closes the connection.
func (c *link) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		c.Conn.Close()
	}
}
