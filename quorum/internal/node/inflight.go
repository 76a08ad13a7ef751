package node

import (
	"sync/atomic"
	"time"
)

// inFlight counts the calls or the goroutines that are under way, so that Close can wait until they
// end. A WaitGroup will not do, because calls are made while Close waits.
type inFlight struct {
	count   atomic.Int64
	waiting atomic.Bool
	landed  chan struct{} // has room for one
}

func newInFlight() inFlight { return inFlight{landed: make(chan struct{}, 1)} }

func (f *inFlight) add(n int) { f.count.Add(int64(n)) }

func (f *inFlight) end() {
	// Either wait sees 0, or end sees that somebody waits.
	if f.count.Add(-1) == 0 && f.waiting.Load() {
		f.signal()
	}
}

func (f *inFlight) signal() {
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

// wait returns when nothing is under way, or after most. Only one goroutine waits.
func (f *inFlight) wait(most time.Duration) {
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
