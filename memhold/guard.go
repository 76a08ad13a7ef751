package memhold

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Guard sets a quarantine for this client. For that time after the memory forgot everything
// ([Faults.Forget]), the client refuses Acquire and Renew. At any time it refuses claims with a TTL
// longer than the guard. A new memory, and one that was restarted with its data, has forgotten
// nothing and is not in quarantine. 0 switches the guard off.
func (b *Backend) Guard(guard time.Duration) {
	b.memory.mu.Lock()
	b.guard = guard
	b.memory.mu.Unlock()
}

func (b *Backend) quarantine(claim *driver.Claim, now clock.Instant) error {
	if claim != nil && claim.TTL > b.guard {
		return overGuard(claim.TTL, b.guard)
	}
	if b.memory.forgot {
		if remaining := b.guard - now.Sub(b.memory.forgotAt); remaining > 0 {
			return &driver.Error{Err: &driver.QuarantineError{Remaining: remaining}}
		}
	}
	return nil
}

func overGuard(ttl, guard time.Duration) error {
	return refused("TTL %v: at most the restart guard of %v is allowed", ttl, guard)
}

// Identity returns a value that no other memory has, and that changes when this one is restarted.
// It fails with ErrUnavailable when ctx has ended and after Close. ErrUnknown comes only from
// [Faults].
func (b *Backend) Identity(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", &driver.Error{Err: err}
	}
	if b.faulty.Load() {
		return b.line.identity(ctx)
	}
	return b.identity()
}

func (b *Backend) identity() (string, error) {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	if b.closed {
		return "", errClosed()
	}
	return b.memory.identity, nil
}

func newIdentity() string { return "memory-" + rand.Text() }
