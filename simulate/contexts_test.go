package simulate

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// errWhim is the cause of some contexts that end.
var errWhim = errors.New("simulated: the caller changed its mind")

// context draws how long the caller is patient.
func (w *worker) context() (context.Context, context.CancelFunc) {
	switch {
	case w.often(cancels, 0.02):
		ctx, cancel := context.WithCancel(w.proc.base)
		cancel()
		return ctx, cancel
	case w.often(cancels, 0.4):
		d := 50*time.Microsecond + time.Duration(w.r.Float64()*float64(1950*time.Microsecond))
		if w.r.IntN(2) == 0 {
			d = w.around(2 * w.h.delay)
		}
		if w.r.IntN(4) > 0 {
			return context.WithTimeout(w.proc.base, d)
		}
		ctx, cancel := context.WithCancelCause(w.proc.base)
		timer := time.AfterFunc(d, func() { cancel(errWhim) })
		return ctx, func() {
			timer.Stop()
			cancel(nil)
		}
	case w.often(patience, 0.3):
		return context.WithTimeout(w.proc.base,
			time.Duration(w.r.Float64()*2*float64(w.h.ttls[w.r.IntN(len(w.h.ttls))])))
	default:
		return w.proc.base, func() {}
	}
}

// moody is a context that asks a lock when it is asked itself, or panics after it was asked some
// times.
type moody struct {
	context.Context
	left  atomic.Int64
	asked *holdfast.Lock // nil: none
	done  bool           // it panics in Done, too, not only in Err
}

// contextPanic is what a context panics with.
type contextPanic struct{}

func (c *moody) Err() error {
	c.ask()
	return c.Context.Err()
}

func (c *moody) Done() <-chan struct{} {
	if c.done && !byTimer() {
		c.ask()
	}
	return c.Context.Done()
}

// byTimer reports whether package context asks because a timer of its own has ended a context.
// Nobody could recover a panic there.
func byTimer() bool {
	var callers [16]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		f, more := frames.Next()
		if f.Function == "context.removeChild" {
			return true
		}
		if !more {
			return false
		}
	}
}

func (c *moody) ask() {
	if c.asked != nil {
		c.asked.Err()
	} else if c.left.Add(-1) < 0 {
		panic(contextPanic{})
	}
}

// moody, with a chance, makes the context one that panics, or that asks a lock of the process on
// the key if there is one.
func (w *worker) moody(ctx context.Context, k *keyState) context.Context {
	if !w.often(badContexts, 0.05) {
		return ctx
	}
	c := w.panics(ctx)
	if g := k.anyOf(w.proc); g != nil && w.r.IntN(2) == 0 {
		c.asked = g.lock
	}
	return c
}

// panics makes the context one that panics after it was asked a few times.
func (w *worker) panics(ctx context.Context) *moody {
	c := &moody{Context: ctx, done: w.r.IntN(2) == 0}
	c.left.Store(w.r.Int64N(8))
	return c
}

// ending is when a context ended.
type ending struct {
	h    *history
	at   atomicDuration // since the start; 0: not yet
	stop func() bool
}

// ending notes when the context ends, until stop is called.
func (h *history) ending(ctx context.Context) *ending {
	e := &ending{h: h}
	e.stop = context.AfterFunc(ctx, func() { e.at.raise(h.now()) })
	return e
}

// passed reports how long ago the context ended. An Acquired hook may take its time after the
// grant, so with hooks that block nobody knows.
func (e *ending) passed() time.Duration {
	at := e.at.Load()
	if at == 0 || e.h.has(hookBlocks) {
		return 0
	}
	return e.h.now() - at
}
