package withmigrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast"
)

// DefaultWait is how long a process waits for the lock: ten seconds, which is less than
// migrate.DefaultLockTimeout.
const DefaultWait = 10 * time.Second

type config struct {
	lock    []holdfast.AcquireOption
	wait    time.Duration
	both    bool
	onError func(error)
}

// Option sets an option of a driver.
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithLockOptions sets options of the lock, for example holdfast.WithTTL. Default: those of the
// Locker.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithWait sets how long to wait for the lock. It is positive, and shorter than the LockTimeout of
// the migrate.Migrate. Default [DefaultWait].
func WithWait(wait time.Duration) Option { return option(func(c *config) { c.wait = wait }) }

// WithDriverLock also takes the driver's own lock, after that of Holdfast. Use it for as long as
// some processes know only the driver's lock. Default: only the lock of Holdfast is taken.
func WithDriverLock() Option { return option(func(c *config) { c.both = true }) }

// WithOnError has f called when the lock was lost while migrations run (a [*holdfast.LostError]),
// at the loss, on a goroutine of its own. Default, also with a nil f: the loss is logged as an
// error with slog.Default.
func WithOnError(f func(error)) Option { return option(func(c *config) { c.onError = f }) }

// driver is a database driver with another lock.
type driver struct {
	database.Driver
	locker *holdfast.Locker
	key    string
	config config

	mu   sync.Mutex
	lock *holdfast.Lock // nil: not locked
	told bool           // a call has failed with the loss
}

// New returns a driver that is like inner, but takes the lock of that key in place of inner's. The
// key stands for the database, and is the same in all processes. Closing the driver closes inner.
// New fails with holdfast.ErrInvalid if locker or inner is nil, the key is empty, or an option is
// nil or out of range.
func New(locker *holdfast.Locker, key string, inner database.Driver,
	options ...Option) (database.Driver, error) {
	c := config{wait: DefaultWait}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(&c)
	}
	for i, o := range c.lock {
		if o == nil {
			return nil, invalid("lock option %d is nil: leave it out", i+1)
		}
	}
	switch {
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	case inner == nil:
		return nil, invalid("driver is nil: open the database's own first")
	case key == "":
		return nil, invalid("the key is empty: name the database")
	case c.wait <= 0:
		return nil, invalid("wait of %v: must be positive", c.wait)
	}
	if c.onError == nil {
		c.onError = func(err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelError, err.Error())
		}
	}
	return &driver{Driver: inner, locker: locker, key: key, config: c}, nil
}

// Open opens the inner driver for another URL, with the same lock.
func (d *driver) Open(url string) (database.Driver, error) {
	inner, err := d.Driver.Open(url)
	if err != nil {
		return nil, err
	}
	return &driver{Driver: inner, locker: d.locker, key: d.key, config: d.config}, nil
}

// Lock waits for the lock. It fails with database.ErrLocked if others have it for that long, or
// this driver has it.
func (d *driver) Lock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock != nil {
		return database.ErrLocked
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.config.wait)
	defer cancel()
	lock, err := d.locker.Acquire(ctx, d.key, d.config.lock...)
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	case err != nil:
		return err
	}
	kept := false
	defer func() {
		if !kept { // also if inner panics
			lock.Release(context.Background())
		}
	}()
	if d.config.both {
		if err := d.Driver.Lock(); err != nil {
			return err
		}
	}
	kept = true
	d.lock, d.told = lock, false
	context.AfterFunc(lock.Context(context.Background()), func() {
		if err := lock.Err(); errors.Is(err, holdfast.ErrLost) {
			d.config.onError(err)
		}
	})
	return nil
}

// Unlock releases the lock. It fails with a [*holdfast.LostError] if the lock was lost and no call
// has said so before.
func (d *driver) Unlock() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return database.ErrNotLocked
	}
	defer func() { // even if inner panics
		var lost *holdfast.LostError
		if errors.As(d.lock.Release(context.Background()), &lost) && !d.told {
			err = errors.Join(err, lost)
		}
		d.lock = nil
	}()
	if d.config.both {
		return d.Driver.Unlock()
	}
	return nil
}

// Run runs a migration, unless the lock is lost.
func (d *driver) Run(migration io.Reader) error {
	if err := d.lost(); err != nil {
		return err
	}
	return d.Driver.Run(migration)
}

// SetVersion marks the version. A migration that has run is marked as clean even after a loss.
// Until then its dirty mark has kept others out.
func (d *driver) SetVersion(version int, dirty bool) error {
	if dirty {
		if err := d.lost(); err != nil {
			return err
		}
	}
	return d.Driver.SetVersion(version, dirty)
}

// Drop drops everything, unless the lock is lost.
func (d *driver) Drop() error {
	if err := d.lost(); err != nil {
		return err
	}
	return d.Driver.Drop()
}

// lost returns the loss of the lock, if it was locked and lost.
func (d *driver) lost() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	err := d.lock.Err()
	d.told = d.told || err != nil
	return err
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withmigrate: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
