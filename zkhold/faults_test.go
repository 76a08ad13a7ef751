//go:build unix

package zkhold_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/zkhold"
)

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")),
		TTL: 10 * time.Minute, Token: driver.Token(time.Now().UnixMicro())}
}

func queued(key string) driver.Claim {
	c := claim(key)
	c.Queue = true
	return c
}

// acquire asks for the claim, with that outcome.
func acquire(t testing.TB, b driver.Backend, c driver.Claim, want driver.State) driver.Result {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	r, err := b.Acquire(ctx, c)
	if err != nil || r.State != want {
		t.Fatalf("Acquire(%q) = %v, %v; want %v", c.Key, r.State, err, want)
	}
	return r
}

func release(t testing.TB, b driver.Backend, c driver.Claim, want driver.State) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	r, err := b.Release(ctx, c)
	if err != nil || r.State != want {
		t.Fatalf("Release(%q) = %v, %v; want %v", c.Key, r.State, err, want)
	}
}

// renew renews the claims, all with that outcome.
func renew(t testing.TB, b driver.Backend, want driver.State, claims ...driver.Claim) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	results, err := b.Renew(ctx, claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.State != want {
			t.Fatalf("Renew(%q) = %v, %v; want %v", claims[i].Key, r.State, r.Err, want)
		}
	}
}

// A killed server refuses nothing and forgets nothing. The outcome of a request that was not sent
// is not unknown.
func TestKilledServer(t *testing.T) {
	url := newURL(t)
	b := open(t, url)
	a := claim("k")
	first := acquire(t, b, a, driver.Held).Token
	server.Kill()
	ctx, cancel := patience(t)
	defer cancel()
	_, err := b.Acquire(ctx, claim("other"))
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) ||
		driver.Permanent(err) {
		t.Errorf("Acquire without a server = %v; want ErrUnavailable that passes", err)
	}
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the claim is renewed", func() error {
		results, err := b.Renew(ctx, []driver.Claim{a})
		if err == nil && results[0].State == driver.Lost {
			t.Fatal("the claim is lost")
		}
		return testserver.Not(err == nil && results[0].State == driver.Held, "%v, %v", results, err)
	})
	acquire(t, b, claim("k"), driver.Busy)
	release(t, b, a, driver.Held)
	c := claim("k")
	c.Token = 0
	if second := acquire(t, b, c, driver.Held).Token; second <= first {
		t.Errorf("token %d after the restart follows %d", second, first)
	}
}

// spy is a dialer that learns the sessions it hears of.
type spy struct {
	gate   sync.Mutex // held while nobody may dial
	mu     sync.Mutex
	frames [][]byte // what servers have said first
}

func (s *spy) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &spiedConn{Conn: conn, spy: s}, nil
}

type spiedConn struct {
	net.Conn
	spy  *spy
	head []byte
}

// sessionFrame is the length of a server's first answer up to the end of the session's password.
const sessionFrame = 4 + 4 + 4 + 8 + 4 + 16

func (c *spiedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if room := sessionFrame - len(c.head); room > 0 && n > 0 {
		c.head = append(c.head, p[:min(n, room)]...)
		if len(c.head) == sessionFrame {
			c.spy.mu.Lock()
			c.spy.frames = append(c.spy.frames, c.head)
			c.spy.mu.Unlock()
		}
	}
	return n, err
}

// end ends the session that the spy has heard of last, as the server does when it has expired.
func (s *spy) end(t *testing.T) {
	t.Helper()
	// The server closes the session's connection. The Backend must not connect again first.
	s.gate.Lock()
	defer s.gate.Unlock()
	s.mu.Lock()
	frame := s.frames[len(s.frames)-1]
	s.mu.Unlock()
	conn, err := net.DialTimeout("tcp", server.Address, testserver.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testserver.Patience))
	// A version, what was seen last, the timeout; then the session and its password, as they came.
	request := binary.BigEndian.AppendUint32(nil, 4+8+4+8+4+16)
	request = append(request, make([]byte, 4+8)...)
	request = append(request, frame[8:]...)
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, binary.BigEndian.Uint32(head))); err != nil {
		t.Fatal(err)
	}
	const opClose = -11
	request = binary.BigEndian.AppendUint32(nil, 8)
	request = binary.BigEndian.AppendUint32(request, 1)
	operation := int32(opClose)
	request = binary.BigEndian.AppendUint32(request, uint32(operation))
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// When a session has ended, its claims are lost at once, and none is granted again. The Backend
// goes on with another session.
func TestSessionEnds(t *testing.T) {
	url := newURL(t)
	s := new(spy)
	b, other := open(t, url, zkhold.WithDialer(s.dial)), open(t, url)
	a, w := claim("k"), queued("k2")
	first := acquire(t, b, a, driver.Held).Token
	acquire(t, other, claim("k2"), driver.Held)
	acquire(t, b, w, driver.Busy)
	s.end(t)
	if second := acquire(t, other, claim("k"), driver.Held).Token; second <= first {
		t.Errorf("token %d follows %d", second, first)
	}
	ctx, cancel := patience(t)
	defer cancel()
	testserver.Eventually(t, "the holder hears that it has lost the key", func() error {
		results, err := b.Renew(ctx, []driver.Claim{a})
		if err == nil && results[0].State == driver.Held {
			t.Fatal("the claim is held")
		}
		return testserver.Not(err == nil && results[0].State == driver.Lost, "%v, %v", results, err)
	})
	release(t, b, a, driver.Lost)
	late := queued("k2")
	acquire(t, other, late, driver.Busy)
	testserver.Eventually(t, "the waiter queues again", func() error {
		r, err := b.Acquire(ctx, w)
		return testserver.Not(err == nil && r.State == driver.Busy && r.Place == 2, "%+v, %v", r,
			err)
	})
	c := claim("k3")
	acquire(t, b, c, driver.Held)
	renew(t, b, driver.Held, c)
}

// A broken connection ends no claim: a session that lives on keeps its claims.
func TestConnectionBreaks(t *testing.T) {
	url := newURL(t)
	c := new(cutter)
	b := open(t, url, zkhold.WithDialer(c.dial))
	a := claim("k")
	acquire(t, b, a, driver.Held)
	for range 3 {
		c.armed.Store(true)
		ctx, cancel := patience(t)
		results, err := b.Renew(ctx, []driver.Claim{a})
		cancel()
		if err != nil || !errors.Is(results[0].Err, driver.ErrUnknown) {
			t.Fatalf("Renew without an answer = %v, %v; want ErrUnknown", results, err)
		}
		renew(t, b, driver.Held, a)
	}
	if lost, dials := c.lost.Load(), c.dials.Load(); lost != 3 || dials < 4 {
		t.Errorf("%d answers were lost, and %d connections made; want 3, and 4 at least", lost, dials)
	}
	release(t, b, a, driver.Held)
}

// Tokens rise even if somebody deletes everything: each claim proposes a larger one.
func TestRemovedTree(t *testing.T) {
	url := newURL(t)
	b := open(t, url)
	a := claim("k")
	first := acquire(t, b, a, driver.Held).Token
	release(t, b, a, driver.Held)
	root, ok := zkhold.Root(t, url)
	if !ok {
		t.Fatal("no root")
	}
	remove(t, direct(t), root)
	if second := acquire(t, b, claim("k"), driver.Held).Token; second <= first {
		t.Errorf("token %d after everything was deleted follows %d", second, first)
	}
}

// remove deletes a node and all below it.
func remove(t testing.TB, c *zk.Conn, at string) {
	t.Helper()
	names, _, err := c.Children(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		remove(t, c, path.Join(at, name))
	}
	if err := c.Delete(at, -1); err != nil {
		t.Fatal(err)
	}
}

// A claim that nobody renews ends, even if its session lives on, and the next claim hears of it.
func TestClaimEndsByItself(t *testing.T) {
	url := newURL(t)
	b1, b2 := open(t, url), open(t, url)
	heard := make(chan driver.Notice, 100)
	defer b2.Notify(func(n driver.Notice) { heard <- n })()
	a, w := claim("k"), queued("k")
	acquire(t, b1, a, driver.Held)
	acquire(t, b2, w, driver.Busy)
	a.TTL = 10 * time.Millisecond
	renew(t, b1, driver.Held, a)
	if n := <-heard; n.Kind != driver.Granted || n.Owner != w.Owner || n.Key != "k" {
		t.Fatalf("notice %+v; want Granted", n)
	}
	renew(t, b2, driver.Held, w)
	renew(t, b1, driver.Lost, a)
}

// A process that ends its claim late does not end it if another process has taken it over.
func TestTakenOverIsSpared(t *testing.T) {
	url := newURL(t)
	b1, b2 := open(t, url), open(t, url)
	a, w := claim("k"), queued("k")
	acquire(t, b1, a, driver.Held)
	acquire(t, b1, w, driver.Busy)
	renew(t, b2, driver.Held, a)
	acquire(t, b2, w, driver.Busy)
	for _, c := range []driver.Claim{a, w} {
		b1.EndTime(c)
		testserver.Eventually(t, "the first process has forgotten it", func() error {
			return testserver.Not(!b1.Knows(c), "it is there")
		})
	}
	renew(t, b2, driver.Held, a)
	acquire(t, b1, claim("k"), driver.Busy)
	release(t, b2, a, driver.Held)
	renew(t, b2, driver.Held, w)
}

// A TTL that the session does not outlast is refused before any request.
func TestLongTTL(t *testing.T) {
	b := open(t, newURL(t), zkhold.WithSession(4*time.Second))
	for ttl, allowed := range map[time.Duration]bool{3 * time.Second: true,
		3*time.Second + 1: false, time.Millisecond: true, time.Microsecond: false} {
		err := b.CheckTTL(ttl)
		if (err == nil) != allowed || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("CheckTTL(%v) = %v", ttl, err)
		}
		if allowed {
			continue
		}
		c := claim("k")
		c.TTL = ttl
		if _, err := b.Acquire(t.Context(), c); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Acquire with a TTL of %v = %v; want ErrInvalid", ttl, err)
		}
		results, err := b.Renew(t.Context(), []driver.Claim{c})
		if err != nil || !errors.Is(results[0].Err, driver.ErrInvalid) {
			t.Errorf("Renew with a TTL of %v = %v, %v; want ErrInvalid", ttl, results, err)
		}
	}
}

// What one user has made is for that user alone.
func TestUsers(t *testing.T) {
	url := newURL(t)
	login := func(user string) string {
		return "zookeeper://" + user + "@" + url[len("zookeeper://"):]
	}
	b := open(t, login("locks:secret"))
	a := claim("k")
	acquire(t, b, a, driver.Held)
	acquire(t, open(t, login("locks:secret")), claim("k"), driver.Busy)
	ctx, cancel := patience(t)
	defer cancel()
	for _, other := range []string{url, login("locks:wrong")} {
		b, err := zkhold.Open(ctx, other, patient...)
		if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
			t.Errorf("Open as another user = %v; want ErrUnavailable for good", err)
		}
		if err == nil {
			b.Close()
		}
	}
}

// Without a server, Open fails when ctx or the timeout ends, and says why there was none.
func TestOpenWithoutServer(t *testing.T) {
	url := "zookeeper://127.0.0.1:1"
	_, err := zkhold.Open(t.Context(), url, zkhold.WithTimeout(50*time.Millisecond))
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open = %v; want ErrUnavailable by its timeout", err)
	}
	if !strings.Contains(err.Error(), "127.0.0.1:1: connect: connection refused") {
		t.Errorf("Open = %v; want why there is no connection", err)
	}
	closing, err := net.Listen("tcp", "127.0.0.1:0") // no server of ZooKeeper: it hangs up
	if err != nil {
		t.Fatal(err)
	}
	defer closing.Close()
	go func() {
		for c, err := closing.Accept(); err == nil; c, err = closing.Accept() {
			c.Close()
		}
	}()
	address := closing.Addr().String()
	for _, scheme := range []string{"zookeeper://", "zookeepers://"} {
		_, err = zkhold.Open(t.Context(), scheme+address, zkhold.WithTimeout(50*time.Millisecond))
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), address+": ") {
			t.Errorf("Open of %s%s = %v; want how the connection ended", scheme, address, err)
		}
		hint := strings.Contains(err.Error(), "as a server without TLS")
		if want := scheme == "zookeepers://"; hint != want {
			t.Errorf("Open of %s%s = %v; want that it may be a server without TLS: %v", scheme,
				address, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := zkhold.Open(ctx, url); !errors.Is(err, context.Canceled) {
		t.Errorf("Open = %v; want the context's error", err)
	}
}
