package main_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// isStopped reports whether a process is stopped.
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// After the name, which is in parentheses and may hold any character.
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T "))
}
