package holdfast

import "context"

// lockContext is what Lock.Context and LockSet.Context return. It carries the lock, or the locks of
// the set, so that an acquisition of the same key with it is nested. Go has no thread identity that
// could tell who asks.
type lockContext struct {
	context.Context
	cancel context.CancelCauseFunc
	locker *Locker
	lock   *Lock        // nil in the context of a set
	set    *heldSet     // nil in the context of a lock
	outer  *lockContext // the next lockContext of the same Locker that this one is derived from
}

// on returns the lock on the key that the context itself carries, or nil. If permit is true, it
// returns the permit of that name instead.
func (c *lockContext) on(fullKey string, permit bool) *Lock {
	switch {
	case c.set != nil && permit:
		return nil
	case c.set != nil:
		return c.set.lock(c.locker.userKey(fullKey))
	case c.lock.cohort.name() == fullKey && permit == (c.lock.Slot() >= 0):
		return c.lock
	default:
		return nil
	}
}

// contextKey finds the innermost lockContext of a Locker.
type contextKey struct{ *Locker }

func (c *lockContext) Value(key any) any {
	if k, ok := key.(contextKey); ok && k.Locker == c.locker {
		return c
	}
	return c.Context.Value(key)
}

// end makes a lockContext an ender.
func (c *lockContext) end(cause error) { c.cancel(cause) }

// innermost returns the innermost lockContext of the Locker in ctx, or nil.
func (l *Locker) innermost(ctx context.Context) *lockContext {
	c, _ := ctx.Value(contextKey{l}).(*lockContext)
	return c
}

// nested returns a nested Lock if ctx comes from a lock on the key that is still held, and else
// nil. It fails with ErrInvalid if that lock is shared and the call is exclusive, because the call
// would wait for itself.
func (l *Locker) nested(ctx context.Context, fullKey string, a *call) (*Lock, error) {
	for c := l.innermost(ctx); c != nil; c = c.outer {
		lock := c.on(fullKey, a.terms.permits > 0)
		if lock == nil || lock.Err() != nil {
			continue
		}
		root := lock.outermost()
		s := root.cohort.shard
		s.mu.Lock()
		if root.err != nil {
			s.mu.Unlock()
			continue
		}
		if !a.terms.shared && !root.cohort.exclusive(root.lease) {
			s.mu.Unlock()
			return nil, invalid("%q is held shared by the lock that the context comes from: "+
				"an exclusive acquisition would wait for that lock; release it first, or ask "+
				"WithShared", a.key)
		}
		inner := &Lock{cohort: root.cohort, token: root.token, root: root}
		root.attach(inner)
		s.mu.Unlock()
		return inner, nil
	}
	return nil, nil
}
