//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// List yields every key that is held or waited for and begins with prefix, without its waiters. It
// does not delay acquisitions. It yields an error and stops when ctx ends, after Close, and when
// the directory cannot be read, was removed or was replaced. If one key only cannot be read, it
// yields that error last.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := b.list(ctx, prefix, yield); err != nil {
			yield(driver.Entry{}, b.dir.wrap(err))
		}
	}
}

func (b *Backend) list(ctx context.Context, prefix string,
	yield func(driver.Entry, error) bool) (failure error) {
	if err := b.readable(ctx); err != nil {
		return err
	}
	names, err := b.dir.keyNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.usable(ctx); err != nil {
			return err
		}
		r, err := b.read(name)
		driver.Answered(ctx)
		if err != nil {
			failure = err // of one key: the others come first
			continue
		}
		entry := b.entry(&r)
		if !strings.HasPrefix(r.key, prefix) ||
			entry.Holder.Owner == "" && len(entry.Sharers) == 0 && len(entry.Waiters) == 0 {
			continue
		}
		entry.Waiters = nil
		if !yield(entry, nil) {
			return nil
		}
	}
	return failure
}

// Inspect describes one key with its waiters. ctx is looked at before the call. It fails as
// [Backend.List] does.
func (b *Backend) Inspect(ctx context.Context, key string) (driver.Entry, error) {
	if err := b.readable(ctx); err != nil {
		return driver.Entry{}, b.dir.wrap(err)
	}
	r, err := b.read(keyName(key))
	if err != nil {
		return driver.Entry{}, b.dir.wrap(err)
	}
	r.key = key
	return b.entry(&r), nil
}

// readable fails if the Backend was closed, or its directory is not in place. Another directory
// that is there now has other keys.
func (b *Backend) readable(ctx context.Context) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	return b.member.inPlace()
}

// read returns the record of a key's file, or an empty one. A write during the read may tear one
// place, and two writes may tear both. So read tries again.
func (b *Backend) read(name string) (r record, err error) {
	for range 10 {
		if r, err = b.readOnce(b.dir.keys + name); !errors.Is(err, errDamaged) {
			break
		}
	}
	return r, err
}

func (b *Backend) readOnce(path string) (record, error) {
	// A named pipe in the place of the file would have a look wait for ever.
	fd, err := openFile(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	defer closeFile(fd)
	st, err := statOpen(fd)
	if err != nil {
		return record{}, err
	}
	k := keyFile{path: path, fd: fd, size: st.Size}
	err = k.load(new([]byte))
	return k.record, err
}

// entry shows the claims of a record that are in force.
func (b *Backend) entry(r *record) driver.Entry {
	now := clock.SinceBoot()
	current := func(p *party) bool {
		lives, _ := b.dir.living(p.member)
		return lives && now < p.until
	}
	entry := driver.Entry{Key: r.key}
	slices.SortStableFunc(r.holders, func(a, b *party) int { return cmp.Compare(a.until, b.until) })
	for _, h := range r.holders {
		p := driver.Party{Owner: h.owner, Token: driver.Token(h.token), ExpiresIn: h.until - now}
		switch {
		case !current(h):
		case h.shared:
			entry.Sharers = append(entry.Sharers, p)
		default:
			entry.Holder = p
		}
	}
	for _, w := range r.queue {
		if current(w) {
			entry.Waiters = append(entry.Waiters,
				driver.Party{Owner: w.owner, ExpiresIn: w.until - now})
		}
	}
	return entry
}
