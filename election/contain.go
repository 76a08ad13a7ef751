package election

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// contain calls f. If f panics, or ends its goroutine, contain calls failed with an error that says
// so; a panic ends there. contain is for the goroutines that Run starts. They call methods of Run's
// context, and nobody could recover from a panic there, or would notice the end of a goroutine.
func contain(f func(), failed func(error)) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err := errEnded
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v\n%s", p, debug.Stack())
		}
		failed(err)
	}()
	f()
	returned = true
}

// errEnded is what a context or a function has done to a goroutine of Run that it was called in.
var errEnded = errors.New("a call of runtime.Goexit")
