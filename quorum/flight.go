package quorum

import (
	"sync/atomic"
	"time"
)

// flight counts the calls under way, so that Close can let them end. A WaitGroup does not serve: calls are made
// while Close waits.
type flight struct {
	count   atomic.Int64
	closing atomic.Bool
	landed  chan struct{} // has room for one
}

func (f *flight) add(n int) { f.count.Add(int64(n)) }

func (f *flight) end() {
	// Either wait sees the zero, or this sees that it waits.
	if f.count.Add(-1) == 0 && f.closing.Load() {
		select {
		case f.landed <- struct{}{}:
		default:
		}
	}
}

// wait returns when no call is under way, or after most. closing is set already.
func (f *flight) wait(most time.Duration) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	for f.count.Load() > 0 {
		select {
		case <-f.landed:
		case <-timeout.C:
			return
		}
	}
}
