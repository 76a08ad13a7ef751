package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// heldSet is the set of locks behind a LockSet. It ends with the first of its locks. Locks and
// contexts refer to it, and it does not refer to handles, so a handle can become garbage while the
// locks are held.
type heldSet struct {
	locker *Locker
	locks  []*Lock // in the order in which the caller named the keys
	byKey  []int   // indices of locks, in the order of the keys

	mu       sync.Mutex // a leaf
	err      error      // why it has ended; nil while held
	released bool
	done     chan struct{} // made when first asked for
	contexts map[*lockContext]struct{}
	told     bool // everything has ended with the set, and done is closed
}

// newHeldSet returns a set of the members' locks. members is in the order of the keys.
func newHeldSet(l *Locker, members []member) *heldSet {
	g := &heldSet{locker: l, locks: make([]*Lock, len(members)), byKey: make([]int, len(members))}
	for i := range g.byKey {
		g.byKey[i] = i
	}
	// At first byKey has indices of members, in the caller's order.
	slices.SortFunc(g.byKey, func(a, b int) int {
		return cmp.Compare(members[a].place, members[b].place)
	})
	order := slices.Clone(g.byKey)
	for i, m := range order {
		g.locks[i] = members[m].lock
		g.byKey[m] = i
	}
	return g
}

// handle returns a LockSet. If there is a log, it has handles on the locks (see Lock.newHandle).
func (g *heldSet) handle() *LockSet {
	s := &LockSet{set: g, locks: g.locks}
	if g.locker.log.logger == nil {
		return s
	}
	s.locks = slices.Clone(g.locks)
	for i, lock := range s.locks {
		if lock.root == nil {
			s.locks[i] = lock.newHandle()
		}
	}
	return s
}

// find returns the index of the lock on a key.
func (g *heldSet) find(key string) (int, bool) {
	i, ok := slices.BinarySearchFunc(g.byKey, key, func(i int, key string) int {
		return cmp.Compare(g.locks[i].Key(), key)
	})
	if !ok {
		return 0, false
	}
	return g.byKey[i], true
}

// lock returns the lock on a key, or nil.
func (g *heldSet) lock(key string) *Lock {
	if i, ok := g.find(key); ok {
		return g.locks[i]
	}
	return nil
}

// reason returns why the set has ended, or nil.
func (g *heldSet) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// ended returns the channel that is closed when the set ends.
func (g *heldSet) ended() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done == nil {
		g.done = make(chan struct{})
		if g.err != nil && len(g.contexts) == 0 {
			g.told = true
			close(g.done)
		}
	}
	return g.done
}

// end makes a heldSet an ender, which ends with the first of its locks.
func (g *heldSet) end(cause error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = cause
	}
	contexts, cause := g.contexts, g.err
	g.mu.Unlock()
	endAll(&g.mu, contexts, cause, func() {
		g.contexts = nil
		if g.done != nil && !g.told {
			g.told = true
			close(g.done)
		}
	})
}

// release notes that the holder releases the set, and reports whether this is the first release.
// The caller ends the set.
func (g *heldSet) release() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = !g.released
	g.released = true
	return first
}

// foundLost notes a loss that only the answer to a release has shown.
func (g *heldSet) foundLost(err *LostError) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == error((*releasedSet)(g)) {
		g.err = err
	}
}

// context is LockSet.Context.
func (g *heldSet) context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	c := &lockContext{Context: ctx, cancel: cancel, locker: g.locker, set: g,
		outer: g.locker.innermost(parent)}
	g.mu.Lock()
	err := g.err
	if err == nil {
		if g.contexts == nil {
			g.contexts = make(map[*lockContext]struct{})
		}
		g.contexts[c] = struct{}{}
	}
	g.mu.Unlock()
	switch {
	case err != nil:
		cancel(err)
	case parent.Done() != nil:
		context.AfterFunc(ctx, func() {
			cancel(nil) // as in Lock.Context
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.contexts, c)
		})
	}
	return c
}

// carriedBy reports whether ctx comes from the set or one of its locks, and has not ended by
// anything but the end of the set, or of one of them.
func (g *heldSet) carriedBy(ctx context.Context) bool {
	carried := false
	for c := g.locker.innermost(ctx); c != nil && !carried; c = c.outer {
		carried = c.set == g || c.lock != nil && g.lock(c.lock.Key()) == c.lock
	}
	return carried && (ctx.Err() == nil || g.isEnd(context.Cause(ctx)))
}

// isEnd reports whether cause is why the set has ended, or one of its locks.
func (g *heldSet) isEnd(cause error) bool {
	return cause == g.reason() ||
		slices.ContainsFunc(g.locks, func(l *Lock) bool { return l.isEnd(cause) })
}

// names returns the keys as a text for an error or the log.
func (g *heldSet) names() string {
	keys := make([]string, len(g.locks))
	for i, lock := range g.locks {
		keys[i] = lock.Key()
	}
	return quoted(keys)
}

// releasedSet is the error that says that a set was released. It is the set under another type, as
// releasedError is the Lock.
type releasedSet heldSet

func (e *releasedSet) Error() string {
	return fmt.Sprintf("holdfast: %s: %v", (*heldSet)(e).names(), ErrReleased)
}

// Is reports whether target is ErrReleased.
func (e *releasedSet) Is(target error) bool { return target == ErrReleased }
