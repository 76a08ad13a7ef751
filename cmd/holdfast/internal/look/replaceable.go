package look

import (
	"fmt"
	"os"
)

// Replaceable returns an error if there is something at path that is no regular file, such as a
// device or a terminal. Whoever replaces it by a file takes it away from all others, and for the
// user root that may be /dev/null.
func Replaceable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", Shown(path))
	}
	return nil // what does not exist, or cannot be looked at, tells so when it is written
}
