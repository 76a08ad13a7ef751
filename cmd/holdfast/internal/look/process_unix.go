//go:build unix

package look

import "syscall"

func lifeOfProcess(pid int) Life {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return Gone
	}
	return Lives // also if it belongs to another user
}
