package testserver

import (
	"syscall"
	"unsafe"
)

// awaitStop waits until all threads of a child have stopped after a signal, or the child has ended.
// Others can still wait for either.
func awaitStop(pid int) {
	const (
		idIsPID  = 1          // P_PID
		noWait   = 0x01000000 // WNOWAIT
		infoSize = 128        // of siginfo_t
	)
	var info [infoSize / 8]uint64
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idIsPID, uintptr(pid),
			uintptr(unsafe.Pointer(&info)), syscall.WSTOPPED|syscall.WEXITED|noWait, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
