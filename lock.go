package holdfast

import (
	"context"
	"time"
)

// Lock is one acquisition.
type Lock struct{}

// Key returns the key.
func (l *Lock) Key() string { panic("stub") }

// Token returns the fencing token.
func (l *Lock) Token() Token { panic("stub") }

// Deadline returns until when the lock is valid unless renewed.
func (l *Lock) Deadline() time.Time { panic("stub") }

// Done is closed when the lock ends.
func (l *Lock) Done() <-chan struct{} { panic("stub") }

// Err says why the lock ended.
func (l *Lock) Err() error { panic("stub") }

// Context returns a context that ends with the lock.
func (l *Lock) Context(ctx context.Context) context.Context { panic("stub") }

// Extend renews now.
func (l *Lock) Extend(ctx context.Context) error { panic("stub") }

// Release releases.
func (l *Lock) Release(ctx context.Context) error { panic("stub") }
