//go:build unix

package etcdhold

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// etcd is a server that has only leases, in fake time.
type etcd struct {
	pb.LeaseClient
	delay time.Duration // one way

	mu     sync.Mutex
	down   error
	grants int
	asked  int
	ends   map[int64]time.Duration
	ttls   map[int64]time.Duration
}

func (e *etcd) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest,
	_ ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	time.Sleep(e.delay)
	defer time.Sleep(e.delay)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return nil, e.down
	}
	e.grants++
	id := int64(e.grants)
	e.ttls[id] = time.Duration(r.TTL) * time.Second
	e.ends[id] = driver.LeaseClock() + e.ttls[id]
	return &pb.LeaseGrantResponse{ID: id, TTL: r.TTL}, nil
}

func (e *etcd) LeaseKeepAlive(context.Context, ...grpc.CallOption) (pb.Lease_LeaseKeepAliveClient,
	error) {
	return &keepAlive{e: e}, nil
}

// end is when it ends the lease.
func (e *etcd) end(x *lease) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends[int64(x.id)]
}

// seen returns how many leases it has granted, and how many keep-alives came.
func (e *etcd) seen() (grants, asked int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.grants, e.asked
}

// breakBy makes it answer with the error. With nil it answers as it should again.
func (e *etcd) breakBy(down error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
}

type keepAlive struct {
	grpc.ClientStream
	e  *etcd
	id int64
}

func (k *keepAlive) Send(r *pb.LeaseKeepAliveRequest) error { k.id = r.ID; return nil }

func (k *keepAlive) Recv() (*pb.LeaseKeepAliveResponse, error) {
	time.Sleep(k.e.delay)
	defer time.Sleep(k.e.delay)
	k.e.mu.Lock()
	defer k.e.mu.Unlock()
	if k.e.down != nil {
		return nil, k.e.down
	}
	k.e.asked++
	if driver.LeaseClock() >= k.e.ends[k.id] {
		return &pb.LeaseKeepAliveResponse{ID: k.id}, nil
	}
	k.e.ends[k.id] = driver.LeaseClock() + k.e.ttls[k.id]
	return &pb.LeaseKeepAliveResponse{ID: k.id, TTL: int64(k.e.ttls[k.id] / time.Second)}, nil
}

func newEtcd(t *testing.T) (*etcd, *leases) {
	e := &etcd{delay: time.Millisecond, ends: make(map[int64]time.Duration),
		ttls: make(map[int64]time.Duration)}
	ctx, cancel := context.WithCancel(t.Context())
	l := &leases{client: e, ctx: ctx, limit: time.Minute, ended: new(sync.WaitGroup),
		current: make(map[class]*lease), grants: make(map[class]*flight),
		all: make(map[clientv3.LeaseID]*lease)}
	t.Cleanup(func() { cancel(); l.ended.Wait() })
	return e, l
}

// A claim never gets a lease that etcd may end before the claim does.
func TestLeaseOutlastsTheClaim(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, 1500 * time.Millisecond, 10 * time.Second,
		time.Minute, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			e, l := newEtcd(t)
			for range 500 {
				until := driver.LeaseClock() + ttl
				// One that is too short would be kept alive again and again.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				x, err := l.ensure(ctx, classOf(ttl, false), until)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				if end := e.end(x); end < until {
					t.Fatalf("TTL %v: etcd ends the lease %v before the claim", ttl, until-end)
				}
				time.Sleep(rand.N(ttl * 3 / 2))
			}
		})
	}
}

// Claims that come one after the other share a lease, and send few keep-alives: this is what makes
// a free key cost one request.
func TestLeaseIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEtcd(t)
		const ttl, n = 30 * time.Second, 6000
		for range n {
			before := driver.LeaseClock()
			if _, err := l.ensure(t.Context(), classOf(ttl, false), before+ttl); err != nil {
				t.Fatal(err)
			}
			if _, asked := e.seen(); asked > 0 && driver.LeaseClock() > before {
				t.Fatal("a claim has waited for a keep-alive")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if grants, asked := e.seen(); grants != 1 || asked > 15 {
			t.Errorf("%d claims took %d leases and %d keep-alives; want 1, and 15 at most", n, grants,
				asked)
		}
	})
}

// In an outage no lease is granted. A lease that is gone is replaced.
func TestLeaseOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEtcd(t)
		const ttl = 10 * time.Second
		ensure := func() (*lease, error) {
			return l.ensure(t.Context(), classOf(ttl, false), driver.LeaseClock()+ttl)
		}
		first, err := ensure()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		down := errors.New("down")
		e.breakBy(down)
		if _, err := ensure(); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, down) {
			t.Fatalf("without a server: %v; want ErrUnavailable", err)
		}
		time.Sleep(ttl)
		e.breakBy(nil)
		if x, err := ensure(); err != nil || x == first || !first.gone {
			t.Fatalf("after the lease has ended: %+v, %v; want another one", x, err)
		}
	})
}

// A lease under which a request may still arrive gets no more claims, and ends with the last one.
func TestLeaseRetires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEtcd(t)
		revoked := make(chan int64, 2)
		l.client = &revoker{e, revoked}
		c := classOf(time.Minute, false)
		first, _ := l.ensure(t.Context(), c, driver.LeaseClock())
		l.count(first, 1) // a second one
		l.retire(first)
		second, _ := l.ensure(t.Context(), c, driver.LeaseClock())
		if second == first || l.find(first.id) != first {
			t.Fatal("the lease gets more claims, or is forgotten too early")
		}
		l.count(first, -1)
		synctest.Wait()
		if len(revoked) > 0 {
			t.Fatal("the lease is revoked while a claim is under it")
		}
		l.count(first, -1)
		if id := <-revoked; id != int64(first.id) {
			t.Fatalf("lease %d is revoked; want %d", id, first.id)
		}
	})
}

type revoker struct {
	*etcd
	revoked chan int64
}

func (r *revoker) LeaseRevoke(_ context.Context, request *pb.LeaseRevokeRequest,
	_ ...grpc.CallOption) (*pb.LeaseRevokeResponse, error) {
	r.revoked <- request.ID
	return new(pb.LeaseRevokeResponse), nil
}

// Keys with any bytes are told apart, and found again.
func TestLayout(t *testing.T) {
	l := layout("x/")
	keys := []string{"a", "a\x00", "a\x00\x00", "a\xff", "a\x00\xff", "\x00", "\xff", "ab", "h",
		"w"}
	for _, key := range keys {
		n := l.names(key)
		const owner = "o/\x00"
		for kind, text := range map[string]string{holderKind: n.holder(owner),
			waiterKind: n.waiter(owner)} {
			if k, got, rest, ok := l.parse(text); !ok || k != key || got != kind || rest != owner {
				t.Errorf("%q is read as %q, %q, %q, %v", text, k, got, rest, ok)
			}
		}
		for _, other := range keys {
			if from, _ := l.names(other).claimRange(); other != key &&
				strings.HasPrefix(n.holder(""), from) {
				t.Errorf("the keys of %q are among those of %q", key, other)
			}
		}
	}
	for _, text := range []string{"", "x/", "x/lock/", "x/lock/a", "x/lock/a\x00",
		"y/lock/a\x00h"} {
		if _, _, _, ok := l.parse(text); ok {
			t.Errorf("%q is taken for ours", text)
		}
	}
}
