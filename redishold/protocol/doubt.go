package protocol

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// doubts are acquisitions of which a request may still be on its way though its call has returned, over a
// Transport that is not ordered: when they are released, the server has to remember that.
type doubts struct {
	mu     sync.Mutex
	owners map[string]time.Time
}

const (
	// slow is how long a request takes that the library may have sent more than once.
	slow = 250 * time.Millisecond

	// memory is for how long the server remembers the end of an acquisition. What arrives later still costs
	// its TTL.
	memory = time.Minute

	// maxDoubts bounds how many are kept. Each is released sooner or later; those that are not are dropped.
	maxDoubts = 10_000
)

// note keeps the acquisition in mind if the request to acquire it may still arrive.
func (d *doubts) note(owner string, err error, took time.Duration) {
	if took < slow && (err == nil || errors.Is(err, driver.ErrUnavailable)) {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners == nil {
		d.owners = make(map[string]time.Time)
	}
	if len(d.owners) >= maxDoubts {
		for owner, since := range d.owners {
			if now.Sub(since) > memory {
				delete(d.owners, owner)
			}
		}
	}
	d.owners[owner] = now
}

// has reports whether the acquisition was noted.
func (d *doubts) has(owner string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.owners[owner]
	return ok
}

func (d *doubts) forget(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owners, owner)
}
