package node

import (
	"sync/atomic"
	"time"
)

// flight counts the calls or the goroutines that are under way, so that Close can wait until they
// end. A WaitGroup will not do, because calls are made while Close waits.
type flight struct {
	count   atomic.Int64
	waiting atomic.Bool
	landed  chan struct{} // has room for one
}

func newFlight() flight { return flight{landed: make(chan struct{}, 1)} }

func (f *flight) add(n int) { f.count.Add(int64(n)) }

func (f *flight) end() {
	// Either wait sees 0, or end sees that somebody waits.
	if f.count.Add(-1) == 0 && f.waiting.Load() {
		f.signal()
	}
}

func (f *flight) signal() {
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

// wait returns when nothing is under way, or after most. Only one goroutine waits.
func (f *flight) wait(most time.Duration) {
	var late atomic.Bool
	f.waiting.Store(true)
	if f.count.Load() == 0 {
		return
	}
	timeout := time.AfterFunc(most, func() {
		late.Store(true)
		f.signal()
	})
	defer timeout.Stop()
	for f.count.Load() > 0 && !late.Load() {
		<-f.landed
	}
}
