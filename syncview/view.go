package syncview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

type config struct {
	lock    []holdfast.AcquireOption
	onError func(key string, err error)
}

// Option sets an option of a View.
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithLockOptions sets options of the locks, for example holdfast.WithTTL. Default: those of the
// holdfast.Locker. The locks are exclusive in any case.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithOnError has f called with the key and a [*holdfast.LostError] when a lock is lost before
// Unlock, once for each lock, on a goroutine of its own. This includes a lock that ended because
// the holdfast.Locker was closed. Default, also with a nil f: the loss is logged as a warning with
// slog.Default.
func WithOnError(f func(key string, err error)) Option {
	return option(func(c *config) { c.onError = f })
}

// View is a sync.Locker on one key. Make it with [New]. It is safe for concurrent use, and locked
// by one goroutine at a time, which need not be the one that calls Unlock.
type View struct {
	config
	ctx    context.Context
	locker *holdfast.Locker
	key    string

	// turn is full from Lock to Unlock. It keeps goroutines of this View apart even after a loss,
	// so Unlock always means the lock that held has.
	turn chan struct{}

	mu   sync.Mutex
	held *holdfast.Lock
}

// New returns a View of the lock on key. It makes no request. ctx ends all waiting, and says
// nothing about locks that are held. New fails with holdfast.ErrInvalid if ctx or locker is nil, or
// if the key or an option is not allowed. It finds that out by an acquisition whose context has
// ended, which the hooks of locker see as refused.
func New(ctx context.Context, locker *holdfast.Locker, key string, options ...Option) (*View,
	error) {
	switch {
	case ctx == nil:
		return nil, invalid("context is nil: use context.Background()")
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	}
	v := &View{ctx: ctx, locker: locker, key: key, turn: make(chan struct{}, 1)}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(&v.config)
	}
	if v.onError == nil {
		v.onError = func(key string, err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
				"syncview: a lock was lost", slog.String("key", key), slog.Any("cause", err))
		}
	}
	v.lock = append(v.lock, holdfast.WithExclusive())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := locker.TryAcquire(ended, key, v.lock...); errors.Is(err, holdfast.ErrInvalid) {
		return nil, fmt.Errorf("syncview: %w", err)
	}
	return v, nil
}

// Lock waits until it has the lock. If the backend does not answer, it asks again. It panics with
// an error, and has no lock, if that cannot help:
//   - with the error of the context of [New] and its cause, if that has ended;
//   - with holdfast.ErrClosed if the holdfast.Locker was closed;
//   - with holdfast.ErrInvalid if the backend does not allow the lock, such as its TTL.
func (v *View) Lock() {
	if v.ctx.Err() != nil {
		panic(v.ended())
	}
	select {
	case v.turn <- struct{}{}:
	case <-v.ctx.Done():
		panic(v.ended())
	}
	locked := false
	defer func() {
		if !locked { // also if a backend panics
			<-v.turn
		}
	}()
	ctx, cancel := v.waiting()
	defer cancel()
	pause := minPause
	for {
		lock, err := v.locker.Acquire(ctx, v.key, v.lock...)
		switch {
		case err == nil:
			v.hold(lock, cancel)
			locked = true
			return
		case v.ctx.Err() != nil:
			panic(v.ended())
		case !unanswered(err):
			panic(fmt.Errorf("syncview: %w", err))
		}
		sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, maxPause)
	}
}

// TryLock makes one attempt and reports whether it has the lock. Without it, somebody else has the
// lock or the backend has not answered. It panics as Lock does.
func (v *View) TryLock() (locked bool) {
	if v.ctx.Err() != nil {
		panic(v.ended())
	}
	select {
	case v.turn <- struct{}{}:
	default:
		return false
	}
	defer func() {
		if !locked {
			<-v.turn
		}
	}()
	ctx, cancel := v.waiting()
	defer cancel()
	lock, err := v.locker.TryAcquire(ctx, v.key, v.lock...)
	switch {
	case err == nil:
		v.hold(lock, cancel)
		return true
	case v.ctx.Err() != nil:
		panic(v.ended())
	case errors.Is(err, holdfast.ErrHeld) || unanswered(err):
		return false
	}
	panic(fmt.Errorf("syncview: %w", err))
}

// Unlock releases the lock. After a loss it only lets the next goroutine of this View have its
// turn. If the backend does not confirm the release, that goes on in the background, as that of
// holdfast.Lock.Release does. Unlock panics if the View is not locked.
func (v *View) Unlock() {
	v.mu.Lock()
	lock := v.held
	v.held = nil
	v.mu.Unlock()
	if lock == nil {
		panic(fmt.Sprintf("syncview: unlock of %q, which is not locked", v.key))
	}
	<-v.turn // before the release, which can then hand the key over in memory
	lock.Release(context.Background())
}

// Held returns the lock, from Lock to Unlock, also after a loss. It has a context that ends with
// the lock, and a fencing token. At other times it returns nil. Leave its release to Unlock.
func (v *View) Held() *holdfast.Lock {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.held
}

// hold keeps the lock, and calls over, which ends the context that waited for it. If the context of
// New panics there, nobody has the lock.
func (v *View) hold(lock *holdfast.Lock, over func()) {
	kept := false
	defer func() {
		if !kept {
			lock.Release(context.Background())
		}
	}()
	over()
	kept = true
	v.mu.Lock()
	v.held = lock
	v.mu.Unlock()
	context.AfterFunc(lock.Context(context.Background()), func() {
		if err := lock.Err(); errors.Is(err, holdfast.ErrLost) {
			v.onError(v.key, err)
		}
	})
}

// waiting returns a context that ends with that of New and has none of its values: with those of a
// lock on the key, each acquisition would be nested and exclude nobody.
func (v *View) waiting() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(v.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ended returns the error of the context of New, with its cause.
func (v *View) ended() error {
	err, cause := v.ctx.Err(), context.Cause(v.ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("syncview: lock %q: %w", v.key, cause)
	}
	return fmt.Errorf("syncview: lock %q: %w: %w", v.key, err, cause)
}

// Pauses after attempts without an answer double from minPause to maxPause.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

func sleep(ctx context.Context, d time.Duration) {
	timed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-timed.Done()
}

func unanswered(err error) bool {
	return errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUnknown)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("syncview: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
