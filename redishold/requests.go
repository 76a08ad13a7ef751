package redishold

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// requests are the requests that are on their way on one connection. There is room for maxRequests
// of them. The library's own queue has a little more room, so it is never full. A caller that found
// it full would be stuck there, even if its context ended.
//
// They also watch the requests' contexts. Listening to a context that a caller made for one request
// costs more than the request itself, and most requests are answered at once. So nobody listens
// until a request is overdue.
type requests struct {
	busy atomic.Int32 // how many are on their way, or wait for room

	mu      sync.Mutex
	idle    []*request
	all     []*request
	waiting []chan *request // callers that found no room, in order; each channel has room for one
	armed   bool            // the timer will look at all
	timer   *time.Timer
}

const (
	maxRequests = 480

	// overdue is the least age of a request at which its context is listened to. A context that
	// ends within eager is listened to from the start.
	overdue = 10 * time.Millisecond
	eager   = 3 * overdue
)

// request is the context of one request, as the library sees it. It is used again for other
// requests.
type request struct {
	context.Context // the caller's, while in use

	done  chan struct{} // closed when the caller's context has ended and somebody listened
	index int           // in requests.all
	// space for a pipeline; the library keeps it when it gives the request up
	multi []rueidis.Completed

	mu   sync.Mutex
	busy bool
	seen bool        // by one look of the timer
	stop func() bool // listening; nil if nobody does
}

// Done is closed when the request has to be given up.
func (r *request) Done() <-chan struct{} { return r.done }

// Err says why.
func (r *request) Err() error {
	select {
	case <-r.done:
		return r.Context.Err()
	default:
		return nil
	}
}

// begin waits for room and returns a request, or nil if ctx or dead ended first.
func (rs *requests) begin(ctx context.Context, dead <-chan struct{}) *request {
	rs.busy.Add(1)
	rs.mu.Lock()
	if !rs.armed {
		rs.armed = true
		if rs.timer == nil {
			rs.timer = time.AfterFunc(overdue, rs.look)
		} else {
			rs.timer.Reset(overdue)
		}
	}
	r := rs.take()
	if r != nil {
		rs.mu.Unlock()
	} else {
		place := make(chan *request, 1)
		rs.waiting = append(rs.waiting, place)
		rs.mu.Unlock()
		if r = rs.wait(ctx, dead, place); r == nil {
			rs.busy.Add(-1)
			return nil
		}
	}
	r.mu.Lock()
	r.Context, r.busy, r.seen = ctx, true, false
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < eager {
		r.listen()
	}
	r.mu.Unlock()
	return r
}

// take returns a request if there is room, else nil. Called with rs.mu held.
func (rs *requests) take() *request {
	if n := len(rs.idle); n > 0 {
		r := rs.idle[n-1]
		rs.idle = rs.idle[:n-1]
		return r
	}
	if len(rs.all) == maxRequests {
		return nil
	}
	r := &request{done: make(chan struct{}), index: len(rs.all)}
	rs.all = append(rs.all, r)
	return r
}

func (rs *requests) wait(ctx context.Context, dead <-chan struct{}, place chan *request) *request {
	select {
	case r := <-place:
		return r
	case <-ctx.Done():
	case <-dead:
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if i := slices.Index(rs.waiting, place); i >= 0 {
		rs.waiting = slices.Delete(rs.waiting, i, i+1)
	} else {
		rs.give(<-place) // room came at the same moment: it passes to the next caller
	}
	return nil
}

// give hands a request to the first caller that waits, or keeps it for later. Called with rs.mu
// held.
func (rs *requests) give(r *request) {
	if len(rs.waiting) == 0 {
		rs.idle = append(rs.idle, r)
		return
	}
	rs.waiting[0] <- r
	rs.waiting[0] = nil
	rs.waiting = rs.waiting[1:]
}

// end takes a request out. abandoned says that the library has given the request up, and that it
// may still be on its way. Then its room is kept until vacate is called.
func (rs *requests) end(r *request, abandoned bool) {
	rs.busy.Add(-1)
	r.mu.Lock()
	r.busy = false
	spent := abandoned || r.stop != nil && !r.stop()
	r.stop = nil
	r.Context = nil
	r.mu.Unlock()
	if abandoned {
		return
	}
	rs.mu.Lock()
	if spent {
		rs.replace(r)
	} else {
		rs.give(r)
	}
	rs.mu.Unlock()
}

// vacate gives up the room of abandoned requests.
func (rs *requests) vacate(abandoned []*request) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range abandoned {
		rs.replace(r)
	}
}

// replace puts a fresh request in the place of one whose done is closed. Called with rs.mu held.
func (rs *requests) replace(spent *request) {
	r := &request{done: make(chan struct{}), index: spent.index}
	rs.all[r.index] = r
	rs.give(r)
}

// look listens to the contexts of requests that were already there at the last look.
func (rs *requests) look() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	busy := len(rs.all) - len(rs.idle)
	if rs.armed = busy > 0; !rs.armed {
		return
	}
	for _, r := range rs.all {
		r.mu.Lock()
		if r.busy {
			if r.seen && r.stop == nil {
				r.listen()
			}
			r.seen = true
		}
		r.mu.Unlock()
	}
	rs.timer.Reset(overdue)
}

// listen has done closed when the caller's context ends. Called with r.mu held.
func (r *request) listen() {
	done := r.done
	r.stop = context.AfterFunc(r.Context, func() { close(done) })
}
