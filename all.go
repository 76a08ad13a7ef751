package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// MaxSetKeys is the largest number of different keys that one [LockSet] may have.
const MaxSetKeys = 1000

// AcquireAll waits until it has all of the keys, or ctx ends. ctx bounds the wait only: the LockSet
// outlives it. On success the caller must Release the LockSet. Keys that are named twice count
// once.
//
// Callers that name the same keys in different orders do not wait for each other in a circle, be
// they in this process or another, or ask with other options: see Several keys in the package
// documentation, also for where that ends. Keys whose lock ctx carries (see [Lock.Context]) are
// nested, as in Acquire. Keys that are free cost about one round trip, all together.
//
// All keys are valid together when AcquireAll returns. If a lock is lost while it waits for another
// key, it acquires that key again. With [WithoutRenewal] locks run down while later keys are waited
// for, so they are extended before it returns, and acquired again if they had ended. [WithMaxHold]
// counts from when the set is complete, and not for keys that are nested.
//
// On failure the caller holds nothing, and what was acquired has been released, or is being
// released in the background if ctx has ended or the backend does not answer. The error names the
// key that could not be had. It is one of those of [Locker.Acquire] for that key: if the first
// request for it gets no answer, the call fails, also when the backend has answered for other keys.
// It is ErrInvalid also for no keys or more than [MaxSetKeys].
func (l *Locker) AcquireAll(ctx context.Context, keys []string,
	options ...AcquireOption) (*LockSet, error) {
	return l.acquireAll(ctx, keys, true, options)
}

// TryAcquireAll is AcquireAll with a single attempt for each key, all at the same time. If a key is
// taken it releases the others again and fails with a [*HeldError] of the first key that is taken,
// in the order of their bytes. So of two calls at the same time that have keys in common, both may
// fail. What counts as taken is said at [Locker.TryAcquire]. Other errors are those of AcquireAll.
func (l *Locker) TryAcquireAll(ctx context.Context, keys []string,
	options ...AcquireOption) (*LockSet, error) {
	return l.acquireAll(ctx, keys, false, options)
}

// DoAll acquires the keys as [Locker.AcquireAll] does, calls f, and releases them, even if f
// panics. The context that f gets ends with the first loss. DoAll returns the error of f, or that
// of AcquireAll if it did not call f; ErrInvalid if f is nil. It joins a [*LostError] for each key
// that was lost before f returned. A release that is not confirmed is not an error of DoAll: it
// goes on in the background, and hooks and log report it.
func (l *Locker) DoAll(ctx context.Context, keys []string,
	f func(context.Context, *LockSet) error, options ...AcquireOption) error {
	if f == nil {
		return invalid("function is nil for %s: give one", quoted(keys))
	}
	set, err := l.AcquireAll(ctx, keys, options...)
	if err != nil {
		return err
	}
	// Not the caller's context: the keys must be released even if that has ended.
	defer set.Release(context.WithoutCancel(ctx))
	err = f(set.Context(ctx), set)
	// Each lock knows how it ended, also if f has released the set.
	set.Release(context.WithoutCancel(ctx))
	for _, lock := range set.locks {
		var lost *LostError
		if errors.As(lock.Err(), &lost) && !errors.Is(err, error(lost)) {
			err = errors.Join(err, lost)
		}
	}
	return err
}

// acquireAll is AcquireAll if wait is set, else TryAcquireAll.
func (l *Locker) acquireAll(ctx context.Context, keys []string, wait bool,
	options []AcquireOption) (*LockSet, error) {
	g, err := l.gathering(keys, wait, options)
	if err == nil && ctx == nil {
		err = invalid("context is nil for %s: use context.Background()", quoted(keys))
	}
	if err == nil && ctx.Err() != nil {
		err = keysError("acquire", keys, contextError(ctx))
	}
	if err != nil {
		l.refused(ctx, &g.call, err)
		return nil, err
	}
	if err := g.run(ctx); err != nil {
		l.refused(ctx, &g.call, err)
		return nil, err
	}
	return g.complete(ctx), nil
}

// gathering checks keys and options. It fails with ErrInvalid, and then the result says only which
// key that is about.
func (l *Locker) gathering(keys []string, wait bool, options []AcquireOption) (*gathering, error) {
	g := &gathering{locker: l}
	if len(keys) == 0 {
		return g, invalid("no keys: name 1 to %d", MaxSetKeys)
	}
	var err error
	if g.call, err = l.call(keys[0], wait, options); err != nil {
		return g, err
	}
	if n := g.call.terms.permits; n > 0 {
		return g, invalid("WithPermits(%d) for %s: a set has locks only; acquire permits one by one, "+
			"with Acquire", n, quoted(keys))
	}
	g.call.since = clock.Now()
	// Until the set is complete, no maximum hold counts.
	g.maxHold, g.call.maxHold = g.call.maxHold, 0
	g.members = make([]member, len(keys))
	for i, key := range keys {
		m := &g.members[i]
		m.key, m.place = key, i
		if m.full, err = l.fullKey(key); err != nil {
			g.call.key = key
			return g, err
		}
	}
	slices.SortFunc(g.members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.key, b.key), a.place-b.place)
	})
	g.members = slices.CompactFunc(g.members, func(a, b member) bool { return a.key == b.key })
	if n := len(g.members); n > MaxSetKeys {
		return g, invalid("%d different keys: at most %d are allowed", n, MaxSetKeys)
	}
	return g, g.share()
}

// share has those keys shared that WithSharedKeys names, or all if the call is shared.
func (g *gathering) share() error {
	for i := range g.members {
		g.members[i].terms = g.call.terms
	}
	for _, key := range g.call.sharedKeys {
		i, ok := slices.BinarySearchFunc(g.members, key, func(m member, key string) int {
			return cmp.Compare(m.key, key)
		})
		if !ok {
			return invalid("WithSharedKeys: %.40q is not one of the keys", key)
		}
		g.members[i].terms.shared = true
	}
	g.call.sharedKeys = nil
	return nil
}
