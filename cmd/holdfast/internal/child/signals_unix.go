//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"os"
	"syscall"
)

// SIGTSTP and SIGCONT are not among them: they stop and continue holdfast as well.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

var harmless = []os.Signal{syscall.SIGWINCH}
