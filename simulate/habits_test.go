package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		if w.proc.dead.Load() {
			next := w.proc.next.Load()
			if next == nil {
				return
			}
			w = newWorker(next, w.id)
		}
		w.proc.awake()
		w.proc.load.step()
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
	if w.often(sets, 0.4) {
		w.together()
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

// wish is what an acquisition asks for.
type wish struct {
	variant
	asker       // who asks, and the number of the variant, for the report
	permits int // 0: a lock
}

// wish draws what an acquisition of the key asks for.
func (w *worker) wish(k *keyState) wish {
	if k.slots == nil {
		n := w.r.IntN(len(w.proc.variants))
		return wish{variant: w.proc.variants[n], asker: asker{wish: uint64(n)}}
	}
	n := w.r.IntN(len(w.proc.variants))
	for w.proc.variants[n].shared {
		n = w.r.IntN(len(w.proc.variants))
	}
	permits := w.proc.permits(k)
	v := w.proc.variants[n]
	v.options = append(v.options[:len(v.options):len(v.options)], holdfast.WithPermits(permits))
	number := uint64(n) | uint64(permits)<<permitShift
	return wish{variant: v, asker: asker{wish: number}, permits: permits}
}

// permitShift is where the number of permits begins in the number of a wish.
const permitShift = 16

// acquire acquires the key, and tells the checker at once.
func (w *worker) acquire(ctx context.Context, k *keyState) *grip {
	v := w.wish(k)
	var left time.Duration
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	w.note(evWants, k, v.asker.wish, uint64(left))
	if w.often(giveUps, 0.5) {
		with, done := w.proc.moments.waits(ctx, k.index)
		defer done()
		ctx = with
	}
	end := w.h.ending(ctx)
	defer end.stop()
	ctx = w.moody(ctx, k)
	floors := k.floors(v.shared)
	v.life = w.proc.open()
	done := w.h.waits(k, v.asker, v.permits)
	defer done() // even if a context panics
	lock, err := v.life.locker.Acquire(ctx, k.name, v.options...)
	done()
	w.ofAnother(k, v, err)
	return w.got(ctx, end, k, v, floors, lock, err)
}

// try is acquire with TryAcquire.
func (w *worker) try(ctx context.Context, k *keyState) {
	v := w.wish(k)
	end := w.h.ending(ctx)
	defer end.stop()
	ctx = w.moody(ctx, k)
	floors := k.floors(v.shared)
	v.life = w.proc.open()
	lock, err := v.life.locker.TryAcquire(ctx, k.name, v.options...)
	if g := w.got(ctx, end, k, v, floors, lock, err); g != nil {
		w.hold(ctx, g)
	}
}

func (w *worker) got(ctx context.Context, end *ending, k *keyState, v wish, floors []uint64,
	lock *holdfast.Lock, err error) *grip {
	if err != nil {
		w.note(evGivesUp, k, 0, 0)
		w.refused(ctx, err)
		return nil
	}
	if late := end.passed(); late > 0 {
		w.h.violate("context", "%s: token %d was granted %v after the end of the caller's context",
			k.name, lock.Token(), late)
	}
	g := w.grip(k, lock, v, floors)
	if g != nil {
		w.h.served.Add(1)
		w.note(evHas, g.key, uint64(lock.Token()), uint64(time.Until(lock.Deadline())))
	}
	return g
}

// grip tells the checker of a lock that was just granted. If the lock is a permit that does not
// exist, grip releases it and returns nil.
func (w *worker) grip(k *keyState, lock *holdfast.Lock, v wish, floors []uint64) *grip {
	slot, held := lock.Slot(), k.held()
	switch {
	case v.permits == 0 && slot != -1, v.permits > 0 && (slot < 0 || slot >= v.permits):
		w.h.violate("slots", "%s: a lock has slot %d of %d permits", k.name, slot, v.permits)
		lock.Release(w.proc.base)
		return nil
	case v.permits > 0:
		w.h.permitted.Add(1)
	}
	slot = max(slot, 0)
	g := &grip{lock: lock, key: held[slot], worker: w, asker: v.asker, shared: v.shared,
		reads: v.shared}
	w.h.granted(g, floors[slot])
	w.h.backed(g)
	return g
}

// hold does something under the lock, and releases it.
func (w *worker) hold(ctx context.Context, g *grip) {
	held := w.proc.base
	if w.often(nests, 0.2) {
		held = g.lock.Context(w.proc.base)
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
	switch {
	case g.key.of != nil:
		w.noDowngrade(g)
	case !g.shared && w.often(shared, 0.2):
		w.downgrade(g)
	}
	w.h.look(g)
	if held != w.proc.base {
		w.told(held, g)
	}
	w.release(g)
}

// stay keeps the lock until it is lost, and a little longer, to see that the loss is told in time;
// or for a few renewals.
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
			// The release comes late, but before the Locker next looks for suspends. So the lease
			// that it hands over may have ended.
			w.pause(time.Duration(1 + w.r.IntN(int(20*time.Millisecond))))
			return
		}
	}
}

// suspend, with a chance, suspends everything for about a lease.
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
	// If the key is lost just now, this is an acquisition like any other, and has to be released.
	k, v := g.key.user(), wish{}
	reads := w.h.has(shared) && w.r.IntN(2) == 0 && k.slots == nil
	switch {
	case reads:
		v.shared, v.options = true, []holdfast.AcquireOption{holdfast.WithShared()}
	case k.slots != nil:
		v.permits = w.proc.permits(k)
		v.options = []holdfast.AcquireOption{holdfast.WithPermits(v.permits)}
	}
	floors := k.floors(reads)
	inner, err := w.proc.open().locker.TryAcquire(ctx, k.name, v.options...)
	if err != nil {
		if ctx.Err() == nil { // its cause is of a kind, too: a hook may have released the lock
			w.h.refusal("nested acquisition", ctx, err)
		}
		return
	}
	if inner.Token() == g.lock.Token() && inner.Slot() == g.lock.Slot() {
		if g.reads && !reads {
			w.h.violate("exclusion", "%s: token %d: writing in one's own read", g.key.name,
				inner.Token())
		}
		inner.Release(ctx)
		return
	}
	w.h.letGo(g)
	g.lock.Release(w.proc.base)
	if other := w.grip(k, inner, v, floors); other != nil {
		w.release(other)
	}
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
		go g.lock.Downgrade(w.proc.base)
	}
	if err := g.lock.Downgrade(ctx); err != nil {
		w.h.refusal("downgrade", ctx, err)
	} else {
		g.reads = true
	}
	w.h.look(g)
	if w.often(nests, 0.2) && g.lock.Err() == nil {
		w.nest(g.lock.Context(w.proc.base), g)
	}
	w.pause(w.around(w.h.hold))
}

// noDowngrade, with a chance, checks that a permit cannot be shared.
func (w *worker) noDowngrade(g *grip) {
	if !w.often(shared, 0.05) {
		return
	}
	if err := g.lock.Downgrade(w.proc.base); !errors.Is(err, holdfast.ErrInvalid) {
		w.h.violate("errors", "%s: Downgrade of a permit: %v", g.key.name, err)
	}
}

// release releases the lock, in one of the ways in which people do it.
func (w *worker) release(g *grip) {
	h := w.h
	w.note(evLets, g.key, uint64(g.lock.Token()), uint64(time.Until(g.lock.Deadline())))
	if !h.letGo(g) {
		return // a hook did
	}
	w.proc.moments.strike(g.key.user().index, 0.1)
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
	case w.often(badContexts, 0.3):
		ctx = w.panics(ctx)
		// Here, because the worker may hold other locks, too, and goes on with them.
		defer func() {
			if r := recover(); r != nil && r != any(contextPanic{}) {
				panic(r)
			}
		}()
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

// releaseNil forgets the context. If that panics, it recovers the panic, as a server would, and
// notes a violation.
func (w *worker) releaseNil(g *grip) {
	defer func() {
		if r := recover(); r != nil {
			w.note(evPanic, g.key, 0, 0)
			w.h.violate("panic", "Release without a context: %v", r)
		}
	}()
	var none context.Context
	if err := g.lock.Release(none); err != nil {
		w.h.refusal(fmt.Sprintf("release with %v", none), w.proc.base, err)
	}
}
