package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Token is a fencing token; see [driver.Token]. The zero Token is none.
type Token = driver.Token

// Locker acquires locks.
type Locker struct{ config config }

// New returns a Locker.
func New(backend driver.Backend, options ...Option) (*Locker, error) { panic("stub") }

// Acquire waits.
func (l *Locker) Acquire(ctx context.Context, key string, options ...AcquireOption) (*Lock, error) {
	panic("stub")
}

// TryAcquire tries once.
func (l *Locker) TryAcquire(ctx context.Context, key string, options ...AcquireOption) (*Lock, error) {
	panic("stub")
}

// Do runs f under the lock.
func (l *Locker) Do(ctx context.Context, key string, f func(context.Context, *Lock) error, options ...AcquireOption) error {
	panic("stub")
}

// Stats returns counters.
func (l *Locker) Stats() Stats { panic("stub") }

// Close releases everything.
func (l *Locker) Close() error { panic("stub") }
