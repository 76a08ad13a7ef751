//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// notices knows who wants to be told of grants. It is safe for concurrent use.
type notices struct {
	mu        sync.Mutex
	listeners map[*func(driver.Notice)]bool
}

// deliver calls the listeners under the mutex, so that none is called after its stop has returned.
func (n *notices) deliver(key string, holder *party) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.listeners {
		(*f)(driver.Notice{Kind: driver.Granted, Key: key, Owner: holder.owner,
			Token: driver.Token(holder.token), Block: holder.block})
	}
}

func (n *notices) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.listeners)
}

// listen has f called with every grant until stop is called.
func (n *notices) listen(f func(driver.Notice)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = make(map[*func(driver.Notice)]bool)
	}
	n.listeners[&f] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, &f)
	}
}
