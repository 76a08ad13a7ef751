package withcertmagic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
)

// Storage is a storage with the locks of Holdfast. Make it with [New]. It is safe for concurrent
// use if the storage that it wraps is.
type Storage struct {
	certmagic.Storage // all but locks

	locker  *holdfast.Locker
	lock    []holdfast.AcquireOption
	onError func(name string, err error)

	mu   sync.Mutex
	held map[string][]*holdfast.Lock // by name; several while a lost lock is not unlocked yet
}

var _ interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
} = (*Storage)(nil)

// Option sets an option of a [Storage].
type Option interface{ apply(*Storage) }

type option func(*Storage)

func (f option) apply(s *Storage) { f(s) }

// WithLockOptions sets options of the locks, for example holdfast.WithTTL. Default: those of the
// Locker.
func WithLockOptions(options ...holdfast.AcquireOption) Option {
	return option(func(s *Storage) { s.lock = append(s.lock, options...) })
}

// WithOnError has f called when a lock was lost before it was unlocked (a [*holdfast.LostError]),
// at the loss, on a goroutine of its own. Default, also with a nil f: the loss is logged as a
// warning with slog.Default.
func WithOnError(f func(name string, err error)) Option {
	return option(func(s *Storage) { s.onError = f })
}

// New returns a Storage that keeps everything but its locks in storage. It fails with
// holdfast.ErrInvalid if locker, storage or an option is nil.
func New(locker *holdfast.Locker, storage certmagic.Storage, options ...Option) (*Storage, error) {
	switch {
	case locker == nil:
		return nil, invalid("locker is nil: make one with holdfast.New")
	case storage == nil:
		return nil, invalid("storage is nil: certificates have to be kept somewhere")
	}
	s := &Storage{Storage: storage, locker: locker, held: make(map[string][]*holdfast.Lock)}
	for i, o := range options {
		if o == nil {
			return nil, invalid("option %d is nil: leave it out", i+1)
		}
		o.apply(s)
	}
	for i, o := range s.lock {
		if o == nil {
			return nil, invalid("lock option %d is nil: leave it out", i+1)
		}
	}
	if s.onError == nil {
		s.onError = func(name string, err error) {
			slog.Default().LogAttrs(context.Background(), slog.LevelWarn, err.Error(),
				slog.String("lock", name))
		}
	}
	return s, nil
}

// String returns what the storage that it wraps says of itself if that is a fmt.Stringer, else its
// type. Without it, logs of certmagic would have all exported fields of that storage, also a
// password that its own String leaves out.
func (s *Storage) String() string {
	if storage, ok := s.Storage.(fmt.Stringer); ok {
		return storage.String()
	}
	return fmt.Sprintf("%T", s.Storage)
}

// Lock waits for the lock of that name until ctx ends. It fails with the errors of
// [holdfast.Locker.Acquire].
func (s *Storage) Lock(ctx context.Context, name string) error {
	lock, err := s.locker.Acquire(ctx, name, s.lock...)
	if err != nil {
		return err
	}
	s.keep(name, lock)
	return nil
}

// TryLock acquires the lock of that name if nobody has it, and reports whether it did. It fails
// with the errors of [holdfast.Locker.TryAcquire].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lock, err := s.locker.TryAcquire(ctx, name, s.lock...)
	switch err.(type) { // not errors.Is: the cause of ctx may be that another lock is held
	case nil:
		s.keep(name, lock)
		return true, nil
	case *holdfast.HeldError:
		return false, nil
	}
	return false, err
}

func (s *Storage) keep(name string, lock *holdfast.Lock) {
	s.mu.Lock()
	s.held[name] = append(s.held[name], lock)
	s.mu.Unlock()
	context.AfterFunc(lock.Context(context.Background()), func() {
		if err := lock.Err(); errors.Is(err, holdfast.ErrLost) {
			s.onError(name, err)
		}
	})
}

// Unlock releases the lock of that name. If the lock was lost before, there is nothing to release,
// and Unlock returns nil. Unlock fails if nothing is locked, and with holdfast.ErrUnavailable,
// holdfast.ErrUnknown or the error of ctx if the release is not confirmed: it then goes on in the
// background.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	// If there are several, this takes one that was lost. Then the caller that has the other one
	// releases it later than it could.
	s.mu.Lock()
	lock := s.takeLocked(name)
	s.mu.Unlock()
	if lock == nil {
		return fmt.Errorf("withcertmagic: unlock %q: nothing is locked", name)
	}
	err := lock.Release(ctx)
	if _, lost := err.(*holdfast.LostError); lost { // not errors.As, as in TryLock
		return nil
	}
	return err
}

// takeLocked takes a lock of that name out, and returns it; nil if there is none. It takes one that
// has ended, if there is one: so nobody's lock ends too soon. The caller has the mutex.
func (s *Storage) takeLocked(name string) *holdfast.Lock {
	locks := s.held[name]
	if len(locks) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(locks, func(l *holdfast.Lock) bool { return l.Err() != nil }))
	lock := locks[i]
	if s.held[name] = slices.Delete(locks, i, i+1); len(locks) == 1 {
		delete(s.held, name)
	}
	return lock
}

// RenewLockLease makes sure that the lock of that name is held. Locks are renewed by themselves, so
// the duration is not used. If the lock was lost, RenewLockLease waits for it anew, until ctx ends.
// If it has ended at its maximum hold, RenewLockLease releases the key before that. certmagic calls
// it before each attempt, and then looks whether the attempt is still needed. If another goroutine
// of the process has the lock already, it does not wait: it cannot tell the two apart. It fails
// with the errors of [holdfast.Locker.Acquire], and if nothing is locked.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	for _, lock := range s.held[name] {
		if lock.Err() == nil {
			s.mu.Unlock()
			return nil
		}
	}
	// The new lock takes the place of the lost one, because there will be one Unlock for both. The
	// lost one is taken out before the wait: another goroutine may have the lock meanwhile, and its
	// Unlock must not take the lost one.
	lost := s.takeLocked(name)
	s.mu.Unlock()
	if lost == nil {
		return fmt.Errorf("withcertmagic: renew %q: nothing is locked", name)
	}
	locked := false
	defer func() {
		if !locked { // also if ctx or the backend panics
			s.mu.Lock()
			s.held[name] = append(s.held[name], lost)
			s.mu.Unlock()
		}
	}()
	// Of a lock that was lost, nothing is left to release. But after a maximum hold, the key is
	// taken until that or until the lease is over.
	lost.Release(ctx)
	err := s.Lock(ctx, name)
	locked = err == nil
	return err
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withcertmagic: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
