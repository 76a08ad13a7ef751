//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package child

import "golang.org/x/sys/unix"

// stopSelf stops this process, and returns when it has been continued: these systems stop all threads when the signal
// is sent.
func stopSelf() error { return unix.Kill(unix.Getpid(), unix.SIGSTOP) }
