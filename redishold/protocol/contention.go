package protocol

import (
	"sync/atomic"
	"time"
)

// contention remembers in which slots a lock was busy lately. For these the script is used at once,
// which queues and tells who holds the lock. For the others plain commands are tried first. They
// are cheaper, but if they fail the script is needed too. Locks that share a slot with a busy one
// are treated like that one, which is correct and costs them little.
type contention struct {
	until [Slots]atomic.Uint32 // in units of contentionUnit since the process began
}

const (
	contentionUnit = time.Second
	contentionSpan = 3 // units; the first has begun already
)

var processStart = time.Now()

func units() uint32 { return uint32(time.Since(processStart) / contentionUnit) }

func (c *contention) recently(slot uint16) bool {
	until := c.until[slot].Load()
	return until != 0 && units() < until
}

func (c *contention) now(slot uint16) { c.until[slot].Store(units() + contentionSpan) }
