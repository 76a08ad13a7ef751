package quorum

import (
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// listener is one function given to Notify.
type listener struct {
	mu      sync.Mutex
	f       func(driver.Notice)
	stopped bool
}

// Notify calls f with notices about claims that this Quorum has queued, as driver.Notifier
// describes. A notice is Granted if a majority of nodes has handed the key over with the same
// token. It is Freed, for one waiter, if asking again is worthwhile. If a node does not implement
// driver.Notifier, its grant shows only when the waiter asks again.
func (q *Quorum) Notify(f func(driver.Notice)) (stop func()) {
	l := &listener{f: f}
	q.listening.Lock()
	defer q.listening.Unlock()
	q.listeners = append(slices.Clip(q.listeners), l)
	return func() {
		q.listening.Lock()
		q.listeners = slices.DeleteFunc(slices.Clone(q.listeners), func(other *listener) bool {
			return other == l
		})
		q.listening.Unlock()
		l.mu.Lock() // waits for a call under way
		l.stopped = true
		l.mu.Unlock()
	}
}

// tell passes a notice on. Called with no mutex held.
func (q *Quorum) tell(n driver.Notice) {
	if n.Kind == 0 {
		return
	}
	q.listening.RLock()
	listeners := q.listeners // replaced, never changed in place
	q.listening.RUnlock()
	for _, l := range listeners {
		l.mu.Lock()
		if !l.stopped {
			l.f(n)
		}
		l.mu.Unlock()
	}
}
