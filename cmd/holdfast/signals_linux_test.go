package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// onServer starts holdfast on a Redis server.
func onServer(t *testing.T, server *redistest.Server, args ...string) *process {
	t.Helper()
	cmd := exec.Command(holdfastPath, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+server.URL())
	return startCommand(t, cmd)
}

// gone waits until a process has ended and was reaped.
func gone(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the command has ended", func() error {
		err := syscall.Kill(number, 0)
		return testserver.Not(errors.Is(err, syscall.ESRCH), "process %d: %v", number, err)
	})
}

// cutShort matches the message that a signal has ended the release.
var cutShort = regexp.MustCompile(`(?m)^holdfast: release "name": ` +
	`no answer before a signal \((terminated|interrupt|hangup)\); the lock ends with its lease at the latest$`)

// TestSignalEndsTheRelease: if the server does not answer the release, a signal ends the wait. The
// exit code is still the command's.
func TestSignalEndsTheRelease(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		server := redistest.Start(t)
		p := onServer(t, server, "run", longTTL, "name", "--", "sh", "-c",
			"echo $$; read x; exit 6")
		pid := p.line()
		server.Freeze()
		p.stdin.Close()
		gone(t, pid)
		p.signal(sig)
		p.expectExit(6)
		if text := p.allStderr(); !cutShort.MatchString(text) {
			t.Errorf("%v: stderr is %q", sig, text)
		}
		server.Thaw()
	}
}

// TestSecondSignalEndsHold: the first signal makes hold release the lock, and the second ends the
// release.
func TestSecondSignalEndsHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := onServer(t, server, "hold", longTTL, "name")
	p.line()
	server.Freeze()
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGHUP)
	p.expectExit(0)
	if text := p.allStderr(); !cutShort.MatchString(text) {
		t.Errorf("stderr is %q", text)
	}
	server.Thaw()
}

// sets returns what each server remembers of its set.
func (f *five) sets() (all []string, err error) {
	for _, s := range f.servers {
		set, failure := s.Try("GET", "holdfast:s")
		all = append(all, fmt.Sprint(set))
		err = errors.Join(err, failure)
	}
	return all, err
}

// TestAdoptWhoseMessagesAreNotTaken: adopt goes on if its stderr is blocked or closed, and a signal
// ends it.
func TestAdoptWhoseMessagesAreNotTaken(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	reader, closed := pipe(t)
	reader.Close()
	for name, stderr := range map[string]*os.File{"full": fullPipe(t), "closed": closed} {
		cmd := exec.Command(holdfastPath, "adopt", "--on", f.patient("restart-guard=0s"))
		cmd.Stderr = stderr
		p := startCommand(t, cmd)
		if line := p.line(); !strings.HasSuffix(line, ": 5 servers belong to the set") {
			t.Errorf("%s: stdout is %q", name, line)
		}
		p.expectExit(0)
	}
	cmd := exec.Command(holdfastPath, "adopt", "--on", f.url("set=other&restart-guard=0s"),
		"--longest=1h")
	cmd.Stderr = fullPipe(t)
	p := startCommand(t, cmd)
	testserver.Eventually(t, "a server is marked", func() error {
		sets, err := f.sets()
		return errors.Join(err, testserver.Not(strings.Contains(fmt.Sprint(sets), "moving"),
			"they have %q", sets))
	})
	p.signal(syscall.SIGTERM)
	p.expectExit(128 + int(syscall.SIGTERM))
}

// TestAdoptWhoseResultIsNotTaken: a signal ends adopt although its stdout is blocked.
func TestAdoptWhoseResultIsNotTaken(t *testing.T) {
	t.Parallel()
	f := startFive(t)
	cmd := exec.Command(holdfastPath, "adopt", "--on", f.patient("restart-guard=0s"))
	cmd.Stdout = fullPipe(t)
	p := startCommand(t, cmd)
	testserver.Eventually(t, "it writes its result", func() error {
		p.running()
		calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", p.cmd.Process.Pid))
		for _, path := range calls {
			call, failure := os.ReadFile(path)
			if bytes.HasPrefix(call, fmt.Appendf(nil, "%d 0x1 ", syscall.SYS_WRITE)) {
				return nil
			}
			err = errors.Join(err, failure)
		}
		return errors.Join(err, errors.New("none of its threads does"))
	})
	p.signal(syscall.SIGTERM)
	p.expectExit(1000 + int(syscall.SIGTERM))
}
