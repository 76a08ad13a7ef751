//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// guard bounds the waits of a test. It only ends tests that have failed.
const guard = 60 * time.Second

func TestMain(m *testing.M) {
	role.Play()
	role.HearSignals()
	os.Exit(m.Run())
}

// lease is a lease that a test can end.
type lease struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newLease() *lease {
	ctx, end := context.WithCancelCause(context.Background())
	return &lease{ctx, end}
}

func (l *lease) Done() <-chan struct{} { return l.ctx.Done() }
func (l *lease) Err() error            { return context.Cause(l.ctx) }

var errGone = errors.New("gone for the test")

// run is a running child.
type run struct {
	t       *testing.T
	lease   *lease
	signals chan os.Signal
	stdin   *os.File // the writing end
	lines   chan string
	result  chan child.Result
	losses  chan error
	stops   chan error // warnings that the child is stopped
}

// start runs a shell script as the child. In it, "role NAME" is this test program in a role.
func start(t *testing.T, grace time.Duration, script string) *run {
	t.Helper()
	inReader, inWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outReader, outWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{
		t:       t,
		lease:   newLease(),
		signals: make(chan os.Signal, 16),
		stdin:   inWriter,
		lines:   make(chan string, 1024),
		result:  make(chan child.Result, 1),
		losses:  make(chan error, 2),
		stops:   make(chan error, 16),
	}
	t.Cleanup(func() { outReader.Close(); inWriter.Close() })
	go func() {
		for s := bufio.NewScanner(outReader); s.Scan(); {
			r.lines <- s.Text()
		}
		close(r.lines)
	}()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		result, err := child.Run(child.Command{
			Path: "/bin/sh",
			Args: []string{"sh", "-c", "role() { env " + role.Variable + "=$1 \"$0\"; }; " +
				script, self},
			Env:    os.Environ(),
			Stdin:  inReader,
			Stdout: outWriter,
			Stderr: outWriter,
		}, child.Options{
			Lease:   r.lease,
			Signals: r.signals,
			Grace:   guard,
			Lost:    func(err error) time.Duration { r.losses <- err; return grace },
			Warn: func(err error) {
				if !strings.Contains(err.Error(), "the command is stopped by SIGSTOP") {
					t.Errorf("warning: %v", err)
				}
				r.stops <- err
			},
		})
		inReader.Close()
		outWriter.Close()
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		r.result <- result
	}()
	return r
}

// expect waits for a line of output.
func (r *run) expect(want string) {
	r.t.Helper()
	select {
	case got, ok := <-r.lines:
		if !ok || got != want {
			r.t.Fatalf("got line %q (there is one: %v), want %q", got, ok, want)
		}
	case <-time.After(guard):
		r.t.Fatalf("no line %q", want)
	}
}

// end waits until Run returns.
func (r *run) end() child.Result {
	r.t.Helper()
	select {
	case result := <-r.result:
		return result
	case <-time.After(guard):
		r.t.Fatal("the child does not end")
		panic("unreachable")
	}
}

// rest returns the remaining output. It waits until no process has stdout open.
func (r *run) rest() (lines []string) {
	r.t.Helper()
	timeout := time.After(guard)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				return lines
			}
			lines = append(lines, line)
		case <-timeout:
			r.t.Fatalf("something still has stdout open; it printed %q", lines)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"exit 255", 255},
		{"kill -TERM $$", 128 + 15},
		{"kill -KILL $$", 128 + 9},
		{"kill -HUP $$", 128 + 1},
	} {
		t.Run(test.script, func(t *testing.T) {
			if got := start(t, guard, test.script).end(); got.Code != test.want || got.Lost != nil {
				t.Errorf("got %+v, want code %d", got, test.want)
			}
		})
	}
}

func TestSignalsReachTheWholeGroupOnce(t *testing.T) {
	// Two listeners: the script starts one in its group, and then executes the other.
	r := start(t, guard, `exec 3<&0; role listener <&3 & exec env `+role.Variable+`=listener "$0"`)
	r.expect("ready")
	r.expect("ready")
	var want []string
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		r.signals <- s
		r.expect(fmt.Sprint(int(s)))
		r.expect(fmt.Sprint(int(s)))
	}
	r.stdin.Close()
	if got := r.end(); got.Code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := r.rest(); !slices.Equal(got, want) {
		t.Errorf("more signals than were sent: %q", got)
	}
}

func TestLossEndsTheChild(t *testing.T) {
	r := start(t, guard, `exec env `+role.Variable+`=slow "$0"`)
	r.expect("ready")
	r.lease.end(errGone)
	r.expect("terminated")
	// It ends by itself, with 0, within the grace. It still counts as lost.
	r.stdin.Close()
	r.expect("cleaned up")
	if got := r.end(); !errors.Is(got.Lost, errGone) {
		t.Errorf("got %+v, want lost", got)
	}
	if n := len(r.losses); n != 1 {
		t.Errorf("Lost was called %d times", n)
	}
}

func TestLossKillsWhoIgnoresSIGTERM(t *testing.T) {
	r := start(t, 10*time.Millisecond, `trap '' TERM; role stubborn & role stubborn`)
	r.expect("ready")
	r.expect("ready")
	r.lease.end(errGone)
	if got := r.end(); !errors.Is(got.Lost, errGone) || got.Code != 128+9 {
		t.Errorf("got %+v, want lost and killed", got)
	}
	r.rest() // all processes have ended
}

func TestLossWithoutGraceKillsAtOnce(t *testing.T) {
	r := start(t, 0, `exec env `+role.Variable+`=slow "$0"`)
	r.expect("ready")
	r.lease.end(errGone)
	if got := r.end(); got.Code != 128+9 {
		t.Errorf("got %+v, want killed", got)
	}
	if got := r.rest(); len(got) > 0 {
		t.Errorf("got %q: it had the time to say so", got)
	}
}

func TestLossGivesTheGraceToTheWholeGroup(t *testing.T) {
	// SIGTERM kills the shell, while the program that it waits for cleans up.
	r := start(t, guard, `role slow; exit 3`)
	r.expect("ready")
	r.lease.end(errGone)
	r.expect("terminated")
	r.stdin.Close()
	r.expect("cleaned up")
	if got := r.end(); !errors.Is(got.Lost, errGone) || got.Code != 128+15 {
		t.Errorf("got %+v, want lost and terminated", got)
	}
}

func TestLossKillsWhatTheChildLeavesBehind(t *testing.T) {
	r := start(t, 10*time.Millisecond, `role stubborn & read x`)
	r.expect("ready")
	r.lease.end(errGone)
	r.end()
	r.rest()
}

func TestLossWakesAStoppedChild(t *testing.T) {
	r := start(t, guard, `echo $$; kill -STOP $$; exit 3`)
	pid := <-r.lines
	select {
	case err := <-r.stops:
		if !strings.HasSuffix(err.Error(), "kill -CONT "+pid) {
			t.Errorf("told %v", err)
		}
	case <-time.After(guard):
		t.Fatal("nobody tells that it is stopped")
	}
	r.lease.end(errGone)
	if got := r.end(); got.Code != 128+15 {
		t.Errorf("got %+v, want terminated", got)
	}
}

// TestLossAtTheEnd: the lease is over when the child ends, but Done is not closed yet.
func TestLossAtTheEnd(t *testing.T) {
	over := &silentLease{err: errGone}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	lost := 0
	got, err := child.Run(child.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "exit 0"},
		Stdin: null, Stdout: null, Stderr: null}, child.Options{
		Lease: over,
		Lost:  func(error) time.Duration { lost++; return guard },
		Warn:  func(err error) { t.Error(err) },
	})
	if err != nil || !errors.Is(got.Lost, errGone) || lost != 1 {
		t.Errorf("got %+v, %v, %d calls of Lost", got, err, lost)
	}
}

// silentLease is a lease that has ended, with a Done that is never closed.
type silentLease struct{ err error }

func (*silentLease) Done() <-chan struct{} { return make(chan struct{}) }
func (l *silentLease) Err() error          { return l.err }

func TestWhatStaysInTheBackgroundLives(t *testing.T) {
	r := start(t, guard, `exec 3<&0; role echo <&3 & exit 5`)
	r.expect("ready")
	if got := r.end(); got.Code != 5 {
		t.Fatalf("got %+v", got)
	}
	// By now nothing may kill the group when this process ends.
	fmt.Fprintln(r.stdin, "alive")
	r.expect("echo alive")
	r.stdin.Close()
	r.rest()
}

func TestInheritedFilesKeepTheirNumber(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	got, err := child.Run(child.Command{
		Path:    "/bin/sh",
		Args:    []string{"sh", "-c", fmt.Sprintf("echo inherited >/dev/fd/%d", writer.Fd())},
		Env:     os.Environ(),
		Stdin:   null,
		Stdout:  null,
		Stderr:  os.Stderr,
		Inherit: []*os.File{writer},
	}, child.Options{Lease: newLease(), Warn: func(err error) { t.Error(err) }})
	if err != nil || got.Code != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	writer.Close()
	if text, err := io.ReadAll(reader); err != nil || string(text) != "inherited\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestFind(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", 0o700)
	plain := write("plain", 0o600)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(other, "plain")
	if err := os.WriteFile(second, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, path, command, want string
		err                       error
	}{
		{"in PATH", dir, "good", good, nil},
		{"by path", "", good, good, nil},
		{"missing", dir, "missing", "", child.ErrNotFound},
		{"missing by path", dir, filepath.Join(dir, "missing"), "", child.ErrNotFound},
		{"below a file", dir, good + "/x", "", child.ErrNotFound},
		{"no permission", dir, "plain", "", child.ErrNotExecutable},
		{"no permission by path", dir, plain, "", child.ErrNotExecutable},
		{"no permission first, but later", dir + ":" + other, "plain", second, nil},
		{"directory", dir, dir, "", child.ErrNotExecutable},
		{"directory in PATH", dir, "sub", "", child.ErrNotFound},
		{"empty", dir, "", "", child.ErrNotFound},
		{"empty PATH", "", "good", "", child.ErrNotFound},
		{"name too long", dir, "/" + strings.Repeat("x", 5000), "", child.ErrNotExecutable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", test.path)
			got, err := child.Find(test.command)
			if !errors.Is(err, test.err) {
				t.Fatalf("got %v, want %v", err, test.err)
			}
			if err == nil && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	t.Run("no PATH", func(t *testing.T) {
		t.Setenv("PATH", "")
		os.Unsetenv("PATH")
		if got, err := child.Find("sh"); err != nil {
			t.Errorf("got %q, %v: shells find it", got, err)
		}
	})
}

func TestStartFailures(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, test := range []struct {
		name, content string
		code          int
		err           error
	}{
		{"no #! line", "exit $1", 9, nil},
		{"missing interpreter", "#!/nonexistent/interpreter\n", 0, child.ErrNotFound},
		{"not a program", "\x7fnothing\x00\x01", 0, child.ErrNotExecutable},
		{"empty", "", 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			// A child that is forked during the write would have the file open for writing, and
			// nobody could execute it. ForkLock prevents that.
			syscall.ForkLock.RLock()
			err := os.WriteFile(path, []byte(test.content), 0o700)
			syscall.ForkLock.RUnlock()
			if err != nil {
				t.Fatal(err)
			}
			result, err := child.Run(child.Command{Path: path, Args: []string{"program", "9"},
				Stdin: null, Stdout: null, Stderr: null},
				child.Options{Lease: newLease(), Warn: func(err error) { t.Error(err) }})
			if !errors.Is(err, test.err) || err == nil && result.Code != test.code {
				t.Errorf("got %+v, %v, want code %d, %v", result, err, test.code, test.err)
			}
		})
	}
}

func TestSignalsLeavesIgnoredOnesAlone(t *testing.T) {
	signal.Ignore(syscall.SIGUSR1)
	defer signal.Reset(syscall.SIGUSR1)
	signals, stop := child.Signals()
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-signals:
		if got != syscall.SIGUSR2 {
			t.Errorf("got %v, want the one that is not ignored", got)
		}
	case <-time.After(guard):
		t.Error("no signal")
	}
}

func TestSignalKinds(t *testing.T) {
	if !child.Ends(syscall.SIGHUP) || child.Ends(syscall.SIGWINCH) {
		t.Error("SIGHUP ends a program, SIGWINCH does not")
	}
	if got := child.ExitCode(syscall.SIGINT); got != 130 {
		t.Errorf("SIGINT is %d", got)
	}
}

// TestConcurrentRuns: several supervisors in one process do not reap each other's children. It is
// also for the race detector.
func TestConcurrentRuns(t *testing.T) {
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			if got := start(t, guard, fmt.Sprintf("exit %d", i)).end(); got.Code != i {
				t.Errorf("child %d: %+v", i, got)
			}
		})
	}
	wait.Wait()
}
