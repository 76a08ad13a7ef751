package memhold

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Join puts this client's claims under set, as driver.Member describes. They are refused,
// permanently and with a *driver.SetError, unless the memory belongs to set. A memory without a set
// joins this one. The zero Set switches the check off. [Faults.Forget] makes the memory forget its
// set, too.
func (b *Backend) Join(set driver.Set) {
	b.memory.mu.Lock()
	b.set = set
	b.memory.mu.Unlock()
}

// Belongs returns the set that the memory belongs to, or the zero Set if it belongs to none. It
// fails with ErrUnavailable when ctx has ended and after Close.
func (b *Backend) Belongs(ctx context.Context) (driver.Set, error) {
	return b.belongs(ctx, func(*memory) {})
}

// Move moves the memory from one set to another, if it belongs to from. It returns the set that the
// memory belongs to afterwards. ctx is looked at before the call. It fails as Belongs does.
func (b *Backend) Move(ctx context.Context, from, to driver.Set) (driver.Set, error) {
	return b.belongs(ctx, func(m *memory) {
		if m.set == from {
			m.set = to
		}
	})
}

func (b *Backend) belongs(ctx context.Context, change func(*memory)) (driver.Set, error) {
	if err := ctx.Err(); err != nil {
		return driver.Set{}, &driver.Error{Err: err}
	}
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	if b.closed {
		return driver.Set{}, errClosed()
	}
	change(b.memory)
	return b.memory.set, nil
}

// disagrees returns an error if the memory belongs to another set than the client's claims. Called
// with the memory's mutex held.
func (b *Backend) disagrees() error {
	m := b.memory
	switch {
	case b.set == driver.Set{} || m.set.Admits(b.set):
		return nil
	case m.set == driver.Set{}:
		m.set = b.set
		return nil
	}
	return &driver.Error{Permanent: true, Err: &driver.SetError{Want: b.set, Have: m.set}}
}
