package board

import (
	"context"
	"sync"
)

// mostViewers is how many streams there are at a time.
const mostViewers = 32

// audience counts who watches.
type audience struct {
	arrived chan struct{} // has an element if somebody came who was the first

	mu    sync.Mutex
	count int
}

// enter adds a viewer, and returns false if there are too many. A viewer that has entered calls
// leave at its end.
func (a *audience) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == mostViewers {
		return false
	}
	if a.count++; a.count == 1 {
		select {
		case a.arrived <- struct{}{}:
		default:
		}
	}
	return true
}

// full reports whether nobody can enter now.
func (a *audience) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count == mostViewers
}

func (a *audience) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count--
}

func (a *audience) present() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count > 0
}

// wait waits until somebody watches. It returns false if ctx has ended.
func (a *audience) wait(ctx context.Context) bool {
	for !a.present() {
		select {
		case <-a.arrived:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}
