//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// startOnTerminal starts a command on a terminal that is so many columns wide. What it shows comes as the process's
// stderr; there is no stdout.
func startOnTerminal(t *testing.T, columns uint16, cmd *exec.Cmd) (p *process, terminal *os.File) {
	t.Helper()
	blocking, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	// A file that can be closed while it is read.
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	terminal = os.NewFile(uintptr(fd), "terminal")
	blocking.Close()
	p = &process{t: t, cmd: cmd, stderr: newStderr(), ended: make(chan struct{})}
	go p.stderr.read(terminal)
	go func() {
		_ = cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v: terminal: %q", cmd.Args, p.stderr)
		}
		_ = cmd.Process.Kill()
		<-p.ended
		terminal.Close()
	})
	return p, terminal
}

// resize tells the terminal, and so its foreground process group, how many columns it has.
func resize(t *testing.T, terminal *os.File, columns uint16) {
	t.Helper()
	raw, err := terminal.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns})
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
}

func TestWaitingOnATerminal(t *testing.T) {
	dir := locks(t)
	holder := startRole(t, dir, "echo", longTTL, "--label=nightly\u202ebackup")
	holder.expect("ready")

	cmd := exec.Command(holdfastPath, "run", longTTL, "name", "--", "sh", "-c", "echo runs; exit 3")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, "TERM=xterm")
	p, terminal := startOnTerminal(t, 200, cmd)
	p.expectStderr(`\r\x1b\[Kholdfast: waiting 0s for "name", held by nightly\?backup \(pid \d+ on .+\), lease ends in \S+, place 1 in the queue`)
	p.expectStderr(`\r\x1b\[Kholdfast: waiting [1-9]s for "name", held by .+, place 1 in the queue`)
	// It heeds the width of the moment.
	resize(t, terminal, 33)
	p.expectStderr(`\r\x1b\[Kholdfast: waiting \ds for "nam\.\.\.\r`)
	holder.stdin.Close()
	holder.expectExit(0)
	p.expectExit(3)
	// Erased before the command prints, and nothing else is said.
	text := p.expectStderr(`[^\r]*\r\x1b\[Kruns\r\n$`)
	if strings.Contains(p.stderr.String(), "acquired") || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("the terminal shows %q", text)
	}
}

func TestWaitingOnATerminalInVain(t *testing.T) {
	dir := locks(t)
	holder := startRole(t, dir, "echo", longTTL)
	holder.expect("ready")
	for _, test := range []struct {
		flags []string
		term  string
		code  int
		want  string
	}{
		{[]string{"--wait=300ms"}, "xterm", 75, `\r\x1b\[Kholdfast: waiting 0s for .*\r\x1b\[Kholdfast: "name" was not free within --wait 300ms; held by .*\r\n$`},
		{[]string{"--wait=300ms"}, "dumb", 75, `^holdfast: waiting for "name", held by .*\r\nholdfast: "name" was not free .*\r\n$`},
		{[]string{"--wait=300ms", "-q"}, "xterm", 75, `^$`},
	} {
		cmd := exec.Command(holdfastPath, append(append([]string{"run", longTTL}, test.flags...), "name", "--", "true")...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, "TERM="+test.term)
		p, _ := startOnTerminal(t, 200, cmd)
		p.expectExit(test.code)
		if test.want == "^$" {
			if got := p.allStderr(); got != "" {
				t.Errorf("%v: the terminal shows %q", test.flags, got)
			}
			continue
		}
		p.expectStderr(test.want)
	}
	// Control-C ends the wait.
	cmd := exec.Command(holdfastPath, "run", longTTL, "name", "--", "true")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, "TERM=xterm")
	p, terminal := startOnTerminal(t, 80, cmd)
	p.expectStderr(`waiting 0s`)
	fmt.Fprint(terminal, "\x03")
	p.expectExit(130)
	p.expectStderr(`\r\x1b\[K$`)
	holder.stdin.Close()
	holder.expectExit(0)
}

// session is a shell with job control on a terminal, and holdfast as its job.
type session struct {
	*process // the shell; its stderr is what the terminal shows
	terminal *os.File
	orders   *os.File
	reports  chan string
}

// startSession has a shell run a job, which is to run holdfast, and that to run this program in a role.
func startSession(t *testing.T, dir, part string, job ...string) *session {
	t.Helper()
	reportReader, reportWriter := pipe(t)
	orderReader, orderWriter := pipe(t)
	cmd := exec.Command(selfPath, job...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, role.Variable+"=shell", "JOB_ROLE="+part)
	cmd.ExtraFiles = []*os.File{reportWriter, orderReader}
	p, terminal := startOnTerminal(t, 80, cmd)
	reportWriter.Close()
	orderReader.Close()
	s := &session{process: p, terminal: terminal, orders: orderWriter, reports: make(chan string, 16)}
	go func() {
		for lines := bufio.NewScanner(reportReader); lines.Scan(); {
			s.reports <- lines.Text()
		}
		close(s.reports)
	}()
	return s
}

// shows waits until the terminal has shown so many lines that match the pattern. What was typed may stand before it.
func (s *session) shows(pattern string, times int) string {
	s.t.Helper()
	return s.expectStderr(`(?s)` + strings.Repeat(`(?:^|\n)(?:\^[A-Z\\])*`+pattern+`\r\n.*`, times))
}

// ready waits for the role, and returns its process ID.
func (s *session) ready() (pid int) {
	s.t.Helper()
	fields := strings.Fields(s.shows(`ready \d+`, 1))
	pid, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// expectReport waits for what the shell says of its job.
func (s *session) expectReport(want string) {
	s.t.Helper()
	select {
	case got := <-s.reports:
		if got != want {
			s.t.Fatalf("the job: %s, want %s; terminal: %q", got, want, s.stderr)
		}
	case <-time.After(guard):
		s.t.Fatalf("nothing happens to the job, want %s; terminal: %q", want, s.stderr)
	}
}

func (s *session) order(what string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.orders, what); err != nil {
		s.t.Fatal(err)
	}
	s.expectReport("continued")
}

func (s *session) types(text string) {
	s.t.Helper()
	if _, err := fmt.Fprint(s.terminal, text); err != nil {
		s.t.Fatal(err)
	}
}

const (
	controlC         = "\x03"
	controlBackslash = "\x1c"
	controlZ         = "\x1a"
)

// TestControlC: the command gets what the terminal sends, once, before it has read from the terminal and after.
func TestControlC(t *testing.T) {
	s := startSession(t, locks(t), "keys", holdfastPath, "run", "name", "--", selfPath)
	s.ready()
	s.types(controlC)
	s.shows("signal 2", 1)
	s.types(controlBackslash)
	s.shows("signal 3", 1)
	s.types("hello\n") // the terminal is now asked for, and given
	s.shows("read hello", 1)
	s.types(controlC)
	s.shows("signal 2.*signal 2", 1)
	s.types("end\n")
	s.expectReport("exit 0")
	s.expectExit(0)
	if n := strings.Count(s.stderr.String(), "signal"); n != 3 {
		t.Errorf("%d signals, want 3: %q", n, s.stderr)
	}
}

// expectStopped checks that a process does not run.
func expectStopped(t *testing.T, pid int) {
	t.Helper()
	if stopped, err := role.IsStopped(pid); err != nil || !stopped {
		t.Errorf("the command runs on; %v", err)
	}
}

// TestControlZ: the command is stopped before holdfast is, whether it wants to or not, and goes on with it.
func TestControlZ(t *testing.T) {
	for name, env := range map[string]string{"heeded": "", "ignored": "1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("IGNORE_STOP", env)
			s := startSession(t, locks(t), "keys", holdfastPath, "run", longTTL, "name", "--", selfPath)
			pid := s.ready()
			for range 3 {
				s.types(controlZ)
				s.expectReport("stopped")
				expectStopped(t, pid)
				s.order("fg")
			}
			s.types(controlC)
			s.shows("signal 2", 1)
			s.types(controlBackslash)
			s.types("end\n")
			s.expectReport("exit 0")
		})
	}
}

// TestControlZWithTheTerminal: the same when the command has the terminal, which it has again after fg.
func TestControlZWithTheTerminal(t *testing.T) {
	t.Setenv("IGNORE_TTIN", "1") // who does so cannot ask for it again
	s := startSession(t, locks(t), "keys", holdfastPath, "run", longTTL, "name", "--", selfPath)
	pid := s.ready()
	s.types(controlBackslash)
	s.types("one\n")
	s.shows("read one", 1)
	for _, line := range []string{"two", "three"} {
		s.types(controlZ)
		s.expectReport("stopped")
		expectStopped(t, pid)
		s.order("fg")
		s.types(line + "\n")
		s.shows("read "+line, 1)
	}
	s.types(controlC)
	s.shows("signal 2", 1)
	s.types("end\n")
	s.expectReport("exit 0")
}

// TestScriptGetsTheTerminalBack: when holdfast has ended, whoever has called it can read from the terminal again.
func TestScriptGetsTheTerminalBack(t *testing.T) {
	s := startSession(t, locks(t), "keys", "sh", "-c", `"$0" run name -- "$1"; read line; echo "the script reads $line"`, holdfastPath, selfPath)
	// Not by control-\, which would end the script as well.
	if err := syscall.Kill(s.ready(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	s.types("end\n")
	s.shows("read end", 1)
	s.types("hello\n")
	s.shows("the script reads hello", 1)
	s.expectReport("exit 0")
}

// TestBackgroundJob: a job that is continued in the background runs, and stops when it wants to read from the
// terminal, until it is brought to the foreground.
func TestBackgroundJob(t *testing.T) {
	s := startSession(t, locks(t), "keys", holdfastPath, "run", longTTL, "name", "--", selfPath)
	pid := s.ready()
	s.types(controlZ)
	s.expectReport("stopped")
	s.order("bg")
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.shows("signal 2", 1)
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil { // now it reads
		t.Fatal(err)
	}
	s.expectReport("stopped")
	s.order("fg")
	s.types("end\n")
	s.shows("read end", 1)
	s.expectReport("exit 0")
}

// TestStoppedForTooLong: nobody renews the lock of a stopped job. When it is continued, its command is ended.
func TestStoppedForTooLong(t *testing.T) {
	dir := locks(t)
	s := startSession(t, dir, "keys", holdfastPath, "run", "--ttl=1s", "name", "--", selfPath)
	s.ready()
	s.types(controlZ)
	s.expectReport("stopped")
	next := startRole(t, dir, "echo", longTTL)
	next.expect("ready")
	s.order("fg")
	s.shows("signal 15", 1)
	s.expectReport("exit 70")
	if !strings.Contains(s.stderr.String(), `holdfast: lock on "name"`) {
		t.Errorf("the terminal shows %q", s.stderr)
	}
	next.stdin.Close()
	next.expectExit(0)
}

// TestHangup: when the terminal goes away, the command goes, and its lock with it.
func TestHangup(t *testing.T) {
	dir := locks(t)
	s := startSession(t, dir, "keys", holdfastPath, "run", longTTL, "name", "--", selfPath)
	s.ready()
	next := startRole(t, dir, "echo", longTTL)
	next.waiting()
	s.terminal.Close()
	next.expect("ready")
	next.stdin.Close()
	next.expectExit(0)
	// Nobody is left who could tell when the first holdfast has ended, but its place in the directory is gone then.
	timeout, look := time.After(guard), time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		members, err := os.ReadDir(filepath.Join(dir, "members"))
		if err != nil {
			t.Fatal(err)
		}
		if len(members) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-timeout:
			t.Fatal("it does not end")
		}
	}
}
