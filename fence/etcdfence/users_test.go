//go:build unix

package etcdfence_test

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
)

const password = "a-password-of-the-test"

// withUsers starts a server that asks for passwords. Its users may read and write values; reader
// may read tokens, and writer may write them, too.
func withUsers(t *testing.T) etcdtest.Server {
	s, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove() })
	s.EndWith(t, func() string { return "the server that asks for passwords" })
	admin := connect(t, at(s))
	ctx, cancel := patience(t)
	defer cancel()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	may := func(role, prefix string, what clientv3.PermissionType) {
		must(admin.RoleGrantPermission(ctx, role, prefix, clientv3.GetPrefixRangeEnd(prefix), what))
	}
	for _, name := range []string{"root", "reader", "writer"} {
		must(admin.UserAdd(ctx, name, password))
		must(admin.RoleAdd(ctx, name))
		must(admin.UserGrantRole(ctx, name, name))
		may(name, "value/", clientv3.PermissionType(clientv3.PermReadWrite))
	}
	may("reader", etcdfence.DefaultPrefix, clientv3.PermissionType(clientv3.PermRead))
	may("writer", etcdfence.DefaultPrefix, clientv3.PermissionType(clientv3.PermReadWrite))
	must(admin.AuthEnable(ctx))
	return s
}

func at(s etcdtest.Server) func(*clientv3.Config) {
	return func(c *clientv3.Config) { c.Endpoints = []string{s.Endpoint()} }
}

func as(user string) func(*clientv3.Config) {
	return func(c *clientv3.Config) { c.Username, c.Password = user, password }
}

// A user who may not write the token writes nothing, and learns no more than that.
func TestUsers(t *testing.T) {
	s := withUsers(t)
	client, put := connect(t, at(s), as("writer")), clientv3.OpPut("value/v", "a")
	if _, err := patient(client).Do(t.Context(), "r", 5, put); err != nil {
		t.Fatal(err)
	}
	reader := patient(connect(t, at(s), as("reader")))
	for _, token := range []fence.Token{4, 5, 6} {
		_, err := reader.Do(t.Context(), "r", token, put)
		isUnavailable(t, "Do without the permission", err)
		if err == nil || !strings.Contains(err.Error(), "permission denied") ||
			strings.Contains(err.Error(), password) {
			t.Errorf("Do without the permission = %v; want etcd's words, and no password", err)
		}
	}
	if _, writes := get(t, client, "value/v"); writes != 1 {
		t.Errorf("it is written %d times; want 1", writes)
	}
}
