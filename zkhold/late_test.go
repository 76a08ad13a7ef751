//go:build unix

package zkhold_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/zkhold"
)

// keeper is a dialer. It keeps back the next transaction, as a network may, and breaks the
// connection for the client alone.
type keeper struct {
	armed atomic.Bool
	kept  chan func() // sends the transaction, and waits until the server has closed the connection
}

func (k *keeper) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &keptConn{Conn: conn, keeper: k}, nil
}

type keptConn struct {
	net.Conn
	keeper *keeper

	mu     sync.Mutex
	broken bool
}

func (c *keptConn) Write(frame []byte) (int, error) {
	if !interests(frame) || !c.keeper.armed.Swap(false) {
		return c.Conn.Write(frame)
	}
	kept := append([]byte(nil), frame...)
	c.mu.Lock()
	c.broken = true
	c.Conn.SetDeadline(time.Unix(1, 0))
	c.mu.Unlock()
	c.keeper.kept <- func() {
		c.Conn.SetDeadline(time.Now().Add(testserver.Patience))
		c.Conn.Write(kept)
		io.Copy(io.Discard, c.Conn)
		c.Conn.Close()
	}
	return len(frame), nil
}

func (c *keptConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.broken {
			return n, io.EOF
		}
	}
	return n, err
}

// unlessBroken is for what the client does to the connection, which is not its own any more.
func (c *keptConn) unlessBroken(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return nil
	}
	return do()
}

func (c *keptConn) SetDeadline(at time.Time) error {
	return c.unlessBroken(func() error { return c.Conn.SetDeadline(at) })
}

func (c *keptConn) SetReadDeadline(at time.Time) error {
	return c.unlessBroken(func() error { return c.Conn.SetReadDeadline(at) })
}

func (c *keptConn) SetWriteDeadline(at time.Time) error {
	return c.unlessBroken(func() error { return c.Conn.SetWriteDeadline(at) })
}

func (c *keptConn) Close() error { return c.unlessBroken(c.Conn.Close) }

// A waiter over several nodes gives back what it may have got on a node, and asks again under the
// same owner value. That is served, whatever request of the claim may still arrive, and a release
// that arrives then takes nothing away.
func TestAskedAgainAfterItsEnd(t *testing.T) {
	for name, what := range map[string]struct {
		acquires bool // it is the acquisition that is late, and not the release
		shared   bool
		again    driver.State
	}{
		"acquires":            {true, false, driver.Held},
		"shares":              {true, true, driver.Held},
		"queues":              {true, false, driver.Busy},
		"releases":            {false, false, driver.Held},
		"releases, shared":    {false, true, driver.Held},
		"releases, and waits": {false, false, driver.Busy},
	} {
		t.Run(name, func(t *testing.T) {
			url := newURL(t)
			k := &keeper{kept: make(chan func(), 1)}
			b, other := open(t, url, zkhold.WithDialer(k.dial)), open(t, url)
			holder, late := claim("k"), queued("k")
			late.Shared = what.shared
			if what.again == driver.Busy {
				acquire(t, other, holder, driver.Held)
			}
			if !what.acquires {
				acquire(t, b, late, what.again)
			}
			call := b.Release
			if what.acquires {
				call = b.Acquire
			}
			ctx, cancel := patience(t)
			defer cancel()
			k.armed.Store(true)
			if _, err := call(ctx, late); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("a call without an answer: %v; want ErrUnknown", err)
			}
			if what.acquires {
				release(t, b, late, driver.Lost)
			}
			again := acquire(t, b, late, what.again)
			(<-k.kept)()
			release(t, b, late, what.again)
			if what.again == driver.Busy {
				release(t, other, holder, driver.Held)
			}
			if next := acquire(t, other, claim("k"), driver.Held); next.Token <= again.Token {
				t.Errorf("token %d follows %d", next.Token, again.Token)
			}
		})
	}
}
