package simulate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
)

// bunch says what a set asks for, and what it becomes.
type bunch struct {
	variant
	keys   []*keyState
	shared []bool // of each key
	names  []string
	floors []uint64
	set    *holdfast.LockSet
	grips  []*grip
}

// bunch draws a set of the keys that are locks. It has none if all are semaphores.
func (w *worker) bunch() *bunch {
	n := w.r.IntN(len(w.proc.variants))
	b := &bunch{variant: w.proc.variants[n]}
	for _, i := range w.r.Perm(len(w.h.keyed)) {
		if k := w.h.keyed[i]; k.slots == nil && (len(b.keys) == 0 || w.r.IntN(3) > 0) {
			b.keys = append(b.keys, k)
		}
	}
	var named []string // with WithSharedKeys
	for _, k := range b.keys {
		reads := b.variant.shared
		if !reads && w.often(shared, 0.3) {
			reads, named = true, append(named, k.name)
		}
		b.shared = append(b.shared, reads)
		b.names = append(b.names, k.name)
		w.note(evWantsAll, k, uint64(n), 0)
	}
	if len(named) > 0 {
		b.options = append(b.options[:len(b.options):len(b.options)],
			holdfast.WithSharedKeys(named...))
	}
	if len(b.names) > 0 && w.r.IntN(4) == 0 {
		b.names = append(b.names, b.names[0]) // a key that is named twice counts once
	}
	return b
}

// together acquires several keys as one set, and releases them.
func (w *worker) together() {
	b := w.bunch()
	if len(b.keys) == 0 {
		return
	}
	for range b.keys {
		w.proc.load.step()
	}
	ctx, cancel := w.context()
	defer cancel()
	if w.often(giveUps, 0.5) {
		with, done := w.proc.moments.waits(ctx, pick(w.r, b.keys...).index)
		defer done()
		ctx = with
	}
	end := w.h.ending(ctx)
	defer end.stop()
	ctx = w.moody(ctx, b.keys[0])
	for i, k := range b.keys {
		b.floors = append(b.floors, k.floors(b.shared[i])[0])
	}
	locker := w.proc.open().locker
	acquire := locker.AcquireAll
	if w.often(tries, 0.3) {
		acquire = locker.TryAcquireAll
	}
	set, err := acquire(ctx, b.names, b.options...)
	if err != nil {
		w.note(evWaitsNoMore, b.keys[0], 0, 0)
		w.refused(ctx, err)
		return
	}
	b.set = set
	if late := end.passed(); late > 0 {
		w.h.violate("context", "%v was granted %v after the end of the caller's context", set, late)
	}
	for i, k := range b.keys {
		lock := set.Lock(k.name)
		if lock == nil || lock.Token() != set.Token(k.name) || lock.Slot() != -1 {
			w.h.violate("sets", "%v has %v for %s, and token %d", set, lock, k.name,
				set.Token(k.name))
			return
		}
		g := &grip{lock: lock, key: k, worker: w, shared: b.shared[i], reads: b.shared[i]}
		w.h.granted(g, b.floors[i])
		w.h.backed(g)
		w.h.served.Add(1)
		w.note(evHas, k, uint64(lock.Token()), uint64(time.Until(lock.Deadline())))
		b.grips = append(b.grips, g)
	}
	w.holdAll(b)
}

// holdAll does something under a set, and releases it.
func (w *worker) holdAll(b *bunch) {
	held := b.set.Context(w.proc.base)
	if w.often(nests, 0.2) {
		w.nestAll(held, b)
	}
	switch x := w.r.Float64(); {
	case x < w.h.stays:
		w.stay(pick(w.r, b.grips...))
	case x < 0.5:
	default:
		w.pause(w.around(w.h.hold))
	}
	w.suspend(0.002)
	w.proc.awake()
	switch {
	case w.often(extends, 0.2):
		w.extendAll(b)
	case w.often(extends, 0.2):
		w.extend(pick(w.r, b.grips...))
	}
	for _, g := range b.grips {
		if !g.shared && w.often(shared, 0.1) {
			w.downgrade(g)
		}
	}
	w.lookAt(held, b)
	w.releaseAll(b)
}

// lookAt checks that a set has ended if one of its locks has, and that it has not if none has. Its
// channel and context end with it, a moment later at most.
func (w *worker) lookAt(held context.Context, b *bunch) {
	suspends := w.h.suspends.Load()
	var ended error
	for _, g := range b.grips {
		w.h.look(g)
		ended = cmp.Or(ended, g.lock.Err())
	}
	err := b.set.Err()
	if err == nil && ended != nil {
		w.h.violate("sets", "%v has not ended, but one of its locks: %v", b.set, ended)
	}
	if err == nil {
		for _, g := range b.grips {
			if !g.valid() && w.h.suspends.Load() == suspends && g.lock.Err() == nil {
				w.h.violate("sets", "%v has not ended, but is over for %s", b.set, g.key.name)
			}
		}
		return
	}
	time.Sleep(time.Nanosecond)
	select {
	case <-b.set.Done():
	default:
		w.h.violate("sets", "%v has ended, but not its channel: %v", b.set, err)
	}
	if held.Err() == nil && !w.h.late() {
		w.h.violate("sets", "%v has ended, but not its context: %v", b.set, err)
	}
	if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrReleased) {
		w.h.violate("errors", "%v has ended by something else: %v", b.set, err)
	}
	none := true
	for _, g := range b.grips {
		none = none && g.lock.Err() == nil
	}
	if none {
		w.h.violate("sets", "%v has ended, but none of its locks: %v", b.set, err)
	}
}

// nestAll acquires some of the keys again, under the set.
func (w *worker) nestAll(held context.Context, b *bunch) {
	some := b.grips[:1+w.r.IntN(len(b.grips))]
	var names []string
	writes := true
	for _, g := range some {
		names, writes = append(names, g.key.name), writes && !g.reads
	}
	var options []holdfast.AcquireOption
	if !writes {
		options = []holdfast.AcquireOption{holdfast.WithShared()}
	}
	inner, err := w.proc.open().locker.TryAcquireAll(held, names, options...)
	if err != nil {
		if held.Err() == nil {
			w.h.refusal("nested acquisition of a set", held, err)
		}
		return
	}
	for _, g := range some {
		lock := inner.Lock(g.key.name)
		if lock.Token() != g.lock.Token() && g.lock.Err() == nil {
			w.h.violate("sets", "%s: token %d is nested in %d", g.key.name, lock.Token(),
				g.lock.Token())
		}
	}
	if err := inner.Release(held); err != nil {
		w.refusals("release of a nested set", w.proc.base, err)
	}
	for _, g := range some {
		if err := g.lock.Err(); errors.Is(err, holdfast.ErrReleased) && w.stillOpen(g) {
			w.h.violate("sets", "%s: ended by the release of a nested set: %v", g.key.name, err)
		}
	}
}

// stillOpen reports whether nobody has begun to release the lock.
func (w *worker) stillOpen(g *grip) bool {
	g.key.mu.Lock()
	defer g.key.mu.Unlock()
	return g.open
}

// extendAll renews the leases of the set by hand.
func (w *worker) extendAll(b *bunch) {
	ctx, cancel := w.context()
	defer cancel()
	if err := b.set.Extend(ctx); err != nil {
		w.refusals("extend of a set", ctx, err)
	}
}

// releaseAll releases the set, in one of the ways in which people do it.
func (w *worker) releaseAll(b *bunch) {
	h := w.h
	if w.often(oddReleases, 0.1) {
		w.release(pick(w.r, b.grips...)) // alone
	}
	for _, g := range b.grips {
		if h.letGo(g) { // else a hook has done it
			w.note(evLets, g.key, uint64(g.lock.Token()), uint64(time.Until(g.lock.Deadline())))
		}
	}
	w.proc.moments.strike(b.keys[0].index, 0.1)
	ctx, again := h.base, false
	switch {
	case w.often(oddReleases, 0.2):
		ended, cancel := context.WithCancel(h.base)
		cancel()
		ctx, again = ended, w.r.IntN(2) == 0
	case w.often(nilReleases, 0.05):
		ctx = nil
	case w.often(nests, 0.2):
		ctx = b.set.Context(h.base) // it ends with the set
	case w.often(nests, 0.1):
		ctx = b.grips[0].lock.Context(h.base) // it ends with one of the locks
	case w.often(cancels, 0.2):
		short, cancel := context.WithTimeout(h.base, w.around(h.delay))
		defer cancel()
		ctx = short
	}
	if again {
		go b.set.Release(h.base)
	}
	err := b.set.Release(ctx)
	w.note(evWaitsNoMore, b.keys[0], 0, 0)
	if err != nil {
		w.refusals("release of a set", cmp.Or(ctx, h.base), err)
	}
	if b.set.Err() == nil {
		h.violate("sets", "%v has not ended by its release", b.set)
	}
	for _, g := range b.grips {
		if g.valid() && !again {
			h.violate("deadline", "%s: token %d is valid after the release of its set", g.key.name,
				g.lock.Token())
		}
	}
}

// refused checks the error of an acquisition.
func (w *worker) refused(ctx context.Context, err error) {
	w.h.refusal("acquire", ctx, err)
	if ctx.Err() == nil && !errors.Is(err, holdfast.ErrHeld) {
		// a caller that a backend refuses comes back later
		w.pause(w.around(max(w.h.gust/3, time.Millisecond)))
	}
}

// refusals checks an error that may join several.
func (w *worker) refusals(what string, ctx context.Context, err error) {
	var all []error
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		all = many.Unwrap()
	} else {
		all = []error{err}
	}
	for _, err := range slices.DeleteFunc(all, func(err error) bool { return err == nil }) {
		w.h.refusal(what, ctx, err)
	}
}
