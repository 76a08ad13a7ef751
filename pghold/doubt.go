package pghold

import (
	"sync"
	"time"
)

// doubts are acquisitions of which a request may still be on its way although its connection was
// given up. The server has to remember the end of such an acquisition.
type doubts struct {
	mu     sync.Mutex
	owners map[string]time.Time
}

const (
	// memory is how long the server remembers the end of an acquisition. A request that arrives
	// later takes the key for its TTL, and nobody holds it.
	memory = time.Minute

	// maxDoubts bounds how many are kept. Each leaves when it is released.
	maxDoubts = 10_000
)

func (d *doubts) note(owner string) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners == nil {
		d.owners = make(map[string]time.Time)
	}
	if len(d.owners) >= maxDoubts {
		for other, since := range d.owners {
			if now.Sub(since) > memory {
				delete(d.owners, other)
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
