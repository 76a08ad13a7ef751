package pghold

import (
	"encoding/hex"
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

// Notify calls f with the notices for waiters of this Backend, as driver.Notifier describes, until
// stop is called. If a call of the same Backend hands a key over, its answer brings the notice.
// Notices from other processes come by LISTEN, over a connection of its own. A notice that is sent
// while this connection is down is lost, and the waiter finds its grant when it next asks.
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

// any reports whether somebody has called Notify.
func (ls *listeners) any() bool {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return len(ls.all) > 0
}

// tellAll passes on the notices of an answer.
func (b *Backend) tellAll(notices string) {
	for text := range strings.Lines(notices) {
		b.tell(strings.TrimSuffix(text, "\n"))
	}
}

// tell passes a notice on, under the read lock, so that stop waits for calls that are under way.
// The notice of a server that may have forgotten something, or may be about to, is no grant: the
// waiter has to ask.
func (b *Backend) tell(text string) {
	text, unconfirmed := strings.CutSuffix(text, " ask")
	notice, ok := parseNotice(text)
	if !ok {
		return
	}
	if unconfirmed || b.guard.Load() > 0 || b.want.Load() != nil {
		notice = driver.Notice{Kind: driver.Freed, Key: notice.Key, Owner: notice.Owner}
	}
	b.listeners.mu.RLock()
	defer b.listeners.mu.RUnlock()
	for _, l := range b.listeners.all {
		l.f(notice)
	}
}

// parseNotice reads what holdfast.settle sends: token, block, owner and key. Anybody may send on
// the channel, so any other text is dropped.
func parseNotice(text string) (driver.Notice, bool) {
	parts := strings.Split(text, " ")
	if len(parts) != 4 {
		return driver.Notice{}, false
	}
	token, err1 := strconv.ParseUint(parts[0], 10, 63)
	block, err2 := strconv.ParseUint(parts[1], 10, 53)
	owner, err3 := hex.DecodeString(parts[2])
	key, err4 := hex.DecodeString(parts[3])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || token == 0 || len(owner) == 0 ||
		len(key) == 0 {
		return driver.Notice{}, false
	}
	return driver.Notice{Kind: driver.Granted, Token: driver.Token(token), Block: block,
		Owner: string(owner), Key: string(key)}, true
}
