//go:build unix

package zkhold_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zkhold"
)

// codes returns what Check finds, with the server if one is named.
func codes(t *testing.T, b *zkhold.Backend) (found []string) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	findings, err := b.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		found = append(found, strings.TrimSpace(f.Code+" "+f.Node))
		if f.Summary == "" || f.Advice == "" {
			t.Errorf("%+v says too little", f)
		}
	}
	return found
}

func expectCodes(t *testing.T, b *zkhold.Backend, what string, want ...string) {
	t.Helper()
	if got := codes(t, b); !slices.Equal(got, want) {
		t.Errorf("%s: Check finds %q; want %q", what, got, want)
	}
}

// TestCheck: of a server that is as it should be, Check says only that it is alone. Check reports a
// session that is shorter than was asked for.
func TestCheck(t *testing.T) {
	url := newURL(t)
	expectCodes(t, open(t, url), "a new server", "single-member")
	b := open(t, url, zkhold.WithSession(5*time.Hour))
	expectCodes(t, b, "5h of 4h", "session", "single-member")
	acquire(t, b, claim("k"), driver.Held)
	expectCodes(t, b, "with a lock", "session", "single-member")
}

// TestCheckOfServers: Check understands what a server says of itself. It is hard to make real
// servers say some of it. These words are theirs.
func TestCheckOfServers(t *testing.T) {
	const serves = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on " +
		"2022-02-25 08:49 UTC\nLatency min/avg/max: 0/0.0/0\nMode: "
	url := newURL(t)
	for _, test := range []struct {
		name, answer string
		want         []string
	}{
		{"not allowed", "srvr is not executed because it is not in the whitelist.\n",
			[]string{"not-checked other:1", "single-member"}},
		{"without a leader", "This ZooKeeper instance is not currently serving requests\n",
			[]string{"no-leader other:1", "single-member"}},
		{"read only", serves + "read-only\n", []string{"no-leader other:1", "single-member"}},
		{"of another ensemble", serves + "follower\n", []string{"several-ensembles"}},
		{"old", strings.Replace(serves, "3.8.0", "3.3.6", 1) + "follower\n",
			[]string{"version other:1", "several-ensembles"}},
		{"newer than any", strings.Replace(serves, "3.8.0", "3.10.0", 1) + "follower\n",
			[]string{"several-ensembles"}},
		{"hangs", "", []string{"unreachable other:1", "single-member"}},
	} {
		var opened atomic.Bool
		b := open(t, strings.Replace(url, "/test", ",other:1/test", 1),
			zkhold.WithTimeout(2*time.Second),
			zkhold.WithDialer(func(network, at string, limit time.Duration) (net.Conn, error) {
				if at != "other:1" || !opened.Load() { // the session may begin at any server
					return net.DialTimeout(network, server.Address, limit)
				}
				near, far := net.Pipe()
				go func() {
					word := make([]byte, 4)
					far.Read(word)
					if test.answer != "" {
						far.Write([]byte(test.answer))
						far.Close()
					}
				}()
				return near, nil
			}))
		opened.Store(true)
		expectCodes(t, b, test.name, test.want...)
	}
}

// TestCheckOfRights: if the user may not write something that locks need, Check says so. It leaves
// nothing behind.
func TestCheckOfRights(t *testing.T) {
	client := direct(t)
	all, reads := zk.WorldACL(zk.PermAll), zk.WorldACL(zk.PermRead)
	keeps := zk.WorldACL(zk.PermAll &^ zk.PermDelete)
	for _, test := range []struct {
		name string
		// below the root, which is the first; a ! stands for those nobody may write, and a + for
		// those below which nobody may delete
		nodes []string
		want  []string
	}{
		{"a new root", nil, []string{"single-member"}},
		{"a root", []string{""}, []string{"single-member"}},
		{"slots", []string{"", "/slots", "/slots/000"}, []string{"single-member"}},
		{"a root to read", []string{"!"}, []string{"rights", "single-member"}},
		{"slots to read", []string{"", "!/slots"}, []string{"rights", "single-member"}},
		{"a slot to read", []string{"", "/slots", "!/slots/000"},
			[]string{"rights", "single-member"}},
		{"a slot to keep", []string{"", "/slots", "+/slots/000"},
			[]string{"rights", "single-member"}},
		{"slots to keep", []string{"+", "+/slots", "/slots/000"}, []string{"single-member"}},
	} {
		url := newURL(t)
		_, path, _ := strings.Cut(strings.TrimPrefix(url, "zookeeper://"), "/")
		root := "/" + path
		if _, err := client.Create(root[:strings.LastIndex(root, "/")], nil, 0, all); err != nil {
			t.Fatal(err)
		}
		for _, node := range test.nodes {
			acl := all
			if strings.HasPrefix(node, "!") {
				node, acl = node[1:], reads
			}
			if strings.HasPrefix(node, "+") {
				node, acl = node[1:], keeps
			}
			if _, err := client.Create(root+node, nil, 0, acl); err != nil {
				t.Fatal(err)
			}
		}
		expectCodes(t, open(t, url), test.name, test.want...)
		for _, node := range test.nodes {
			node = strings.TrimLeft(node, "!+")
			children, stat, err := client.Children(root + node)
			if err != nil || stat.Version != 0 || len(children) > 1 ||
				strings.Contains(strings.Join(children, ""), "check") {
				t.Errorf("%s: %s is %+v with %q, %v", test.name, root+node, stat, children, err)
			}
		}
	}
}

// TestCheckOfNothing: when no server answers, that is an error.
func TestCheckOfNothing(t *testing.T) {
	refused := errors.New("connection refused")
	first := true
	b := open(t, newURL(t), zkhold.WithDialer(func(network, at string,
		limit time.Duration) (net.Conn, error) {
		if !first {
			return nil, refused
		}
		first = false
		return net.DialTimeout(network, at, limit)
	}))
	found, err := b.Check(t.Context())
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, refused) {
		t.Errorf("Check: %+v, %v", found, err)
	}
	b.Close()
	if found, err := b.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Check of a closed Backend: %+v, %v", found, err)
	}
}
