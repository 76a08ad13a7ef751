//go:build unix

package etcdhold_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
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
	client := connect(t)
	empty(t, client)
	b := open(t, client)
	a := claim("k")
	acquire(t, b, a, driver.Held)
	server.Kill()
	ctx, cancel := patience(t)
	defer cancel()
	if !client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready) {
		t.Fatal("the client does not notice that the server is gone")
	}
	_, err := b.Acquire(ctx, claim("other"))
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) ||
		driver.Permanent(err) {
		t.Errorf("Acquire without a server = %v; want ErrUnavailable that passes", err)
	}
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the claim is renewed", func() error {
		client.ActiveConnection().ResetConnectBackoff()
		results, err := b.Renew(ctx, []driver.Claim{a})
		if err == nil && results[0].State == driver.Lost {
			t.Fatal("the claim is lost")
		}
		return testserver.Not(err == nil && results[0].State == driver.Held, "%v, %v", results, err)
	})
	acquire(t, b, claim("k"), driver.Busy)
	release(t, b, a, driver.Held)
}

// revokeAll revokes every lease behind the Backends' backs.
func revokeAll(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	answer, err := client.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range answer.Leases {
		if _, err := client.Revoke(ctx, lease.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// Claims under a revoked lease are lost, and no others.
func TestRevokedLease(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	b := open(t, connect(t))
	a, c := claim("k"), claim("k2")
	acquire(t, b, a, driver.Held)
	revokeAll(t, direct)
	acquire(t, b, c, driver.Held) // the lease that it knows is not there
	renew(t, b, driver.Lost, a)
	renew(t, b, driver.Held, c)
	release(t, b, a, driver.Lost)
	w := queued("k2")
	acquire(t, b, w, driver.Busy)
	revokeAll(t, direct)
	acquire(t, b, w, driver.Held)
	renew(t, b, driver.Lost, c)
	renew(t, b, driver.Held, w)
}

// If a renewal does not find its lease, the next renewal takes another one.
func TestRenewalUnderRevokedLease(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	b, other := open(t, connect(t)), open(t, connect(t))
	a, w := claim("k"), queued("k")
	acquire(t, b, claim("k2"), driver.Held) // its lease is that of all holders
	acquire(t, other, a, driver.Held)
	acquire(t, b, w, driver.Busy)
	release(t, other, a, driver.Held) // w holds the key, under the lease of those that wait
	ctx, cancel := patience(t)
	defer cancel()
	answer, err := direct.Get(ctx, etcdhold.DefaultKeyspace+"lock/k2\x00h", clientv3.WithPrefix())
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("the holder of the other key: %v, %v", answer, err)
	}
	if _, err := direct.Revoke(ctx, clientv3.LeaseID(answer.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	results, err := b.Renew(ctx, []driver.Claim{w})
	if err != nil || !errors.Is(results[0].Err, driver.ErrUnavailable) ||
		driver.Permanent(results[0].Err) {
		t.Fatalf("Renew under a lease that is gone = %v, %v; want ErrUnavailable that passes",
			results, err)
	}
	renew(t, b, driver.Held, w)
}

// If the lease of a holder ends, nothing is handed over. Waiters are told to ask again.
func TestWaiterHearsOfLostHolder(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	b1, b2 := open(t, connect(t)), open(t, connect(t))
	heard := make(chan driver.Notice, 100)
	defer b2.Notify(func(n driver.Notice) { heard <- n })()
	a, w := claim("k"), queued("k")
	acquire(t, b1, a, driver.Held)
	acquire(t, b2, w, driver.Busy)
	lose(t, direct, "k")
	if n := <-heard; n.Kind != driver.Freed || n.Key != "k" {
		t.Fatalf("notice %+v; want Freed", n)
	}
	acquire(t, b2, w, driver.Held)
}

// A waiter that was told of a grant keeps the key for a while, even if its Backend is closed then.
func TestCloseKeepsWhatWasHandedOver(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	b1, b2 := open(t, connect(t)), open(t, connect(t))
	heard := make(chan driver.Notice, 100)
	defer b2.Notify(func(n driver.Notice) { heard <- n })()
	a, w := claim("k"), queued("k")
	acquire(t, b1, a, driver.Held)
	acquire(t, b2, w, driver.Busy)
	release(t, b1, a, driver.Held)
	if n := <-heard; n.Kind != driver.Granted || n.Owner != w.Owner {
		t.Fatalf("notice %+v; want Granted", n)
	}
	if err := b2.Close(); err != nil {
		t.Fatal(err)
	}
	acquire(t, b1, claim("k"), driver.Busy)
}

// bounded refuses transactions that no deadline bounds.
func bounded(c *clientv3.Config) {
	c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
			call grpc.UnaryInvoker, options ...grpc.CallOption) error {
			_, ok := ctx.Deadline()
			if _, txn := request.(*pb.TxnRequest); txn && !ok {
				return status.Error(codes.Internal, "this may take for ever")
			}
			return call(ctx, method, request, answer, conn, options...)
		}))
}

// A claim that nobody renews ends, even if its lease is kept alive for another one. To end it
// delays other calls for the key no longer than the timeout.
func TestOthersDoNotKeepAClaim(t *testing.T) {
	direct := connect(t)
	empty(t, direct)
	b1, b2 := open(t, connect(t, bounded)), open(t, connect(t))
	a := claim("k")
	a.TTL = 2 * time.Second
	acquire(t, b1, a, driver.Held)
	testserver.Eventually(t, "the claim ends", func() error {
		c := claim("k2") // a kept claim would be lost in a long pause of the machine
		c.TTL = a.TTL
		acquire(t, b1, c, driver.Held)
		ctx, cancel := patience(t)
		defer cancel()
		if _, err := b1.Release(ctx, c); err != nil {
			t.Fatal(err)
		}
		r, err := b2.Acquire(ctx, claim("k"))
		return testserver.Not(err == nil && r.State == driver.Held, "%v, %v", r, err)
	})
	renew(t, b1, driver.Lost, a)
}

// A client without a connection is refused, and the error says where to get one.
func TestNoClient(t *testing.T) {
	for name, client := range map[string]*clientv3.Client{"nil": nil,
		"unconnected": clientv3.NewCtxClient(t.Context())} {
		_, err := etcdhold.New(client)
		if !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), "make one with clientv3.New") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A TTL that etcd cannot keep is refused before any request.
func TestShortTTL(t *testing.T) {
	b := open(t, connect(t))
	for ttl, allowed := range map[time.Duration]bool{etcdhold.MinTTL: true,
		etcdhold.MinTTL - 1: false, time.Millisecond: false, time.Hour: true} {
		err := b.CheckTTL(ttl)
		if (err == nil) != allowed || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("CheckTTL(%v) = %v", ttl, err)
		}
		c := claim("short")
		if c.TTL = ttl; !allowed {
			if _, err := b.Acquire(t.Context(), c); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Acquire with a TTL of %v = %v; want ErrInvalid", ttl, err)
			}
		}
	}
}

// keeper keeps a transaction back, as a network may, and makes the client believe that it was sent.
type keeper struct {
	armed atomic.Bool
	skip  atomic.Int64 // transactions to let pass first
	kept  chan *pb.TxnRequest
}

func (k *keeper) intercept(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	txn, ok := request.(*pb.TxnRequest)
	if !ok || !k.armed.Load() || k.skip.Add(-1) >= 0 || !k.armed.Swap(false) {
		return call(ctx, method, request, answer, conn, options...)
	}
	for _, o := range options {
		if p, ok := o.(grpc.PeerCallOption); ok {
			p.PeerAddr.Addr = &net.UnixAddr{Name: "the network"}
		}
	}
	k.kept <- txn
	return status.Error(codes.Unavailable, "error reading from server: EOF")
}

// A request that arrives after the release of its claim changes nothing.
func TestLateRequest(t *testing.T) {
	for name, busy := range map[string]bool{"acquires": false, "queues": true} {
		t.Run(name, func(t *testing.T) {
			direct := connect(t)
			empty(t, direct)
			k := &keeper{kept: make(chan *pb.TxnRequest, 1)}
			b := open(t, connect(t, func(c *clientv3.Config) {
				c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(k.intercept))
			}))
			other := open(t, connect(t))
			warm := claim("k") // so that nothing but the release is in the way of the request
			acquire(t, b, warm, driver.Held)
			release(t, b, warm, driver.Held)
			acquire(t, b, claim("other"), driver.Held) // so that the lease is not revoked
			a, late := claim("k"), queued("k")
			if busy {
				acquire(t, other, a, driver.Held)
				k.skip.Store(1) // the first one finds the key busy
			}
			k.armed.Store(true)
			ctx, cancel := patience(t)
			defer cancel()
			if _, err := b.Acquire(ctx, late); !errors.Is(err, driver.ErrUnknown) ||
				driver.Permanent(err) {
				t.Fatalf("Acquire without an answer = %v; want ErrUnknown", err)
			}
			release(t, b, late, driver.Lost)
			answer, err := pb.NewKVClient(direct.ActiveConnection()).Txn(ctx, <-k.kept)
			if err == nil && answer.Succeeded {
				t.Error("the late request was executed")
			}
			if busy {
				release(t, other, a, driver.Held)
			}
			acquire(t, other, claim("k"), driver.Held)
		})
	}
}

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
			direct := connect(t)
			empty(t, direct)
			k := &keeper{kept: make(chan *pb.TxnRequest, 1)}
			b := open(t, connect(t, func(c *clientv3.Config) {
				c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(k.intercept))
			}))
			other := open(t, connect(t))
			warm := claim("k") // so that there is a counter
			acquire(t, b, warm, driver.Held)
			release(t, b, warm, driver.Held)
			acquire(t, b, claim("other"), driver.Held) // so that the lease is not revoked
			holder, late := claim("k"), queued("k")
			late.Shared = what.shared
			if what.again == driver.Busy {
				acquire(t, other, holder, driver.Held)
				k.skip.Store(1) // the first transaction finds the key busy
			}
			ctx, cancel := patience(t)
			defer cancel()
			var err error
			if what.acquires {
				k.armed.Store(true)
				_, err = b.Acquire(ctx, late)
			} else {
				acquire(t, b, late, what.again)
				k.armed.Store(true)
				_, err = b.Release(ctx, late)
			}
			if !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("a call without an answer: %v; want ErrUnknown", err)
			}
			if what.acquires {
				release(t, b, late, driver.Lost)
			}
			acquire(t, b, late, what.again)
			answer, err := pb.NewKVClient(direct.ActiveConnection()).Txn(ctx, <-k.kept)
			if err == nil && answer.Succeeded {
				t.Error("the late request was executed")
			}
			release(t, b, late, what.again)
			if what.again == driver.Busy {
				release(t, other, holder, driver.Held)
			}
			acquire(t, other, claim("k"), driver.Held)
		})
	}
}

// A claim may have been asked for, without an answer, more often than one transaction has room for.
// It can still be released, and none of those requests has an effect afterwards.
func TestManyLateRequests(t *testing.T) {
	const many = 130
	direct := connect(t)
	empty(t, direct)
	k := &keeper{kept: make(chan *pb.TxnRequest, many)}
	b := open(t, connect(t, func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(k.intercept))
	}))
	warm := claim("k") // so that nothing but the release is in the way of the requests
	acquire(t, b, warm, driver.Held)
	release(t, b, warm, driver.Held)
	ctx, cancel := patience(t)
	defer cancel()
	late := claim("k")
	for i := range many {
		acquire(t, b, claim(fmt.Sprint("other", i)), driver.Held) // so that no lease is revoked
		k.armed.Store(true)
		if _, err := b.Acquire(ctx, late); !errors.Is(err, driver.ErrUnknown) {
			t.Fatalf("Acquire without an answer = %v; want ErrUnknown", err)
		}
	}
	release(t, b, late, driver.Lost)
	for range many {
		answer, err := pb.NewKVClient(direct.ActiveConnection()).Txn(ctx, <-k.kept)
		if err != nil || answer.Succeeded {
			t.Fatalf("the late request was executed, or not refused by a tombstone: %v, %v", answer,
				err)
		}
	}
	acquire(t, open(t, connect(t)), claim("k"), driver.Held)
}

// counter counts requests by their method.
type counter struct{ transactions, writes, keepAlives, grants atomic.Int64 }

func (c *counter) into(config *clientv3.Config) {
	config.DialOptions = append(config.DialOptions,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any,
			conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
			switch request := request.(type) {
			case *pb.TxnRequest:
				c.transactions.Add(1)
				if changes(request) {
					c.writes.Add(1)
				}
			case *pb.LeaseGrantRequest:
				c.grants.Add(1)
			}
			return call(ctx, method, request, answer, conn, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
			conn *grpc.ClientConn, method string, call grpc.Streamer,
			options ...grpc.CallOption) (grpc.ClientStream, error) {
			if method == "/etcdserverpb.Lease/LeaseKeepAlive" {
				c.keepAlives.Add(1)
			}
			return call(ctx, desc, conn, method, options...)
		}))
}

func (c *counter) reset() (transactions, keepAlives, grants int64) {
	return c.transactions.Swap(0), c.keepAlives.Swap(0), c.grants.Swap(0)
}

// TestRequests counts requests: a transaction each for a free key and its release, and one more for
// a handoff. A renewal of a thousand claims takes at most one keep-alive, and a transaction for
// each 128. A claim that has waited took two transactions. One of them only reads, so it is not in
// etcd's log.
func TestRequests(t *testing.T) {
	empty(t, connect(t))
	c := new(counter)
	b := open(t, connect(t, c.into))
	const n = 300
	var claims []driver.Claim
	warm := claim("k") // so that there are a lease and a counter
	acquire(t, b, warm, driver.Held)
	release(t, b, warm, driver.Held)
	a, w := claim("k"), queued("k")
	c.reset()
	acquire(t, b, a, driver.Held)
	if txns, _, grants := c.reset(); txns != 1 || grants != 0 {
		t.Errorf("a free key took %d transactions and %d grants; want 1 and none", txns, grants)
	}
	acquire(t, b, w, driver.Busy)
	c.reset()
	release(t, b, a, driver.Held)
	if txns, _, _ := c.reset(); txns != 2 {
		t.Errorf("a handoff took %d transactions; want 2", txns)
	}
	next := queued("k")
	acquire(t, b, next, driver.Busy)
	for _, claim := range []driver.Claim{w, next} {
		c.reset()
		c.writes.Store(0)
		release(t, b, claim, driver.Held)
		writes := c.writes.Load()
		if txns, _, _ := c.reset(); txns != 2 || writes != 1 {
			t.Errorf("the release of who has waited took %d transactions, of which %d may write; want 2 and 1",
				txns, writes)
		}
	}
	for i := range n {
		claims = append(claims, claim(string(rune('a'+i%26))+string(rune('a'+i/26))))
		acquire(t, b, claims[i], driver.Held)
	}
	c.reset()
	renew(t, b, driver.Held, claims...)
	if txns, keepAlives, grants := c.reset(); txns != 3 || keepAlives > 1 || grants > 0 {
		t.Errorf("a renewal of %d claims took %d transactions, %d keep-alives and %d grants; want 3, 1 at most and none",
			n, txns, keepAlives, grants)
	}
}
