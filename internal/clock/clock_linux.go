package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// Clock IDs of linux/time.h, which package syscall does not name.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended returns how long the host has been suspended since it was booted, at most: the
// clock that counts suspended time is read first, so a delay between the
// readings makes the result smaller and can never invent a suspend.
func suspended() time.Duration {
	boot := gettime(clockBoottime)
	return boot - gettime(clockMonotonic)
}

// SinceBoot returns the time since the host was booted, suspended time included. It is
// the same clock for all processes of the host.
func SinceBoot() time.Duration { return gettime(clockBoottime) }

// gettime makes the system call itself, as there is no other way to these clocks in the standard library. The
// call cannot fail: both clocks exist in every Linux that Go runs on.
func gettime(id uintptr) time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
