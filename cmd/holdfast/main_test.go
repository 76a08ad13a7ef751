//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// For go test, which takes a result from its cache unless something has changed that the test is made of.
	_ "github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
	"github.com/holdfast-go/holdfast/filehold"
)

// guard is how long a test waits for what must come. It only ends tests that have failed.
const guard = 2 * time.Minute

// longTTL is a lease that nobody in a test waits for: what comes before guard is over did not wait for it to end.
const longTTL = "--ttl=1h"

var (
	holdfastPath string // the command, built
	selfPath     string // this program, for its roles
	temporaryDir string // where the command has its directory if it is not told another
)

func TestMain(m *testing.M) {
	role.Play()
	role.HearSignals()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-test")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	// No test may use the locks of whoever runs it.
	os.Unsetenv("HOLDFAST_URL")
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each program with the race detector takes a second to end
	holdfastPath = filepath.Join(dir, "holdfast")
	temporaryDir = filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporaryDir, 0o700); err != nil {
		panic(err)
	}
	setDir := "-X github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl.temporary=" + temporaryDir
	args := append([]string{"build", "-buildvcs=false", "-ldflags", setDir, "-o", holdfastPath}, buildFlags...)
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go %v: %v\n%s", args, err, out)
		return 1
	}
	if selfPath, err = os.Executable(); err != nil {
		panic(err)
	}
	return m.Run()
}

// locks is a directory of locks of one test. When the test is over, nothing may be left in it.
func locks(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Cleanup(func() { nothingLeft(t, dir) })
	return dir
}

// nothingLeft checks that no key and no member is left in a directory of filehold.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"keys", "members"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		for _, e := range entries {
			t.Errorf("left behind: %s/%s", sub, e.Name())
		}
	}
}

// process is a holdfast that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of stdout
	stderr *stderr
	ended  chan struct{}
	code   int // 1000 and the number of the signal, if it died by one; set when ended is closed
}

// start starts holdfast with the address of dir and the environment env.
func start(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(holdfastPath, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
	cmd.Env = append(cmd.Env, env...)
	return startCommand(t, cmd)
}

// startRole starts holdfast run with this program in a role.
func startRole(t *testing.T, dir, part string, flags ...string) *process {
	t.Helper()
	args := append(append([]string{"run"}, flags...), "name", "--", selfPath)
	return start(t, dir, []string{role.Variable + "=" + part}, args...)
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, lines: make(chan string, 4096), stderr: newStderr(), ended: make(chan struct{})}
	// Pipes of our own: Wait would close those of exec.Cmd, and grandchildren use them for longer.
	inReader, inWriter := pipe(t)
	p.stdin = inWriter
	cmd.Stdin = inReader
	outReader, outWriter := pipe(t)
	errReader, errWriter := pipe(t)
	cmd.Stdout = outWriter
	if cmd.Stderr == nil {
		cmd.Stderr = errWriter
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inReader.Close()
	outWriter.Close()
	errWriter.Close()
	go func() {
		for s := bufio.NewScanner(outReader); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	go p.stderr.read(errReader)
	go func() {
		_ = cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			p.code = 1000 + int(status.Signal())
		}
		close(p.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v: stderr: %s", cmd.Args, p.stderr)
		}
		_ = cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func pipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return reader, writer
}

// expect waits for a line of stdout.
func (p *process) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("got line %q, want %q", got, want)
	}
}

// line waits for a line of stdout and returns it.
func (p *process) line() string {
	p.t.Helper()
	select {
	case got, ok := <-p.lines:
		if !ok {
			p.t.Fatal("stdout has ended")
		}
		return got
	case <-time.After(guard):
		p.t.Fatal("no line of stdout")
	}
	panic("unreachable")
}

// rest returns what else comes on stdout, after all who have it open are gone.
func (p *process) rest() (lines []string) {
	p.t.Helper()
	timeout := time.After(guard)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return lines
			}
			lines = append(lines, line)
		case <-timeout:
			p.t.Fatalf("somebody still has stdout open; it got %q", lines)
		}
	}
}

// expectExit waits for the end.
func (p *process) expectExit(want int) {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.code != want {
			p.t.Fatalf("%v: exit code %d, want %d; stderr: %s", p.cmd.Args, p.code, want, p.stderr)
		}
	case <-time.After(guard):
		p.t.Fatalf("%v does not end; stderr: %s", p.cmd.Args, p.stderr)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stderr collects what comes on stderr.
type stderr struct {
	mu    sync.Mutex
	text  bytes.Buffer
	more  chan struct{} // closed, and made anew, when text has changed
	ended bool
}

func newStderr() *stderr { return &stderr{more: make(chan struct{})} }

func (s *stderr) read(r io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := r.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.ended = err != nil
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *stderr) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// expectStderr waits until a part of what came on stderr matches, and returns that part.
func (p *process) expectStderr(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(guard)
	for {
		p.stderr.mu.Lock()
		text, more, ended := p.stderr.text.String(), p.stderr.more, p.stderr.ended
		p.stderr.mu.Unlock()
		if found := re.FindString(text); found != "" {
			return found
		}
		if ended {
			p.t.Fatalf("stderr is %q, want %s", text, pattern)
		}
		select {
		case <-more:
		case <-timeout:
			p.t.Fatalf("stderr is %q so far, want %s", text, pattern)
		}
	}
}

// allStderr returns all that came on stderr of a process that has ended.
func (p *process) allStderr() string {
	p.t.Helper()
	<-p.ended
	timeout := time.After(guard)
	for {
		p.stderr.mu.Lock()
		text, more, ended := p.stderr.text.String(), p.stderr.more, p.stderr.ended
		p.stderr.mu.Unlock()
		if ended {
			return text
		}
		select {
		case <-more:
		case <-timeout:
			p.t.Fatalf("somebody still has stderr open; it got %q", text)
		}
	}
}

// waiting waits until the process waits for the lock.
func (p *process) waiting() {
	p.t.Helper()
	p.expectStderr(`holdfast: waiting for "name".*\n`)
}

// untilWaiting waits until so many wait for a lock, for the sake of those who cannot say so.
func untilWaiting(t *testing.T, dir, key string, count int) {
	t.Helper()
	backend, err := filehold.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	timeout, look := time.After(guard), time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		entry, err := backend.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if len(entry.Waiters) == count {
			return
		}
		select {
		case <-look.C:
		case <-timeout:
			t.Fatalf("%d wait for %q, want %d", len(entry.Waiters), key, count)
		}
	}
}

// file makes a file for roles to write to.
func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}
