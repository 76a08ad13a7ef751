package zkhold

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// subscriber is one function given to Notify.
type subscriber struct {
	mu sync.Mutex
	f  func(driver.Notice) // nil once stopped
}

// Notify calls f with the notices for claims that this Backend has queued, until stop is called. A
// notice of a grant comes as soon as ZooKeeper tells of the grant. If the session of a holder has
// ended, so that it has not handed the key over, the first waiter finds out when it next asks. f
// must not block, and must call neither the Backend nor stop.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) {
	s := &subscriber{f: f}
	b.mu.Lock()
	if !b.closed {
		b.subscribers = append(b.subscribers[:len(b.subscribers):len(b.subscribers)], s)
		for _, c := range b.claims {
			if c.phase == waits {
				b.follow(c)
			}
		}
	}
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		var rest []*subscriber
		for _, other := range b.subscribers {
			if other != s {
				rest = append(rest, other)
			}
		}
		b.subscribers = rest
		b.mu.Unlock()
		s.mu.Lock()
		s.f = nil
		s.mu.Unlock()
	}
}

func (b *Backend) tell(n driver.Notice) {
	b.mu.Lock()
	to := b.subscribers
	b.mu.Unlock()
	for _, s := range to {
		s.mu.Lock()
		if s.f != nil {
			s.f(n)
		}
		s.mu.Unlock()
	}
}

// follow watches the node of a waiter, if anybody listens to notices. Only the call that lets the
// waiter in writes to the node, so nobody is woken in vain. Called with mu held.
func (b *Backend) follow(c *claim) {
	if c.followed == c.node || len(b.subscribers) == 0 || b.closed {
		return
	}
	c.followed = c.node
	id, node := c.identity, c.node
	at := b.slotPath(b.slotOf(c.key)) + "/" + node
	b.running.Go(func() { b.watch(id, node, at) })
}

// watch watches a node until it is written to or is gone. A watch ends with the node.
func (b *Backend) watch(id identity, node, at string) {
	for b.ctx.Err() == nil {
		data, _, changed, err := b.client.GetW(at)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return
		case err != nil:
			changed = nil
		case len(data) > 0:
			g := grant{}
			if json.Unmarshal(data, &g) == nil {
				b.granted(id, node, g)
			}
			return
		}
		if changed == nil { // there was no answer
			rest := time.NewTimer(time.Second)
			select {
			case <-b.ctx.Done():
			case <-rest.C:
			}
			rest.Stop()
			continue
		}
		select {
		case <-b.ctx.Done():
		case <-changed:
		}
	}
}
