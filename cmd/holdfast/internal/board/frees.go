package board

import (
	"context"
	"slices"
	"sync"
	"time"
)

// mostFrees is how many locks are freed at a time.
const mostFrees = 4

// frees are the releases at work.
type frees struct {
	done chan struct{} // has an element if none is at work after the end

	mu    sync.Mutex
	names []string // of the locks
	ended bool
}

// enter adds a release of the lock with that name, unless there are too many or no more are wanted.
// The caller calls leave when it is done and logged.
func (f *frees) enter(name string) (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || len(f.names) == mostFrees {
		return nil, false
	}
	f.names = append(f.names, name)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		i := slices.Index(f.names, name)
		f.names = slices.Delete(f.names, i, i+1)
		if f.ended && len(f.names) == 0 {
			f.done <- struct{}{}
		}
	}, true
}

// end lets no more releases begin, and waits for those at work, for patience at most. It returns
// the names of the locks whose releases are not done. It is called once.
func (f *frees) end(patience time.Duration) (left []string) {
	f.mu.Lock()
	f.ended = true
	idle := len(f.names) == 0
	f.mu.Unlock()
	if idle {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.names)
}
