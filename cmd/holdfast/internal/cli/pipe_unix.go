//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// ignoreBrokenPipe makes a write to a pipe without a reader fail. Otherwise Go ends the process if
// the pipe is stdout or stderr, and the command with it. The signal is caught, not ignored: the
// command would inherit an ignored one.
func ignoreBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
