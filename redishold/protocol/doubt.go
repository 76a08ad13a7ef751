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
	swept  time.Time // when those that were too old were last removed
	last   uint64    // number of the last request
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
	// older than memory are removed, once in that time.
	maxDoubts = 10_000
)

// request is a request about a claim, to acquire it or to release it.
type request struct {
	owner  string
	number uint64 // rises from each to the next
	late   uint64 // of the last request about the owner value that may still arrive; 0 if none may
	since  time.Time
}

// next returns a new request. The caller says by acquired or released how it has ended.
func (d *doubts) next(owner string) request {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return request{owner, d.last, d.owners[owner].number, time.Now()}
}

// numbered appends to a command who sends the request, its number, and that of the last one in
// doubt if there is one.
func (d *doubts) numbered(command Command, r request) Command {
	command = append(command, d.client, strconv.FormatUint(r.number, 10))
	if r.late > 0 {
		command = append(command, strconv.FormatUint(r.late, 10), milliseconds(memory))
	}
	return command
}

// acquired notes how an acquisition has ended.
func (d *doubts) acquired(r request, err error) {
	d.returned(r, err)
	if time.Since(r.since) >= slow {
		d.add(r)
	}
}

// untold is added to the reply of a script that ends a claim, if the server could not remember
// which requests are late.
const untold = 4

// released notes how a release has ended, and takes from its reply whether the server could
// remember what it was told.
func (d *doubts) released(r request, reply *Reply, err error) {
	if err == nil && reply.Kind == Integer && reply.Int >= untold {
		reply.Int -= untold
		return
	}
	d.returned(r, err)
}

// returned notes how a request has ended that has told the server of the late ones.
func (d *doubts) returned(r request, err error) {
	switch {
	case err == nil:
		d.forget(r)
	case !errors.Is(err, driver.ErrUnavailable):
		d.add(r)
	}
}

// add remembers that the request may still arrive.
func (d *doubts) add(r request) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners == nil {
		d.owners = make(map[string]doubt)
	}
	// To look each time would take quadratic time.
	if len(d.owners) >= maxDoubts && now.Sub(d.swept) > memory {
		young := make(map[string]doubt) // a map keeps its memory when it gets empty
		for owner, other := range d.owners {
			if now.Sub(other.since) <= memory {
				young[owner] = other
			}
		}
		d.owners, d.swept = young, now
	}
	d.owners[r.owner] = doubt{now, max(r.number, d.owners[r.owner].number)}
}

// forget forgets what the request has told the server.
func (d *doubts) forget(r request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners[r.owner].number <= r.late {
		delete(d.owners, r.owner)
	}
}
