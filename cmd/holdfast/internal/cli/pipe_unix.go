//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// ignoreBrokenPipe makes a write to a pipe that nobody reads an error, until undo is called. Go ends the
// process otherwise if it is stdout or stderr, and with it the command. Caught and not ignored, since the command would inherit that.
func ignoreBrokenPipe() (undo func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	return func() { signal.Stop(c) }
}
