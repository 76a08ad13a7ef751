//go:build darwin || dragonfly || netbsd || openbsd

package child

import "syscall"

// systemAttr changes nothing: these systems have no parent-death signal.
func systemAttr(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }
