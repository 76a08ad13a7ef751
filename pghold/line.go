package pghold

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// patience bounds a request, with its wait for a connection. The callers' contexts bound only
	// their own waits. A connection whose request takes longer is given up.
	patience = 5 * time.Second

	// maxQueued is how many requests may be on their way, or wait for a connection or for those of
	// their keys to come back. All are for one server, and of keys there is no bound.
	maxQueued = 4096
)

// line orders the requests of a Backend. A pool spreads them over connections, so a request is sent
// only when the one before it for the same key has come back. The context of a caller bounds the
// caller's wait, not the request. A request that was cut off might still take effect, and nobody
// would know when.
type line struct {
	mu       sync.Mutex
	queued   int
	joined   uint64
	last     map[string]*place // in the line of each key that has requests
	releases map[string]*place // by owner: the last release that nobody waits for any more
}

// place is the place of a request in the line of its key. Only the first of a line is made. Those
// behind it have no goroutine but their callers', and leave if they are not to be sent any more. So
// callers who give up on a key that hangs cost nothing, however many they are.
type place struct {
	key   string
	owner string // of a release: whose; else empty
	run   func() // makes the request, and leaves

	// Guarded by line.mu:
	ahead, behind *place // in the line; nil if there is none
	number        uint64 // rises along the line
	begun         bool   // those before it are back, and it waits for a connection or is sent
	sent          bool   // or about to be, on a connection that it has
	back          bool   // it has left the line
	givenUp       bool   // nobody waits for it
}

// join puts a request behind those of its key, and has it made if there is none.
func (l *line) join(p *place) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued == maxQueued {
		return &driver.Error{Err: fmt.Errorf("%d requests are on their way already", maxQueued)}
	}
	if l.last == nil {
		l.last, l.releases = make(map[string]*place), make(map[string]*place)
	}
	l.queued++
	l.joined++
	p.number = l.joined
	if p.ahead = l.last[p.key]; p.ahead != nil {
		p.ahead.behind = p
	} else {
		p.begin()
	}
	l.last[p.key] = p
	return nil
}

// begin has a request made whose turn has come. Called with the line's mu held.
func (p *place) begin() {
	p.begun = true
	go p.run()
}

// send reports whether a request that has a connection is sent. A release that was given up is, as
// it must not be lost behind an acquisition that hangs, unless an equal one that was given up too
// comes behind it.
func (l *line) send(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.sent = p.sent || !p.givenUp || p.owner != "" && l.releases[p.owner] == p
	return p.sent
}

// giveUp notes that the caller does not wait any longer, and returns its error; err is the reason,
// and want says what a request without a connection lacks. A request that waits in the line leaves
// it, unless it is a release, of which the last one stays of those that are equal and were given
// up.
func (l *line) giveUp(p *place, err error, want func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.givenUp = true
	switch {
	case p.sent:
	case p.owner != "" && !p.back:
		dropped := l.releases[p.owner]
		if dropped == nil || dropped.number < p.number {
			l.releases[p.owner] = p
		} else {
			dropped = p
		}
		if dropped != nil && !dropped.begun {
			l.remove(dropped)
		}
	case p.begun:
		return &driver.Error{Err: fmt.Errorf("not sent: %w: %w", want(), err)}
	default:
		l.remove(p)
		return &driver.Error{Err: fmt.Errorf(
			"not sent, as an earlier request for its key has not come back: %w", err)}
	}
	return &driver.Error{Maybe: true, Err: err}
}

// leave ends a request that is back, and lets the next one of the key go.
func (l *line) leave(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(p)
	p.back = true
	if p.behind != nil {
		p.behind.begin()
	}
}

// remove takes a request out of the line. Called with mu held.
func (l *line) remove(p *place) {
	l.queued--
	if p.ahead != nil {
		p.ahead.behind = p.behind
	}
	switch {
	case p.behind != nil:
		p.behind.ahead = p.ahead
	case p.ahead != nil:
		l.last[p.key] = p.ahead
	default:
		delete(l.last, p.key)
	}
	if p.owner != "" && l.releases[p.owner] == p {
		delete(l.releases, p.owner)
	}
}

// answer is what a request has brought.
type answer[T any] struct {
	value T
	err   error
}

// inLine runs request when the earlier ones of the key are back. releaseOf is the owner value if it
// is a release, and else empty.
func inLine[T any](ctx context.Context, b *Backend, key, releaseOf string,
	request func(context.Context) (T, error)) (none T, err error) {
	if err := b.ready(ctx); err != nil {
		return none, err
	}
	answers := make(chan answer[T], 1)
	p := &place{key: key, owner: releaseOf}
	p.run = func() {
		growStack()
		ctx, cancel := context.WithTimeout(b.life, patience)
		defer cancel()
		var a answer[T]
		a.value, a.err = request(sending(ctx, func() bool { return b.line.send(p) }))
		b.line.leave(p)
		answers <- a
	}
	if err := b.line.join(p); err != nil {
		return none, err
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, b.line.giveUp(p, ctx.Err(), b.db.want)
	case <-b.life.Done():
		return none, b.line.giveUp(p, errClosed, b.db.want)
	}
}

// growStack gives the goroutine of a request the stack that the request needs, while there is
// little on it. Otherwise the runtime would copy it deep within the client library, twice: that was
// a sixth of a pair's processor time.
//
//go:noinline
func growStack() {
	var space [4 << 10]byte
	runtime.KeepAlive(&space)
}

// aside runs a request that needs no order. effect says that it may change something. If it has no
// connection when its caller gives it up, it is not sent any more.
func aside[T any](ctx context.Context, b *Backend, effect bool,
	request func(context.Context) (T, error)) (none T, err error) {
	if err := b.ready(ctx); err != nil {
		return none, err
	}
	answers := make(chan answer[T], 1)
	var state atomic.Int32 // one of those below; the first to set it decides
	const sent, givenUp = 1, 2
	go func() {
		growStack()
		ctx, cancel := context.WithTimeout(b.life, patience)
		defer cancel()
		value, err := request(sending(ctx, func() bool {
			return state.CompareAndSwap(0, sent) || state.Load() == sent
		}))
		answers <- answer[T]{value, err}
	}()
	failed := &driver.Error{Maybe: effect}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		failed.Err = ctx.Err()
	case <-b.life.Done():
		failed.Permanent, failed.Err = true, errClosed
	}
	if state.CompareAndSwap(0, givenUp) {
		failed.Maybe, failed.Err = false, fmt.Errorf("not sent: %w: %w", b.db.want(), failed.Err)
	}
	return none, failed
}

// errGivenUp is the error of a request that has a connection when nobody waits for it any more.
// Nobody sees it.
var errGivenUp = errors.New("given up")

type sendingKey struct{}

// sending has a request ask, when it has a connection, whether it is still to be sent.
func sending(ctx context.Context, send func() bool) context.Context {
	return context.WithValue(ctx, sendingKey{}, send)
}

// maySend asks so.
func maySend(ctx context.Context) error {
	if send, ok := ctx.Value(sendingKey{}).(func() bool); ok && !send() {
		return errGivenUp
	}
	return nil
}
