//go:build unix

package etcdhold_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// cutter loses the answer to the next transaction that has changed something.
type cutter struct{ armed atomic.Bool }

func (c *cutter) intercept(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, request, answer, conn, options...)
	txn, ok := answer.(*pb.TxnResponse)
	if err != nil || !ok || !txn.Succeeded || !changes(request.(*pb.TxnRequest)) ||
		!c.armed.Swap(false) {
		return err
	}
	txn.Reset()
	return status.Error(codes.Unavailable, "error reading from server: EOF")
}

func changes(request *pb.TxnRequest) bool {
	for _, op := range request.Success {
		if op.GetRequestRange() == nil {
			return true
		}
	}
	return false
}

func (c *cutter) into(config *clientv3.Config) {
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(c.intercept))
}

func TestConformance(t *testing.T) {
	direct := connect(t)
	drivertest.Run(t, drivertest.Harness{
		Light: true, // a request takes milliseconds of its client and server
		NewStore: func(t testing.TB) drivertest.Store {
			empty(t, direct)
			cutters := make(map[driver.Backend]*cutter)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					c := new(cutter)
					b := open(t, connect(t, c.into), etcdhold.WithPresence(presence))
					cutters[b] = c
					return b
				},
				Lose: func(t testing.TB, key string) { lose(t, direct, key) },
				CutReply: func(_ testing.TB, client driver.Backend) {
					cutters[client].armed.Store(true)
				},
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, server.Endpoint(), key, etcdhold.MinTTL)
				},
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Check: true, Share: true,
			Queue: true, Holder: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanKillHolder: true,
		},
		ShortTTL: etcdhold.MinTTL,
	})
}

// presence is short enough to wait for, and longer than most pauses of a busy machine.
const presence = 3 * time.Second

// lose deletes what the holders of a key have, behind their backs.
func lose(t testing.TB, client *clientv3.Client, key string) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	prefix := etcdhold.DefaultKeyspace + "lock/" + key + "\x00h"
	answer, err := client.Delete(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if answer.Deleted == 0 {
		t.Errorf("nobody held %q", key)
	}
}
