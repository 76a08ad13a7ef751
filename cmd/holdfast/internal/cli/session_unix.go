//go:build unix

package cli

import (
	"errors"
	"os/exec"
	"syscall"
)

// inOwnSession has a program start in a session of its own. So keys do not reach it, and neither
// does the end of COMMAND's groups. A kill ends all of its processes.
func inOwnSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// reaped reports whether a wait failed because the goroutine that reaps the orphans of COMMAND has
// taken the exit code.
func reaped(err error) bool { return errors.Is(err, syscall.ECHILD) }
