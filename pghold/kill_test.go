//go:build unix

package pghold_test

import (
	"syscall"
	"testing"
)

// killProcess kills one process of the server. The others then end as well, and start anew.
func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
