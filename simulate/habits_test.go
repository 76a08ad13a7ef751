package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// worker is a goroutine that uses its process's Locker, as people do.
type worker struct {
	h    *history
	proc *process
	id   int
	r    *rand.Rand
}

func newWorker(p *process, id int) *worker {
	return &worker{h: p.h, proc: p, id: id,
		r: rand.New(rand.NewPCG(p.h.seed, uint64(1000+100*p.id+id)))}
}

// errWhim is the cause of some contexts that end.
var errWhim = errors.New("simulated: the caller changed its mind")

func (w *worker) often(f feature, chance float64) bool {
	return w.h.has(f) && w.r.Float64() < chance
}

func (w *worker) around(mean time.Duration) time.Duration {
	return time.Duration(w.r.ExpFloat64() * float64(mean))
}

func (w *worker) note(kind eventKind, k *keyState, a, b uint64) {
	w.h.ring.note(kind, w.proc.id, w.id, k.index, a, b)
}

// run acquires and releases until the history stops it.
func (w *worker) run() {
	for range w.h.steps {
		if w.r.Float64() < w.h.idle {
			w.pause(w.around(w.h.think))
		}
		if w.h.stopping() {
			return
		}
		w.proc.awake()
		w.step()
	}
}

// pause sleeps, but not beyond the end of the faults.
func (w *worker) pause(d time.Duration) {
	if d > 0 {
		within(d, w.h.stop)
	}
}

// step is one acquisition, or one Close.
func (w *worker) step() {
	defer func() {
		switch r := recover(); r.(type) {
		case nil, hookPanic, contextPanic:
		default:
			w.note(evPanic, w.h.keyed[0], 0, 0)
			w.h.violate("panic", "%v", r)
		}
	}()
	if w.often(closes, 0.003) {
		w.proc.reopen(false)
		return
	}
	k := w.h.keyed[w.r.IntN(len(w.h.keyed))]
	ctx, cancel := w.context()
	defer cancel()
	if w.often(tries, 0.2) {
		w.try(ctx, k)
		return
	}
	if g := w.acquire(ctx, k); g != nil {
		w.hold(ctx, g)
	}
}

// context draws for how long the caller is patient.
func (w *worker) context() (context.Context, context.CancelFunc) {
	switch {
	case w.often(cancels, 0.4):
		d := 50*time.Microsecond + time.Duration(w.r.Float64()*float64(1950*time.Microsecond))
		if w.r.IntN(2) == 0 {
			d = w.around(2 * w.h.delay)
		}
		if w.r.IntN(4) > 0 {
			return context.WithTimeout(w.h.base, d)
		}
		ctx, cancel := context.WithCancelCause(w.h.base)
		timer := time.AfterFunc(d, func() { cancel(errWhim) })
		return ctx, func() {
			timer.Stop()
			cancel(nil)
		}
	case w.often(patience, 0.3):
		return context.WithTimeout(w.h.base,
			time.Duration(w.r.Float64()*2*float64(w.h.ttls[w.r.IntN(len(w.h.ttls))])))
	default:
		return w.h.base, func() {}
	}
}

// moody is a context that asks a lock, or panics, when it is asked, the latter after some times.
type moody struct {
	context.Context
	left  atomic.Int64
	asked *holdfast.Lock // nil: none
}

// contextPanic is what a context panics with.
type contextPanic struct{}

func (c *moody) Err() error {
	if c.asked != nil {
		c.asked.Err()
	} else if c.left.Add(-1) < 0 {
		panic(contextPanic{})
	}
	return c.Context.Err()
}

// moody makes the context, with a chance, one that panics, or asks a lock of the process on the key
// if there is one.
func (w *worker) moody(ctx context.Context, k *keyState) context.Context {
	if !w.often(badContexts, 0.05) {
		return ctx
	}
	c := &moody{Context: ctx}
	c.left.Store(w.r.Int64N(8))
	if g := k.anyOf(w.proc); g != nil && w.r.IntN(2) == 0 {
		c.asked = g.lock
	}
	return c
}

// acquire acquires the key, and tells the checker at once.
func (w *worker) acquire(ctx context.Context, k *keyState) *grip {
	n := w.r.IntN(len(w.proc.variants))
	var left time.Duration
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	w.note(evWants, k, uint64(n), uint64(left))
	if w.often(giveUps, 0.5) {
		with, done := w.proc.moments.waits(ctx, k.index)
		defer done()
		ctx = with
	}
	ctx = w.moody(ctx, k)
	v := w.proc.variants[n]
	floor := k.floor(v.shared)
	lock, err := w.proc.open().locker.Acquire(ctx, k.name, v.options...)
	return w.got(ctx, k, v.shared, floor, lock, err)
}

// try is acquire with TryAcquire.
func (w *worker) try(ctx context.Context, k *keyState) {
	n := w.r.IntN(len(w.proc.variants))
	ctx = w.moody(ctx, k)
	v := w.proc.variants[n]
	floor := k.floor(v.shared)
	lock, err := w.proc.open().locker.TryAcquire(ctx, k.name, v.options...)
	if g := w.got(ctx, k, v.shared, floor, lock, err); g != nil {
		w.hold(ctx, g)
	}
}

func (w *worker) got(ctx context.Context, k *keyState, shared bool, floor uint64,
	lock *holdfast.Lock, err error) *grip {
	if err != nil {
		w.note(evGivesUp, k, 0, 0)
		w.h.refusal("acquire", ctx, err)
		if ctx.Err() == nil && !errors.Is(err, holdfast.ErrHeld) {
			// whoever is refused by a backend comes back later
			w.pause(w.around(max(w.h.gust/3, time.Millisecond)))
		}
		return nil
	}
	g := &grip{lock: lock, key: k, worker: w, shared: shared, reads: shared}
	w.h.granted(g, floor)
	w.h.served.Add(1)
	w.note(evHas, k, uint64(lock.Token()), uint64(time.Until(lock.Deadline())))
	return g
}

// hold does something under the lock, and lets it go.
func (w *worker) hold(ctx context.Context, g *grip) {
	held := w.h.base
	if w.often(nests, 0.2) {
		held = g.lock.Context(w.h.base)
		w.nest(held, g)
	}
	switch x := w.r.Float64(); {
	case x < w.h.stays:
		w.stay(g)
	case x < 0.5:
		// Nothing: most critical sections are short.
	default:
		w.pause(w.around(w.h.hold))
	}
	w.suspend(0.002)
	w.proc.awake()
	if w.often(extends, 0.2) {
		w.extend(g)
	}
	if !g.shared && w.often(shared, 0.2) {
		w.downgrade(g)
	}
	w.h.look(g)
	if held != w.h.base {
		w.told(held, g)
	}
	w.release(g)
}

// stay keeps the lock until it is lost, and a little longer, to see that it is told in time; or for
// a few renewals.
func (w *worker) stay(g *grip) {
	if w.often(outages, 0.3) {
		ttl := w.h.ttls[w.r.IntN(len(w.h.ttls))]
		for _, path := range w.proc.wires {
			path.fade(time.Duration(w.r.Float64()*float64(ttl)), 2*ttl)
		}
	}
	for range 6 {
		wait := time.Until(g.lock.Deadline()) + 1
		if wait <= 1 || w.h.stopping() {
			return
		}
		w.pause(wait)
		w.h.look(g)
		if errors.Is(g.lock.Err(), holdfast.ErrMaxHold) {
			// The lease goes on for a while, and so do people who are slow to stop.
			w.pause(time.Duration(w.r.Float64() * float64(w.h.ttls[w.r.IntN(len(w.h.ttls))])))
			w.suspend(0.5)
			// The release comes late, but before the Locker next looks for suspends: the lease that
			// it hands over may be over.
			w.pause(time.Duration(1 + w.r.IntN(int(20*time.Millisecond))))
			return
		}
	}
}

// suspend suspends everything for about a lease, with a chance.
func (w *worker) suspend(chance float64) {
	if w.often(suspends, chance) && !w.h.stopping() {
		ttl := w.h.ttls[w.r.IntN(len(w.h.ttls))]
		w.h.suspend(time.Duration((0.3 + w.r.Float64()) * float64(min(ttl, longestSuspend))))
	}
}

// told checks that a context has ended with its lock. Both happen at one moment, so it looks a
// moment later.
func (w *worker) told(ctx context.Context, g *grip) {
	if g.lock.Err() == nil {
		return
	}
	time.Sleep(time.Nanosecond)
	if ctx.Err() == nil && !w.h.late() {
		w.h.violate("deadline", "%s: token %d has ended, but not its context: %v", g.key.name,
			g.lock.Token(), g.lock.Err())
	}
}

// nest acquires the key again, under its own lock.
func (w *worker) nest(ctx context.Context, g *grip) {
	// If the key is lost just now, this is an acquisition like any other, which has to be released.
	reads := w.h.has(shared) && w.r.IntN(2) == 0
	var options []holdfast.AcquireOption
	if reads {
		options = append(options, holdfast.WithShared())
	}
	floor := g.key.floor(reads)
	inner, err := w.proc.open().locker.TryAcquire(ctx, g.key.name, options...)
	if err != nil {
		if ctx.Err() == nil { // its cause is of a kind as well: a hook may have released the lock
			w.h.refusal("nested acquisition", ctx, err)
		}
		return
	}
	if inner.Token() == g.lock.Token() {
		if g.reads && !reads {
			w.h.violate("exclusion", "%s: token %d: writing in one's own read", g.key.name,
				inner.Token())
		}
		inner.Release(ctx)
		return
	}
	w.h.letGo(g)
	g.lock.Release(w.h.base)
	other := &grip{lock: inner, key: g.key, worker: w, shared: reads, reads: reads}
	w.h.granted(other, floor)
	w.release(other)
}

// extend renews the lease by hand.
func (w *worker) extend(g *grip) {
	w.note(evExtends, g.key, uint64(g.lock.Token()), 0)
	ctx, cancel := w.context()
	defer cancel()
	if w.often(badContexts, 0.1) {
		ctx = &moody{Context: ctx, asked: g.lock}
	}
	if err := g.lock.Extend(ctx); err != nil {
		w.h.refusal("extend", ctx, err)
	}
	w.h.look(g)
}

// downgrade makes the writer a reader, and goes on for a while.
func (w *worker) downgrade(g *grip) {
	w.note(evDowngrades, g.key, uint64(g.lock.Token()), 0)
	ctx, cancel := w.context()
	defer cancel()
	if w.often(badContexts, 0.1) {
		ctx = &moody{Context: ctx, asked: g.lock}
	}
	w.h.downgrading(g)
	if w.often(oddReleases, 0.1) {
		go g.lock.Downgrade(w.h.base)
	}
	if err := g.lock.Downgrade(ctx); err != nil {
		w.h.refusal("downgrade", ctx, err)
	} else {
		g.reads = true
	}
	w.h.look(g)
	if w.often(nests, 0.2) && g.lock.Err() == nil {
		w.nest(g.lock.Context(w.h.base), g)
	}
	w.pause(w.around(w.h.hold))
}

// release lets the lock go, in one of the ways that people do it.
func (w *worker) release(g *grip) {
	h := w.h
	w.note(evLets, g.key, uint64(g.lock.Token()), uint64(time.Until(g.lock.Deadline())))
	if !h.letGo(g) {
		return // a hook did
	}
	w.proc.moments.strike(g.key.index, 0.1)
	ctx, again := h.base, false
	switch {
	case w.often(nilReleases, 0.05):
		w.releaseNil(g)
		return
	case w.often(oddReleases, 0.3):
		ended, cancel := context.WithCancel(h.base)
		cancel()
		ctx, again = ended, w.r.IntN(2) == 0
	case w.often(nests, 0.1):
		ctx = g.lock.Context(h.base) // it ends with the lock
	case w.often(cancels, 0.2):
		short, cancel := context.WithTimeout(h.base, w.around(h.delay))
		defer cancel()
		ctx = short
	}
	if again {
		go g.lock.Release(h.base)
	}
	err := g.lock.Release(ctx)
	if err != nil {
		h.refusal("release", ctx, err)
	}
	if g.valid() {
		h.violate("deadline", "%s: token %d is valid after its release", g.key.name, g.lock.Token())
	}
	if err := g.lock.Err(); errors.As(err, new(*holdfast.LostError)) {
		h.lostError(err)
	}
}

// releaseNil forgets the context. If that panics, the panic is recovered, as a server would, and is
// a violation.
func (w *worker) releaseNil(g *grip) {
	defer func() {
		if r := recover(); r != nil {
			w.note(evPanic, g.key, 0, 0)
			w.h.violate("panic", "Release without a context: %v", r)
		}
	}()
	var none context.Context
	if err := g.lock.Release(none); err != nil {
		w.h.refusal(fmt.Sprintf("release with %v", none), w.h.base, err)
	}
}
