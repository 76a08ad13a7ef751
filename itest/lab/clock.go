//go:build unix

package lab

import (
	"encoding/binary"
	"os"
	"sync"
	"time"
)

// clock is the wall clock of one server, in a file that the server has mapped; see
// preload/wallclock.c.
type clock struct {
	file string

	mu      sync.Mutex
	changes int64
	step    time.Duration
	rate    int64 // millionths faster or slower
	since   int64 // microseconds of the real clock
}

// adjust changes step and rate, given how far off the clock is now.
func (c *clock) adjust(change func(off time.Duration) (step time.Duration, rate int64)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UnixMicro()
	off := c.step + time.Duration((now-c.since)*c.rate/1_000_000)*time.Microsecond
	step, rate := change(off)
	changes := c.changes + 1
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	words := func(values ...int64) (raw []byte) {
		for _, v := range values {
			raw = binary.NativeEndian.AppendUint64(raw, uint64(v))
		}
		return raw
	}
	// In place, and the count last: the server has the file mapped.
	if _, err := file.WriteAt(words(step.Microseconds(), rate, now), 8+24*(changes&1)); err != nil {
		return err
	}
	if _, err := file.WriteAt(words(changes), 0); err != nil {
		return err
	}
	c.changes, c.step, c.rate, c.since = changes, step, rate, now
	return nil
}

// SetClock sets the server's wall clock off by step. From then on it runs at the right rate.
func (n *Node) SetClock(step time.Duration) error {
	return n.clock.adjust(func(time.Duration) (time.Duration, int64) { return step, 0 })
}

// StepClock sets the server's wall clock forward or back.
func (n *Node) StepClock(by time.Duration) error {
	return n.clock.adjust(func(off time.Duration) (time.Duration, int64) {
		return off + by, n.clock.rate
	})
}

// RateClock makes the server's wall clock go faster or slower from now on, by so many millionths.
// It does not jump.
func (n *Node) RateClock(millionths int64) error {
	return n.clock.adjust(func(off time.Duration) (time.Duration, int64) { return off, millionths })
}
