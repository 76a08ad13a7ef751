package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/faketb"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// parentVariable makes this test program start a server and wait to be killed. Its value is the
// server's directory.
const parentVariable = "TESTSERVER_PARENT"

// busyVariable makes this test program a server whose threads never rest. Its value is the server's
// directory.
const busyVariable = "TESTSERVER_BUSY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		s := newServer(dir, serving)
		if err := s.Run(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("started")
		select {}
	}
	if dir := os.Getenv(busyVariable); dir != "" {
		beBusy(dir)
	}
	os.Exit(m.Run())
}

// beBusy writes its process's id into a file once it is busy, in one step.
func beBusy(dir string) {
	runtime.GOMAXPROCS(4)
	var work atomic.Uint64
	for range 3 {
		go func() {
			for {
				work.Add(1)
			}
		}()
	}
	path := filepath.Join(dir, "pid")
	if err := os.WriteFile(path+"-", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(path+"-", path); err != nil {
		panic(err)
	}
	select {}
}

// serving is a server that answers by keeping a pipe open as long as it lives.
const serving = `echo hello; exec 3<>lifeline; while :; do read line <&3; done`

// newServer returns a server that is a shell with the script.
func newServer(dir, script string) *testserver.Process {
	return &testserver.Process{Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir,
		Ready: func() error {
			pipe, err := openPipe(dir)
			if err == nil {
				pipe.Close()
			}
			return err
		}}
}

// openPipe opens the pipe, which only the server reads. It fails with ENXIO if the server is gone.
func openPipe(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lifeline"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
}

// newDir makes a directory with the pipe of a server in it.
func newDir(t *testing.T) string {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "lifeline"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A server dies with the process that has started it, even if that process is killed and cleans
// nothing up.
func TestServerDiesWithItsParent(t *testing.T) {
	dir := newDir(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"="+dir)
	said, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testserver.StartProcess(parent); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "started\n" {
		t.Fatalf("the process that starts the server says %q, %v", line, err)
	}
	parent.Process.Kill()
	parent.Wait()
	testserver.Eventually(t, "the server is gone", func() error {
		pipe, err := openPipe(dir)
		if err == nil {
			pipe.Close()
		}
		return testserver.Not(errors.Is(err, syscall.ENXIO), "its pipe opens: %v", err)
	})
}

// If a server ends instead of answering, there is an error at once, with what the server said.
func TestRunTellsWhatAServerSaidThatEnds(t *testing.T) {
	err := newServer(t.TempDir(), "echo no such option >&2; exit 3").Run()
	if err == nil || !strings.Contains(err.Error(), "sh ended: exit status 3: no such option") {
		t.Errorf("Run = %v; want the exit status and the log", err)
	}
}

// When a test fails, its server is killed, and the log shows what the server said. A test that
// passes shows nothing.
func TestEndWith(t *testing.T) {
	for name, c := range map[string]struct {
		fails bool
		shown string
	}{
		"passes": {false, ""},
		"fails":  {true, "broken\nlog of the server:\nhello\n\n"},
	} {
		s := newServer(newDir(t), serving)
		rec := &faketb.Recorder{TB: t}
		rec.Run(func() {
			s.EndWith(rec, func() string { return "the server" })
			if err := s.Run(); err != nil {
				t.Error(err)
			}
			if c.fails {
				rec.Fatal("broken")
			}
		})
		if rec.Text() != c.shown {
			t.Errorf("%s: shown is %q; want %q", name, rec.Text(), c.shown)
		}
		if _, err := openPipe(s.Dir); !errors.Is(err, syscall.ENXIO) {
			t.Errorf("%s: the server's pipe opens: %v; want ENXIO, as it is gone", name, err)
		}
	}
}

// Freeze returns only when no thread of the server runs.
func TestFreezeWaitsForAllThreads(t *testing.T) {
	s := &testserver.Process{Path: os.Args[0], Dir: newDir(t)}
	s.Env = []string{busyVariable + "=" + s.Dir}
	s.Ready = func() error {
		_, err := os.Stat(filepath.Join(s.Dir, "pid"))
		return err
	}
	s.EndWith(t, func() string { return "the server" })
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(filepath.Join(s.Dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		s.Freeze()
		threads, err := filepath.Glob("/proc/" + string(pid) + "/task/*/stat")
		if err != nil || len(threads) < 2 {
			t.Fatalf("the threads of the server: %q, %v", threads, err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			_, state, ok := strings.Cut(string(stat), ") ")
			if err != nil || !ok || state[0] != 'T' {
				t.Fatalf("a thread of a frozen server: %s, %v; want state T", stat, err)
			}
		}
		s.Thaw()
	}
}

// A server is frozen, killed in this state, and started again on its data. Its log goes on.
func TestKillAndRunAgain(t *testing.T) {
	for _, fatal := range []syscall.Signal{0, syscall.SIGQUIT} {
		s := newServer(newDir(t), serving)
		s.Fatal = fatal
		s.EndWith(t, func() string { return "the server" })
		s.Kill() // it was never started
		for range 2 {
			if err := s.Run(); err != nil {
				t.Fatal(err)
			}
			s.Freeze()
			s.Kill()
			s.Kill() // it is gone
		}
		if s.Log() != "hello\nhello\n" {
			t.Errorf("the log is %q; want that of both runs", s.Log())
		}
		if err := s.Run(); err != nil {
			t.Fatal(err)
		}
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory is still there: %v", err)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"9", "15"} {
		if err := os.MkdirAll(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "9", "holdfast-no-such-server")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := testserver.Find("holdfast-no-such-server", "nothing",
		filepath.Join(dir, "*")); err != nil || path != program {
		t.Errorf("Find = %q, %v; want %q", path, err, program)
	}
	_, err := testserver.Find("holdfast-no-such-server", "holdfast-server",
		filepath.Join(dir, "15"))
	if !errors.Is(err, exec.ErrNotFound) ||
		!strings.Contains(err.Error(),
			"install Debian's holdfast-server, or put one into the PATH") {
		t.Errorf("Find of a program that is missing: %v; want what to install", err)
	}
}

func TestFreePortIsGivenOnce(t *testing.T) {
	given := make(map[int]bool)
	for range 100 {
		port := testserver.FreePort(t, 10)
		if given[port] {
			t.Errorf("port %d is given twice", port)
		}
		given[port] = true
	}
}

// A port that another test process was given is not given again, though no server listens there yet
// or any more.
func TestFreePortIsGivenToOneProcess(t *testing.T) {
	port := testserver.FreePort(t)
	address := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	if c, err := net.ListenPacket("udp", address(port)); err == nil {
		c.Close()
		t.Errorf("another process may get port %d as well", port)
	}
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		t.Errorf("no server can listen: %v", err)
	} else {
		l.Close()
	}
	theirs := make(map[int]bool)
	for distance := range 5 {
		if c, err := net.ListenPacket("udp", address(port+1+distance)); err == nil {
			defer c.Close()
			theirs[port+1+distance] = true
		}
	}
	for range 5 {
		if next := testserver.FreePort(t); theirs[next] {
			t.Errorf("port %d, which another process has, is given", next)
		}
	}
}
