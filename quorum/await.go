package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// grace returns how much longer than its bound the wait for a call is. If its backend keeps the
// contract, a call returns at its bound, but nothing depends on that.
func grace(bound time.Duration) time.Duration { return bound / 10 }

// decision is what the nodes' answers decide. One goroutine may wait for it. mu also guards the
// struct that the decision is part of.
type decision struct {
	mu      sync.Mutex
	decided bool
	waiting *parker       // nil if nobody waits
	until   clock.Instant // when the calls made last are given up
}

// decide marks the decision as made, and wakes the goroutine that waits for it.
func (d *decision) decide() {
	d.decided = true
	if d.waiting != nil {
		d.waiting.wake()
	}
}

// attend has the decision wake p, or nobody if p is nil. It reports whether the decision has
// already been made.
func (d *decision) attend(p *parker) (decided bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = p
	return d.decided
}

// expire gives up nodes that should have answered by now. It reports whether the decision is made,
// and if not, how much time the other nodes have left.
func (d *decision) expire(giveUp func()) (decided bool, rest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.decided {
		return true, 0
	}
	if rest := d.until.Sub(clock.Now()); rest > 0 {
		return false, rest
	}
	giveUp()
	return d.decided, d.until.Sub(clock.Now())
}

// await waits until d is decided. It returns the error of ctx if that ends before. most is how long
// the calls made so far may take. When a node's time is over, await calls giveUp, with the mutex
// held, to count nodes that have not answered as failed.
func (q *Quorum) await(ctx context.Context, d *decision, most time.Duration, giveUp func()) error {
	p := q.parking.get(most)
	defer q.parking.put(p)
	if d.attend(p) {
		return nil
	}
	defer d.attend(nil) // before p is put back: this decision must not wake it any more
	for {
		var over error
		select {
		case <-p.woken:
		case <-ctx.Done():
			over = ctx.Err()
		}
		decided, rest := d.expire(giveUp)
		switch {
		case decided:
			return nil // the decision wins if ctx has ended at the same moment
		case over != nil:
			return over
		}
		p.wakeAfter(rest)
	}
}

// parker is what a goroutine waits on until another goroutine or a timer wakes it. Parkers are
// reused, because a channel and a timer cost more than the wait. A parker does not use a timer
// channel, or a timer that is due when it is set. In a synctest bubble the goroutine that touches
// such a timer runs it, and the race detector of Go 1.26 crashes if two goroutines do so at once.
type parker struct {
	woken chan struct{} // has room for one; may hold a signal that was meant for an earlier wait
	timer *time.Timer   // nil until it is first needed
}

func (p *parker) wakeAfter(d time.Duration) {
	switch {
	case d <= 0:
		p.wake()
	case p.timer == nil:
		p.timer = time.AfterFunc(d, p.wake)
	default:
		p.timer.Reset(d)
	}
}

func (p *parker) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// parking is the idle parkers of one Quorum. Each Quorum has its own, because a channel that was
// made in a synctest bubble must stay in it.
type parking struct {
	mu   sync.Mutex
	idle []*parker
}

// maxParked is how many idle parkers are kept.
const maxParked = 64

// get returns a parker that is woken after d.
func (k *parking) get(d time.Duration) *parker {
	k.mu.Lock()
	var p *parker
	if n := len(k.idle); n > 0 {
		p, k.idle = k.idle[n-1], k.idle[:n-1]
	}
	k.mu.Unlock()
	if p == nil {
		p = &parker{woken: make(chan struct{}, 1)}
	}
	p.wakeAfter(d)
	return p
}

func (k *parking) put(p *parker) {
	if p.timer != nil {
		p.timer.Stop()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.idle) < maxParked {
		k.idle = append(k.idle, p)
	}
}
