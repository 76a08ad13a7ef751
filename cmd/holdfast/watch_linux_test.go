package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watching is holdfast watch on a terminal.
type watching struct {
	*process
	terminal *os.File
	columns  uint16
}

// watch starts holdfast watch on a terminal of 24 lines.
func (s *site) watch(args ...string) *watching {
	s.t.Helper()
	cmd := exec.Command(holdfastPath, append([]string{"watch", "--every=100ms"}, args...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+s.looks, "TERM=xterm-256color")
	w := &watching{columns: 120}
	w.process, w.terminal = startOnTerminal(s.t, w.columns, cmd)
	return w
}

// settings returns how a terminal is set.
func settings(t *testing.T, terminal *os.File) (is unix.Termios) {
	t.Helper()
	raw, err := terminal.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) {
		var now *unix.Termios
		if now, err = unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
			is = *now
		}
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return is
}

// paints has the screen painted anew, again and again, until it matches the pattern, in which a
// space stands for anything: the terminal is moved over what is blank.
func (w *watching) paints(pattern string) {
	w.t.Helper()
	re := regexp.MustCompile(`(?s)holdfast watch.*` + strings.ReplaceAll(pattern, " ", ".*"))
	timeout, again := time.After(guard), time.NewTicker(100*time.Millisecond)
	defer again.Stop()
	for {
		from := len(w.stderr.String())
		w.columns = 241 - w.columns
		resize(w.t, w.terminal, w.columns)
		select {
		case <-again.C:
		case <-timeout:
			w.t.Fatalf("the terminal shows %q; want %s", w.stderr.String()[from:], pattern)
		}
		if re.MatchString(w.stderr.String()[from:]) {
			return
		}
		w.running()
	}
}

// press types keys.
func (w *watching) press(keys string) {
	w.t.Helper()
	if _, err := fmt.Fprint(w.terminal, keys); err != nil {
		w.t.Fatal(err)
	}
}

// restored checks, when watch has ended, that the terminal is as it was: settings, screen and
// cursor.
func (w *watching) restored() {
	w.t.Helper()
	text := w.allStderr() // the last of it may come after the end
	for _, pair := range [][2]string{{"\x1b[?1049h", "\x1b[?1049l"}, {"\x1b[?25l", "\x1b[?25h"},
		{"\x1b[?2004h", "\x1b[?2004l"}} {
		if on, off := strings.LastIndex(text, pair[0]), strings.LastIndex(text, pair[1]); on > off {
			w.t.Errorf("%q is not undone", pair[0])
		}
	}
	if !strings.Contains(text, "\x1b[?1049h") {
		w.t.Errorf("not on a screen of its own: %q", text)
	}
	if now := settings(w.t, w.terminal); now.Lflag != ordinarily.Lflag ||
		now.Iflag != ordinarily.Iflag || now.Oflag != ordinarily.Oflag {
		w.t.Errorf("the terminal is set to %+v; want %+v", now, ordinarily)
	}
}

// ordinarily is how a new terminal is set, in its flags.
var ordinarily = unix.Termios{
	Iflag: unix.ICRNL | unix.IXON,
	Oflag: unix.OPOST | unix.ONLCR,
	Lflag: unix.ISIG | unix.ICANON | unix.IEXTEN | unix.ECHO | unix.ECHOE | unix.ECHOK |
		unix.ECHOCTL | unix.ECHOKE,
}

// TestWatch: an operator without the right to write sees the locks as they come and go, sorts and
// inspects them, and has the terminal back afterwards.
func TestWatch(t *testing.T) {
	sites(t, func(t *testing.T, s *site) {
		defer s.release()
		s.hold("--label=backup", "nightly")
		w := s.watch()
		w.expectStderr(`(?s)NAME v.*nightly.*backup`)
		report := s.hold("--label=mia", "report")
		w.paints(`2 nightly backup report mia`)
		w.press("r")
		w.paints(`NAME \^ report mia nightly backup`)
		w.press("/bac\r")
		w.paints(`1 of 2 nightly backup filter: bac`)
		w.press("\r")
		w.paints(`key ` + s.prefix + `nightly held by waiting 0 esc back`)
		s.wait("--label=next", "nightly")
		w.paints(`waiting 1 1\. next \(pid`)
		w.press("\x1b")
		w.paints(`1 of 2 nightly backup filter: bac`) // two keys at once would be another key
		s.end(report)
		w.paints(`1\slock nightly backup filter: bac`)
		w.press("\x1b")
		w.paints(`1\slock nightly backup / filter[^:]`)
		w.press("q")
		w.expectExit(0)
		w.restored()
	})
}

// TestWatchEnds: control-C and signals end watch, and the terminal is as it was.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	for _, test := range []struct {
		end  func(w *watching)
		code int
	}{
		{func(w *watching) { w.press("\x03") }, 0},
		{func(w *watching) { w.signal(syscall.SIGTERM) }, 143},
		{func(w *watching) { w.signal(syscall.SIGHUP) }, 129},
		{func(w *watching) { w.signal(syscall.SIGINT) }, 130},
	} {
		w := s.watch()
		w.expectStderr(`0 locks`)
		test.end(w)
		w.expectExit(test.code)
		w.restored()
	}
}

// TestWatchOfALostServer: while the server hangs or is away, watch says so, shows what it saw last
// and goes on asking. The user can leave it in that time. If there is no server at the start, that
// is an error.
func TestWatchOfALostServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	s.hold("--label=backup", "nightly")
	w := s.watch("--timeout=4s") // it also has that long to connect, on a busy machine
	w.expectStderr(`(?s)nightly.*backup`)
	s.servers[0].Freeze()
	w.paints(`as it was ago: nightly backup`)
	s.servers[0].Thaw()
	w.paints(`1 lock nightly backup`)
	s.servers[0].Kill()
	w.paints(`as it was ago: nightly backup`)
	w.press("q")
	w.expectExit(0)
	w.restored()
	if text := w.allStderr(); strings.Contains(text, "hunter2") {
		t.Errorf("shows the password: %q", text)
	}
	w = s.watch("--timeout=500ms")
	w.expectExit(69)
	if text := w.allStderr(); strings.Contains(text, "\x1b") {
		t.Errorf("draws %q", text)
	}
}

// TestWatchOfOthers: text of other programs reaches the terminal without control characters.
func TestWatchOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, "redis")
	const bad = "\x1b]0;owned\x07"
	s.servers[0].Do(t, "SET", "lock:"+bad, "AAAAAAAAAAAAAAAAAAAAAAAA/h"+bad+"/7/l"+bad, "PX",
		"3600000")
	s.servers[0].Do(t, "SET", "lock:z\u009b2J\xff"+strings.Repeat("long", 200), bad,
		"PX", "3600000")
	w := s.watch()
	w.expectStderr(`(?s)\\x1b\]0;owned.*\\u009b2J`)
	w.press("\r")
	w.paints(`held by \\x1b\]0;owned`)
	w.press("q")
	w.expectExit(0)
	if text := w.allStderr(); strings.Contains(text, bad) || strings.Contains(text, "\x07") ||
		strings.ContainsRune(text, '\u009b') || strings.Contains(text, "\xff") {
		t.Errorf("the terminal gets %q", text)
	}
}

// TestWatchNeedsATerminal: without one that can move its cursor there is an error that says so.
func TestWatchNeedsATerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, "directory")
	if _, err := s.ask(64, "watch"); !strings.Contains(err, "needs a terminal") {
		t.Error(err)
	}
	cmd := exec.Command(holdfastPath, "watch")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+s.looks, "TERM=dumb")
	p, _ := startOnTerminal(t, 80, cmd)
	p.expectExit(64)
	p.expectStderr("TERM is dumb")
}
