package etcdhold

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// subscriber is one function given to Notify.
type subscriber struct {
	mu sync.Mutex
	f  func(driver.Notice) // nil once stopped
}

// Notify calls f with the notices for claims that this Backend has queued, until stop is called. A
// notice of a grant comes as soon as etcd tells of the grant. A Freed notice says that the lease of
// a holder has ended, and that it has not handed the key over. f must not block, and must call
// neither the Backend nor stop.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) {
	s := &subscriber{f: f}
	b.mu.Lock()
	if !b.closed {
		b.subscribers = append(b.subscribers[:len(b.subscribers):len(b.subscribers)], s)
		for _, c := range b.claims {
			if c.phase == waits {
				b.watch(c)
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

// watch is the watch of the holders of one key, for as long as claims of this Backend wait for it.
type watch struct {
	claims int
	cancel context.CancelFunc
}

// watch has the key of a claim watched, if anybody wants to know. Called with mu held.
func (b *Backend) watch(c *claim) {
	if c.watched || len(b.subscribers) == 0 || b.closed {
		return
	}
	c.watched = true
	w := b.watches[c.key]
	if w == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(b.ctx))
		w = &watch{cancel: cancel}
		b.watches[c.key] = w
		b.running.Go(func() { b.follow(ctx, c.key) })
	}
	w.claims++
}

// unwatch ends the watch of a key with the last claim that waits for it. Called with mu held.
func (b *Backend) unwatch(c *claim) {
	if !c.watched {
		return
	}
	c.watched = false
	w := b.watches[c.key]
	if w.claims--; w.claims == 0 {
		w.cancel()
		delete(b.watches, c.key)
	}
}

// follow watches the holders of the key. It watches from now on, not from the revision in which a
// claim was queued, because etcd serves watches of the past only ten times a second. catchUp finds
// what happened in between.
func (b *Backend) follow(ctx context.Context, key string) {
	n := b.layout.names(key)
	from, end := n.holderRange()
	for ctx.Err() == nil {
		within, cancel := context.WithCancel(ctx)
		changes := b.client.Watch(within, from, clientv3.WithRange(end),
			clientv3.WithCreatedNotify())
		for answer := range changes {
			if answer.Err() != nil {
				break
			}
			if answer.Created {
				b.catchUp(within, n, key)
			}
			b.changed(n, key, answer.Events)
		}
		cancel()
		rest := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
}

// catchUp tells what has happened before the watch began.
func (b *Backend) catchUp(ctx context.Context, n names, key string) {
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	now, err := b.read(limited, n)
	if err != nil {
		return // the waiter finds out when it next asks
	}
	if len(now.holders) == 0 {
		b.tell(driver.Notice{Kind: driver.Freed, Key: key})
	}
	for _, h := range now.holders {
		b.granted(key, []*party{h}, h.modified)
	}
}

// changed tells what the events mean. Those of one revision come together.
func (b *Backend) changed(n names, key string, events []*clientv3.Event) {
	left, came := false, false
	for _, e := range events {
		if e.Type == clientv3.EventTypeDelete {
			left = true
			continue
		}
		came = true
		owner := strings.TrimPrefix(string(e.Kv.Key), n.base+holderKind)
		b.granted(key, []*party{{owner: owner, lease: clientv3.LeaseID(e.Kv.Lease),
			record: parseRecord(e.Kv.Value)}}, e.Kv.ModRevision)
	}
	if left && !came {
		b.tell(driver.Notice{Kind: driver.Freed, Key: key})
	}
}
