//go:build unix

package etcdtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// StartCluster starts a cluster of three members, which are reached over TCP. They are removed when
// the test ends.
func StartCluster(t testing.TB) ([]*Member, error) {
	path, err := testserver.Find("etcd", "etcd-server")
	if err != nil {
		return nil, err
	}
	const size = 3
	members := make([]*Member, size)
	cluster := make([]string, size)
	for i := range members {
		p, err := testserver.Prepare("etcd")
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			if err := p.Remove(); err != nil {
				t.Error(err)
			}
		})
		members[i] = &Member{p, fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))}
		cluster[i] = fmt.Sprintf("n%d=http://127.0.0.1:%d", i, testserver.FreePort(t))
	}
	var running sync.WaitGroup
	failed := make([]error, size)
	for i, m := range members {
		name, peer, _ := strings.Cut(cluster[i], "=")
		m.Path = path
		m.Env = append(m.Env, noFsync)
		m.Args = []string{"--name", name, "--data-dir", m.Dir + "/data", "--logger", "zap",
			"--log-level", "error", "--initial-cluster", strings.Join(cluster, ","),
			"--listen-client-urls", "http://" + m.Address,
			"--advertise-client-urls", "http://" + m.Address,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--heartbeat-interval", "100", "--election-timeout", "1000"}
		m.Ready = func() error { return answers("tcp", m.Address) }
		// None of them is healthy before two run.
		running.Go(func() { failed[i] = m.Run() })
	}
	running.Wait()
	return members, errors.Join(failed...)
}

// Member is one of a cluster. Kill is a crash.
type Member struct {
	*testserver.Process
	Address string // host and port
}
