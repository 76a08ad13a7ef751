//go:build unix

// Package etcdtest starts real etcd servers for tests: see package testserver.
package etcdtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Server is an etcd of one member that several tests share. Kill is a crash.
type Server struct {
	*testserver.Process
	Socket string // path
}

// The sockets for clients and for other members, in the directory where the server runs. It wants
// names like those of a host and a port.
const (
	scheme = "unix://"
	client = "client:0"
	peer   = "peer:0"
)

// noFsync is set in the environment, because older servers do not know it as a flag. A crash of the
// process loses nothing by it, and a slow disk cannot fail a test.
const noFsync = "ETCD_UNSAFE_NO_FSYNC=true"

// Start starts an etcd on new data, on a socket in its own directory. Remove ends it.
func Start() (Server, error) {
	path, err := testserver.Find("etcd", "etcd-server")
	if err != nil {
		return Server{}, err
	}
	p, err := testserver.Prepare("etcd")
	if err != nil {
		return Server{}, err
	}
	s := Server{p, filepath.Join(p.Dir, client)}
	p.Path = path
	p.Env = append(p.Env, noFsync)
	p.Args = []string{"--data-dir", filepath.Join(p.Dir, "data"), "--logger", "zap",
		"--log-level", "error",
		"--listen-client-urls", scheme + client, "--advertise-client-urls", scheme + client,
		"--listen-peer-urls", scheme + peer, "--initial-advertise-peer-urls", scheme + peer,
		"--initial-cluster", "default=" + scheme + peer,
		// Leases are at least one and a half of the election timeout, in whole seconds. A short
		// timeout does no harm here, because the server waits for no other member.
		"--heartbeat-interval", "50", "--election-timeout", "500"}
	p.Ready = func() error { return answers("unix", s.Socket) }
	if err := s.Run(); err != nil {
		return Server{}, errors.Join(err, p.Remove())
	}
	return s, nil
}

// Run starts the process, which was never started or has ended, on the data that it has, and waits
// until it answers.
func (s Server) Run() error {
	// A server that is killed leaves its sockets behind, and does not start where one is.
	for _, name := range []string{client, peer} {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return s.Process.Run()
}

// Endpoint is how clients reach it.
func (s Server) Endpoint() string { return scheme + s.Socket }

// answers asks the server for its health. A server without a leader listens and is not healthy.
func answers(network, address string) error {
	conn, err := net.DialTimeout(network, address, testserver.Patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testserver.Patience))
	if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	if err != nil {
		return err
	}
	if !strings.Contains(string(reply), `"health":"true"`) {
		return fmt.Errorf("it answers %q", reply)
	}
	return nil
}
