package redishold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// oldest is the oldest version of Redis that has all the commands the scripts use.
const (
	oldest      = "6.2"
	oldestMajor = 6
	oldestMinor = 2
)

// node is one server, or the primary that Sentinels name, whichever server that is. It has one
// connection at a time.
type node struct {
	config *config
	name   string
	find   func(ctx context.Context) (address string, err error)

	// check returns an error if the server is not of the right kind. served says that one of that
	// kind was there before.
	check func(s *protocol.Server, served bool) error

	// trouble is called when a request was not answered in time or a connection has broken: another
	// server may have taken over. It does not block.
	trouble func()

	live    atomic.Pointer[conn] // nil if there is none
	reached atomic.Bool          // the server has accepted the last connection

	mu      sync.Mutex
	closed  bool
	attempt *attempt  // to connect, under way
	former  *conn     // the last one
	gone    time.Time // when the server was last seen not to be there
}

// attempt is an attempt to connect, which all who need it share.
type attempt struct {
	done   chan struct{}
	cancel context.CancelFunc
	conn   *conn
	err    error
}

var errClosed = errors.New("backend closed")

// connect returns the live connection, or waits for one. It fails at once if the server refuses.
func (n *node) connect(ctx context.Context) (*conn, error) {
	if c := n.live.Load(); c != nil {
		return c, nil
	}
	a, err := n.begin()
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		if n.reached.Load() {
			return nil, n.silent("has accepted the connection and not answered yet", ctx.Err())
		}
		return nil, &driver.Error{Node: n.name, Err: ctx.Err()}
	}
}

// begin returns the attempt to connect that is under way, or starts one. The attempt goes on when
// nobody waits for it any more, because the next call needs the connection too.
func (n *node) begin() (*attempt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, &driver.Error{Permanent: true, Err: errClosed}
	}
	if n.attempt != nil {
		return n.attempt, nil
	}
	if c := n.live.Load(); c != nil {
		a := &attempt{done: make(chan struct{}), conn: c}
		close(a.done)
		return a, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &attempt{done: make(chan struct{}), cancel: cancel}
	n.attempt = a
	n.reached.Store(false)
	go n.run(ctx, a, n.former)
	return a, nil
}

func (n *node) run(ctx context.Context, a *attempt, former *conn) {
	defer a.cancel()
	address, err := n.find(ctx)
	var c *conn
	if err == nil {
		c, err = n.dial(ctx, address, former)
	}
	n.mu.Lock()
	n.attempt = nil
	switch {
	case err != nil:
		n.gone = time.Now()
		n.trouble()
	case n.closed:
		err = &driver.Error{Permanent: true, Err: errClosed}
	default:
		a.conn = c
		n.former = c
		n.live.Store(c)
		select {
		case <-c.dead:
			// It broke before forget could find it.
			n.live.Store(nil)
		default:
		}
	}
	a.err = err
	n.mu.Unlock()
	close(a.done)
	if err != nil && c != nil {
		c.close(errClosed)
	}
}

// forget removes a connection that has broken.
func (n *node) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = time.Now()
	if n.live.CompareAndSwap(c, nil) && !n.closed {
		n.trouble()
	}
}

// absent returns when the server was last seen not to be there.
func (n *node) absent() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone
}

// suits returns an error if the server cannot be used.
func (n *node) suits(s *protocol.Server, served bool) error {
	if !s.AtLeast(oldestMajor, oldestMinor) {
		return &driver.Error{Node: s.Name, Permanent: true,
			Err: fmt.Errorf("version %s is too old: Redis %s or later is needed", s.Version,
				oldest)}
	}
	return n.check(s, served)
}

// drop gives up the connection. The next call makes a new one.
func (n *node) drop(err error) {
	if c := n.live.Load(); c != nil {
		c.close(err)
	}
}

// close gives up the connection for good.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	if n.attempt != nil {
		n.attempt.cancel()
	}
	n.mu.Unlock()
	n.drop(errClosed)
}
