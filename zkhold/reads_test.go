//go:build unix

package zkhold_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/zkhold"
)

// Somebody else's node below a slot does not keep a dead holder alive: waiters look at the names.
func TestForeignNode(t *testing.T) {
	url := newURL(t)
	b, other := open(t, url), open(t, url)
	a, w := claim("k"), queued("k")
	acquire(t, other, a, driver.Held)
	slot := zkhold.SlotPath(t, url, "k")
	if _, err := direct(t).Create(slot+"/foreign", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	lose(t, url, "k")
	ctx, cancel := patience(t)
	defer cancel()
	testserver.Eventually(t, "the waiter holds the key", func() error {
		r, err := b.Acquire(ctx, w)
		return testserver.Not(err == nil && r.State == driver.Held, "%+v, %v", r, err)
	})
	renew(t, other, driver.Lost, a)
}

// What was read may be old. So "busy" is answered only after the leader was asked, and "lost" only
// after a majority was.
func TestOldReads(t *testing.T) {
	url := newURL(t)
	r := new(recorder)
	b := open(t, url, zkhold.WithDialer(r.dial))
	acquire(t, open(t, url), claim("k"), driver.Held)
	slot := zkhold.SlotPath(t, url, "k")
	acquire(t, b, claim("k"), driver.Busy)
	if all := r.take(); !between(all, opSync, "", slot) {
		t.Errorf("for a busy key these were the requests: %v", all)
	}
	release(t, b, claim("k"), driver.Lost)
	if all := r.take(); !between(all, opSet, path.Dir(slot), slot) {
		t.Errorf("for a claim that is not there these were the requests: %v", all)
	}
}

// One transaction looks at the nodes of many claims. If one of them is gone, or may not be read,
// the others are still held.
func TestRenewalsTogether(t *testing.T) {
	url := newURL(t)
	r := new(recorder)
	b := open(t, url, zkhold.WithDialer(r.dial))
	var claims []driver.Claim
	for i := range 40 {
		c := claim(fmt.Sprint("k", i))
		acquire(t, b, c, driver.Held)
		claims = append(claims, c)
	}
	count := func(operation uint32) (n int) {
		for _, q := range r.take() {
			if q.operation == operation {
				n++
			}
		}
		return n
	}
	r.take()
	renew(t, b, driver.Held, claims...)
	if n := count(opExists); n != 0 {
		t.Errorf("%d requests look at one claim each; want none", n)
	}
	renew(t, b, driver.Held, claims...)
	if n := count(opMulti); n != 1 {
		t.Errorf("%d transactions for %d claims; want one", n, len(claims))
	}
	last := claims[39]
	last.TTL = long / 4 * 3 // the longest: only what is asked now proves that the session lasts
	renew(t, b, driver.Held, last)
	if n := count(opSet); n != 0 {
		t.Errorf("%d requests prove what the transaction has proved", n)
	}
	lose(t, url, "k39")
	ctx, cancel := patience(t)
	defer cancel()
	results, err := b.Renew(ctx, claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		want := driver.Held
		if i == len(claims)-1 {
			want = driver.Lost
		}
		if result.State != want {
			t.Errorf("Renew(%q) = %v, %v; want %v", claims[i].Key, result.State, result.Err, want)
		}
	}
	// It takes no right to ask whether a node is there, so a renewal needs none.
	for _, node := range zkhold.HolderNodes(t, url, direct(t), "k3") {
		if _, err := direct(t).SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1); err != nil {
			t.Fatal(err)
		}
	}
	renew(t, b, driver.Held, claims[:len(claims)-1]...)
}

// A transaction of a renewal is small, however many claims there are and however long the root is:
// ZooKeeper takes a megabyte, and each server keeps 500 transactions in memory.
func TestRenewalsAreSmall(t *testing.T) {
	url := newURL(t)
	var largest atomic.Int64
	b := open(t, url, zkhold.WithRoot("/"+strings.Repeat("x", 8000)),
		zkhold.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := net.DialTimeout(network, address, timeout)
			return measuredConn{conn, &largest}, err
		}))
	var claims []driver.Claim
	for i := range 140 {
		c := claim(fmt.Sprint("k", i))
		acquire(t, b, c, driver.Held)
		claims = append(claims, c)
	}
	largest.Store(0)
	renew(t, b, driver.Held, claims...)
	if n := largest.Load(); n > 24<<10 {
		t.Errorf("the largest request of a renewal has %d bytes", n)
	}
}

// measuredConn notes the length of the largest request.
type measuredConn struct {
	net.Conn
	largest *atomic.Int64
}

func (c measuredConn) Write(frame []byte) (int, error) {
	for {
		n := c.largest.Load()
		if int64(len(frame)) <= n || c.largest.CompareAndSwap(n, int64(len(frame))) {
			return c.Conn.Write(frame)
		}
	}
}

// between reports whether the slot was read before and after an operation, on that node if one is
// named.
func between(all []request, operation uint32, at, slot string) bool {
	read := request{opGet, slot}
	first := slices.Index(all, read)
	if first < 0 {
		return false
	}
	i := slices.IndexFunc(all[first:], func(r request) bool {
		return r.operation == operation && (at == "" || r.path == at)
	})
	return i >= 0 && slices.Contains(all[first+i:], read)
}

// request is one that was sent.
type request struct {
	operation uint32
	path      string
}

// recorder is a dialer that notes requests.
type recorder struct {
	mu  sync.Mutex
	all []request
}

func (r *recorder) take() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func (r *recorder) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &recordedConn{conn, r}, nil
}

type recordedConn struct {
	net.Conn
	recorder *recorder
}

// Write notes the request: a length, a number, the operation, and for those that matter a path with
// its length.
func (c *recordedConn) Write(frame []byte) (int, error) {
	if len(frame) >= 16 {
		r := request{operation: binary.BigEndian.Uint32(frame[8:])}
		if n := binary.BigEndian.Uint32(frame[12:]); uint64(n) <= uint64(len(frame)-16) {
			r.path = string(frame[16 : 16+n])
		}
		c.recorder.mu.Lock()
		c.recorder.all = append(c.recorder.all, r)
		c.recorder.mu.Unlock()
	}
	return c.Conn.Write(frame)
}

// A renewal of new terms whose answer is lost may have been executed. So the claim lasts as long as
// that one would have it.
func TestRenewalOfNewTermsCounts(t *testing.T) {
	c := new(cutter)
	b := open(t, newURL(t), zkhold.WithDialer(c.dial))
	a := claim("k")
	a.TTL = time.Minute
	acquire(t, b, a, driver.Held)
	a.TTL, a.Block = 10*time.Minute, 5
	c.armed.Store(true)
	ctx, cancel := patience(t)
	defer cancel()
	results, err := b.Renew(ctx, []driver.Claim{a})
	if err != nil || !errors.Is(results[0].Err, driver.ErrUnknown) {
		t.Fatalf("Renew without an answer = %v, %v; want ErrUnknown", results, err)
	}
	if left := b.Left(a); left <= time.Minute {
		t.Errorf("it lasts for %v; want what was asked for", left)
	}
}

// A waiter with a short lease is present for no longer than that.
func TestPresenceOfAShortLease(t *testing.T) {
	b := open(t, newURL(t))
	acquire(t, b, claim("k"), driver.Held)
	w := queued("k")
	if r := acquire(t, b, w, driver.Busy); r.Presence != testserver.Patience {
		t.Errorf("a waiter is present for %v; want what is set", r.Presence)
	}
	w = queued("k")
	w.TTL = time.Second
	if r := acquire(t, b, w, driver.Busy); r.Presence != w.TTL {
		t.Errorf("with a lease of %v a waiter is present for %v", w.TTL, r.Presence)
	}
}
