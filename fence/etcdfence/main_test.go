//go:build unix

package etcdfence_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// server is shared by all tests. They run one after the other, each on an empty store.
var server etcdtest.Server

func TestMain(m *testing.M) {
	s, err := etcdtest.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server = s
	code := m.Run()
	if err := server.Remove(); code != 0 || err != nil {
		code = 1
		fmt.Fprintf(os.Stderr, "%v; log of the server:\n%s", err, server.Log())
	}
	os.Exit(code)
}

// connect returns a client of its own. change alters its settings.
func connect(t testing.TB, change ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()}
	for _, f := range change {
		f(&config)
	}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// intercepted makes the client call f in place of gRPC.
func intercepted(f grpc.UnaryClientInterceptor) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(f))
	}
}

// empty deletes all that is stored.
func empty(t testing.TB, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	if _, err := client.Delete(ctx, "\x00", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
}

// get returns the value of a key, and how often it was written; "" and 0 if it is not there.
func get(t testing.TB, client *clientv3.Client, key string) (value string, writes int64) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	answer, err := client.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		value, writes = string(kv.Value), kv.Version
	}
	return value, writes
}

// patience is a context for what must happen.
func patience(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), testserver.Patience)
}

// patient returns a guard whose calls no pause of the machine ends.
func patient(client *clientv3.Client) etcdfence.Guard {
	return etcdfence.Guard{Client: client, Timeout: testserver.Patience}
}

// token is the key of the resource's token.
func token(resource string) string { return etcdfence.DefaultPrefix + resource }

// digits returns a token as it is stored.
func digits(token fence.Token) string { return fmt.Sprintf("%016d", token) }
