package holdfast

import "runtime"

// newHandle returns a handle on the lock. When the handle becomes garbage, forgotten is called. The
// Locker refers to the lock itself while that is held, so only a handle can become garbage.
func (l *Lock) newHandle() *Lock {
	handle := &Lock{cohort: l.cohort, token: l.token, root: l, handle: true}
	runtime.AddCleanup(handle, (*Lock).forgotten, l)
	return handle
}

// self returns the lock itself: the one behind the handle if l is a handle, else l.
func (l *Lock) self() *Lock {
	if l.handle {
		return l.root
	}
	return l
}

// forgotten is called when nobody can release the lock any more. It only tells: whoever works under
// a context of the lock may still rely on it. It is not called in the bubble of a test, so it reads
// no clock and uses no channel.
func (l *Lock) forgotten() {
	s := l.cohort.shard
	s.mu.Lock()
	held := l.err == nil
	s.mu.Unlock()
	if held {
		l.cohort.locker.warn(
			"holdfast: a Lock was never released and is garbage now; it holds its key until it is lost or the Locker is closed",
			"key", l.Key(), "token", uint64(l.token))
	}
}
