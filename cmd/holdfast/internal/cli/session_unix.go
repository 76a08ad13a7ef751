//go:build unix

package cli

import (
	"errors"
	"os/exec"
	"syscall"
)

// inOwnSession has a program start in a session of its own, so that neither keys nor the end of
// COMMAND's groups reach it, and has kill end all of it.
func inOwnSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// reaped reports whether a wait failed because somebody else has taken the exit code: whoever reaps
// the orphans of COMMAND.
func reaped(err error) bool { return errors.Is(err, syscall.ECHILD) }
