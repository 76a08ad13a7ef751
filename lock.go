package holdfast

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// Lock is the handle of an acquisition that was granted. It is never reused: acquiring the key
// again gives another Lock. All methods are safe for concurrent use.
type Lock struct {
	cohort *cohort
	token  Token
	root   *Lock // of a nested lock: the outermost one; of a handle: the lock itself; else nil
	handle bool  // what callers get if there is a logger: it only passes calls on, see newHandle

	// Not set in a nested lock:
	maxHold time.Duration // 0: none
	granted clock.Instant

	// Guarded by cohort.shard.mu:
	lease *lease        // not in a nested lock; nil once the key is not ours, or is being released
	err   error         // why it has ended; nil while held
	done  chan struct{} // made when first asked for
	ends  map[ender]struct{}

	prev, next *Lock // in lease.locks
}

// Key returns the key, as it was given to Acquire.
func (l *Lock) Key() string { return l.cohort.locker.userKey(l.cohort.name()) }

// Token returns the fencing token of the acquisition, never 0. It stays the same for the life of
// the Lock, and a nested acquisition shares it.
func (l *Lock) Token() Token { return l.token }

// Deadline returns the time until which the lock is valid if no further renewal succeeds. That is
// the end of the validity (see Validity in the package documentation), or of the maximum hold if
// that is sooner. Work that cannot be fenced must end before it. After the lock has ended, Deadline
// returns no time in the future.
func (l *Lock) Deadline() time.Time {
	l = l.self()
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := clock.Now()
	if l.ended() == nil {
		deadline = l.deadline()
	}
	return clock.Time(deadline)
}

// Done returns a channel that is closed when the lock ends: by Release, or by a loss. A loss closes
// it no later than the deadline, and so before anybody else can hold the key. A process that is
// paused at that moment learns of the loss when it runs again (see Caveats in the package
// documentation): that is what the Token is for.
func (l *Lock) Done() <-chan struct{} {
	l = l.self()
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err returns nil while the lock is held, an error that wraps ErrReleased after its release, and a
// [*LostError] after a loss. It reads the clock, so nil says that the lock was valid during this
// call.
func (l *Lock) Err() error {
	l = l.self()
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := clock.Now(); l.ended() == nil && now >= l.deadline() {
		h := l.outermost().lease
		s.mu.Unlock()
		l.cohort.locker.watchdog.check(h, now)
		s.mu.Lock()
	}
	return l.ended()
}

// Context returns a context like parent that also ends when the lock does; context.Cause then says
// why, as [Lock.Err] does. What it needs is freed when either ends. Context panics if parent is
// nil.
//
// Acquiring the key again with this context, or one derived from it, gives a nested Lock at once,
// if the Locker is the same (see [Locker.Acquire]). So the lock does not exclude goroutines that
// share the context from each other: if two of them acquire the key, both are inside, with the same
// token. A goroutine that must wait for the others acquires with a context that does not come from
// the lock; a sync.Mutex does it as well, as the example shows.
func (l *Lock) Context(parent context.Context) context.Context {
	l = l.self()
	ctx, cancel := context.WithCancelCause(parent)
	locker := l.cohort.locker
	c := &lockContext{Context: ctx, cancel: cancel, locker: locker, lock: l,
		outer: locker.innermost(parent)}
	s := l.cohort.shard
	s.mu.Lock()
	err := l.ended()
	if err == nil {
		l.attach(c)
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		cancel(err)
	case parent.Done() != nil:
		context.AfterFunc(ctx, func() { l.detach(c) })
	}
	return c
}

// Extend renews the lease now, to the full TTL. The watchdog makes it unnecessary, except with
// [WithoutRenewal]. On success the deadline has moved, but not beyond the maximum hold. Extend
// fails with a [*LostError] if the lock is lost, with ErrReleased if it was released, and with
// ErrInvalid if ctx is nil. It fails with ErrUnavailable, ErrUnknown or the error of ctx if there
// is no answer: the lock is then still held, until its deadline. ctx bounds the wait for it.
func (l *Lock) Extend(ctx context.Context) error {
	l = l.self()
	if ctx == nil {
		return invalid("context is nil for %q: use context.Background()", l.Key())
	}
	if err := l.Err(); err != nil {
		return err
	}
	c := l.cohort
	s := c.shard
	s.mu.Lock()
	if err := l.ended(); err != nil {
		s.mu.Unlock()
		return err
	}
	h := l.outermost().lease
	s.mu.Unlock()

	if ctx.Err() != nil {
		return keyError("extend", l.Key(), contextError(ctx))
	}
	err := c.extend(ctx, h)
	if ended := l.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return keyError("extend", l.Key(), err)
	}
	return nil
}

// Release ends the lock, whatever it returns: Done is closed, contexts are cancelled with
// ErrReleased, and nothing renews the lock any more. If goroutines of the same Locker wait for the
// key on the same terms, the first of them goes on with the lease: see Waiting in the package
// documentation. Otherwise the backend frees the key or hands it to another waiter.
//
// Release returns nil if the lock was held until now, a [*LostError] if it was lost before, and
// ErrReleased if it was released before: a deferred Release after an explicit one does no harm.
// With ErrUnavailable, ErrUnknown or the error of ctx, the backend has not confirmed. The release
// then goes on in the background, for the TTL and five seconds at most. ctx bounds the wait, not
// the release: if ctx has ended already, everything happens in the background. A nil ctx, and the
// lock's own context, which has just ended with it, count as the background context.
//
// Releasing a nested Lock ends only that one. Releasing the outermost frees the key and ends all
// Locks that are nested in it.
func (l *Lock) Release(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	// Until this returns: a handle that is garbage before would count as forgotten.
	defer runtime.KeepAlive(l)
	if l = l.self(); l.root != nil {
		return l.releaseNested()
	}
	return l.cohort.release(ctx, l)
}

// releaseNested ends a nested lock alone. The backend is not asked whether the key was ours until
// now, so the clock decides.
func (l *Lock) releaseNested() error {
	if err := l.Err(); err != nil {
		return err
	}
	s := l.cohort.shard
	s.mu.Lock()
	if err := l.ended(); err != nil {
		s.mu.Unlock()
		return err
	}
	delete(l.root.ends, l)
	tell := l.finish((*releasedError)(l))
	s.mu.Unlock()
	tell()
	return nil
}

// String describes the lock for logs.
func (l *Lock) String() string {
	if slot := l.Slot(); slot >= 0 {
		return fmt.Sprintf("permit %d of %q (token %d)", slot, l.Key(), l.token)
	}
	return fmt.Sprintf("lock on %q (token %d)", l.Key(), l.token)
}
