package protocol

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// doubts are requests about claims, to acquire or to release, that may still be on their way
// although the call has returned. There are such only over a Transport that is not ordered. There
// each request has a number, and the next one about the same owner value tells the server the
// number of the last one that is in doubt. From then on the server ignores requests up to that
// number: an acquisition that arrives after its release, and also a release that arrives after the
// claim was asked for again, as a waiter over several nodes does. Requests of other clients about
// the owner value, such as a release by somebody who knows it, are never late.
type doubts struct {
	client string // tells the clients of a server apart

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
	// slow: if an acquisition took longer than this, the library may have sent it more than once,
	// although it must not. One doubt too many costs little.
	slow = 250 * time.Millisecond

	// memory is how long the server remembers which requests are late. An acquisition that arrives
	// later costs its TTL.
	memory = time.Minute

	// maxDoubts is how many are kept at least. Each is removed when the next request about its
	// owner value is answered, unless the server has no memory for it. If there are more, those
	// older than memory are removed.
	maxDoubts = 10_000
)

// next returns the number of a new request about the claim, and that of the last one that may still
// arrive; 0 if none may. Numbers rise.
func (d *doubts) next(owner string) (number, late uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last, d.owners[owner].number
}

// numbered appends to a command who sends it, its number, and that of the last request in doubt if
// it is not 0.
func (d *doubts) numbered(command Command, number, late uint64) Command {
	command = append(command, d.client, strconv.FormatUint(number, 10))
	if late > 0 {
		command = append(command, strconv.FormatUint(late, 10), milliseconds(memory))
	}
	return command
}

// returned notes how a request has ended that has told the server of the late ones.
func (d *doubts) returned(owner string, number, late uint64, err error) {
	switch {
	case err == nil:
		d.forget(owner, late)
	case !errors.Is(err, driver.ErrUnavailable):
		d.add(owner, number)
	}
}

// add remembers that the request of that number may still arrive.
func (d *doubts) add(owner string, number uint64) {
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

// forget forgets what was noted up to that number.
func (d *doubts) forget(owner string, number uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners[owner].number <= number {
		delete(d.owners, owner)
	}
}
