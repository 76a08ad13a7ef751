//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"os"
	"syscall"
)

// SIGTSTP and SIGCONT are not passed on here: they stop and continue holdfast as well.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

var harmless = []os.Signal{syscall.SIGWINCH}

// ending are the signals by which people and systems tell a program to end. A stopped child is
// continued so that it sees them.
var ending = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
