package itest

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// However the laboratory ends, by Ctrl-C or so abruptly that it can clean up nothing: no server and no client outlives it.
func TestNothingOutlivesTheLaboratory(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread() // whose end would be taken for the death of the parent
			defer runtime.UnlockOSThread()
			dir := t.TempDir()
			program := filepath.Join(dir, "torture")
			if out, err := exec.Command("go", "build", "-o", program, "./torture").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			temporary := filepath.Join(dir, "tmp")
			if err := os.Mkdir(temporary, 0o755); err != nil {
				t.Fatal(err)
			}
			torture := exec.Command(program, "-duration", "1h")
			torture.Env = append(os.Environ(), "TMPDIR="+temporary)
			torture.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := torture.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			torture.Stderr = os.Stderr
			if err := torture.Start(); err != nil {
				t.Fatal(err)
			}
			defer torture.Process.Kill()
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			// A server and four clients.
			await(t, "everything runs", func() bool { return len(runningIn(t, temporary)) >= 5 })
			torture.Process.Signal(signal)
			torture.Wait()
			await(t, "nothing runs", func() bool { return len(runningIn(t, temporary)) == 0 })
		})
	}
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for this: %s", what)
		}
	}
}

// runningIn gives the processes that were started from the directory or with a part of it as an argument.
func runningIn(t *testing.T, dir string) (running []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// It may have ended since, and what has ended has no command line.
		line, _ := os.ReadFile(file)
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(file), "cwd"))
		if bytes.Contains(line, []byte(dir)) || strings.HasPrefix(cwd, dir) {
			running = append(running, string(line))
		}
	}
	return running
}
