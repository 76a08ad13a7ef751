package withfiber

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

type config struct {
	ctx     context.Context
	lock    []holdfast.AcquireOption
	onError func(key string, err error)
}

// Option sets an option of a Locker.
type Option interface{ apply(*config) }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// WithContext sets a context that ends all waiting, for example when a server shuts down. Default
// context.Background.
func WithContext(ctx context.Context) Option {
	return option(func(c *config) { c.ctx = ctx })
}

// WithLockOptions sets options of the locks, for example holdfast.WithTTL. Default: those of the
// holdfast.Locker. The locks are exclusive in any case.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(c *config) { c.lock = append(c.lock, options...) })
}

// WithOnError has f called with the idempotency key and a [*holdfast.LostError] when a lock is lost
// while its handler runs. Calls may come from several goroutines at once. Default, also with a nil
// f: the loss is logged as a warning with slog.Default, without the key, which may be a secret.
func WithOnError(f func(key string, err error)) Option {
	return option(func(c *config) { c.onError = f })
}

// Locker is what idempotency.Config.Lock takes, of fiber v3 and v2. Make it with [New]. It is safe
// for concurrent use.
type Locker struct {
	config
	locker *holdfast.Locker
	wait   time.Duration

	mu sync.Mutex
	// held has the locks of each key. All but one are lost: their handlers have not returned. That
	// one need not be the last: a request may be stopped between its grant and its entry here.
	held map[string][]*holdfast.Lock
}

// New returns a Locker. A request waits for wait at most until another one with its key is done; 0
// means not at all. If the backend does not answer, it fails up to 5 s later. New fails with
// holdfast.ErrInvalid if locker is nil, wait is negative, or an option is nil.
func New(locker *holdfast.Locker, wait time.Duration, options ...Option) (*Locker, error) {
	switch {
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	case wait < 0:
		return nil, invalid("wait of %v: must not be negative", wait)
	}
	l := &Locker{config: config{ctx: context.Background()}, locker: locker, wait: wait,
		held: make(map[string][]*holdfast.Lock)}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(&l.config)
	}
	for i, o := range l.lock {
		if o == nil {
			return nil, invalid("lock option %d is nil: leave it out", i+1)
		}
	}
	if l.ctx == nil {
		return nil, invalid("context is nil: leave WithContext out")
	}
	if l.onError == nil {
		l.onError = func(_ string, err error) {
			var lost *holdfast.LostError
			if errors.As(err, &lost) {
				err = lost.Reason
			}
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn,
				"withfiber: the lock of a request was lost", slog.Any("cause", err))
		}
	}
	l.lock = append(l.lock, holdfast.WithExclusive())
	return l, nil
}

// Lock acquires the lock of an idempotency key. It fails with
//   - a [*holdfast.HeldError] if another request has it after the wait;
//   - holdfast.ErrUnavailable or holdfast.ErrUnknown if the backend does not answer;
//   - holdfast.ErrInvalid for a key that Holdfast does not allow, as one of more than 1,024 bytes;
//   - holdfast.ErrClosed if the holdfast.Locker is closed;
//   - the error and the cause of the context of [WithContext].
//
// The text of errors leaves out the key and who has it, because fiber.DefaultErrorHandler sends the
// text to the client. errors.As finds what is wrapped.
func (l *Locker) Lock(key string) error {
	key = strings.Clone(key) // fiber reuses the memory of requests
	lock, err := l.acquire(key)
	if err != nil {
		return l.hide(err)
	}
	context.AfterFunc(lock.Context(context.Background()), func() {
		err := lock.Err()
		if errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrClosed) {
			l.onError(key, err)
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[key] = append(l.held[key], lock)
	return nil
}

// errWaited is why a wait has ended.
var errWaited = errors.New("withfiber: the wait is over")

func (l *Locker) acquire(key string) (lock *holdfast.Lock, err error) {
	if l.wait == 0 {
		return l.locker.TryAcquire(l.ctx, key, l.lock...)
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.wait, errWaited)
	defer func() {
		kept := false
		defer func() {
			if !kept && lock != nil { // the context of WithContext panics
				lock.Release(context.Background())
			}
		}()
		cancel()
		kept = true
	}()
	lock, err = l.locker.Acquire(ctx, key, l.lock...)
	if !errors.Is(err, errWaited) {
		return lock, err
	}
	// TryAcquire is called for its error, which says who has the lock.
	return l.locker.TryAcquire(l.ctx, key, l.lock...)
}

// Unlock releases the lock of an idempotency key. After a loss it fails with a
// [*holdfast.LostError]. If the release is not confirmed, it fails as holdfast.Lock.Release does.
// For a key that is not locked, or whose lock the handler has released, it does nothing.
func (l *Locker) Unlock(key string) error {
	for {
		locks := l.of(key)
		if len(locks) == 0 {
			return nil
		}
		// It is not known which handler has ended. Of several locks one that is lost is taken, so
		// no held lock is released too soon. But a lock may stay held until a handler returns that
		// has lost another one.
		ended := func(lock *holdfast.Lock) bool { return lock.Err() != nil }
		lock := locks[max(0, slices.IndexFunc(locks, ended))]
		if l.forget(key, lock) { // else another Unlock has taken it meanwhile
			err := lock.Release(context.WithoutCancel(l.ctx))
			if errors.Is(err, holdfast.ErrReleased) {
				return nil // the handler has released what Held returned
			}
			return l.hide(err)
		}
	}
}

// of returns the locks of a key. They are asked without the mutex of all keys, because a lock may
// call contexts of the caller's own kind.
func (l *Locker) of(key string) []*holdfast.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.held[key])
}

// forget takes a lock out, and reports whether it was there.
func (l *Locker) forget(key string, lock *holdfast.Lock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	locks := l.held[key]
	i := slices.Index(locks, lock)
	switch {
	case i < 0:
		return false
	case len(locks) == 1:
		delete(l.held, key)
	default:
		l.held[strings.Clone(key)] = slices.Delete(locks, i, i+1)
	}
	return true
}

// hidden is an error without its text. The text names the key and hosts of the fleet, and fiber
// answers clients with the text and does not log keys.
type hidden struct {
	text string
	err  error
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.err }

func (l *Locker) hide(err error) error {
	// Not errors.Is: the cause of the context may be that another lock is held or was lost.
	switch err.(type) {
	case nil:
		return nil
	case *holdfast.HeldError:
		return &hidden{"withfiber: another request with this key is under way", err}
	case *holdfast.LostError:
		return &hidden{"withfiber: the lock was lost while the handler ran", err}
	}
	ended := l.ctx.Err()
	if ended != nil && errors.Is(err, ended) || errors.Is(err, holdfast.ErrClosed) {
		return &hidden{"withfiber: the server gives out no more locks", err}
	}
	return &hidden{"withfiber: the backend of the locks does not answer, or refuses the key", err}
}

// Held returns the lock of an idempotency key, for the handler of the request that has it. The lock
// has a context and a fencing token. Call Held when the handler begins: once the lock is lost,
// another request of this process may have a lock on the same key.
//
// Held returns nil for a key that is not locked. A client makes that happen: the middleware passes
// a request without the header on, without a lock. So a handler has to look.
func (l *Locker) Held(key string) *holdfast.Lock {
	var last *holdfast.Lock
	for _, lock := range l.of(key) {
		if last = lock; lock.Err() == nil {
			break
		}
	}
	return last
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withfiber: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
