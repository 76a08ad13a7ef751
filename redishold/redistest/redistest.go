// Package redistest starts real Redis servers for tests, in directories of their own and on free ports, and
// breaks them in various ways. A server that is missing fails the test. Servers die with the test process.
package redistest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for a server. It is long since the machine may be busy; no test waits for it to
// pass.
const patience = 30 * time.Second

// Server is one redis-server process, or Sentinel.
type Server struct {
	Addr   string // host:port, or the path of the socket
	Dir    string // where it keeps its data
	unix   bool
	tls    *Certificates
	secret string
	binary string
	args   []string
	env    []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	output bytes.Buffer
}

// Option changes how a server is started.
type Option func(*Server)

// WithArgs adds arguments of redis-server: "--appendonly", "yes".
func WithArgs(args ...string) Option {
	return func(s *Server) { s.args = append(s.args, args...) }
}

// WithPassword sets the default user's password.
func WithPassword(password string) Option {
	return func(s *Server) {
		s.secret = password
		s.args = append(s.args, "--requirepass", password, "--masterauth", password)
	}
}

// WithAOF has the server write a log of every change, flushed to disk as fsync says: "always", "everysec" or
// "no".
func WithAOF(fsync string) Option {
	return WithArgs("--appendonly", "yes", "--appendfsync", fsync)
}

// WithTLS has the server speak only TLS, and ask clients for certificates.
func WithTLS(c *Certificates) Option {
	return func(s *Server) { s.tls = c }
}

// WithSocket has the server listen on a Unix socket and nothing else.
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
	switch {
	case s.unix:
		// Not in a test's own directory, whose name may be longer than a socket's may be.
		dir, err := os.MkdirTemp("", "redis")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		s.Addr = filepath.Join(dir, "socket")
		s.args = append(s.args, "--port", "0", "--unixsocket", s.Addr)
	case s.tls != nil:
		port = FreePort(t)
		s.args = append(s.args, "--port", "0", "--tls-port", strconv.Itoa(port), "--tls-cert-file", s.tls.ServerCert,
			"--tls-key-file", s.tls.ServerKey, "--tls-ca-cert-file", s.tls.CA, "--tls-replication", "yes", "--tls-cluster", "yes")
	default:
		port = FreePort(t)
		s.args = append(s.args, "--port", strconv.Itoa(port))
	}
	if port != 0 {
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	s.args = append(s.args, "--bind", "127.0.0.1", "--save", "", "--dir", s.Dir, "--daemonize", "no", "--protected-mode", "no")
	s.Run(t)
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("%v: install Debian's redis-server, or put one into the PATH", err)
	}
	s := &Server{Dir: t.TempDir(), binary: path}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("log of %s:\n%s", s.Addr, s.output.Bytes())
		}
	})
	return s
}

// spawner starts all processes: parent-death signals come when the starting thread ends, and this one does not.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartProcess starts a process that dies with this one, whatever ends it.
func StartProcess(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}

// Run starts the process, which was stopped or killed, on its old data and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Dir = s.Dir
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout = &lockedWriter{s: s}
	s.cmd.Stderr = s.cmd.Stdout
	err := StartProcess(s.cmd)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func() {
		s.cmd.Wait()
		close(exited)
	}()
	Eventually(t, "the server answers", func() error {
		select {
		case <-exited:
			t.Fatalf("the server ended: %s", s.Log())
		default:
		}
		_, err := s.Try("PING")
		return err
	})
}

type lockedWriter struct{ s *Server }

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.output.Write(p)
}

// Log returns what the server has said so far.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

func (s *Server) signal(sig syscall.Signal) {
	if s.cmd != nil && s.cmd.Process != nil {
		s.cmd.Process.Signal(sig)
	}
}

// Freeze stops the process in its tracks: connections stay open and nothing is answered.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL and waits until it is gone.
func (s *Server) Kill() {
	if s.exited == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	<-s.exited
}

// Shutdown ends the process in an orderly way and waits until it is gone.
func (s *Server) Shutdown(t testing.TB) {
	t.Helper()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(patience):
		t.Fatal("the server does not stop")
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

// Ports are tried one after the other, from a random one on: so two test processes at the same time rarely
// try the same.
const firstPort, lastPort = 10_000, 32_000

var ports atomic.Int64 // tried so far, and where that began

func init() { ports.Store(rand.Int64N(lastPort - firstPort)) }

// FreePort returns a port that was free a moment ago, and that it has not returned before. It is below those
// that systems give to outgoing connections, one of which could take it before the server does.
func FreePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 1000 {
		port := firstPort + int(ports.Add(1)%(lastPort-firstPort))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("no free port from %d to %d: %v", firstPort, lastPort, err)
	return 0
}

// Eventually calls f until it returns nil, and fails the test if it does not.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for this: %s: %v", what, err)
		}
	}
}

// Not is an error for Eventually if ok does not hold.
func Not(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
