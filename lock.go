package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Lock is one acquisition of a key, from its grant to its end. It is never reused: acquiring the key again
// gives another Lock. All methods are safe for concurrent use.
type Lock struct {
	cohort *cohort
	key    string // as the caller named it
	token  Token
	root   *Lock // the lock that this one is nested in; nil if it is not nested

	// Not set in a nested lock:
	maxHold time.Duration // 0: none
	granted clock.Instant

	// Guarded by cohort.shard.mu:
	hold *hold         // not in a nested lock; nil once the key is not ours, or is being released
	err  error         // why it has ended; nil while held
	done chan struct{} // made when first asked for
	ends map[ender]struct{}
}

// ender is something that ends with a lock. end is called once, outside all locks.
type ender interface{ end(cause error) }

// Key returns the key, as it was given to Acquire.
func (l *Lock) Key() string { return l.key }

// Token returns the fencing token of the acquisition, never 0. It stays the same for the life of the Lock, and a
// nested acquisition shares it.
func (l *Lock) Token() Token { return l.token }

// Deadline returns until when the lock is valid if no further renewal succeeds: the last confirmed lease, counted
// from before its request left, less the drift allowance (R16, R20). Work that can not be fenced must end
// before it. After the lock has ended, it is not after the present.
func (l *Lock) Deadline() time.Time {
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := clock.Now()
	if l.ended() == nil {
		deadline = l.deadline()
	}
	return clock.Time(deadline)
}

// outermost returns the lock that l is nested in, or l.
func (l *Lock) outermost() *Lock {
	if l.root != nil {
		return l.root
	}
	return l
}

// ended returns why the lock has ended, or nil. A nested lock has ended as soon as the outermost has, a moment
// before it was told. The caller holds shard.mu.
func (l *Lock) ended() error {
	if l.err == nil {
		return l.outermost().err
	}
	return l.err
}

// deadline is the end of the validity as things stand. The caller holds shard.mu, and the lock is held.
func (l *Lock) deadline() clock.Instant {
	l = l.outermost()
	deadline := l.hold.deadline
	if limit, ok := l.limit(); ok && limit < deadline {
		deadline = limit
	}
	return deadline
}

// limit is when the maximum hold is reached, if there is one.
func (l *Lock) limit() (clock.Instant, bool) {
	return l.granted.Add(l.maxHold), l.maxHold > 0
}

// Done returns a channel that is closed when the lock ends: by Release, or by a loss, no later than the
// deadline, so before anybody else can hold the key. A process that does not run at that
// moment is told when it runs again; this is what the Token is for.
func (l *Lock) Done() <-chan struct{} {
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
// [*LostError] after a loss. It reads the clock: a nil is not older than the call.
func (l *Lock) Err() error {
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := clock.Now(); l.ended() == nil && now >= l.deadline() {
		hold := l.outermost().hold
		s.mu.Unlock()
		l.cohort.locker.watchdog.inspect(hold, now, false)
		s.mu.Lock()
	}
	return l.ended()
}

// Context returns a context like parent that also ends when the lock does; context.Cause then says why, as
// [Lock.Err] does. Acquiring the key again with this context, or one derived from it, gives a nested Lock: see
// [Locker.Acquire]. What is registered for it is freed when either ends.
func (l *Lock) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	c := &lockContext{Context: ctx, cancel: cancel, lock: l, outer: l.cohort.locker.innermost(parent)}
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

// attach has e end with the lock. The caller holds shard.mu.
func (l *Lock) attach(e ender) {
	if l.ends == nil {
		l.ends = make(map[ender]struct{})
	}
	l.ends[e] = struct{}{}
}

func (l *Lock) detach(e ender) {
	s := l.cohort.shard
	s.mu.Lock()
	delete(l.ends, e)
	s.mu.Unlock()
}

// finish ends the lock for the reason err. The caller holds shard.mu, and calls the function
// returned after it has let go of it: it tells the contexts and nested locks.
func (l *Lock) finish(err error) (tell func()) {
	l.err = err
	done, ends := l.done, l.ends
	l.ends = nil
	if done == nil && len(ends) == 0 {
		return func() {}
	}
	return func() {
		for e := range ends {
			e.end(err)
		}
		// Last, so that whoever wakes up by it finds everything ended.
		if done != nil {
			close(done)
		}
	}
}

// end ends a nested lock with the one it is nested in.
func (l *Lock) end(cause error) {
	s := l.cohort.shard
	s.mu.Lock()
	if l.err != nil {
		s.mu.Unlock()
		return
	}
	tell := l.finish(cause)
	s.mu.Unlock()
	tell()
}

// Extend renews the lease now, to the full TTL (R34). The watchdog makes it unnecessary unless [WithoutRenewal] is
// set. On success the deadline has moved. It fails with a [*LostError] if the lock is lost, with
// ErrReleased if it was released, and with ErrUnavailable, ErrUnknown or the context's error if there is no answer: the
// lock is still held then, until its deadline. ctx bounds the wait for the answer.
func (l *Lock) Extend(ctx context.Context) error {
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
	h := l.outermost().hold
	claim := h.claim()
	s.mu.Unlock()

	if ctx.Err() != nil {
		return keyError("extend", l.key, contextError(ctx))
	}
	start := clock.Now()
	r := c.locker.request(ctx, requestTime(claim.TTL))
	results, err := c.locker.backend.Renew(r, []driver.Claim{claim})
	r.end()
	err = c.locker.watchdog.renewed(h, claim.TTL, start, clock.Now(), one(results, err), r, false)
	if ended := l.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return keyError("extend", l.key, err)
	}
	return nil
}

// one is the result of a batch of one.
func one(results []driver.Result, err error) driver.Result {
	switch {
	case err != nil:
		return driver.Result{Err: err}
	case len(results) != 1:
		return driver.Result{Err: fmt.Errorf("backend gave %d results for 1 claim", len(results))}
	}
	return results[0]
}

// Release ends the lock. The lock is over when Release is called, whatever it returns: Done is closed,
// contexts are cancelled with ErrReleased, and nothing renews it any more. If goroutines of the same
// Locker wait for the key, it is handed to the first of them in memory; otherwise the backend frees it or hands it
// over to another process.
//
// It returns nil when the key was ours until now, a [*LostError] when it was lost before, and
// ErrReleased when the Lock was released before, so a deferred Release after an explicit one does no harm. With ErrUnavailable,
// ErrUnknown or the error of ctx, the backend has not confirmed; the release goes on in the background
// until the lease has run out. ctx bounds the wait, not the release: with a context that
// has ended already, everything is done in the background.
//
// Releasing a nested Lock ends only that; releasing the outermost frees the key and ends all nested in it.
func (l *Lock) Release(ctx context.Context) error {
	if l.root != nil {
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
	return l.cohort.release(ctx, l)
}

// releasedError says that a lock was released. It is the Lock seen differently, as every release needs one and few
// are ever looked at.
type releasedError Lock

func (e *releasedError) Error() string        { return fmt.Sprintf("holdfast: %q: %v", e.key, ErrReleased) }
func (e *releasedError) Is(target error) bool { return target == ErrReleased }

func (l *Lock) lostError(reason error) *LostError {
	return &LostError{Key: l.key, Token: l.token, Reason: reason}
}

// String describes the lock for logs.
func (l *Lock) String() string { return fmt.Sprintf("lock on %q (token %d)", l.key, l.token) }
