// Only Linux ends a process with its parent, and has /proc to see what is left.
//go:build linux

package itest

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// No server and no client outlives the laboratory, even if that ends by Ctrl-C, or so abruptly that
// it cleans nothing up.
func TestNothingOutlivesTheLaboratory(t *testing.T) {
	program := filepath.Join(t.TempDir(), "torture")
	if out, err := exec.Command("go", "build", "-o", program,
		"./torture").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		signal syscall.Signal
		modes  string
		least  int // processes
	}{
		{syscall.SIGINT, "", 5}, {syscall.SIGKILL, "", 5}, // a server and four clients
		// in addition five servers of stores, a service, and eight clients in all
		{syscall.SIGINT, "guarded stores", 15}, {syscall.SIGKILL, "guarded stores", 15},
	} {
		t.Run(c.signal.String()+" "+c.modes, func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread() // its end would be taken for the death of the parent
			defer runtime.UnlockOSThread()
			// It is not below t.TempDir, whose name may be too long for a socket.
			temporary, err := os.MkdirTemp("", "outlive")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(temporary)
			torture := exec.Command(program, "-duration", "1h", "-modes", c.modes)
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
			var all []process
			testserver.Eventually(t, "everything runs", func() error {
				all = children(torture.Process.Pid)
				return testserver.Not(len(all) >= c.least, "%d processes", len(all))
			})
			torture.Process.Signal(c.signal)
			torture.Wait()
			testserver.Eventually(t, "nothing runs", func() error {
				running := runningIn(t, temporary)
				for _, p := range all {
					if line := commandLine(p.id); line == p.line {
						running = append(running, line)
					}
				}
				return testserver.Not(len(running) == 0, "%q", running)
			})
			for _, p := range all { // of databases, which are elsewhere; nobody else does it
				os.RemoveAll(databaseDir.FindString(p.line))
			}
		})
	}
}

// databaseDir matches the directory of a database server in its command line.
var databaseDir = regexp.MustCompile(`/tmp/holdfast-(postgres|mysql|etcd)[0-9]+`)

// process is a process that the laboratory has started.
type process struct {
	id   string
	line string
}

// children returns the processes whose parent has the id.
func children(parent int) (found []process) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file) // it may have ended since
		// Behind the name, which may be anything, are state and parent.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			id := filepath.Base(filepath.Dir(file))
			if line := commandLine(id); line != "" {
				found = append(found, process{id, line})
			}
		}
	}
	return found
}

// commandLine returns that of a process; empty if it has ended.
func commandLine(id string) string {
	line, _ := os.ReadFile(filepath.Join("/proc", id, "cmdline"))
	return string(line)
}

// runningIn returns the processes that were started from the directory, or with something in it as
// an argument.
func runningIn(t *testing.T, dir string) (running []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// It may have ended since. A process that has ended has no command line.
		line, _ := os.ReadFile(file)
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(file), "cwd"))
		if bytes.Contains(line, []byte(dir)) || strings.HasPrefix(cwd, dir) {
			running = append(running, string(line))
		}
	}
	return running
}
