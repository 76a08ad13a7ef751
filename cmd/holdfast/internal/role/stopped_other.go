//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package role

import (
	"os/exec"
	"strconv"
	"strings"
)

// IsStopped reports whether a process is stopped, as by SIGSTOP.
func IsStopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return strings.HasPrefix(strings.TrimSpace(string(state)), "T"), err
}
