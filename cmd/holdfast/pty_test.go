//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// startOnTerminal starts a command on a new terminal. The process's stderr is what the terminal
// shows; there is no stdout.
func startOnTerminal(t *testing.T, columns uint16, cmd *exec.Cmd) (p *process, terminal *os.File) {
	t.Helper()
	blocking, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	// A non-blocking file can be closed during a read.
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
			text := p.stderr.String()
			t.Logf("%v: terminal: ...%q", cmd.Args, text[max(0, len(text)-2000):])
		}
		_ = cmd.Process.Kill()
		<-p.ended
		terminal.Close()
	})
	return p, terminal
}

// resize sets the width of the terminal. Its foreground process group gets a signal.
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
	p.expectStderr(
		`\r\x1b\[Kholdfast: waiting \d+s for "name", held by nightly\?backup \(pid \d+ on .+\) for \d+s \(lease \S+, renewed while it lives\), place 1 in the queue`)
	p.expectStderr(`\r\x1b\[Kholdfast: waiting [1-9]\d*s for "name", held by .+, place 1 in the queue`)
	// The line follows a change of the width.
	resize(t, terminal, 33)
	p.expectStderr(`\r\x1b\[Kholdfast: waiting \d+s for "na(m|)\.\.\.\r`)
	holder.stdin.Close()
	holder.expectExit(0)
	p.expectExit(3)
	// The line is erased before the command prints, and there is no other message.
	text := p.expectStderr(`[^\r]*\r\x1b\[Kruns\r\n$`)
	if strings.Contains(p.stderr.String(), "acquired") ||
		strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("the terminal shows %q", text)
	}
}

func TestWaitingOnATerminalInVain(t *testing.T) {
	dir := locks(t)
	holder := startRole(t, dir, "echo", longTTL)
	holder.expect("ready")
	tests := []struct {
		flags []string
		term  string
		code  int
		want  string
	}{
		{[]string{"--wait=4s"}, "xterm", 75,
			`\r\x1b\[Kholdfast: waiting \ds for .*\r\x1b\[Kholdfast: "name" was not free within --wait 4s; held by .*\r\n$`},
		{[]string{"--wait=4s"}, "dumb", 75,
			`^holdfast: waiting for "name", held by .*\r\nholdfast: "name" was not free .*\r\n$`},
		{[]string{"--wait=4s", "-q"}, "xterm", 75, `^$`},
	}
	// All at once, because the backend needs time to say who holds it.
	var waiters []*process
	for _, test := range tests {
		cmd := exec.Command(holdfastPath, append(append([]string{"run", longTTL}, test.flags...),
			"name", "--", "true")...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, "TERM="+test.term)
		p, _ := startOnTerminal(t, 200, cmd)
		waiters = append(waiters, p)
	}
	for i, test := range tests {
		p := waiters[i]
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
	p.expectStderr(`waiting \d+s`)
	fmt.Fprint(terminal, "\x03")
	p.expectExit(130)
	p.expectStderr(`\r\x1b\[K$`)
	holder.stdin.Close()
	holder.expectExit(0)
}

// session is a shell with job control on a terminal. Its job runs holdfast.
type session struct {
	*process // the shell; stderr is what the terminal shows
	terminal *os.File
	orders   *os.File
	reports  chan string
}

// startSession starts a shell that runs a job. The job runs holdfast, which runs this program in a
// role.
func startSession(t *testing.T, dir, part string, job ...string) *session {
	t.Helper()
	reportReader, reportWriter := pipe(t)
	orderReader, orderWriter := pipe(t)
	cmd := exec.Command(selfPath, job...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir, role.Variable+"=shell",
		"JOB_ROLE="+part)
	cmd.ExtraFiles = []*os.File{reportWriter, orderReader}
	p, terminal := startOnTerminal(t, 80, cmd)
	reportWriter.Close()
	orderReader.Close()
	s := &session{process: p, terminal: terminal, orders: orderWriter,
		reports: make(chan string, 16)}
	go func() {
		for lines := bufio.NewScanner(reportReader); lines.Scan(); {
			s.reports <- lines.Text()
		}
		close(s.reports)
	}()
	return s
}

// shows waits until the terminal has shown a number of lines that match the pattern. The echo of
// typed keys may stand before the match.
func (s *session) shows(pattern string, times int) string {
	s.t.Helper()
	return s.expectStderr(`(?s)` + strings.Repeat(`(?:^|\n)(?:\^[A-Z\\])*`+pattern+`\r\n.*`, times))
}

// ready waits until the role is ready, and returns its process ID.
func (s *session) ready() (pid int) {
	s.t.Helper()
	fields := strings.Fields(s.shows(`ready \d+`, 1))
	pid, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// expectReport waits for a report of the shell about its job.
func (s *session) expectReport(want string) {
	s.t.Helper()
	if got := s.report(want); got != want {
		s.t.Fatalf("the job: %s, want %s; terminal: %q", got, want, s.stderr)
	}
}

// report returns what happens next to the job.
func (s *session) report(want string) (got string) {
	s.t.Helper()
	select {
	case got = <-s.reports:
	case <-time.After(guard):
		s.t.Fatalf("nothing happens to the job, want %s", want)
	}
	return got
}

// code returns the exit code with which the job ends.
func (s *session) code() (code int) {
	s.t.Helper()
	got := s.report("its end")
	if _, err := fmt.Sscanf(got, "exit %d", &code); err != nil {
		s.t.Fatalf("the job: %s, want its end; terminal: %q", got, s.stderr)
	}
	return code
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

// TestControlC: the command gets each signal of the terminal once, before and after it has read
// from the terminal.
func TestControlC(t *testing.T) {
	s := startSession(t, locks(t), "keys", holdfastPath, "run", "name", "--", selfPath)
	s.ready()
	s.types(controlC)
	s.shows("signal 2", 1)
	s.types(controlBackslash)
	s.shows("signal 3", 1)
	s.types("hello\n") // the command asks for the terminal now, and gets it
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

// expectStopped checks that a process is stopped.
func expectStopped(t *testing.T, pid int) {
	t.Helper()
	if stopped, err := role.IsStopped(pid); err != nil || !stopped {
		t.Errorf("the command runs on; %v", err)
	}
}

// TestControlZ: the command is stopped before holdfast, even if it ignores SIGTSTP, and is
// continued with holdfast.
func TestControlZ(t *testing.T) {
	for name, test := range map[string]struct{ env, script string }{
		"heeded": {"", `exec "$0" run --ttl=1h name -- "$1"`},
		// In a pipeline the others keep the terminal until the command asks for it.
		"heeded in a pipeline":  {"", `exec "$0" run --ttl=1h name -- "$1" </dev/null`},
		"ignored in a pipeline": {"1", `exec "$0" run --ttl=1h name -- "$1" </dev/null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("IGNORE_STOP", test.env)
			s := startSession(t, locks(t), "keys", "sh", "-c", test.script, holdfastPath, selfPath)
			pid := s.ready()
			for range 3 {
				s.types(controlZ)
				s.expectReport("stopped")
				expectStopped(t, pid)
				s.order("fg")
			}
			s.types(controlC)
			s.shows("signal 2", 1)
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			s.expectReport("exit 0")
		})
	}
}

// TestControlZAfterAStopByOthers: a command that somebody has stopped and continued still gets
// SIGTSTP at control-Z, so that it can restore the terminal before it is stopped.
func TestControlZAfterAStopByOthers(t *testing.T) {
	t.Setenv("HEAR_STOP", "1")
	s := startSession(t, locks(t), "keys", "sh", "-c",
		`exec "$0" run --ttl=1h name -- "$1" </dev/null`, holdfastPath, selfPath)
	pid := s.ready()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.shows(`holdfast: the command is stopped by SIGSTOP, .*`, 1)
	for _, sig := range []syscall.Signal{syscall.SIGCONT, syscall.SIGINT} {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	s.shows("signal 2", 1) // the command runs
	s.types(controlZ)
	s.shows("signal 20", 1)
	s.expectReport("stopped")
	expectStopped(t, pid)
	s.order("fg")
	s.types(controlBackslash) // the command then reads, and nobody types
	s.shows("signal 3", 1)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.expectReport("exit 0")
}

// TestControlZWithTheTerminal: the same for a command that has the terminal. It has it again after
// fg.
func TestControlZWithTheTerminal(t *testing.T) {
	t.Setenv("IGNORE_TTIN", "1") // so it cannot ask for the terminal again
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

// TestScriptGetsTheTerminalBack: when holdfast has ended, the script that has called it can read
// from the terminal again.
func TestScriptGetsTheTerminalBack(t *testing.T) {
	s := startSession(t, locks(t), "keys", "sh", "-c",
		`"$0" run name -- "$1"; read line; echo "the script reads $line"`, holdfastPath, selfPath)
	// control-\ would end the script as well.
	if err := syscall.Kill(s.ready(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	s.types("end\n")
	s.shows("read end", 1)
	s.types("hello\n")
	s.shows("the script reads hello", 1)
	s.expectReport("exit 0")
}

// TestBackgroundJob: a job that is continued in the background runs. It stops when it reads from
// the terminal, and goes on after fg.
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

// TestStoppedForTooLong: the lease of a stopped job is not renewed. If the lease has ended, fg ends
// the command.
func TestStoppedForTooLong(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	s := startSession(t, dir, "keys", holdfastPath, "run", "--ttl=6s", "name", "--", selfPath)
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

// TestHangup: when the terminal goes away, the command ends and the lock is released.
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
	// Nobody is left to report the end of the first holdfast. Its file in the directory goes with
	// it.
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

// TestLsOnATerminal: on a terminal what needs to be looked at is coloured, unless the user wants no
// colours, and the columns are where they are without colours.
func TestLsOnATerminal(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	p := start(t, dir, nil, "hold", longTTL, "größe/日本")
	p.line()
	short := start(t, dir, nil, "hold", longTTL, "x")
	short.line()
	shows := func(env ...string) string {
		cmd := exec.Command(holdfastPath, "ls", "--on=file://"+dir)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "NO_COLOR=")
		}), append([]string{"TERM=xterm"}, env...)...)
		ls, _ := startOnTerminal(t, 200, cmd)
		ls.expectExit(0)
		return ls.allStderr()
	}
	coloured := shows()
	if !strings.Contains(coloured, "\x1b[1mNAME\x1b[0m") {
		t.Errorf("the head is not bold: %q", coloured)
	}
	inColumns(t, regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured, ""))
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		got := shows(env)
		if strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", env, got)
		}
		inColumns(t, got)
	}
	for _, p := range []*process{p, short} {
		p.signal(syscall.SIGTERM)
		p.expectExit(0)
	}
}

// inColumns reports each row of TestLsOnATerminal's table whose lease is not below its heading. Two
// tables can not be compared: the age of a lock, and with it its column, grows between them.
func inColumns(t *testing.T, table string) {
	t.Helper()
	// Each of the two characters of Japanese takes two columns.
	narrow := strings.ReplaceAll(table, "größe/日本", "groesse/ja")
	rows := strings.Split(strings.TrimSpace(narrow), "\n")
	if len(rows) != 3 {
		t.Fatalf("%d lines; want a heading and two locks: %q", len(rows), table)
	}
	lease := regexp.MustCompile(`1h0m0s|5\dm\d+s|$`) // a busy machine takes a moment to ask
	for _, row := range rows[1:] {
		if lease.FindStringIndex(row)[0] != strings.Index(rows[0], "LEASE") {
			t.Errorf("not below its heading: %q in\n%s", row, table)
		}
	}
}
