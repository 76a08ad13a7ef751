package role

import (
	"os"
	"os/signal"
	"syscall"
)

// HearSignals lets the processes that a test starts get signals, even if the test itself was
// started with some of them ignored, by nohup or in the background of a script. They would inherit
// an ignored signal, but do not inherit a caught one.
func HearSignals() {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	go func() {
		s := <-heard
		signal.Stop(heard)
		// The signal then does to the test what it would have done without HearSignals.
		signal.Reset()
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Signal(s)
		}
	}()
}
