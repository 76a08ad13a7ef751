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

// Notify calls f with the notices that waiters of this Backend are sent, until stop is called. A notice that
// is sent while the connection is down is lost; the waiter's next heartbeat finds its grant.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) {
	l := &listener{f: f}
	b.listeners.mu.Lock()
	b.listeners.all = append(b.listeners.all, l)
	b.listeners.mu.Unlock()
	return func() {
		b.listeners.mu.Lock()
		defer b.listeners.mu.Unlock()
		b.listeners.all = slices.DeleteFunc(b.listeners.all, func(other *listener) bool { return other == l })
	}
}

// hear passes a message on. The read lock is held meanwhile, so that stop waits for calls that are under way.
func (ls *listeners) hear(message string) {
	notice, ok := parseNotice(message)
	if !ok {
		return
	}
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	for _, l := range ls.all {
		l.f(notice)
	}
}

// parseNotice reads what hand_over.lua publishes: token, block, length of the owner value, then owner value
// and key. Anybody may publish, so what does not read so is dropped.
func parseNotice(message string) (driver.Notice, bool) {
	token, rest, ok1 := cutNumber(message)
	block, rest, ok2 := cutNumber(rest)
	length, rest, ok3 := cutNumber(rest)
	if !ok1 || !ok2 || !ok3 || token == 0 || length == 0 || length >= uint64(len(rest)) {
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
