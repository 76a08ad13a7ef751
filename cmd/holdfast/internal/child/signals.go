package child

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Signals catches the signals that are passed on to a child, until stop is called. A signal that
// was ignored when holdfast started, as with nohup, stays ignored by holdfast and by the child.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 64)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}

// Ends reports whether a signal ends a program that does not handle it.
func Ends(s os.Signal) bool { return !slices.Contains(harmless, s) }

// ExitCode returns the exit code that a shell reports for a program killed by the signal.
func ExitCode(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 255
}
