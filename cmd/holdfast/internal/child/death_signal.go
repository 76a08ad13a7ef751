//go:build linux || freebsd

package child

import "syscall"

// systemAttr has the child killed when the thread that starts it is gone. The signal is lost when the
// child executes a file with the set-user-ID bit.
func systemAttr(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}
