package holdfast

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// ender is something that ends with a lock: a context, a nested lock or a set. end is called once,
// under no mutex.
type ender interface{ end(cause error) }

// outermost returns the lock that l is nested in, or l.
func (l *Lock) outermost() *Lock {
	if l.root != nil {
		return l.root
	}
	return l
}

// ended returns why the lock has ended, or nil. A nested lock has ended as soon as the outermost
// one has, even if its own err is set a moment later. The caller holds shard.mu.
func (l *Lock) ended() error {
	if l.err == nil {
		return l.outermost().err
	}
	return l.err
}

// current returns the lease of a lock that the clock says is held, or why the lock has ended.
func (l *Lock) current() (*lease, error) {
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := clock.Now(); l.ended() == nil && now >= l.deadline() {
		h := l.outermost().lease
		s.mu.Unlock()
		l.cohort.locker.watchdog.check(h, now)
		s.mu.Lock()
	}
	if err := l.ended(); err != nil {
		return nil, err
	}
	return l.outermost().lease, nil
}

// deadline returns the end of the validity or of the maximum hold, whichever comes first. The
// caller holds shard.mu, and the lock is held.
func (l *Lock) deadline() clock.Instant {
	l = l.outermost()
	deadline := l.lease.deadline
	if limit, ok := l.limit(); ok && limit < deadline {
		deadline = limit
	}
	return deadline
}

// leave takes the lock off its lease. The caller holds shard.mu, and decides what becomes of the
// lease.
func (l *Lock) leave() {
	l.lease.locks.remove(l)
	l.lease = nil
}

// last reports whether no other lock rests on the same lease. The caller holds shard.mu.
func (l *Lock) last() bool { return l.lease.locks.first == l && l.next == nil }

// limit returns when the lock reaches its maximum hold, if it has one.
func (l *Lock) limit() (clock.Instant, bool) {
	return l.granted.Add(l.maxHold), l.maxHold > 0
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

// finish ends the lock for the reason err. The caller holds shard.mu, and calls tell after
// unlocking it. tell ends contexts and nested locks, and closes Done.
func (l *Lock) finish(err error) (tell func()) {
	l.err = err
	done, ends := l.done, l.ends
	l.ends = nil
	if done == nil && len(ends) == 0 {
		return func() {}
	}
	return func() { endAll(ends, done, err) }
}

// endAll ends all of ends, which nobody else uses any more, and then closes done if it is not nil.
// A context of a caller's own kind may panic. The panic goes on after everything has been ended.
func endAll[E interface {
	comparable
	ender
}](ends map[E]struct{}, done chan struct{}, cause error) {
	defer func() {
		switch {
		case len(ends) > 0:
			endAll(ends, done, cause)
		case done != nil:
			// Last, so that a goroutine that it wakes finds everything ended.
			close(done)
		}
	}()
	for e := range ends {
		delete(ends, e)
		e.end(cause)
	}
}

// end ends a nested lock because the outermost one has ended. The nested lock is still held,
// because one that was released is not among the ends of the outermost lock.
func (l *Lock) end(cause error) {
	s := l.cohort.shard
	s.mu.Lock()
	tell := l.finish(cause)
	s.mu.Unlock()
	tell()
}

// isEnd reports whether cause is the error with which contexts of the lock have ended. A loss that
// only the release has found comes after that.
func (l *Lock) isEnd(cause error) bool {
	s := l.cohort.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	return cause == l.err || cause == error((*releasedError)(l))
}

// releasedError is the error that says that a lock was released. Every release needs one, so it is
// the Lock under another type, which costs no allocation.
type releasedError Lock

func (e *releasedError) Error() string {
	return fmt.Sprintf("holdfast: %q: %v", (*Lock)(e).Key(), ErrReleased)
}
func (e *releasedError) Is(target error) bool { return target == ErrReleased }

func (l *Lock) lostError(reason error) *LostError {
	return &LostError{Key: l.Key(), Token: l.token, Reason: reason}
}
