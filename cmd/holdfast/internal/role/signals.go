package role

import (
	"os"
	"os/signal"
	"syscall"
)

// HearSignals has the processes that a test starts get signals as usual, also when the test was itself started with
// some of them ignored, by nohup or in the background of a script: what is ignored is inherited, what is heard is not.
func HearSignals() {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	go func() {
		s := <-heard
		signal.Stop(heard)
		// For the test itself nothing changes.
		signal.Reset()
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Signal(s)
		}
	}()
}
