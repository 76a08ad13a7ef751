package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// awaitStop waits until every thread of the process stands still, or the process has ended. The
// signal alone does not say so: on a busy machine the threads of a server go on for a while.
func awaitStop(pid int, exited <-chan struct{}) {
	for !stopped(pid) {
		select {
		case <-exited:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// stopped reports whether every thread of the process is stopped or gone.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		panic(err) // the pattern is one
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The state is behind the name, which is in parentheses and may have some of its own.
		_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
		if !strings.HasPrefix(state, "T") && !strings.HasPrefix(state, "Z") &&
			!strings.HasPrefix(state, "X") {
			return false
		}
	}
	return true
}
