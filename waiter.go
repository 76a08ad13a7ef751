package holdfast

import "sync"

// waiter is a goroutine that waits in its cohort, or for a permit in its semaphore. (At the
// backend, claims wait.)
type waiter struct {
	call  call
	ready chan outcome // has room for the one outcome

	// Guarded by cohort.shard.mu:
	cohort     *cohort // of a waiter for a permit: the cohort of the slot that came to it
	prev, next *waiter
	listed     bool // in a waiterList
}

// outcome ends the wait of a waiter: with a lock, with the order to lead, or with an error.
type outcome struct {
	lock *Lock
	lead bool
	err  error

	asked bool // of a permit: the scout (see scout.go) got it from the backend, and not in memory
}

// refuse gives back the turn or the lead of a waiter in cohort c that has given up. The caller
// holds shard.mu.
func (o *outcome) refuse(c *cohort) {
	switch {
	case o.lock != nil:
		c.returnTurn(o.lock)
	case o.lead:
		c.leading = false
		c.serveOrRetire()
		c.locker.tasks.Done()
	}
}

// waiterPool keeps waiters for reuse, with their channels. Each Locker has a pool of its own,
// because channels must not pass from one bubble of testing/synctest to another.
type waiterPool struct{ pool sync.Pool }

func (p *waiterPool) get(a *call) *waiter {
	w, _ := p.pool.Get().(*waiter)
	if w == nil {
		w = &waiter{ready: make(chan outcome, 1)}
	}
	w.call = *a
	return w
}

// put takes the waiter back. Its channel is empty, and nobody else refers to it any more.
func (p *waiterPool) put(w *waiter) {
	w.call, w.cohort = call{}, nil
	p.pool.Put(w)
}

// waiterList is the order in which the waiters of a cohort asked. Guarded by cohort.shard.mu.
type waiterList struct {
	first, last *waiter
	length      int
}

func (l *waiterList) push(w *waiter) {
	w.prev, w.next, w.listed = l.last, nil, true
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.length++
}

// pushFront puts a waiter back in its place: before all others.
func (l *waiterList) pushFront(w *waiter) {
	w.prev, w.next, w.listed = nil, l.first, true
	if l.first != nil {
		l.first.prev = w
	} else {
		l.last = w
	}
	l.first = w
	l.length++
}

func (l *waiterList) pop() *waiter {
	w := l.first
	if w != nil {
		l.remove(w)
	}
	return w
}

// remove reports whether w was in the list.
func (l *waiterList) remove(w *waiter) bool {
	if !w.listed {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next, w.listed = nil, nil, false
	l.length--
	return true
}
