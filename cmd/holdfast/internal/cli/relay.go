package cli

import (
	"context"
	"os"
	"sync"
	"syscall"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
)

// relay gives the signals of this process to the command while one runs. At other times a signal
// that ends programs cancels.
type relay struct {
	cancel context.CancelCauseFunc
	quit   func() // stops reading the signals; may be called twice

	mu   sync.Mutex
	to   chan os.Signal // nil while no command runs
	sent []os.Signal    // to that command
}

func newRelay(signals <-chan os.Signal, cancel context.CancelCauseFunc) *relay {
	r := &relay{cancel: cancel}
	stopping, stopped := make(chan struct{}), make(chan struct{})
	r.quit = sync.OnceFunc(func() {
		close(stopping)
		<-stopped
	})
	go func() {
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				r.pass(s)
			case <-stopping:
				return
			}
		}
	}()
	return r
}

func (r *relay) pass(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		if child.Ends(s) {
			r.cancel(signalError{s})
		}
		return
	}
	r.sent = append(r.sent, s)
	select {
	case r.to <- s:
	default: // more than child.Run can be behind
	}
}

// attach returns the signals for a command that is about to run.
func (r *relay) attach() <-chan os.Signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to, r.sent = make(chan os.Signal, 64), nil
	return r.to
}

// detach is called when the command has ended, with its exit code. It reports whether the command
// ended because this process was told to end: by a signal that says so, or by a signal that has
// killed the command. Other signals do not count, for example a SIGHUP that has a daemon read its
// settings again.
func (r *relay) detach(code int) (told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = nil
	for _, s := range r.sent {
		switch {
		case s == os.Interrupt, s == syscall.SIGTERM, s == syscall.SIGQUIT:
			return true
		case child.Ends(s) && code == child.ExitCode(s):
			return true
		}
	}
	return false
}
