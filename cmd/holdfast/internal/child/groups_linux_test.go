package child

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
)

// A program that ignores control-Z will not stop by itself, so nobody waits for it. One that
// catches it may first have to restore the terminal.
func TestGroupRunsUntilAllHaveStopped(t *testing.T) {
	for _, c := range []struct {
		name, script string
		runs         bool
	}{
		{"ignores", `trap "" TSTP; echo ready; read x`, false},
		{"catches", `trap : TSTP; echo ready; read x`, true},
		{"default", `echo ready; read x`, true},
		{"stops", `echo ready; kill -STOP $$`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", c.script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if c.name == "stops" {
				var status syscall.WaitStatus
				_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
				if err != nil || !status.Stopped() {
					t.Fatalf("%v, status %x", err, status)
				}
			}
			if got := groupRuns(cmd.Process.Pid); got != c.runs {
				t.Errorf("runs: %v, want %v", got, c.runs)
			}
		})
	}
}
