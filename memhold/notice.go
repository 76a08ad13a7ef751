package memhold

import (
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// subscriber is one function given to Notify.
type subscriber struct {
	mu sync.Mutex
	f  func(driver.Notice) // nil once stopped
}

// delivery is a notice and its subscribers. A delivery without subscribers stands for the notices
// that the client's line kept during a freeze.
type delivery struct {
	client *Backend
	to     []*subscriber
	notice driver.Notice
}

func (d *delivery) send() {
	for _, s := range d.to {
		s.mu.Lock()
		if s.f != nil {
			s.f(d.notice)
		}
		s.mu.Unlock()
	}
}

// Notify calls f with every grant of a claim that this client queued, until stop is called. Calls
// are made one after the other, in the order of the grants, on the goroutine that caused or found a
// grant. No mutex of the memory is held. f must not block and not call the Backend or stop. stop
// waits for a call that is under way; after it f is not called again. Calling it twice is safe.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) {
	s := &subscriber{f: f}
	m := b.memory
	m.mu.Lock()
	if !b.closed {
		b.subscribers = append(b.subscribers[:len(b.subscribers):len(b.subscribers)], s)
	}
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		var rest []*subscriber
		for _, other := range b.subscribers {
			if other != s {
				rest = append(rest, other)
			}
		}
		b.subscribers = rest
		m.mu.Unlock()
		s.mu.Lock()
		s.f = nil
		s.mu.Unlock()
	}
}

// notify puts a notice into the outbox. Called with m.mu held.
func (m *memory) notify(client *Backend, notice driver.Notice) {
	if len(client.subscribers) > 0 {
		m.outbox = append(m.outbox, delivery{client, client.subscribers, notice})
	}
}

// deliver empties the outbox. Only one goroutine does so at a time, which keeps the order. The
// others leave their notices to it, and never wait for a subscriber.
func (m *memory) deliver() {
	for {
		m.mu.Lock()
		batch := m.outbox
		if len(batch) == 0 {
			m.delivering = false
			m.mu.Unlock()
			return
		}
		m.outbox, m.delivered = m.delivered, nil
		m.mu.Unlock()
		for _, d := range batch {
			switch {
			case d.to == nil:
				for _, d := range d.client.line.unkeep() {
					d.send()
				}
			case d.client.faulty.Load() && d.client.line.keep(d):
			default:
				d.send()
			}
		}
		if clear(batch); cap(batch) <= maxSpare {
			m.mu.Lock()
			m.delivered = batch[:0]
			m.mu.Unlock()
		}
	}
}
