package withgoose

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast"
)

// Locker puts a lock around migrations. It is a lock.Locker of goose, for goose.WithLocker. Make it
// with [New]. It is safe for concurrent use; Providers that share one migrate one after the other.
type Locker struct {
	locker  *holdfast.Locker
	key     string
	lock    []holdfast.AcquireOption
	onError func(error)

	turn chan struct{}       // has an element from before Lock acquires until Unlock has released
	held chan *holdfast.Lock // has the lock between the two
}

var _ lock.Locker = (*Locker)(nil)

// errNotLocked is for an Unlock without a Lock.
var errNotLocked = errors.New("nothing is locked")

// Option sets an option of a [Locker].
type Option interface{ apply(*Locker) }

type option func(*Locker)

func (f option) apply(l *Locker) { f(l) }

// WithLockOptions sets options of the lock, for example holdfast.WithTTL. Default: those of the
// holdfast.Locker.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(l *Locker) { l.lock = append(l.lock, options...) })
}

// WithOnError has f called when the lock was lost while migrations run (a [*holdfast.LostError]),
// at the loss, on a goroutine of its own. When they are done, the error of Up has the loss too.
// Default, also with a nil f: the loss is logged as an error with slog.Default.
func WithOnError(f func(error)) Option { return option(func(l *Locker) { l.onError = f }) }

// New returns a Locker for the migrations of one database. The key stands for the database, and is
// the same in all processes. It fails with holdfast.ErrInvalid if locker is nil, the key is empty,
// or an option is nil.
func New(locker *holdfast.Locker, key string, options ...Option) (*Locker, error) {
	l := &Locker{locker: locker, key: key, turn: make(chan struct{}, 1),
		held: make(chan *holdfast.Lock, 1)}
	switch {
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	case key == "":
		return nil, invalid("the key is empty: name the database")
	}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(l)
	}
	for i, o := range l.lock {
		if o == nil {
			return nil, invalid("lock option %d is nil: leave it out", i+1)
		}
	}
	if l.onError == nil {
		l.onError = func(err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelError, err.Error())
		}
	}
	return l, nil
}

type contextKey struct{ *Locker }

// Context returns a context like parent that also ends when the lock is lost; context.Cause then
// returns the [*holdfast.LostError]. The lock is the one that a goose call with this context
// acquires. Call cancel when that call has returned.
func (l *Locker) Context(parent context.Context) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	return context.WithValue(ctx, contextKey{l}, end), func() { end(nil) }
}

// Lock waits for the lock until ctx ends. goose calls it before migrations. It fails with the
// errors of [holdfast.Locker.Acquire]; goose then migrates nothing. db is not used.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	select {
	case l.turn <- struct{}{}: // Unlock does not say which lock it is for, so there is one
	case <-ctx.Done():
		return fmt.Errorf("withgoose: lock %q: %w", l.key, context.Cause(ctx))
	}
	locked := false
	defer func() {
		if !locked { // also if ctx or the backend panics
			<-l.turn
		}
	}()
	// Before there is a lock to release, because ctx may panic.
	end, _ := ctx.Value(contextKey{l}).(context.CancelCauseFunc)
	held, err := l.locker.Acquire(ctx, l.key, l.lock...)
	if err != nil {
		return err
	}
	locked = true
	context.AfterFunc(held.Context(context.Background()), func() {
		if err := held.Err(); errors.Is(err, holdfast.ErrLost) {
			if end != nil {
				end(err)
			}
			l.onError(err)
		}
	})
	l.held <- held
	return nil
}

// Unlock releases the lock. goose calls it after migrations, with a context that does not end, and
// joins its error to theirs. It fails with a [*holdfast.LostError] if the lock was lost before. If
// the release is not confirmed, it goes on in the background, and Unlock returns nil because the
// migrations are done. db is not used.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	select {
	case held := <-l.held:
		defer func() { <-l.turn }() // even if ctx or the backend panics
		var lost *holdfast.LostError
		if errors.As(held.Release(ctx), &lost) {
			return lost
		}
		return nil
	default:
		return fmt.Errorf("withgoose: unlock %q: %w", l.key, errNotLocked)
	}
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withgoose: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
