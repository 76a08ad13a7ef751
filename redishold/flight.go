package redishold

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// flights are the requests that are on their way on one connection. There is room for maxPending of them: the
// library's own queue has a little more, and who finds that full is stuck in it whatever its context says.
//
// They also watch the requests' contexts. A context that a caller made for one request costs more to listen
// to than the request itself, and most requests are answered at once; so nobody listens until a request is
// overdue.
type flights struct {
	busy atomic.Int32 // how many are on their way, or wait for room

	mu      sync.Mutex
	idle    []*flight
	all     []*flight
	waiting []chan *flight // of those who found no room, in order; each has room for one
	armed   bool           // the timer will look at all
	timer   *time.Timer
}

const (
	maxPending = 1984

	// overdue is how old a request is, at least, before its context is listened to. One that would end
	// within eager is listened to from the start.
	overdue = 10 * time.Millisecond
	eager   = 3 * overdue
)

// flight is the context of one request, as the library sees it, and is used again for another one.
type flight struct {
	context.Context // the caller's, while in use

	done  chan struct{}       // closed when the caller's context has ended and somebody listened
	index int                 // in flights.all
	multi []rueidis.Completed // space for a pipeline; the library keeps it when it gives the request up

	mu   sync.Mutex
	busy bool
	seen bool        // by one look of the timer
	stop func() bool // listening; nil if nobody does
}

// Done is closed when the request has to be given up.
func (f *flight) Done() <-chan struct{} { return f.done }

// Err says why.
func (f *flight) Err() error {
	select {
	case <-f.done:
		return f.Context.Err()
	default:
		return nil
	}
}

// begin waits for room and puts a request into it. It returns nil when ctx or dead ended first.
func (fs *flights) begin(ctx context.Context, dead <-chan struct{}) *flight {
	fs.busy.Add(1)
	fs.mu.Lock()
	if !fs.armed {
		fs.armed = true
		if fs.timer == nil {
			fs.timer = time.AfterFunc(overdue, fs.look)
		} else {
			fs.timer.Reset(overdue)
		}
	}
	f := fs.take()
	if f != nil {
		fs.mu.Unlock()
	} else {
		turn := make(chan *flight, 1)
		fs.waiting = append(fs.waiting, turn)
		fs.mu.Unlock()
		if f = fs.wait(ctx, dead, turn); f == nil {
			fs.busy.Add(-1)
			return nil
		}
	}
	f.mu.Lock()
	f.Context, f.busy, f.seen = ctx, true, false
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < eager {
		f.listen()
	}
	f.mu.Unlock()
	return f
}

// take returns a flight if there is room. Called with fs.mu held.
func (fs *flights) take() *flight {
	if n := len(fs.idle); n > 0 {
		f := fs.idle[n-1]
		fs.idle = fs.idle[:n-1]
		return f
	}
	if len(fs.all) == maxPending {
		return nil
	}
	f := &flight{done: make(chan struct{}), index: len(fs.all)}
	fs.all = append(fs.all, f)
	return f
}

func (fs *flights) wait(ctx context.Context, dead <-chan struct{}, turn chan *flight) *flight {
	select {
	case f := <-turn:
		return f
	case <-ctx.Done():
	case <-dead:
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if i := slices.Index(fs.waiting, turn); i >= 0 {
		fs.waiting = slices.Delete(fs.waiting, i, i+1)
	} else {
		fs.give(<-turn) // it came at the same moment, and goes on to the next
	}
	return nil
}

// give hands a flight to the first who waits, or keeps it for later. Called with fs.mu held.
func (fs *flights) give(f *flight) {
	if len(fs.waiting) == 0 {
		fs.idle = append(fs.idle, f)
		return
	}
	fs.waiting[0] <- f
	fs.waiting[0] = nil
	fs.waiting = fs.waiting[1:]
}

// end takes a request out. If the library has given it up and what was sent may still be on its way, its room
// is kept until vacate is called.
func (fs *flights) end(f *flight, abandoned bool) {
	fs.busy.Add(-1)
	f.mu.Lock()
	f.busy = false
	spent := abandoned || f.stop != nil && !f.stop()
	f.stop = nil
	f.Context = nil
	f.mu.Unlock()
	if abandoned {
		return
	}
	fs.mu.Lock()
	if spent {
		fs.replace(f)
	} else {
		fs.give(f)
	}
	fs.mu.Unlock()
}

// vacate gives up the room of abandoned requests.
func (fs *flights) vacate(abandoned []*flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range abandoned {
		fs.replace(f)
	}
}

// replace puts a fresh flight in the place of one whose done is closed. Called with fs.mu held.
func (fs *flights) replace(spent *flight) {
	f := &flight{done: make(chan struct{}), index: spent.index}
	fs.all[f.index] = f
	fs.give(f)
}

// look listens to the contexts of requests that were there at the last look already.
func (fs *flights) look() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	busy := len(fs.all) - len(fs.idle)
	if fs.armed = busy > 0; !fs.armed {
		return
	}
	for _, f := range fs.all {
		f.mu.Lock()
		if f.busy {
			if f.seen && f.stop == nil {
				f.listen()
			}
			f.seen = true
		}
		f.mu.Unlock()
	}
	fs.timer.Reset(overdue)
}

// listen has done closed when the caller's context ends. Called with f.mu held.
func (f *flight) listen() {
	done := f.done
	f.stop = context.AfterFunc(f.Context, func() { close(done) })
}
