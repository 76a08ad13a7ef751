package main_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/role"
)

// TestKilled: two commands write to one file. SIGKILL kills the first one's holdfast. Its command
// must write nothing after the next one begins, and the next one does not wait for the end of the
// lease.
func TestKilled(t *testing.T) {
	for name, script := range map[string]string{
		"child":      `exec "$0"`,
		"grandchild": `"$0"; echo done`,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				dir, log := locks(t), file(t)
				run := func(mark string) *process {
					return start(t, dir, []string{role.Variable + "=writer", "LOG=" + log,
						"MARK=" + mark},
						"run", longTTL, "name", "--", "sh", "-c", script, selfPath)
				}
				first := run("1")
				first.expect("ready")
				second := run("2")
				second.waiting()
				first.signal(syscall.SIGKILL)
				second.expect("ready")
				first.expectExit(1000 + int(syscall.SIGKILL))
				first.rest() // all its processes have ended
				second.signal(syscall.SIGTERM)
				second.expectExit(128 + int(syscall.SIGTERM))
				second.rest()
				text, err := os.ReadFile(log)
				if err != nil {
					t.Fatal(err)
				}
				if !regexp.MustCompile(`^1+2+$`).Match(text) {
					i := strings.IndexByte(string(text), '2')
					t.Fatalf("the first one writes after the second: %d times from byte %d",
						strings.Count(string(text[max(i, 0):]), "1"), i)
				}
			}
		})
	}
}

// TestKilledWithClosedFiles: a command that closes all files that it does not know still dies with
// a killed holdfast.
func TestKilledWithClosedFiles(t *testing.T) {
	dir := locks(t)
	p := start(t, dir, []string{role.Variable + "=writer", "LOG=" + os.DevNull, "MARK=x",
		"CLOSE_FILES=1"},
		"run", longTTL, "name", "--", selfPath)
	p.expect("ready")
	p.signal(syscall.SIGKILL)
	p.expectExit(1000 + int(syscall.SIGKILL))
	p.rest()
	// The next one removes what the first has left in the directory.
	start(t, dir, nil, "run", longTTL, "name", "--", "true").expectExit(0)
}

// TestKilledWithASurvivor: a program that survives a killed holdfast keeps the lock while the lease
// lasts.
func TestKilledWithASurvivor(t *testing.T) {
	dir := locks(t)
	first := start(t, dir, []string{role.Variable + "=daemon"}, "run", longTTL, "name", "--",
		"sh", "-c", `exec 3<&0; "$0" <&3 & wait`, selfPath)
	first.expect("ready")
	first.signal(syscall.SIGKILL)
	first.expectExit(1000 + int(syscall.SIGKILL))
	start(t, dir, nil, "run", "--no-wait", "name", "--", "true").expectExit(75)
	fmt.Fprintln(first.stdin, "alive")
	first.expect("echo alive")
	first.stdin.Close()
	first.rest()
	// It waits: the system closes the files of the survivor one by one, and its stdout first.
	start(t, dir, nil, "run", longTTL, "name", "--", "true").expectExit(0)
}
