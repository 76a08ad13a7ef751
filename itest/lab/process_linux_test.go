package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A PostgreSQL is not frozen while its processes for clients go on. They are in groups of their
// own.
func TestFreezeReachesThoseStarted(t *testing.T) {
	p, err := start(exec.Command("sh", "-c", "setsid -w sleep 1000 & wait"),
		filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			p.kill()
		}
	}()
	var started []int
	await := func(state byte) {
		t.Helper()
		left := eventually(t.Context(), patience, func() ([]string, error) {
			if started = children(p.cmd.Process.Pid); len(started) != 1 {
				return []string{fmt.Sprint(started)}, nil
			}
			for _, pid := range append(started, p.cmd.Process.Pid) {
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if err != nil {
					return nil, err
				}
				if s := text[bytes.LastIndexByte(text, ')')+2]; s != state {
					return []string{fmt.Sprintf("%d is in state %c", pid, s)}, nil
				}
			}
			return nil, nil
		})
		if left != "" {
			t.Fatalf("not all are in state %c: %s", state, left)
		}
	}
	await('S')
	p.freeze()
	await('T')
	p.thaw()
	await('S')
	p.freeze()
	if p.kill() {
		t.Error("it had ended by itself")
	}
	ended = true
}
