package zkhold

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect describes one key with its waiters. It does not tell what remains of leases: only the
// process that holds a key knows. It fails with ErrUnavailable.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	var entry driver.Entry
	err := b.watching(ctx, func() error {
		if err := b.sync(b.root); err != nil {
			return readFailed(err)
		}
		found, err := b.entries(slotOf(key))
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

// watching runs what only reads, until ctx or the timeout ends.
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

// entries describes the keys of a slot that are held or waited for, in the order of bytes.
func (b *Backend) entries(name string) ([]driver.Entry, error) {
	s, err := b.read(b.slotPath(name))
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

// List yields every key that is held or waited for and begins with prefix, without its waiters, in
// no order. It reads one slot after the other, so the whole is no snapshot. It fails as
// [Backend.Inspect] does; the timeout is for each slot.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		var all []string
		err := b.watching(ctx, func() (err error) {
			all, err = b.slotNames()
			return err
		})
		if err != nil {
			yield(driver.Entry{}, err)
			return
		}
		for _, name := range all {
			var found []driver.Entry
			err := b.watching(ctx, func() (err error) {
				found, err = b.entries(name)
				return err
			})
			if err != nil {
				yield(driver.Entry{}, err)
				return
			}
			for _, e := range found {
				e.Waiters = nil
				if strings.HasPrefix(e.Key, prefix) && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// slotNames returns the names of the slots that there are.
func (b *Backend) slotNames() ([]string, error) {
	if err := b.sync(b.root); err != nil {
		return nil, readFailed(err)
	}
	names, _, err := b.client.Children(b.slotsPath())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, readFailed(err)
	}
	return names, nil
}
