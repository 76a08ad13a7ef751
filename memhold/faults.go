package memhold

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Faults makes a memory misbehave, for tests. Get it from [Backend.Faults]. It is safe for
// concurrent use. While nothing is wrong, it costs each call an atomic load.
//
// There are two kinds of fault. Faults of the path (Inject, Freeze, LoseNotices) concern the calls
// of this client only, like faults of a network. Faults of the memory (Lose, Give, Restart, Forget)
// concern every client, like faults of a server, and take effect at once, even if a path is frozen.
//
// The path keeps the rule of package driver that calls take effect in the order in which they were
// made, even if their contexts ended. It is one queue for each client, in which a delayed call
// delays those behind it. A call whose context has ended already, or whose claim is not allowed,
// never reaches the path.
type Faults struct{ b *Backend }

// Faults returns the fault surface of this client.
func (b *Backend) Faults() Faults { return Faults{b} }

// Calls is a set of kinds of call.
type Calls uint8

// The kinds of call, which may be joined by |.
const (
	Acquires    Calls = 1 << iota
	Renewals          // Renew
	Releases          // Release
	Inspections       // List and Inspect
	Identities        // Identity

	AllCalls = Acquires | Renewals | Releases | Inspections | Identities
)

// Fault is what happens to calls on their way to the memory and back. All faults that match a call
// act on it: delays add up, and of several errors the one that was injected first is reported.
type Fault struct {
	// Calls says which kinds of call; 0 means all.
	Calls Calls

	// Key restricts the fault to calls about this key; empty means all calls. Of a batch of
	// renewals, Err and CutReply then concern only the claims on the key, as results that are
	// Unknown; delays concern the whole batch.
	Key string

	// Times is how many calls the fault lasts for, or claims of a batch if Key is set; 0 means
	// until it is removed.
	Times int

	// Err makes the call fail without reaching the memory. A *driver.Error is reported as it is.
	// Any other error is wrapped in one, which says ErrUnknown if Err does, and otherwise
	// ErrUnavailable.
	Err error

	// CutReply has the call take effect and report ErrUnknown.
	CutReply bool

	// Delay is how much later the call reaches the memory.
	Delay time.Duration

	// ReplyDelay is how much later its answer arrives.
	ReplyDelay time.Duration
}

// Inject adds a fault. remove ends it early; calls that it delays stay delayed.
func (f Faults) Inject(fault Fault) (remove func()) { return f.b.line.inject(fault) }

// Freeze has every call, and every notice, of this client hang until Thaw or ThawDropping. A call
// whose context ends returns with ErrUnknown, and still hangs in the path. Faults that were
// injected with an Err are reported at once, like those of a client that cannot send.
func (f Faults) Freeze() { f.b.line.freeze() }

// Thaw ends a freeze: the calls that hang take effect, in the order in which they were made, and
// the notices arrive. Calls whose contexts have ended take effect too.
func (f Faults) Thaw() { f.b.line.thaw(false) }

// ThawDropping ends a freeze as a broken connection would: the calls and notices that hang are
// lost. The calls fail with ErrUnknown.
func (f Faults) ThawDropping() { f.b.line.thaw(true) }

// LoseNotices sets whether notices to this client are lost.
func (f Faults) LoseNotices(lose bool) { f.b.line.loseNotices(lose) }

// Clear ends all faults of the path: injected ones are removed, a freeze thaws, notices arrive.
// Calls that were delayed stay delayed.
func (f Faults) Clear() {
	f.b.line.clear()
	f.b.line.thaw(false)
}

// Hanging returns how many calls are on their way to the memory, including those whose callers have
// gone. A test that waits for a call to be made waits for Hanging to change.
func (f Faults) Hanging() int { return f.b.line.hanging() }

// Lose takes key from its holder, or from all that share it, as if the memory had evicted it, and
// reports whether somebody held it. Nobody is told. Waiters stay: the next call for the key passes
// it to the first of them.
func (f Faults) Lose(key string) bool {
	now := clock.Now()
	m := f.b.memory
	m.mu.Lock()
	defer m.unlock()
	e := m.keys[key]
	if e == nil || e.owner == "" || now >= e.expires {
		return false
	}
	// expires stays: the timer of a queue still serves.
	e.owner, e.token, e.sharers = "", 0, nil
	if e.free() {
		m.remove(key, e)
	}
	return true
}

// Give gives key to owner for ttl, whoever holds it, as if a client that knows neither queues nor
// tokens had got it. Nobody is told; waiters stay.
func (f Faults) Give(key, owner string, ttl time.Duration) {
	now := clock.Now()
	m := f.b.memory
	m.mu.Lock()
	defer m.unlock()
	e := m.keys[key]
	if e == nil {
		e = m.add(key, now)
	}
	e.owner, e.token, e.expires, e.sharers = owner, 0, now.Add(ttl), nil
	if e.queue != nil {
		m.tend(e, now)
	}
}

// Restart restarts the memory with its data. Its identity changes, and calls of all clients that
// hang fail with ErrUnknown and do not take effect.
func (f Faults) Restart() { f.b.memory.restart(false) }

// Forget restarts the memory without its data: holders, waiters and the fence are gone, and clients
// with a guard are in quarantine (see [Backend.Guard]). In all else it is like Restart.
func (f Faults) Forget() { f.b.memory.restart(true) }

func (m *memory) restart(forget bool) {
	m.mu.Lock()
	clients := append([]*Backend(nil), m.clients...)
	m.mu.Unlock()
	for _, c := range clients {
		c.line.cut()
	}
	identity := newIdentity()
	now := clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity = identity
	if !forget {
		return
	}
	for _, e := range m.keys {
		if e.queue != nil {
			e.queue.disarm()
		}
	}
	m.keys, m.peak, m.sweepAt = make(map[string]*entry), 0, minSweep
	m.fence, m.ticket, m.set = 0, 0, driver.Set{}
	m.forgot, m.forgotAt = true, now
}

// asError returns the error of a Fault as the contract wants it.
func asError(err error) error {
	if _, ok := err.(*driver.Error); ok {
		return err
	}
	return &driver.Error{Maybe: errors.Is(err, driver.ErrUnknown), Err: err}
}
