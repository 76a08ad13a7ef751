package protocol

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// listeners are the functions given to Notify.
type listeners struct {
	mu  sync.RWMutex
	all []*listener
}

type listener struct{ f func(driver.Notice) }

// Notify calls f with the notices for waiters of this Backend, as [driver.Notifier] describes,
// until stop is called. A notice that is sent while the connection is down is lost; the waiter
// finds its grant when it next asks.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) {
	l := &listener{f: f}
	b.listeners.mu.Lock()
	b.listeners.all = append(b.listeners.all, l)
	b.listeners.mu.Unlock()
	return func() {
		b.listeners.mu.Lock()
		defer b.listeners.mu.Unlock()
		b.listeners.all = slices.DeleteFunc(b.listeners.all, func(other *listener) bool {
			return other == l
		})
	}
}

// hear passes a message of the server on. A notice does not count as a grant if the server may not
// vote now. A server that came back with older data also has an old queue, and a release hands the
// lock over to a waiter of that queue.
func (b *Backend) hear(server *Server, message string) {
	notice, ok := parseNotice(message)
	if !ok {
		return
	}
	if server != nil && b.admit(server, 1) != nil {
		return
	}
	if b.guard.Load() > 0 && server == nil || !b.vouched(server) {
		// Perhaps the server may not vote, so the waiter has to ask.
		notice = driver.Notice{Kind: driver.Freed, Key: notice.Key, Owner: notice.Owner}
	}
	b.listeners.tell(notice)
}

// tell passes a notice on, under the read lock, so that stop waits for calls that are under way.
func (ls *listeners) tell(notice driver.Notice) {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	for _, l := range ls.all {
		l.f(notice)
	}
}

// parseNotice reads what hand_over.lua publishes: token, block, length of the owner value, then
// owner value and key. Anybody may publish, so any other message is dropped.
func parseNotice(message string) (driver.Notice, bool) {
	token, rest, ok1 := cutNumber(message)
	block, rest, ok2 := cutNumber(rest)
	length, rest, ok3 := cutNumber(rest)
	if !ok1 || !ok2 || !ok3 || token == 0 || length == 0 || length >= uint64(len(rest)) ||
		token+block > maxExact {
		return driver.Notice{}, false
	}
	return driver.Notice{
		Kind:  driver.Granted,
		Token: driver.Token(token),
		Block: block,
		Owner: rest[:length],
		Key:   rest[length:],
	}, true
}

func cutNumber(s string) (n uint64, rest string, ok bool) {
	digits, rest, ok := strings.Cut(s, " ")
	if !ok {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 10, 53)
	return n, rest, err == nil
}
