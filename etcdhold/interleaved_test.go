//go:build unix

package etcdhold_test

import (
	"context"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// between makes something happen before the client's second transaction from now on: after the
// client has seen the state of a lock, and before it changes that state.
type between struct {
	left atomic.Int64
	f    func()
}

func (b *between) into(config *clientv3.Config) {
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
			call grpc.UnaryInvoker, options ...grpc.CallOption) error {
			if _, ok := request.(*pb.TxnRequest); ok && b.left.Add(-1) == 0 {
				b.f()
			}
			return call(ctx, method, request, answer, conn, options...)
		}))
}

func (b *between) do(f func()) {
	b.f = f
	b.left.Store(2)
}

// A call notices what others do between its look at a lock and its change.
func TestInterleaved(t *testing.T) {
	shared := func(c driver.Claim) driver.Claim { c.Shared = true; return c }
	for name, test := range map[string]func(t *testing.T, b, other driver.Backend, while *between){
		"the waiter leaves": func(t *testing.T, b, other driver.Backend, while *between) {
			a, w, next := claim("k"), queued("k"), queued("k")
			acquire(t, b, a, driver.Held)
			acquire(t, other, w, driver.Busy)
			acquire(t, other, next, driver.Busy)
			while.do(func() { release(t, other, w, driver.Busy) })
			release(t, b, a, driver.Held)
			renew(t, other, driver.Lost, w)
			renew(t, other, driver.Held, next)
		},
		"another reader queues": func(t *testing.T, b, other driver.Backend, while *between) {
			a, x, y := claim("k"), shared(queued("k")), shared(queued("k"))
			acquire(t, b, a, driver.Held)
			acquire(t, other, x, driver.Busy)
			while.do(func() { acquire(t, other, y, driver.Busy) })
			release(t, b, a, driver.Held)
			renew(t, other, driver.Held, x, y)
		},
		"a free key is taken": func(t *testing.T, b, other driver.Backend, while *between) {
			a, c := claim("k"), claim("k")
			a.Token = 0 // it does not know how far tokens are
			while.do(func() { acquire(t, other, c, driver.Held) })
			acquire(t, b, a, driver.Busy)
			renew(t, other, driver.Held, c)
		},
		"a reader queues while a writer steps down": func(t *testing.T, b, other driver.Backend,
			while *between) {
			a, x := claim("k"), shared(queued("k"))
			acquire(t, b, a, driver.Held)
			while.do(func() { acquire(t, other, x, driver.Busy) })
			renew(t, b, driver.Held, shared(a))
			renew(t, other, driver.Held, x)
		},
		"the other reader leaves": func(t *testing.T, b, other driver.Backend, while *between) {
			x, y, w := shared(claim("k")), shared(claim("k")), queued("k")
			acquire(t, b, x, driver.Held)
			acquire(t, other, y, driver.Held)
			acquire(t, other, w, driver.Busy)
			while.do(func() { release(t, other, y, driver.Held) })
			release(t, b, x, driver.Held)
			renew(t, other, driver.Held, w)
		},
		"the holder leaves": func(t *testing.T, b, other driver.Backend, while *between) {
			a, w := claim("k"), queued("k")
			acquire(t, other, a, driver.Held)
			while.do(func() { release(t, other, a, driver.Held) })
			acquire(t, b, w, driver.Held)
		},
		"the readers leave, and a writer comes": func(t *testing.T, b, other driver.Backend,
			while *between) {
			x, y, a := shared(claim("k")), shared(claim("k")), claim("k")
			acquire(t, other, x, driver.Held)
			while.do(func() {
				release(t, other, x, driver.Held)
				acquire(t, other, a, driver.Held)
			})
			acquire(t, b, y, driver.Busy)
			renew(t, other, driver.Held, a)
		},
		"the key is lost, and taken": func(t *testing.T, b, other driver.Backend,
			while *between) {
			a, w, c := claim("k"), queued("k"), claim("k")
			acquire(t, b, a, driver.Held)
			acquire(t, other, w, driver.Busy)
			while.do(func() {
				lose(t, connect(t), "k")
				acquire(t, other, w, driver.Held)
			})
			release(t, b, a, driver.Lost)
			acquire(t, other, c, driver.Busy)
			renew(t, other, driver.Held, w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			empty(t, connect(t))
			while := new(between)
			b, other := open(t, connect(t, while.into)), open(t, connect(t))
			warm := claim("k")
			acquire(t, other, warm, driver.Held)
			release(t, other, warm, driver.Held)
			test(t, b, other, while)
			if while.left.Load() > 0 {
				t.Error("nothing happened in between")
			}
		})
	}
}
