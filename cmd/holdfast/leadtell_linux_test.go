package main_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// backends are addresses of what leaders may meet on.
func backends(t *testing.T) map[string]string {
	t.Helper()
	set := redistest.Start(t).Addr + "," + redistest.Start(t).Addr + "," + redistest.Start(t).Addr
	return map[string]string{
		"directory": "file://" + t.TempDir(),
		"Redis":     redistest.Start(t).URL(),
		"Redlock":   "redlock://" + set + "?restart-guard=0s&node-timeout=2s",
	}
}

// startLeadOn starts holdfast lead on an address, with this program in a role.
func startLeadOn(t *testing.T, url, part string, flags ...string) *process {
	t.Helper()
	cmd := exec.Command(holdfastPath, append(append([]string{"lead"}, flags...), "name", "--",
		selfPath)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url, role.Variable+"="+part)
	return startCommand(t, cmd)
}

// told has --on-change write its variables to stderr.
const told = `--on-change=echo "told $HOLDFAST_KEY: $HOLDFAST_LEADER, $HOLDFAST_ANNOUNCED, ` +
	`$HOLDFAST_LEADER_PID $HOLDFAST_LEADER_HOST;"`

// TestLeadHandsOver: on each backend the next one leads when the leader ends in order, whatever its
// lease, or is killed or stopped, after that; and both learn who leads.
func TestLeadHandsOver(t *testing.T) {
	t.Parallel()
	for name, url := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := startLeadOn(t, url, "echo", longTTL, told, "--label=one", "--announce=a:1")
			first.expect("ready")
			second := startLeadOn(t, url, "echo", "--ttl=6s", told, "--label=two")
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []*process{first, second} {
				p.expectStderr(`told name: one, a:1, ` + strconv.Itoa(first.cmd.Process.Pid) + " " +
					host + ";")
			}
			second.standsBy(1)
			first.signal(syscall.SIGTERM)
			first.expectExit(143)
			second.expect("ready")
			second.expectStderr(`told name: two, , ` + strconv.Itoa(second.cmd.Process.Pid))

			third := startLeadOn(t, url, "echo", "--ttl=6s")
			third.standsBy(1)
			second.signal(syscall.SIGKILL)
			third.expect("ready")
			fourth := startLeadOn(t, url, "echo", longTTL)
			fourth.standsBy(1)
			third.signal(syscall.SIGSTOP)
			fourth.expect("ready")
			third.signal(syscall.SIGCONT)
			third.standsBy(2)
			third.signal(syscall.SIGTERM)
			third.expectExit(143)
			fourth.signal(syscall.SIGTERM)
			fourth.expectExit(143)
		})
	}
}

// leadStatus is what the file of --status-file says.
type leadStatus struct {
	State, Name, Token, Leader string
	PID                        int
	Since                      time.Time
}

// awaitStatus waits until the file says what is wanted. It fails if it ever reads half of it.
func awaitStatus(t *testing.T, file, what string, want func(s leadStatus) bool) {
	t.Helper()
	testserver.Eventually(t, what, func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var s leadStatus
		if err := json.Unmarshal(text, &s); err != nil || !strings.HasSuffix(string(text), "}\n") {
			t.Fatalf("the file has %q, %v", text, err)
		}
		return testserver.Not(want(s), "the file says %s", text)
	})
}

// TestLeadStatusFile: the file says whether this one leads, and who does, and is removed when lead
// ends.
func TestLeadStatusFile(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	files := t.TempDir()
	one, two := filepath.Join(files, "one"), filepath.Join(files, "two")
	first := startLead(t, dir, "echo", "--announce=<", "--status-file="+one)
	first.expectExit(64)
	first.expectStderr(`--announce "<" with the label .* at most 128 bytes`)
	first = startLead(t, dir, "echo", longTTL, "--label=one", "--announce=x:1",
		"--status-file="+one)
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL, "--label=two", "--status-file="+two)
	begins := "one <x:1> (pid " + strconv.Itoa(first.cmd.Process.Pid) + " on "
	awaitStatus(t, one, "the first one leads", func(s leadStatus) bool {
		return s.State == "leading" && s.Name == "name" && len(s.Token) == 16 &&
			s.PID == first.cmd.Process.Pid && strings.HasPrefix(s.Leader, begins)
	})
	awaitStatus(t, two, "the second one stands by", func(s leadStatus) bool {
		return s.State == "standby" && s.Token == "" && s.PID == second.cmd.Process.Pid &&
			strings.HasPrefix(s.Leader, begins) && time.Since(s.Since) < guard
	})
	first.signal(syscall.SIGTERM)
	first.expectExit(143)
	if _, err := os.Stat(one); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	awaitStatus(t, two, "the second one leads", func(s leadStatus) bool {
		return s.State == "leading" && strings.HasPrefix(s.Leader, "two (pid ")
	})
	// It is written again although nothing changes.
	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, two, "the file is written again", func(leadStatus) bool { return true })
	second.signal(syscall.SIGTERM)
	second.expectExit(143)
	left, err := os.ReadDir(files)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	device := filepath.Join(files, "device") // a link, so that no device is in danger
	if err := os.Symlink(os.DevNull, device); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(files, "none", "file"), device} {
		bad := startLead(t, dir, "echo", "--status-file="+file)
		bad.expectExit(74)
	}
}

// TestLeadNotifies: the service manager is told, and COMMAND does not speak to it.
func TestLeadNotifies(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenPacket("unixgram", name)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetReadDeadline(time.Now().Add(guard)); err != nil {
		t.Fatal(err)
	}
	// What the manager does not take within a second is lost, and few messages wait for it.
	heard := make(chan string, 4096)
	go func() {
		defer close(heard)
		for text := make([]byte, 1000); ; {
			n, _, err := socket.ReadFrom(text)
			if err != nil {
				return
			}
			heard <- string(text[:n])
		}
	}()
	hears := func(want string) {
		t.Helper()
		for text := range heard {
			if strings.Contains(text, want) {
				return
			}
		}
		t.Fatalf("%q was not told", want)
	}
	first := startLead(t, dir, "echo", longTTL)
	first.expect("ready")
	second := start(t, dir, []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=1000000"}, "lead",
		longTTL, "name", "-c", `echo "socket $NOTIFY_SOCKET$WATCHDOG_USEC"; read x`)
	hears("READY=1\nSTATUS=standing by for name")
	hears("WATCHDOG=1")
	first.signal(syscall.SIGTERM)
	first.expectExit(143)
	second.expect("socket ")
	hears("STATUS=leading name (token ")
	second.signal(syscall.SIGTERM)
	hears("STOPPING=1")
	second.expectExit(143)
}

// TestLeadPreferred: a candidate gives up for a preferred one, and leads again when that is gone.
func TestLeadPreferred(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	first := startLead(t, dir, "slow", longTTL, "--preferred=false")
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL, "--preferred")
	first.expect("terminated")
	first.expectStderr(`a preferred candidate waits; the command gets SIGTERM`)
	select {
	case line := <-second.lines:
		t.Errorf("the second one says %q before the first has ended", line)
	default:
	}
	first.stdin.Close()
	first.expect("cleaned up")
	second.expect("ready")
	first.standsBy(1)
	second.signal(syscall.SIGTERM)
	second.expectExit(143)
	first.expect("ready")
	first.signal(syscall.SIGTERM)
	first.ends()
}

// TestLeadOnChangeHangs: a line that does not end delays neither the command nor the end, and does
// not outlive lead.
func TestLeadOnChangeHangs(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	p := startLead(t, locks(t), "echo", longTTL, "--on-change=echo $$ >"+pid+"; sleep 3600")
	p.expect("ready")
	var n int
	testserver.Eventually(t, "the line runs", func() error {
		text, err := os.ReadFile(pid)
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	p.signal(syscall.SIGTERM)
	p.expectExit(143)
	testserver.Eventually(t, "the line is gone", func() error {
		err := syscall.Kill(-n, 0)
		return testserver.Not(errors.Is(err, syscall.ESRCH), "%v", err)
	})
}

// TestLeadOnChangeFails: the exit code of the line is said. That of a line which ended while
// holdfast reaped the orphans of the command may be lost.
func TestLeadOnChangeFails(t *testing.T) {
	t.Parallel()
	dir := locks(t)
	first := startLead(t, dir, "echo", longTTL)
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL, "--on-change=exit 3")
	second.expectStderr(`--on-change: exit status 3`)
	second.signal(syscall.SIGTERM)
	second.expectExit(143)
	first.signal(syscall.SIGTERM)
	first.expectExit(143)
}
