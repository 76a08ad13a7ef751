//go:build linux || freebsd

package child

import "syscall"

// systemAttr has the system kill the child when the thread that starts it ends. A child that
// executes a file with the set-user-ID bit loses this.
func systemAttr(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}
