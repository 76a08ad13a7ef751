package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// children returns the living child processes of parent.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid ...; the name may hold anything.
		var pid, ppid int
		var state string
		fmt.Sscan(string(data), &pid)
		fmt.Sscan(string(data[bytes.LastIndexByte(data, ')')+1:]), &state, &ppid)
		if ppid == parent && state != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited in vain for this: %s", what)
		}
	}
}

// TestNothingIsLeftBehind: a signal that ends the benchmark also ends its server and workers.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			temporary := t.TempDir()
			// Endless rounds of a scenario with workers.
			cmd := exec.Command(os.Args[0], "-smoke", "-redis-only", "-run", "processes",
				"-drivers", ours, "-rounds", "1000000")
			cmd.Env = append(os.Environ(), wholeVariable+"=1", "TMPDIR="+temporary)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			var started []int
			await(t, "a server and two workers", func() bool {
				started = children(t, cmd.Process.Pid)
				return len(started) == 1+smokePlan.workers
			})
			cmd.Process.Signal(signal)
			if err := cmd.Wait(); err == nil {
				t.Error("what was cut short is reported as complete")
			}
			await(t, "the end of all processes", func() bool {
				for _, pid := range started {
					// A process without its parent may stay a zombie until somebody reaps it.
					data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					if err == nil && !bytes.Contains(data[bytes.LastIndexByte(data, ')'):],
						[]byte(") Z")) {
						return false
					}
				}
				return true
			})
			left, err := os.ReadDir(temporary)
			if err != nil {
				t.Fatal(err)
			}
			if signal != syscall.SIGKILL && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if signal == syscall.SIGINT && !strings.Contains(stderr.String(), "interrupt") {
				t.Errorf("it does not say that it was interrupted: %s", stderr.String())
			}
		})
	}
}

func TestRunEndsWhatItStarted(t *testing.T) {
	before := len(children(t, os.Getpid()))
	if err := run(t.Context(), []string{"-smoke", "-redis-only", "-run", "processes,held-50",
		"-drivers", ours}, new(bytes.Buffer)); err != nil {
		t.Fatal(err)
	}
	if after := children(t, os.Getpid()); len(after) != before {
		t.Errorf("%d processes before, now %v", before, after)
	}
}
