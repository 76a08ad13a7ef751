package protocol

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// doubts are acquisitions of which a request may still be on its way although the call has
// returned. There are such only over a Transport that is not ordered. When such an acquisition is
// released, the server has to remember that, and which request was the last one by then: a waiter
// over several nodes asks again after its release.
type doubts struct {
	mu     sync.Mutex
	owners map[string]doubt
	last   uint64 // number of the last request
}

// doubt is about the latest request that may still be on its way.
type doubt struct {
	since  time.Time
	number uint64
}

const (
	// slow: if a request took longer than this, the library may have sent it more than once,
	// although it must not. One mark too many costs little.
	slow = 250 * time.Millisecond

	// memory is how long the server remembers the end of an acquisition. A request that arrives
	// later costs its TTL.
	memory = time.Minute

	// maxDoubts bounds how many are kept. Each is removed when it is released. If there are too
	// many, one is dropped.
	maxDoubts = 10_000
)

// next returns the number of a new request. Numbers rise.
func (d *doubts) next() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last
}

// note remembers the acquisition if its request of that number may still arrive.
func (d *doubts) note(owner string, number uint64, err error, took time.Duration) {
	if took < slow && (err == nil || errors.Is(err, driver.ErrUnavailable)) {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners == nil {
		d.owners = make(map[string]doubt)
	}
	if len(d.owners) >= maxDoubts {
		for owner, other := range d.owners {
			if now.Sub(other.since) > memory {
				delete(d.owners, owner)
			}
		}
	}
	d.owners[owner] = doubt{now, max(number, d.owners[owner].number)}
}

// of returns the number that was noted of the acquisition last, or 0 if none was.
func (d *doubts) of(owner string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owners[owner].number
}

// forget forgets what was noted up to that number.
func (d *doubts) forget(owner string, number uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners[owner].number <= number {
		delete(d.owners, owner)
	}
}
