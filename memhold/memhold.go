// Package memhold is a backend in the memory of this process: it excludes the Lockers of one
// process from each other, and makes a test of code that locks fast and exact.
//
// It keeps the whole contract of package driver: leases that expire, shared claims, a queue with
// direct handoff, notices, fencing tokens and inspection. What it holds ends with the process, so
// it protects nothing that outlives it.
//
//	backend := memhold.New()
//	defer backend.Close()
//	locker, err := holdfast.New(backend)
//
// Leases run on Holdfast's lease clock: they count the time in which the host was suspended, and
// follow the fake time of a testing/synctest bubble in which the Backend was made.
//
// # Several clients
//
// Lockers that are given the same Backend exclude each other. If a test plays several processes of
// which one is cut off, [Backend.Client] makes more clients of the same memory, each with faults of
// its own.
//
// # Faults
//
// [Backend.Faults] makes the memory misbehave as a server or a network would: it loses keys,
// freezes, fails, delays, cuts replies, loses notices, restarts and forgets.
package memhold

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// DefaultPresence is how long a waiter counts as present after it last asked.
const DefaultPresence = 10 * time.Second

// minPresence is the shortest presence accepted.
const minPresence = time.Millisecond

// Backend is a client of a memory. Make one with [New]. It is safe for concurrent use.
//
// Beside driver.Backend it implements driver.Notifier, driver.Inspector, driver.Sharer,
// driver.Guarder, driver.Identifier and driver.Member.
type Backend struct {
	memory *memory

	// faulty says that calls and notices have to go through line. Reading it is all that the faults
	// cost when they are not used.
	faulty atomic.Bool
	line   line

	// Guarded by memory.mu:
	closed      bool
	guard       time.Duration
	set         driver.Set    // the set of its claims; zero if that does not matter
	subscribers []*subscriber // replaced, never changed in place
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.Notifier   = (*Backend)(nil)
	_ driver.Inspector  = (*Backend)(nil)
	_ driver.Sharer     = (*Backend)(nil)
	_ driver.Guarder    = (*Backend)(nil)
	_ driver.Identifier = (*Backend)(nil)
	_ driver.Member     = (*Backend)(nil)
)

// Option sets an option of [New].
type Option interface{ apply(*memory) }

type option func(*memory)

func (f option) apply(m *memory) { f(m) }

// WithPresence sets how long a waiter counts as present after it last asked. A waiter that has died
// delays those behind it for at most that long. Default [DefaultPresence]. A claim with a shorter
// TTL is present for its TTL only, so a dead waiter never costs more than its TTL. WithPresence
// panics if presence is less than a millisecond.
func WithPresence(presence time.Duration) Option {
	if presence < minPresence {
		panic(fmt.Sprintf("memhold: presence %v: must be at least %v", presence, minPresence))
	}
	return option(func(m *memory) { m.presence = presence })
}

// New returns the first client of a new, empty memory. Close it when it is no longer used. It
// panics if an option is nil.
func New(options ...Option) *Backend {
	m := &memory{
		keys:     make(map[string]*entry),
		sweepAt:  minSweep,
		presence: DefaultPresence,
		identity: newIdentity(),
	}
	for i, o := range options {
		if o == nil {
			panic(fmt.Sprintf("memhold: option %d is nil: leave it out", i+1))
		}
		o.apply(m)
	}
	return m.client()
}

// Client returns another client of the same memory, like another process that uses a server. Claims
// made through either exclude each other. Notices, faults, [Backend.Guard] and [Backend.Close]
// concern one client only. Client may be called after Close.
func (b *Backend) Client() *Backend { return b.memory.client() }

func (m *memory) client() *Backend {
	b := &Backend{memory: m}
	b.line.init(b)
	now := clock.Now()
	m.mu.Lock()
	m.clients = append(m.clients, b)
	if len(m.clients) == 1 {
		// The Close of the last client stopped all timers.
		for _, e := range m.keys {
			if e.queue != nil {
				m.arm(e, now)
			}
		}
	}
	m.unlock()
	return b
}

// Close ends the client. From now on its calls fail with ErrUnavailable, calls that hang in a fault
// fail with ErrUnknown, and it delivers no more notices. The keys that it holds stay held until
// their TTLs are over, and its waiters stay queued until their presence is over. No timer and no
// goroutine is left when the last client of a memory is closed. Closing twice is safe. The error is
// always nil.
func (b *Backend) Close() error {
	m := b.memory
	m.mu.Lock()
	if b.closed {
		m.mu.Unlock()
		return nil
	}
	b.closed = true
	b.subscribers = nil
	for i, c := range m.clients {
		if c == b {
			m.clients = append(m.clients[:i], m.clients[i+1:]...)
			break
		}
	}
	if len(m.clients) == 0 {
		for _, e := range m.keys {
			if e.queue != nil {
				e.queue.disarm()
			}
		}
	}
	m.mu.Unlock()
	b.line.close()
	return nil
}
