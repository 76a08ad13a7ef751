package holdfast

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// Lock is a lock that was acquired. It is never reused: acquiring the key again gives another Lock.
// All methods are safe for concurrent use.
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
	told  bool // everything has ended with the lock, and done is closed
	// a goroutine is in Release; the lock stays on its lease until everything has ended
	releasing bool
	gathered  bool // for a set that is not complete yet

	prev, next *Lock // in lease.locks
}

// Key returns the key, as it was given to Acquire.
func (l *Lock) Key() string { return l.cohort.locker.userKey(l.cohort.name()) }

// Token returns the fencing token of the acquisition, which is never 0. It stays the same for the
// life of the Lock. A nested Lock has the same Token.
func (l *Lock) Token() Token { return l.token }

// Deadline returns the time until which the lock is valid if no further renewal succeeds. It is the
// deadline of the lease (see Validity in the package documentation), or the end of the maximum hold
// if that is sooner. Work that cannot be fenced must end before this time. After the lock has
// ended, Deadline returns a time that is not in the future.
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

// Done returns a channel that is closed when the lock ends, by Release or by a loss. After a loss
// the channel is closed no later than the deadline, and so before the key can pass to anybody else.
// There are two exceptions. If the backend itself loses the key, because it is deleted or evicted,
// the channel is closed when the next renewal is answered. And a process that is paused at the
// deadline learns of the loss only when it runs again (see Caveats in the package documentation).
// The Token is for both cases. Contexts of the lock end before (see [Lock.Context]).
func (l *Lock) Done() <-chan struct{} {
	l = l.self()
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil && len(l.ends) == 0 {
			l.told = true
			close(l.done)
		}
	}
	return l.done
}

// Err returns nil while the lock is held. It returns an error that wraps ErrReleased after the
// release, and a [*LostError] after a loss. It reads the clock, so nil means that the lock was
// valid during this call.
func (l *Lock) Err() error {
	_, err := l.self().current()
	return err
}

// Context returns a context that is derived from parent and ends when parent ends or the lock ends.
// After the end of the lock, context.Cause returns what [Lock.Err] returns, unless only Release
// finds that the lock was lost: the cause is then still ErrReleased. There is nothing to cancel:
// the context's resources are freed when it ends. Context panics if parent is nil.
//
// The contexts of a lock end one after the other, in no order, and then Done is closed. Functions
// of context.AfterFunc run beside that and delay nothing. But if parent is of a caller's own kind
// and its methods block as the context ends, the other contexts of the lock, Done and Release wait
// for it, also past the deadline. So does Err if it finds the loss itself; otherwise it may tell of
// the loss a moment before contexts end. Other locks do not wait.
//
// Acquiring the key again on the same Locker with this context, or with one derived from it, gives
// a nested Lock at once (see [Locker.Acquire]). So the lock does not exclude goroutines that share
// the context from each other: if two of them acquire the key, both have it, with the same token.
// To make them wait for each other, have them acquire the key with a context that does not come
// from the lock, or use a sync.Mutex as the example does.
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
		context.AfterFunc(ctx, func() {
			cancel(nil) // waits for a goroutine that still ends contexts derived from ctx
			l.detach(c)
		})
	}
	return c
}

// Extend renews the lease now, to the full TTL. Leases are renewed automatically, so Extend is
// needed only with [WithoutRenewal]. After a success the lease counts anew, from when Extend sent
// its request. The deadline follows it, but stays at the end of the maximum hold if that is sooner.
// ctx bounds the wait for the backend.
//
// Extend fails with a [*LostError] if the lock is lost, with ErrReleased if it was released, and
// with ErrInvalid if ctx is nil. If the backend does not answer, Extend fails with ErrUnavailable,
// ErrUnknown or the error of ctx. The lock is then still held: until its deadline, or for longer if
// a later renewal succeeds.
func (l *Lock) Extend(ctx context.Context) error {
	l = l.self()
	if ctx == nil {
		return invalid("context is nil for %q: use context.Background()", l.Key())
	}
	h, err := l.current()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return keyError("extend", l.Key(), contextError(ctx))
	}
	err = l.cohort.extend(ctx, h)
	if ended := l.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return keyError("extend", l.Key(), err)
	}
	return nil
}

// Release ends the lock. Whatever it returns, Done is closed, the lock's contexts have ended, with
// ErrReleased as the cause if the lock had not ended before, and nothing renews the lock any
// more. If goroutines of the same Locker wait for the key on the same terms, Release passes the
// lease to the first of them (see Waiting in the package documentation). Otherwise the backend
// frees the key or hands it to another waiter.
//
// Release returns nil if the lock was held until now, a [*LostError] if it was lost before, and
// ErrReleased if it was released before. So a deferred Release after an explicit one does no harm.
// If the backend does not confirm the release, Release returns ErrUnavailable, ErrUnknown or the
// error of ctx, and the release is tried again in the background, for about the TTL and five
// seconds, or until the backend refuses it for good (see driver.Permanent).
//
// ctx bounds the wait, not the release: if ctx has already ended, the release happens in the
// background. A nil ctx means context.Background(). The lock's own context, which ends just then,
// does not end the wait.
//
// Releasing a nested Lock ends only that Lock. Releasing the outermost Lock frees the key and ends
// all Locks that are nested in it.
func (l *Lock) Release(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	// Otherwise a handle could be garbage before this returns, and would count as forgotten.
	defer runtime.KeepAlive(l)
	if l = l.self(); l.root != nil {
		return l.releaseNested()
	}
	return l.cohort.release(ctx, l)
}

// releaseNested ends a nested lock, and not the outermost one. It does not ask the backend whether
// the lock was held until now: the clock decides that.
func (l *Lock) releaseNested() error {
	err := l.Err()
	if err == nil {
		s := l.cohort.shard
		s.mu.Lock()
		if err = l.ended(); err == nil {
			l.err = (*releasedError)(l)
		}
		s.mu.Unlock()
	}
	// Last, so that the end of the outermost lock waits for what ends here.
	defer l.root.detach(l)
	if err == nil {
		l.endAll()
		return nil
	}
	l.end(err) // or another goroutine may not have ended everything yet
	return err
}

// String describes the lock for logs.
func (l *Lock) String() string {
	if slot := l.Slot(); slot >= 0 {
		return fmt.Sprintf("permit %d of %q (token %d)", slot, l.Key(), l.token)
	}
	return fmt.Sprintf("lock on %q (token %d)", l.Key(), l.token)
}
