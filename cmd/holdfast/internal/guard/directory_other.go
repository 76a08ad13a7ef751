//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package guard

import (
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
)

// OpenDirectory fails with ErrInvalid: fence.File needs flock.
func OpenDirectory(string) (Store, error) {
	return nil, fmt.Errorf("%w: this system has no flock, which a guard in files needs",
		fence.ErrInvalid)
}
