package simulate

import (
	"sync"
	"time"
)

// load counts what a process asks of its backend in a second of the history, to catch a goroutine
// that asks again and again without a pause.
type load struct {
	h *history

	mu           sync.Mutex
	since        time.Time
	calls, steps int
	before       int // steps of the second before; their releases may be under way
}

const (
	// callsPerStep is more than an acquisition and its release ever cost. A scout for four permits
	// that starts anew for each makes less than half as many calls.
	callsPerStep = 60

	// spinPause is how long a call takes in a process that asks too much, so that time goes on.
	spinPause = time.Millisecond
)

// step notes that a goroutine of the process begins something new.
func (l *load) step() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	l.steps++
}

// turn begins a new second if the last one is over. The caller holds l.mu.
func (l *load) turn() {
	if now := time.Now(); now.Sub(l.since) >= time.Second {
		// Each goroutine may be in the middle of something.
		l.since, l.calls, l.before, l.steps = now, 0, l.steps, l.h.workers
	}
}

// call notes a call of the backend, and returns how long it has to take at least. The caller sees
// to that, because it may hold a mutex here: whoever waits for a mutex keeps fake time from going
// on.
func (l *load) call() (pause time.Duration) {
	l.mu.Lock()
	l.turn()
	l.calls++
	calls, steps := l.calls, l.steps+l.before
	most := l.h.plan.calls(steps)
	l.mu.Unlock()
	if calls <= most {
		return 0
	}
	if calls == most+1 {
		l.h.violate("pace", "%d calls of the backend within a second of one process, which began "+
			"%d acquisitions then and in the second before", calls, steps)
	}
	return spinPause
}

// calls returns how often a process calls its backend in a second, at most, if it begins that many
// steps: for these, for claims that wait, and for leases that are renewed.
func (p *plan) calls(steps int) int {
	slots, shortest := 0, p.longest()
	for i := range p.keys {
		slots = max(slots, p.permitsOf(i))
	}
	for _, ttl := range p.ttls {
		shortest = min(shortest, ttl)
	}
	// For all goroutines that ask on the same terms one waits at the backend: for a key, or for a
	// gate, the scouts' key and all slots.
	claims := min(p.workers, 8*len(p.ttls)) * (2 + slots)
	heartbeat := max(min(p.presence/3, time.Second), time.Millisecond)
	// A place that may have been lost is left and taken anew: three calls. Forty are for failures.
	perClaim := 3*int(time.Second/heartbeat) + 40
	perLease := 2 * int(time.Second/(shortest/4)+1)
	perNode := 1000 + callsPerStep*steps + claims*perClaim + p.workers*perLease
	if p.nodes > 1 {
		// A quorum repeats by itself what a node did not confirm, all of it when an outage ends.
		perNode *= 3
	}
	return p.nodes * perNode
}
