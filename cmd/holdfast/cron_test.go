//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// exitCode runs a command to its end. It returns the exit code, or 1000+N if signal N killed it.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 1000 + int(status.Signal())
	}
	return status.ExitStatus()
}

// TestWithoutSurroundings: holdfast runs without a terminal and with hardly any environment, as in
// cron, and with closed stdin, stdout and stderr.
func TestWithoutSurroundings(t *testing.T) {
	dir := locks(t)
	for _, closed := range []string{"", "<&-", "<&- >&-", "<&- >&- 2>&-"} {
		for command, want := range map[string]int{"exit 7": 7, "exec nonsense 2>/dev/null": 127} {
			cmd := exec.Command("/bin/sh", "-c", `exec "$0" "$@" `+closed, holdfastPath, "run",
				"--on=file://"+dir, longTTL, "name", "-c", command)
			cmd.Env = []string{}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if got := exitCode(t, cmd); got != want {
				t.Errorf("%q with %q: exit code %d, want %d", command, closed, got, want)
			}
		}
	}
}

// TestExitCodeWithoutReader: the exit code is right even if nobody reads stdout and stderr.
func TestExitCodeWithoutReader(t *testing.T) {
	dir := locks(t)
	for args, want := range map[string]int{
		"run name -- nonsense": 127,
		"run name -- /":        126,
		"run --nonsense":       64,
		"nonsense":             64,
		"run --on=file:///dev/null/x name -- true": 69,
	} {
		reading, writing, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reading.Close()
		cmd := exec.Command(holdfastPath, strings.Fields(args)...)
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
		cmd.Stderr = writing
		if got := exitCode(t, cmd); got != want {
			t.Errorf("%s: exit code %d, want %d", args, got, want)
		}
		writing.Close()
	}
}
