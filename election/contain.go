package election

import (
	"fmt"
	"runtime/debug"
)

// contain calls f, and returns its panic as an error. It is for the goroutines that Run starts.
// They call methods of Run's context, and nobody could recover from a panic there.
func contain(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}
