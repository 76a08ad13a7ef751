package zkhold

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect describes one key with its waiters. It does not tell what remains of leases, because only
// the process that holds a key knows. ctx and [WithTimeout] bound the call. It fails with
// ErrUnavailable.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	var entry driver.Entry
	err := b.watching(ctx, func() error {
		if err := b.sync(b.root); err != nil {
			return readFailed(err)
		}
		found, err := b.entries(b.slotOf(key), true)
		for _, e := range found {
			if e.Key == key {
				entry = e
			}
		}
		return err
	})
	if err != nil {
		return driver.Entry{}, err
	}
	entry.Key = key
	return entry, nil
}

// watching runs f, which only reads, until ctx or the timeout ends.
func (b *Backend) watching(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return cutOff(false, err)
	}
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	var failed error
	if err := b.await(limited, func() { failed = f() }); err != nil {
		if limited.Err() != nil {
			return cutOff(false, limited.Err())
		}
		return err
	}
	return b.ours(failed)
}

// entries describes the keys of a slot that are held or waited for, in the order of bytes. See read
// for sure.
func (b *Backend) entries(name string, sure bool) ([]driver.Entry, error) {
	s, err := b.read(b.slotPath(name), sure)
	if s == nil || err != nil {
		return nil, err
	}
	nodes := b.names()
	var found []driver.Entry
	for _, escaped := range slices.Collect(maps.Keys(s.Locks)) {
		key := unescape(escaped)
		p := newPlan(s, key, b.dead(key, nodes), nodes)
		if len(p.Holders)+len(p.Waiters) > 0 {
			found = append(found, entryOf(key, p.lock))
		}
	}
	slices.SortFunc(found, func(x, y driver.Entry) int { return strings.Compare(x.Key, y.Key) })
	return found, nil
}

func entryOf(key string, l *lock) driver.Entry {
	e := driver.Entry{Key: key}
	for _, h := range byLease(l.Holders) {
		party := driver.Party{Owner: unescape(h.Owner), Token: driver.Token(h.Token)}
		if h.Shared {
			e.Sharers = append(e.Sharers, party)
		} else {
			e.Holder = party
		}
	}
	for _, w := range l.Waiters {
		e.Waiters = append(e.Waiters, driver.Party{Owner: unescape(w.Owner)})
	}
	return e
}
