package protocol

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// doubts are acquisitions of which a request may still be on its way although the call has
// returned. There are such only over a Transport that is not ordered. When such an acquisition is
// released, the server has to remember that.
type doubts struct {
	mu     sync.Mutex
	owners map[string]time.Time
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

// note remembers the acquisition if a request of it may still arrive.
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
