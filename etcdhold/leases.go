package etcdhold

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// class is what the claims that share a lease of etcd have in common.
type class struct {
	waits   bool // they are in a queue, or were granted the key there
	seconds int64
}

// lease is a lease of etcd.
type lease struct {
	class
	id clientv3.LeaseID

	// Guarded by leases.mu:
	until   time.Duration // by the lease clock: etcd keeps it at least until then
	retired bool          // it gets no more claims, as a request under it may still arrive
	gone    bool
	claims  int
	renewal *flight
}

// flight is a request that several callers wait for.
type flight struct {
	done chan struct{}
	err  error
}

// leases are the leases of this Backend. The calls that use a lease keep it alive. When no call
// uses it any more, it ends by itself.
type leases struct {
	client pb.LeaseClient
	ctx    context.Context // of the Backend
	limit  time.Duration   // for one request
	ended  *sync.WaitGroup

	mu      sync.Mutex
	shut    bool // nothing is sent any more
	current map[class]*lease
	grants  map[class]*flight
	all     map[clientv3.LeaseID]*lease
}

// slack returns how much longer than the claims need a lease of etcd is, at least.
func slack(ttl time.Duration) time.Duration { return max(time.Second, ttl/3) }

// classOf returns the class for claims of that length. The lease is longer than the claims, so
// claims that are made between two keep-alives need no keep-alive of their own.
func classOf(ttl time.Duration, waits bool) class {
	length := ttl + slack(ttl)
	return class{waits, int64((length + time.Second - 1) / time.Second)}
}

// slack is the part of the lease that no claim counts on.
func (c class) slack() time.Duration { return time.Duration(c.seconds) * time.Second / 4 }

// ensure returns a lease of the class that etcd keeps at least until then. The caller counts as one
// of its claims until it takes that back. Otherwise the lease could be retired and revoked between
// the transaction of a claim and its answer. The error is a *driver.Error after which there is
// nothing to undo.
func (l *leases) ensure(ctx context.Context, c class, until time.Duration) (*lease, error) {
	for {
		l.mu.Lock()
		now := l.current[c]
		if now == nil {
			f := l.grant(c)
			l.mu.Unlock()
			if err := f.wait(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if now.until < until+c.slack()/2 {
			f := l.keepAlive(now)
			if now.until < until {
				l.mu.Unlock()
				if err := f.wait(ctx); err != nil {
					return nil, err
				}
				continue
			}
		}
		now.claims++
		l.mu.Unlock()
		return now, nil
	}
}

func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return &driver.Error{Err: ctx.Err()}
	}
}

// start runs a request in the background. Called with mu held.
func (l *leases) start(request func(context.Context) error) *flight {
	f := &flight{done: make(chan struct{})}
	if l.shut {
		f.err = closedError()
		close(f.done)
		return f
	}
	l.ended.Add(1)
	go func() {
		defer l.ended.Done()
		defer close(f.done)
		ctx, cancel := context.WithTimeout(l.ctx, l.limit)
		defer cancel()
		f.err = request(ctx)
	}()
	return f
}

// grant asks for a new lease. Called with mu held.
func (l *leases) grant(c class) *flight {
	if f := l.grants[c]; f != nil {
		return f
	}
	if l.shut {
		return l.start(nil)
	}
	f := l.start(func(ctx context.Context) error {
		sent := driver.LeaseClock()
		answer, err := l.client.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: c.seconds},
			grpc.WaitForReady(false))
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.grants, c)
		if err != nil {
			return failure(err)
		}
		granted := &lease{class: c, id: clientv3.LeaseID(answer.ID),
			until: sent + time.Duration(answer.TTL)*time.Second}
		l.current[c], l.all[granted.id] = granted, granted
		return nil
	})
	l.grants[c] = f
	return f
}

// keepAlive has etcd count the lease from now on. Called with mu held. It is no error if the lease
// is gone, because then the caller finds another one.
func (l *leases) keepAlive(x *lease) *flight {
	if x.renewal != nil {
		return x.renewal
	}
	if l.shut {
		return l.start(nil)
	}
	x.renewal = l.start(func(ctx context.Context) error {
		sent := driver.LeaseClock()
		ttl, err := l.ask(ctx, x.id)
		l.mu.Lock()
		defer l.mu.Unlock()
		x.renewal = nil
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			l.forget(x)
			return nil
		case err != nil:
			return failure(err)
		}
		x.until = max(x.until, sent+ttl)
		return nil
	})
	return x.renewal
}

// ask sends one keep-alive. It does not use the client's KeepAliveOnce, which asks again without a
// pause for as long as there is no server.
func (l *leases) ask(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.client.LeaseKeepAlive(ctx, grpc.WaitForReady(false))
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		// The reason comes with the answer.
		if _, why := stream.Recv(); why != nil {
			err = why
		}
		return 0, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	if answer.TTL <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

// forget drops a lease that is gone. Called with mu held.
func (l *leases) forget(x *lease) {
	x.gone = true
	delete(l.all, x.id)
	if l.current[x.class] == x {
		delete(l.current, x.class)
	}
}

// lost drops a lease that a transaction did not find.
func (l *leases) lost(x *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(x)
}

// retire gives the lease no more claims. The lease ends when its last claim has ended or moved,
// because until then a request whose answer was lost may still arrive under it.
func (l *leases) retire(x *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.retired = true
	if l.current[x.class] == x {
		delete(l.current, x.class)
	}
}

// find returns the lease if it is one of ours.
func (l *leases) find(id clientv3.LeaseID) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[id]
}

// count adds to the number of claims under a lease, which may be nil. The last one to leave a
// retired lease ends it.
func (l *leases) count(x *lease, n int) {
	if x == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x.claims += n
	if x.claims <= 0 && x.retired && !x.gone {
		l.forget(x)
		l.start(func(ctx context.Context) error { return l.revoke(ctx, x) })
	}
}

func (l *leases) revoke(ctx context.Context, x *lease) error {
	_, err := l.client.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(x.id)})
	return err
}

// close sends nothing from now on.
func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
}

// idle returns the leases that nobody needs when the Backend is closed: those without claims, and
// those of waiters, because nobody would tell them of a grant. held are the leases under which a
// claim holds its key, as far as this process knows. Those end by themselves, because a holder may
// rely on its key until then.
func (l *leases) idle(held map[*lease]bool) []*lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	var idle []*lease
	for _, x := range l.all {
		if !held[x] && (x.waits || x.claims <= 0) {
			idle = append(idle, x)
		}
	}
	return idle
}
