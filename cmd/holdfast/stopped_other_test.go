//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// isStopped reports whether a process is stopped.
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
