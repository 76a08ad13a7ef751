package board

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// Options say what a board shows, and to whom.
type Options struct {
	// View is what is looked at. Its Patience bounds each call.
	View *look.View

	// Backend is the one that View looks at. It is examined if it is a driver.Checker, and locks
	// are freed on it.
	Backend driver.Backend

	// Title says where the locks are, without anything secret.
	Title string

	// Begins is how the names of the locks begin that are shown.
	Begins string

	// Every is the pause between two looks.
	Every time.Duration

	// Most is how many locks are shown at most; 0 means as many as usual. The memory is bounded by
	// it.
	Most int

	// Token is what a viewer has to know. Empty: viewers need to know nothing.
	Token string

	// Release allows locks to be freed. It needs a Token.
	Release bool

	// Hosts are names by which browsers may call the board, beside localhost and IP addresses.
	Hosts []string

	// Hide takes secrets out of an error.
	Hide func(string) string

	// Log is told of each attempt to free a lock.
	Log func(format string, args ...any)
}

// Board is a handler of HTTP. Run keeps it up to date.
type Board struct {
	Options
	mux      *http.ServeMux
	audience audience
	feed     feed
	reader   reader
	details  details
	soon     chan struct{} // the next look is wanted at once
	frees    frees
}

// New returns a board that has not looked yet. It panics if Release has no Token.
func New(o Options) *Board {
	if o.Release && o.Token == "" {
		panic("board: Release without a Token")
	}
	if o.Most == 0 {
		o.Most = most
	}
	b := &Board{Options: o, soon: make(chan struct{}, 1)}
	b.audience.arrived = make(chan struct{}, 1)
	b.feed.changed = make(chan struct{})
	b.details.slots = make(chan struct{}, mostDetails)
	b.frees.done = make(chan struct{}, 1)
	b.reader.Options = &b.Options
	b.routes()
	return b
}

// Run looks at the backend, as long as somebody watches, until ctx ends. It is called once.
func (b *Board) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	b.reader.work = &work
	for b.watched(ctx) {
		began := time.Now()
		b.feed.begin(began)
		b.feed.publish(b.reader.look(ctx, began))
		select {
		case <-ctx.Done():
		case <-b.soon:
		case <-time.After(b.Every):
		}
	}
}

// watched waits until somebody watches. It returns false if ctx has ended.
func (b *Board) watched(ctx context.Context) bool {
	if !b.audience.present() {
		b.feed.outdate()
	}
	return b.audience.wait(ctx)
}

// lookSoon ends the pause between two looks.
func (b *Board) lookSoon() {
	select {
	case b.soon <- struct{}{}:
	default:
	}
}

// Limits of what somebody may ask of the server.
const (
	requestTime = 10 * time.Second // to send the head of a request, and its body
	writeTime   = 20 * time.Second // to take a piece of the answer
	idleTime    = time.Minute      // between two requests
	headBytes   = 16 << 10         // of a request
	freeTime    = 5 * time.Second  // to free locks, when the board is ended
)

// Serve answers requests on the listener until ctx ends, and then closes the listener and returns
// nil. If it cannot go on before, it returns why. Locks that are being freed when ctx ends have a
// moment to be freed.
func (b *Board) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	// Freeing a lock takes several requests to the backend, and each may take as long as the
	// patience. A limit for the whole request would end such an answer too, because the server
	// reads on meanwhile.
	server := &http.Server{Handler: b, ReadHeaderTimeout: requestTime,
		WriteTimeout: writeTime + 8*b.View.Patience,
		IdleTimeout:  idleTime, MaxHeaderBytes: headBytes, ErrorLog: silence(),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { b.Run(ctx) })
	work.Go(func() {
		<-ctx.Done()
		for _, name := range b.frees.end(freeTime) {
			b.Log("%s: the board was ended while it freed the lock, which may be free or not", name)
		}
		_ = server.Close() // nobody waits for an answer any more
	})
	err := server.Serve(bounded(l))
	if ctx.Err() != nil {
		return nil
	}
	return err
}
