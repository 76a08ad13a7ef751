package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process, and returns when it has been continued. The signal goes to the
// calling thread, so that this thread stops at once. If it went to the process, another thread
// could take it, and this one would run on for a while.
func stopSelf() error { return unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP) }

// changes are the news that wait reports of a living child.
const changes = syscall.WUNTRACED | syscall.WCONTINUED

// isContinued reports whether somebody has continued a stopped child.
func isContinued(status syscall.WaitStatus) bool { return status.Continued() }
