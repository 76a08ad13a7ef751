package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// boottime is CLOCK_BOOTTIME of linux/time.h, which package syscall does not name.
const boottime = 7

// SinceBoot returns the time since the host was booted, suspended time included. It is
// the same clock for all processes of the host.
func SinceBoot() time.Duration { return sinceBoot() }

// sinceBoot makes the system call itself, because the standard library has no way to this clock.
// The call cannot fail: every Linux that Go runs on has the clock.
func sinceBoot() time.Duration {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}
