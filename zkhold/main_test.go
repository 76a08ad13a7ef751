//go:build unix

package zkhold_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
	"github.com/holdfast-go/holdfast/zkhold"
)

// server is shared by most tests. They run one after the other, each below a root of its own.
var server struct {
	once sync.Once
	zookeepertest.Server
	err error
}

// long is for sessions that no pause of the machine may end, and short for those whose end a test
// waits for.
const (
	long  = 2 * time.Hour
	short = 2 * time.Second
)

func TestMain(m *testing.M) {
	testserver.PlayHolder(func(ctx context.Context, address string) (driver.Backend, error) {
		return zkhold.Open(ctx, address, zkhold.WithTimeout(testserver.Patience),
			zkhold.WithSession(short), zkhold.FewerSlots())
	})
	code := m.Run()
	if server.Process != nil {
		if err := server.Remove(); code != 0 || err != nil {
			code = 1
			fmt.Fprintf(os.Stderr, "%v; log of the server:\n%s", err, server.Log())
		}
	}
	os.Exit(code)
}

// start starts the server unless it runs.
func start(t testing.TB) {
	t.Helper()
	server.once.Do(func() { server.Server, server.err = zookeepertest.Start(t) })
	if server.err != nil {
		t.Fatal(server.err)
	}
}

var roots atomic.Int64

// newURL returns the URL of an empty root.
func newURL(t testing.TB) string {
	t.Helper()
	start(t)
	return fmt.Sprintf("zookeeper://%s/test-%d/locks", server.Address, roots.Add(1))
}

// patient is for tests in which a pause of the machine must end nothing.
var patient = []zkhold.Option{zkhold.WithTimeout(testserver.Patience), zkhold.WithSession(long),
	zkhold.WithPresence(testserver.Patience), zkhold.FewerSlots()}

// open returns a Backend, which is patient unless the options say otherwise.
func open(t testing.TB, url string, options ...zkhold.Option) *zkhold.Backend {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	b, err := zkhold.Open(ctx, url, slices.Concat(patient, options)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// patience is a context for what must happen.
func patience(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), testserver.Patience)
}

// The operations that tests look for.
const (
	opExists = 3
	opGet    = 4
	opSet    = 5
	opSync   = 9
	opMulti  = 14
)

// cutter is a dialer that loses the answer to the next request that has changed or renewed claims,
// and the connection with it.
type cutter struct {
	armed atomic.Bool
	lost  atomic.Int64 // answers
	dials atomic.Int64
}

func (c *cutter) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c.dials.Add(1)
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c, asked: make(map[uint32]bool)}, nil
}

// cutConn reads the frames that pass.
type cutConn struct {
	net.Conn
	cutter *cutter

	mu    sync.Mutex
	asked map[uint32]bool // requests whose answers are to be lost

	pending []byte // of an answer that was read and not yet passed on
	greeted bool
	command bool // it has no frames
}

// interests reports whether the request is one whose answer may be lost: a transaction, which
// changes or renews claims. A frame has a length, a number, and the operation.
func interests(frame []byte) bool {
	return len(frame) >= 12 && binary.BigEndian.Uint32(frame[8:]) == opMulti
}

// Write passes a request on. The client writes each in one piece.
func (c *cutConn) Write(frame []byte) (int, error) {
	if len(frame) == 4 { // such as srvr, which is sent before anything is read
		c.command = true
	}
	if c.cutter.armed.Load() && interests(frame) {
		c.mu.Lock()
		c.asked[binary.BigEndian.Uint32(frame[4:])] = true
		c.mu.Unlock()
	}
	return c.Conn.Write(frame)
}

func (c *cutConn) Read(p []byte) (int, error) {
	if c.command {
		return c.Conn.Read(p)
	}
	if len(c.pending) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

// next reads an answer: a length, and, unless it is the first of all, a number, the last change,
// and an error.
func (c *cutConn) next() error {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head))
	copy(frame, head)
	if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
		return err
	}
	if c.greeted && c.loses(frame) {
		c.Conn.Close()
		return io.EOF
	}
	c.greeted, c.pending = true, frame
	return nil
}

func (c *cutConn) loses(frame []byte) bool {
	number := binary.BigEndian.Uint32(frame[4:])
	c.mu.Lock()
	asked := c.asked[number]
	delete(c.asked, number)
	c.mu.Unlock()
	// If many operations were refused, the first answer is an error, of type -1.
	refused := binary.BigEndian.Uint32(frame[16:]) != 0 ||
		len(frame) >= 24 && int32(binary.BigEndian.Uint32(frame[20:])) == -1
	if !asked || refused || !c.cutter.armed.Swap(false) {
		return false
	}
	c.cutter.lost.Add(1)
	return true
}
