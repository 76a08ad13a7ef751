//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

func (c *core) list(ctx context.Context, prefix string) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		if err := c.usable(ctx); err != nil {
			yield(driver.Entry{}, err)
			return
		}
		names, err := namesIn(c.dir.keys)
		if err != nil {
			yield(driver.Entry{}, c.failed(err))
			return
		}
		v := viewer{core: c, lives: make(map[memberID]bool)}
		for _, name := range names {
			if !isKeyName(name) {
				continue
			}
			if err := c.usable(ctx); err != nil {
				yield(driver.Entry{}, err)
				return
			}
			r, err := v.read(name)
			if err != nil {
				yield(driver.Entry{}, c.failed(err))
				return
			}
			if !strings.HasPrefix(r.key, prefix) {
				continue
			}
			entry := v.entry(&r)
			if entry.Holder.Owner == "" && len(entry.Waiters) == 0 {
				continue
			}
			entry.Waiters = nil
			if !yield(entry, nil) {
				return
			}
		}
	}
}

func (c *core) inspect(ctx context.Context, key string) (driver.Entry, error) {
	if err := c.usable(ctx); err != nil {
		return driver.Entry{}, err
	}
	if _, err := identify(c.dir.keys); err != nil {
		return driver.Entry{}, c.failed(err)
	}
	v := viewer{core: c, lives: make(map[memberID]bool)}
	r, err := v.read(keyName(key))
	if err != nil {
		return driver.Entry{}, c.failed(err)
	}
	r.key = key
	return v.entry(&r), nil
}

// viewer reads keys without the mutex, to show them.
type viewer struct {
	*core
	lives map[memberID]bool
	buf   [2 * keyPlace]byte
}

// read returns the record of a key's file, or an empty one. The file may be written at the same time: then at
// most one of its two records is torn, unless it is written again while it is read.
func (v *viewer) read(name string) (r record, err error) {
	path := v.dir.keys + name
	for range 10 {
		r, err = v.readOnce(path)
		if !errors.Is(err, errDamaged) {
			break
		}
	}
	if errors.Is(err, errDamaged) {
		err = damaged(path)
	}
	return r, err
}

func (v *viewer) readOnce(path string) (record, error) {
	k := keyFile{path: path}
	var err error
	k.fd, err = openFile(path, syscall.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	defer k.close()
	payload, err := k.read(v.buf[:])
	if err != nil || payload == nil {
		// Without a payload the file is just being made, or whoever made it was killed before it had the key.
		return record{}, err
	}
	return decodeRecord(payload)
}

func (v *viewer) living(id memberID) bool {
	lives, known := v.lives[id]
	if !known {
		lives = v.dir.living(id)
		v.lives[id] = lives
	}
	return lives
}

// entry shows those of a record who are alive.
func (v *viewer) entry(r *record) driver.Entry {
	now := clock.SinceBoot()
	entry := driver.Entry{Key: r.key}
	if h := r.holder; h != nil && now < h.until && v.living(h.member) {
		entry.Holder = driver.Party{Owner: h.owner, Token: driver.Token(h.token), ExpiresIn: h.until - now}
	}
	for _, w := range r.queue {
		if now < w.until && v.living(w.member) {
			entry.Waiters = append(entry.Waiters, driver.Party{Owner: w.owner, ExpiresIn: w.until - now})
		}
	}
	return entry
}
