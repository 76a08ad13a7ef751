//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package child

import (
	"os"
	"syscall"
)

var forwarded = []os.Signal{os.Interrupt, syscall.SIGTERM}

var harmless []os.Signal
