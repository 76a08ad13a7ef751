package node

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// bounded is the context of one call to a node. It ends at its deadline, or with the group. It
// makes a timer only when the backend asks for Done: the timer is most of what context.WithTimeout
// costs, and most backends do not ask before a call is overdue. It is a field of what it bounds, so
// it costs no allocation.
type bounded struct {
	base     context.Context
	deadline time.Time

	mu     sync.Mutex
	timed  context.Context // nil until Done was asked for
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.cancel = context.WithDeadline(b.base, b.deadline)
	}
	return b.timed.Done()
}

// Err implements context.Context.
func (b *bounded) Err() error {
	if timed := b.made(); timed != nil {
		return timed.Err()
	}
	if err := b.base.Err(); err != nil {
		return err
	}
	if !clock.In(0).Before(b.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context. Derived contexts find the timed one once there is one, and so
// need no goroutine.
func (b *bounded) Value(key any) any {
	if timed := b.made(); timed != nil {
		return timed.Value(key)
	}
	return nil
}

func (b *bounded) made() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.timed
}

// end frees what Done made.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed != nil {
		b.cancel()
	}
}
