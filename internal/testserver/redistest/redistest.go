//go:build unix

// Package redistest starts real Redis servers for tests, in directories of their own and on free
// ports, and breaks them in various ways: see package testserver for what all servers have in
// common. It is the redis-server of the PATH, or Valkey under that name.
package redistest

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Server is one redis-server process, or Sentinel.
type Server struct {
	testserver.Process
	Addr   string // host:port, or the path of the socket
	unix   bool
	pair   bool // needs the port 10,000 above its own, too
	tls    *Certificates
	secret string
}

// Option changes how a server is started.
type Option func(*Server)

// WithArgs adds arguments of redis-server: "--appendonly", "yes".
func WithArgs(args ...string) Option {
	return func(s *Server) { s.Args = append(s.Args, args...) }
}

// WithPassword sets the default user's password.
func WithPassword(password string) Option {
	return func(s *Server) {
		s.secret = password
		s.Args = append(s.Args, "--requirepass", password, "--masterauth", password)
	}
}

// WithAOF makes the server write a log of every change, flushed to disk as fsync says: "always",
// "everysec" or "no".
func WithAOF(fsync string) Option {
	return WithArgs("--appendonly", "yes", "--appendfsync", fsync)
}

// WithTLS makes the server speak only TLS, and ask clients for certificates.
func WithTLS(c *Certificates) Option {
	return func(s *Server) { s.tls = c }
}

// WithSocket makes the server listen on a Unix socket and nothing else.
func WithSocket() Option {
	return func(s *Server) { s.unix = true }
}

// Start starts a server and waits until it answers.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := newServer(t)
	for _, option := range options {
		option(s)
	}
	port := 0
	free := func() int {
		if s.pair {
			return testserver.FreePort(t, 10_000)
		}
		return testserver.FreePort(t)
	}
	switch {
	case s.unix:
		// Not in the test's own directory: its name may be too long for a socket.
		dir, err := os.MkdirTemp("", "redis")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		s.Addr = filepath.Join(dir, "socket")
		s.Args = append(s.Args, "--port", "0", "--unixsocket", s.Addr)
	case s.tls != nil:
		port = free()
		s.Args = append(s.Args, "--port", "0", "--tls-port", strconv.Itoa(port),
			"--tls-cert-file", s.tls.ServerCert,
			"--tls-key-file", s.tls.ServerKey, "--tls-ca-cert-file", s.tls.CA, "--tls-replication",
			"yes", "--tls-cluster", "yes")
	default:
		port = free()
		s.Args = append(s.Args, "--port", strconv.Itoa(port))
	}
	if port != 0 {
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	s.Args = append(s.Args, "--bind", "127.0.0.1", "--save", "", "--dir", s.Dir, "--daemonize",
		"no", "--protected-mode", "no")
	s.Run(t)
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	path, err := testserver.Find("redis-server", "redis-server")
	if err != nil {
		t.Fatal(err)
	}
	s := new(Server)
	s.Path, s.Dir = path, t.TempDir()
	s.Ready = func() error {
		_, err := s.Try("PING")
		return err
	}
	s.EndWith(t, func() string { return s.Addr })
	return s
}

// Run starts the process, which was stopped or killed, on its old data and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if err := s.Process.Run(); err != nil {
		t.Fatal(err)
	}
}

// Shutdown ends the process in an orderly way and waits until it is gone.
func (s *Server) Shutdown(t testing.TB) {
	t.Helper()
	if err := s.Process.Shutdown(); err != nil {
		t.Fatal(err)
	}
}

// URL returns redis://, or what fits, with the login if there is one.
func (s *Server) URL() string {
	scheme, login := "redis", ""
	if s.secret != "" {
		login = ":" + s.secret + "@"
	}
	if s.unix {
		return "redis+unix://" + login + s.Addr
	}
	if s.tls != nil {
		scheme = "rediss"
	}
	return scheme + "://" + login + s.Addr
}
