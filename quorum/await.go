package quorum

import (
	"context"
	"sync"
	"time"
)

// grace is how much longer than a call's bound it is waited for. The call returns at its bound, if its
// backend keeps the contract; nobody depends on that.
func grace(bound time.Duration) time.Duration { return bound / 10 }

// verdict is a decision that one goroutine may wait for. It is guarded by the mutex of what it is part of.
type verdict struct {
	decided bool
	waiting *parker // nil if nobody waits
}

// decide makes the decision known.
func (v *verdict) decide() {
	v.decided = true
	if v.waiting != nil {
		v.waiting.wake()
	}
}

// awaited is something that has a verdict.
type awaited interface {
	// attend has p woken by the decision, and nobody if p is nil. It reports whether the decision is made already.
	attend(p *parker) (decided bool)

	// expire gives up on nodes that should have answered by now. It reports whether the decision is made, and else for how long
	// others still have time.
	expire() (decided bool, rest time.Duration)
}

// await waits until a is decided. It returns the error of ctx if that ends before.
func (q *Quorum) await(ctx context.Context, a awaited, most time.Duration) error {
	p := q.parking.get(most)
	defer q.parking.put(p)
	if a.attend(p) {
		return nil
	}
	defer a.attend(nil) // before p is put back: it must not be woken for this any more
	for {
		var over error
		select {
		case <-p.woken:
		case <-ctx.Done():
			over = ctx.Err()
		}
		decided, rest := a.expire()
		switch {
		case decided:
			return nil // also if ctx ended in the same moment, or while this goroutine was late
		case over != nil:
			return over
		}
		p.timer.Reset(rest)
	}
}

// parker is what a goroutine waits on: it can be woken, and is woken after a time. It is used again, as a channel
// and a timer cost more than the wait. It is no timer channel, since the race detector of Go 1.26 crashes when
// goroutines of a synctest bubble touch those at once.
type parker struct {
	woken chan struct{} // has room for one; may hold a signal that was meant for an earlier wait
	timer *time.Timer
}

func (p *parker) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// parking is a Quorum's idle parkers. They are its own: what was made in a synctest bubble has to stay in it.
type parking struct {
	mu   sync.Mutex
	idle []*parker
}

// maxParked is how many idle parkers are kept.
const maxParked = 64

// get returns a parker that is woken after d.
func (k *parking) get(d time.Duration) *parker {
	k.mu.Lock()
	n := len(k.idle)
	if n == 0 {
		k.mu.Unlock()
		p := &parker{woken: make(chan struct{}, 1)}
		p.timer = time.AfterFunc(d, p.wake)
		return p
	}
	p := k.idle[n-1]
	k.idle = k.idle[:n-1]
	k.mu.Unlock()
	p.timer.Reset(d)
	return p
}

func (k *parking) put(p *parker) {
	p.timer.Stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.idle) < maxParked {
		k.idle = append(k.idle, p)
	}
}
