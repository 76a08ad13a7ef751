package redishold

import (
	"context"
	"sync"
	"time"
)

// flights are the requests that are on their way on one connection. There is room for maxPending of them: the
// library's own queue has a little more, and who finds that full is stuck in it whatever its context says.
//
// They also watch the requests' contexts. A context that a caller made for one request costs more to listen to than the
// request itself, and most requests are answered at once; so nobody listens until a request is overdue.
type flights struct {
	mu    sync.Mutex
	idle  []*flight
	all   []*flight
	armed bool // the timer will look at all
	timer *time.Timer

	// room is a token for one of those who wait for an idle flight or for one to be made.
	room    chan struct{}
	waiting int
}

const (
	maxPending = 960

	// overdue is how old a request is, at least, before its context is listened to. One that would end
	// within eager is listened to from the start.
	overdue = 5 * time.Millisecond
	eager   = 4 * overdue
)

// flight is the context of one request, as the library sees it, and is used again for another one.
type flight struct {
	context.Context // the caller's, while in use

	done chan struct{} // closed when the caller's context has ended and somebody listened

	mu   sync.Mutex
	busy bool
	seen bool        // by one look of the timer
	stop func() bool // listening; nil if nobody does
}

func newFlights() *flights { return &flights{room: make(chan struct{}, 1)} }

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
	f := fs.take()
	if f == nil {
		if f = fs.wait(ctx, dead); f == nil {
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

// take returns a flight if there is room.
func (fs *flights) take() *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if !fs.armed {
		fs.armed = true
		if fs.timer == nil {
			fs.timer = time.AfterFunc(overdue, fs.look)
		} else {
			fs.timer.Reset(overdue)
		}
	}
	if n := len(fs.idle); n > 0 {
		f := fs.idle[n-1]
		fs.idle = fs.idle[:n-1]
		return f
	}
	if len(fs.all) == maxPending {
		return nil
	}
	f := &flight{done: make(chan struct{})}
	fs.all = append(fs.all, f)
	return f
}

func (fs *flights) wait(ctx context.Context, dead <-chan struct{}) *flight {
	fs.mu.Lock()
	fs.waiting++
	fs.mu.Unlock()
	defer func() {
		fs.mu.Lock()
		fs.waiting--
		fs.signal() // whoever waits behind this one must not miss what it has not used
		fs.mu.Unlock()
	}()
	for {
		// After having been counted: from then on whoever makes room says so.
		if f := fs.take(); f != nil {
			return f
		}
		select {
		case <-fs.room:
		case <-ctx.Done():
			return nil
		case <-dead:
			return nil
		}
	}
}

// signal tells one of those who wait that there is room. Called with fs.mu held.
func (fs *flights) signal() {
	if fs.waiting > 0 && (len(fs.idle) > 0 || len(fs.all) < maxPending) {
		select {
		case fs.room <- struct{}{}:
		default:
		}
	}
}

// end takes a request out. It reports whether the library has given it up and what was sent may still be on its
// way; then its room is kept until vacate is called.
func (fs *flights) end(f *flight, abandoned bool) {
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
		fs.drop(f)
	} else {
		fs.idle = append(fs.idle, f)
	}
	fs.signal()
	fs.mu.Unlock()
}

// vacate gives up the room of abandoned requests.
func (fs *flights) vacate(abandoned []*flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range abandoned {
		fs.drop(f)
		fs.signal()
	}
}

// drop forgets a flight whose done is closed. Called with fs.mu held.
func (fs *flights) drop(f *flight) {
	for i, other := range fs.all {
		if other == f {
			last := len(fs.all) - 1
			fs.all[i] = fs.all[last]
			fs.all[last] = nil
			fs.all = fs.all[:last]
			return
		}
	}
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
