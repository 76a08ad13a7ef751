//go:build unix

package etcdhold_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdhold"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

// server is shared by most tests. They run one after the other, each on an empty store.
var server etcdtest.Server

func TestMain(m *testing.M) {
	testserver.PlayHolder(func(_ context.Context, address string) (driver.Backend, error) {
		client, err := clientv3.New(config(address))
		if err != nil {
			return nil, err
		}
		return etcdhold.New(client, patient...)
	})
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

func config(endpoint string) clientv3.Config {
	return clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()}
}

// connect returns a client of its own. change alters its settings.
func connect(t testing.TB, change ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	config := config(server.Endpoint())
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

// patient is for tests in which a pause of the machine must end nothing.
var patient = []etcdhold.Option{etcdhold.WithTimeout(testserver.Patience),
	etcdhold.WithPresence(testserver.Patience)}

// open returns a Backend on the client, which is patient unless the options say otherwise.
func open(t testing.TB, client *clientv3.Client, options ...etcdhold.Option) *etcdhold.Backend {
	t.Helper()
	b, err := etcdhold.New(client, slices.Concat(patient, options)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
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

// patience is a context for what must happen.
func patience(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), testserver.Patience)
}
