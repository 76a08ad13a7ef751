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

// AcquireAll waits until it has all of the keys or ctx ends. On success the caller must call
// Release on the LockSet. ctx bounds only the wait: the LockSet stays held after ctx has ended. A
// key that is named twice counts once.
//
// Calls that name the same keys in different orders do not wait for each other in a circle, in one
// process or several, with the same options or others. Several keys, in the package documentation,
// says where this protection ends. If ctx carries a lock on a key (see [Lock.Context]), the lock on
// this key is nested, as in Acquire. If all keys are free, AcquireAll takes about one round trip.
//
// All locks are valid when AcquireAll returns. If it loses a lock while it waits for another key,
// it acquires the lost key again. With [WithoutRenewal], it extends the locks before it returns,
// because nothing has renewed them during the waits. [WithMaxHold] counts from when the set is
// complete, and does not apply to nested locks.
//
// On failure the caller holds nothing: AcquireAll has released the keys that it had, or is
// releasing them in the background if ctx has ended or the backend does not answer. The error names
// the key that could not be acquired, and is one of the errors of [Locker.Acquire] for this key. So
// if the first request for a key gets no answer, AcquireAll fails, even if the backend has answered
// for other keys. AcquireAll also fails with ErrInvalid if there are no keys, or more than
// [MaxSetKeys].
func (l *Locker) AcquireAll(ctx context.Context, keys []string,
	options ...AcquireOption) (*LockSet, error) {
	return l.acquireAll(ctx, keys, true, options)
}

// TryAcquireAll is like [Locker.AcquireAll], but it makes a single attempt for each key, all at the
// same time, and does not wait. If keys are taken (see [Locker.TryAcquire]), it releases the others
// and fails with the [*HeldError] of the first one in the order of the keys' bytes. So if two calls
// that have keys in common run at the same time, both may fail. Its other errors are those of
// AcquireAll.
func (l *Locker) TryAcquireAll(ctx context.Context, keys []string,
	options ...AcquireOption) (*LockSet, error) {
	return l.acquireAll(ctx, keys, false, options)
}

// DoAll acquires the keys as [Locker.AcquireAll] does, calls f, and releases the keys, even if f
// panics. The context that it passes to f is derived from ctx and ends when the first lock is lost.
//
// DoAll returns the error of AcquireAll if that fails, and otherwise the error of f. It joins a
// [*LostError] for each key that was lost before f returned. A release that the backend does not
// confirm is no error of DoAll: it goes on in the background, and hooks and log report it. If f is
// nil, DoAll fails with ErrInvalid.
func (l *Locker) DoAll(ctx context.Context, keys []string,
	f func(context.Context, *LockSet) error, options ...AcquireOption) error {
	if f == nil {
		return invalid("function is nil for %s: give one", quoted(keys))
	}
	set, err := l.AcquireAll(ctx, keys, options...)
	if err != nil {
		return err
	}
	// The keys must be released even if the caller's context has ended.
	defer set.Release(context.WithoutCancel(ctx))
	err = f(set.Context(ctx), set)
	// Each lock knows how it ended, even if f has released the set.
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

// gathering checks keys and options. If it fails with ErrInvalid, the result says only which key
// the error is about.
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
	g.call.ofSet = true
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

// share sets the terms of each key. The keys that WithSharedKeys names are shared, or all keys if
// the call is shared.
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
	return nil
}
