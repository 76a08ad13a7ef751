//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package child

import "os"

// getsOrphans reports whether orphans become children of this process: it is the first process.
func getsOrphans() bool { return os.Getpid() == 1 }
