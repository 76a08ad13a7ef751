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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// So that go test does not take a cached result when the command has changed.
	_ "github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
	"github.com/holdfast-go/holdfast/filehold"
)

// guard bounds the waits of a test. It only ends tests that have failed.
const guard = 2 * time.Minute

// longTTL is longer than guard: what happens within guard did not wait for the end of this lease.
const longTTL = "--ttl=1h"

var (
	holdfastPath string // the command, built
	selfPath     string // this program, for its roles
	temporaryDir string // has the user's directory of locks
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
	// No test may use the locks of the user who runs it.
	os.Unsetenv("HOLDFAST_URL")
	// otherwise each program with the race detector takes a second to end
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	holdfastPath = filepath.Join(dir, "holdfast")
	temporaryDir = filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporaryDir, 0o700); err != nil {
		panic(err)
	}
	setDir := "-X 'github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl.temporary=" +
		temporaryDir + "'" // it may have a space
	args := append([]string{"build", "-buildvcs=false", "-ldflags", setDir, "-o", holdfastPath},
		buildFlags...)
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go %v: %v\n%s", args, err, out)
		return 1
	}
	if selfPath, err = os.Executable(); err != nil {
		panic(err)
	}
	return m.Run()
}

// locks returns a new directory of locks. At the end of the test nothing may be left in it.
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

// process is a running holdfast.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of stdout
	stderr *stderr
	ended  chan struct{}
	code   int // 1000+N if signal N killed it; set when ended is closed
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
	p := &process{t: t, cmd: cmd, lines: make(chan string, 4096), stderr: newStderr(),
		ended: make(chan struct{})}
	// Not the pipes of exec.Cmd: Wait closes them, but grandchildren use them for longer.
	inReader, inWriter := pipe(t)
	p.stdin = inWriter
	cmd.Stdin = inReader
	outReader, outWriter := pipe(t)
	errReader, errWriter := pipe(t)
	if cmd.Stdout == nil {
		cmd.Stdout = outWriter
	}
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

// rest returns the remaining lines of stdout. It waits until no process has stdout open.
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

// expectExit waits for the end, with the exit code want.
func (p *process) expectExit(want int) {
	p.t.Helper()
	p.expectExitOf(func(code int) bool { return code == want }, strconv.Itoa(want))
}

func (p *process) expectExitOf(is func(code int) bool, want string) {
	p.t.Helper()
	select {
	case <-p.ended:
		if !is(p.code) {
			p.t.Fatalf("%v: exit code %d, want %s; stderr: %s", p.cmd.Args, p.code, want, p.stderr)
		}
	case <-time.After(guard):
		p.t.Fatalf("%v does not end; stderr: %s", p.cmd.Args, p.stderr)
	}
}

// running fails the test if the process has ended. Call it while waiting for something that the
// process does.
func (p *process) running() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("%v: exit code %d too early; stderr: %s", p.cmd.Args, p.code, p.stderr)
	default:
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stderr collects the output on stderr.
type stderr struct {
	mu    sync.Mutex
	text  bytes.Buffer
	more  chan struct{} // closed and replaced when text changes
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

// expectStderr waits until stderr matches, and returns the match.
func (p *process) expectStderr(pattern string) string {
	p.t.Helper()
	return p.expectStderrFrom(0, pattern)
}

// expectStderrFrom is expectStderr for the text after the first start bytes.
func (p *process) expectStderrFrom(start int, pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(guard)
	for {
		p.stderr.mu.Lock()
		text, more, ended := p.stderr.text.String()[start:], p.stderr.more, p.stderr.ended
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
			p.t.Fatalf("stderr is ...%q so far, want %s", text[max(0, len(text)-2000):], pattern)
		}
	}
}

// allStderr waits for the end of the process and returns all of stderr.
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

// untilWaiting waits until a lock has count waiters. It is for waiters whose stderr does not show
// it.
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

// file creates a file for roles to write to.
func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeProgram writes a file that a test executes. A file cannot be executed while a process that
// another test is just starting has it open for writing. ForkLock keeps that process from being
// started.
func writeProgram(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), mode)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}

// ends waits for the end, with any exit code.
func (p *process) ends() {
	p.t.Helper()
	p.expectExitOf(func(int) bool { return true }, "any")
}
