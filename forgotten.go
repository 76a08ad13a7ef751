package holdfast

import "runtime"

// newHandle returns a handle on the lock, which passes all calls on to it. When the handle becomes
// garbage, forgotten is called. The lock itself cannot become garbage while it is held, because the
// Locker refers to it.
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

// forgotten is called when nobody can release the lock any more. It only writes to the log, because
// work under a context of the lock may still rely on the lock. It runs outside of the synctest
// bubble of a test, so it must not read a clock or use a channel.
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
