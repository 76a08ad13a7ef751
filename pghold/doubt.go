package pghold

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// doubts are requests about claims, to acquire or to release, that may still be on their way
// although their connections were given up. Each request has a number, and the next one about the
// same owner value tells the server the number of the last one that is in doubt. From then on the
// server ignores requests up to that number: an acquisition that arrives after its release, and
// also a release that arrives after the claim was asked for again, as a waiter over several nodes
// does.
//
// Only one request about an owner value is under way at a time, because they are all about one key,
// and the line sends them one after the other. So an answer ends every doubt that there is.
type doubts struct {
	mu     sync.Mutex
	owners map[string]doubt
	swept  time.Time // when those that were too old were last removed
	last   int64     // number of the last request
}

// doubt is about the latest request that may still be on its way.
type doubt struct {
	since  time.Time
	number int64
}

const (
	// memory is how long the server remembers which requests are late. An acquisition that arrives
	// later takes the key for its TTL, and nobody holds it. A release undoes what its claim has got
	// since. The functions have the same number.
	memory = time.Minute

	// maxDoubts is how many are kept at least. Each is removed when the next request about its
	// owner value is answered. If there are more, those older than memory are removed, once in that
	// time.
	maxDoubts = 10_000
)

// next returns the number of a new request about the claim, and that of the last one that may still
// arrive; 0 if none may. Numbers rise.
func (d *doubts) next(owner string) (number, late int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last, d.owners[owner].number
}

// returned notes how a request has ended that has told the server of the late ones.
func (d *doubts) returned(owner string, number, late int64, err error) {
	if err == nil && late == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		delete(d.owners, owner)
	case errors.Is(err, driver.ErrUnknown):
		d.add(owner, number)
	}
}

// add remembers that the request of that number may still arrive. Called with mu held.
func (d *doubts) add(owner string, number int64) {
	now := time.Now()
	if d.owners == nil {
		d.owners = make(map[string]doubt)
	}
	// To look each time would take quadratic time.
	if len(d.owners) >= maxDoubts && now.Sub(d.swept) > memory {
		young := make(map[string]doubt) // a map keeps its memory when it gets empty
		for other, what := range d.owners {
			if now.Sub(what.since) <= memory {
				young[other] = what
			}
		}
		d.owners, d.swept = young, now
	}
	d.owners[owner] = doubt{now, number}
}
