package holdfast

import (
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// ender is something that ends with a lock: a context, a nested lock or a set. end is called under
// no mutex. It may be called again, also while another goroutine calls it or by what the first call
// ends, and then sees to it that everything has ended, too.
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
		root := l.outermost()
		h := root.lease
		s.mu.Unlock()
		l.cohort.locker.watchdog.check(h, now)
		s.mu.Lock()
		if root.err != nil { // else it was renewed meanwhile
			tell := root.rest()
			s.mu.Unlock()
			func() {
				defer s.mu.Lock() // even if a context panics
				tell()
			}()
		}
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

// rest returns a function that ends what is left to end of a lock that has ended: contexts and
// nested locks, and then Done. The caller holds shard.mu, and calls tell after unlocking it.
//
// Until then the key must not go to anybody else. So the lock stays on its lease, or whoever takes
// the lease away calls tell first. Several goroutines may do so at the same time.
func (l *Lock) rest() (tell func()) {
	if !l.unfinished() {
		return func() {}
	}
	return l.endAll
}

// unfinished reports whether something is left to end. The caller holds shard.mu.
func (l *Lock) unfinished() bool { return len(l.ends) > 0 || l.done != nil && !l.told }

// endAll ends everything that ends with a lock that has ended.
func (l *Lock) endAll() {
	s := l.cohort.shard
	s.mu.Lock()
	ends, cause := l.ends, l.err
	s.mu.Unlock()
	endAll(&s.mu, ends, cause, func() {
		l.ends = nil
		if l.done != nil && !l.told {
			l.told = true
			close(l.done)
		}
	})
}

// endAll ends all of ends, which mu guards and to which nothing is added any more, and then calls
// done under mu. If several goroutines do so at the same time, each finds everything ended when it
// returns. They do not wait for each other, because one of them may be called by what another one
// ends. A context of a caller's own kind may panic. The panic goes on after everything has been
// ended.
func endAll[E interface {
	comparable
	ender
}](mu *sync.Mutex, ends map[E]struct{}, cause error, done func()) {
	finished := false
	defer func() {
		mu.Unlock()
		if !finished {
			endAll(mu, ends, cause, done)
		}
	}()
	mu.Lock()
	for e := range ends {
		mu.Unlock()
		func() {
			defer func() {
				mu.Lock()
				delete(ends, e) // only now, so that another goroutine that comes ends it, too
			}()
			e.end(cause)
		}()
	}
	done() // last, so that a goroutine that it wakes finds everything ended
	finished = true
}

// end ends a nested lock because the outermost one has ended.
func (l *Lock) end(cause error) {
	s := l.cohort.shard
	s.mu.Lock()
	if l.err == nil {
		l.err = cause
	}
	s.mu.Unlock()
	l.endAll()
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
