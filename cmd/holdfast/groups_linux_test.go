package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestOtherProcessGroups: a lost lock also ends programs that are in another process group of the
// session, as timeout and job control make them, even if their parent has ended.
func TestOtherProcessGroups(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"timeout":     `exec 3<&0; timeout 1000 sh -c 'echo ready; exec sleep 1000' <&3`,
		"stubborn":    `trap '' TERM; timeout 1000 sh -c 'trap "" TERM; echo ready; while :; do sleep 1000; done' </dev/null`,
		"job control": `set -m; sh -c 'echo ready; exec sleep 1000' & wait`,
		"orphan":      `(timeout 1000 sh -c 'echo ready; exec sleep 1000' </dev/null &) ; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := locks(t)
			p := start(t, dir, nil, "run", "--ttl=6s", "--grace=500ms", "name", "-c", script)
			p.expect("ready")
			if err := os.RemoveAll(dir); err != nil { // so the next renewal finds the lock lost
				t.Fatal(err)
			}
			p.expectExit(70)
			p.rest() // returns when no process has stdout open
		})
	}
}

// tied waits until what the command starts dies with its holdfast. The command may be fast, and run
// before that.
func (p *process) tied() {
	p.t.Helper()
	testserver.Eventually(p.t, "holdfast has a pipe that kills the command's group", func() error {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", p.cmd.Process.Pid))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			var position, flags uint64
			fmt.Sscanf(string(text), "pos:\t%d\nflags:\t%o", &position, &flags)
			if flags&unix.O_ASYNC != 0 {
				return nil
			}
		}
		return fmt.Errorf("it has none among %d files: %v", len(files), err)
	})
}

// TestTimeoutInTheForeground: timeout --foreground stays in the process group, so it dies with a
// killed holdfast.
func TestTimeoutInTheForeground(t *testing.T) {
	dir := locks(t)
	p := start(t, dir, nil, "run", longTTL, "name", "-c",
		`timeout --foreground 1000 sh -c 'echo ready; exec sleep 1000' </dev/null; true`)
	p.expect("ready")
	p.tied()
	p.signal(syscall.SIGKILL)
	p.expectExit(1000 + int(syscall.SIGKILL))
	p.rest()
	start(t, dir, nil, "run", longTTL, "name", "--", "true").expectExit(0)
}
