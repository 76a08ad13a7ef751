package memhold

import (
	"context"
	"iter"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// List yields every key that is held or waited for and begins with prefix, in no particular order
// and without its waiters. They are one snapshot, taken when the iteration begins. ctx ends the
// iteration with an error. It fails as [Backend.Inspect] does.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(driver.Entry{}, &driver.Error{Err: err})
			return
		}
		var entries []driver.Entry
		var err error
		if b.faulty.Load() {
			entries, err = b.line.list(ctx, prefix)
		} else {
			entries, err = b.list(prefix)
		}
		if err != nil {
			yield(driver.Entry{}, err)
			return
		}
		driver.Answered(ctx)
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				yield(driver.Entry{}, &driver.Error{Err: err})
				return
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

func (b *Backend) list(prefix string) ([]driver.Entry, error) {
	now := clock.Now()
	m := b.memory
	m.mu.Lock()
	defer m.unlock()
	if b.closed {
		return nil, errClosed()
	}
	var entries []driver.Entry
	for key, e := range m.keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if m.settle(key, e, now, ""); !e.free() {
			entries = append(entries, e.entry(key, now))
		}
	}
	return entries, nil
}

// Inspect describes one key with its waiters. It fails with ErrUnavailable when ctx has ended and
// after Close. ErrUnknown comes only from [Faults].
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	if err := ctx.Err(); err != nil {
		return driver.Entry{}, &driver.Error{Err: err}
	}
	if b.faulty.Load() {
		return b.line.inspect(ctx, key)
	}
	return b.inspect(key)
}

func (b *Backend) inspect(key string) (driver.Entry, error) {
	now := clock.Now()
	m := b.memory
	m.mu.Lock()
	defer m.unlock()
	if b.closed {
		return driver.Entry{}, errClosed()
	}
	entry := driver.Entry{Key: key}
	e := m.keys[key]
	if e == nil {
		return entry, nil
	}
	m.settle(key, e, now, "")
	entry = e.entry(key, now)
	if e.queue != nil {
		for _, w := range e.queue.waiters {
			if now < w.until {
				entry.Waiters = append(entry.Waiters,
					driver.Party{Owner: w.owner, ExpiresIn: w.until.Sub(now)})
			}
		}
	}
	return entry, nil
}

// entry describes the key without its waiters.
func (e *entry) entry(key string, now clock.Instant) driver.Entry {
	entry := driver.Entry{Key: key}
	for _, s := range e.sharers {
		entry.Sharers = append(entry.Sharers,
			driver.Party{Owner: s.owner, Token: s.token, ExpiresIn: s.expires.Sub(now)})
	}
	if !e.shared() && e.owner != "" {
		entry.Holder = driver.Party{Owner: e.owner, Token: e.token, ExpiresIn: e.expires.Sub(now)}
	}
	return entry
}
