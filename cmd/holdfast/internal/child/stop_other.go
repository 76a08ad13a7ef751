//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process, and returns when it has been continued. These systems stop all
// threads when the signal is sent.
func stopSelf() error { return unix.Kill(unix.Getpid(), unix.SIGSTOP) }

// changes are the news that wait reports of a living child.
const changes = syscall.WUNTRACED

// isContinued returns false: on these systems package syscall cannot tell it from a stop, so
// changes does not ask for it.
func isContinued(syscall.WaitStatus) bool { return false }
