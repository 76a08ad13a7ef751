package simulate

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// eventKind is what a line of a history is about.
type eventKind uint8

const (
	evAcquire eventKind = iota
	evRenew
	evRelease
	evRefused
	evNotice
	evOutage
	evFades
	evPause
	evSuspend
	evEvict
	evWants
	evWantsAll
	evWaitsNoMore
	evHas
	evGivesUp
	evLets
	evLost
	evExtends
	evDowngrades
	evClose
	evClosed
	evHook
	evPanic
	evDeath
	evBroken
)

// event is a line of a history, before it is printed.
type event struct {
	at      time.Duration
	kind    eventKind
	process uint8
	worker  uint8
	key     uint8
	a, b    uint64
}

// ring keeps the last events of a history. They are made into text only if the history failed.
type ring struct {
	mu     sync.Mutex
	start  time.Time
	events []event
	next   int
	rest   int // how many more are kept, after a violation; -1: all
}

const ringSize = 1 << 14

func newRing() *ring { return &ring{events: make([]event, ringSize)} }

func (r *ring) begin(start time.Time) { r.start, r.next, r.rest = start, 0, -1 }

func (r *ring) note(kind eventKind, process, worker, key int, a, b uint64) {
	at := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rest == 0 {
		return
	}
	if r.rest > 0 {
		r.rest--
	}
	r.events[r.next%ringSize] = event{at, kind, uint8(process), uint8(worker), uint8(key), a, b}
	r.next++
}

// mark notes a violation: events long after it are of no interest.
func (r *ring) mark() {
	r.note(evBroken, 0, 0, 0, 0, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rest < 0 {
		r.rest = 20
	}
}

// print gives the events that are kept as text.
func (r *ring) print(p *plan) string { return r.tail(p, ringSize) }

// tail gives the last events as text.
func (r *ring) tail(p *plan, most int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	variants := p.variants()
	for i := max(0, r.next-most); i < r.next; i++ {
		e := r.events[i%ringSize]
		if e.kind == evBroken {
			fmt.Fprintf(&b, "%14v  A PROMISE IS BROKEN\n", e.at)
			continue
		}
		fmt.Fprintf(&b, "%14v  process %d", e.at, e.process)
		state, key := driver.State(e.worker), keyText(int(e.key))
		switch e.kind {
		case evAcquire:
			fmt.Fprintf(&b, " backend: acquire %s for %s, TTL %v: %v", key, ownerName(e.a),
				time.Duration(e.b), state)
		case evRenew:
			fmt.Fprintf(&b, " backend: renew %s for %s, TTL %v: %v", key, ownerName(e.a),
				time.Duration(e.b), state)
		case evRelease:
			fmt.Fprintf(&b, " backend: release %s for %s: %v", key, ownerName(e.a), state)
		case evRefused:
			fmt.Fprintf(&b, " call for %s refused%s", key, [...]string{"", " for good"}[e.b])
		case evNotice:
			fmt.Fprintf(&b, " hears a notice: %s for %s, token %d", key, ownerName(e.a), e.b)
		case evOutage:
			fmt.Fprintf(&b, " outage: %s for %v", [...]string{"none", "refused", "requests lost",
				"replies lost", "frozen", "flaky", "some keys refused"}[e.a], time.Duration(e.b))
		case evFades:
			fmt.Fprintf(&b, " answers get slow for %v, and then nothing comes for %v",
				time.Duration(e.a), time.Duration(e.b))
		case evPause:
			fmt.Fprintf(&b, " stops for %v", time.Duration(e.a))
		case evSuspend:
			fmt.Fprintf(&b, " and all others are suspended for %v", time.Duration(e.a))
		case evEvict:
			fmt.Fprintf(&b, ": %s is deleted by hand", key)
		case evWants:
			fmt.Fprintf(&b, ".%d wants %s, %s, for %v", e.worker, key,
				variants[e.a&(1<<permitShift-1)].name, time.Duration(e.b))
			if permits := e.a >> permitShift; permits > 0 {
				fmt.Fprintf(&b, ", one of %d permits", permits)
			}
		case evWantsAll:
			fmt.Fprintf(&b, ".%d wants, with others, %s, %s, for %v", e.worker, key,
				variants[e.a].name, time.Duration(e.b))
		case evWaitsNoMore:
			fmt.Fprintf(&b, ".%d does not get its set, or releases it", e.worker)
		case evHas:
			fmt.Fprintf(&b, ".%d has %s, token %d, valid for %v", e.worker, key, e.a,
				time.Duration(e.b))
		case evGivesUp:
			fmt.Fprintf(&b, ".%d does not get %s", e.worker, key)
		case evLets:
			fmt.Fprintf(&b, ".%d lets go of %s, token %d, valid for %v", e.worker, key, e.a,
				time.Duration(e.b))
		case evLost:
			fmt.Fprintf(&b, ".%d has lost %s, token %d", e.worker, key, e.a)
		case evExtends:
			fmt.Fprintf(&b, ".%d extends %s, token %d", e.worker, key, e.a)
		case evDowngrades:
			fmt.Fprintf(&b, ".%d downgrades %s, token %d", e.worker, key, e.a)
		case evClose:
			fmt.Fprintf(&b, " closes its Locker")
		case evClosed:
			fmt.Fprintf(&b, " has closed its Locker")
		case evHook:
			fmt.Fprintf(&b, " hook: %s", hookDoes(e.a))
		case evDeath:
			fmt.Fprintf(&b, " dies")
		case evPanic:
			fmt.Fprintf(&b, ".%d recovers a panic", e.worker)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// owner is enough of an owner value to tell it from others.
func owner(value string) (start uint64) {
	for i := range min(8, len(value)) {
		start = start<<8 | uint64(value[i])
	}
	return start
}

func ownerName(start uint64) string {
	var b [8]byte
	for i := range b {
		b[i] = byte(start >> (56 - 8*i))
	}
	return string(b[:])
}
