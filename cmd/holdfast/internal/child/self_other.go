//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package child

import "os"

// executableSelf returns the path of this program.
func executableSelf() (string, error) { return os.Executable() }
