package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LockSet is the handle on several locks that were acquired together, by [Locker.AcquireAll]. It
// has ended as soon as one of them has. It is never reused. All methods are safe for concurrent
// use.
type LockSet struct {
	set   *heldSet
	locks []*Lock // those of set, or handles on them; see Lock.newHandle
}

// Locks returns the locks, in the order in which the caller named their keys, each key where it was
// named first. The slice is the caller's. To release a lock alone ends the set.
func (s *LockSet) Locks() []*Lock { return slices.Clone(s.locks) }

// Lock returns the lock on the key, or nil if the set has none.
func (s *LockSet) Lock(key string) *Lock {
	if i, ok := s.set.find(key); ok {
		return s.locks[i]
	}
	return nil
}

// Token returns the fencing token of the lock on the key, or 0 if the set has none. Each key has a
// token of its own: send a store the one of the key that guards what is written.
func (s *LockSet) Token(key string) Token {
	if lock := s.set.lock(key); lock != nil {
		return lock.token
	}
	return 0
}

// Deadline returns the earliest of the locks' deadlines: until then all are valid if no further
// renewal succeeds. After the set has ended, Deadline returns no time in the future.
func (s *LockSet) Deadline() time.Time {
	earliest := s.locks[0].Deadline()
	for _, lock := range s.locks[1:] {
		if d := lock.Deadline(); d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Done returns a channel that is closed when the set ends: by Release, or by the first loss of one
// of its locks, in time as that lock's own Done. The other locks stay held until Release.
func (s *LockSet) Done() <-chan struct{} { return s.set.ended() }

// Err returns nil while all locks are held, an error that wraps ErrReleased after Release, and
// after a loss the [*LostError] of the lock that was lost first. It reads the clock, so nil says
// that all locks were valid when it was called. If a lock was released alone, the error wraps
// ErrReleased and names its key.
func (s *LockSet) Err() error {
	g := s.set
	for i := 0; g.reason() == nil && i < len(g.locks); i++ {
		if err := g.locks[i].Err(); err != nil {
			g.end(err) // its own way there may take a moment longer
		}
	}
	return g.reason()
}

// Context returns a context like parent that also ends when the set does, so with the first loss;
// context.Cause then says why, as [LockSet.Err] does. What it needs is freed when either ends.
// Context panics if parent is nil.
//
// It carries all locks of the set: acquiring one or several of the keys with it gives nested locks,
// as with [Lock.Context], and the same holds for goroutines that share it.
func (s *LockSet) Context(parent context.Context) context.Context { return s.set.context(parent) }

// Extend renews all leases now, side by side, each to the full TTL. It fails with what Err says if
// the set has ended, also if it ends meanwhile, and with ErrInvalid if ctx is nil. Otherwise its
// error joins those of the leases for which there was no answer, each ErrUnavailable, ErrUnknown or
// the error of ctx: these locks are still held, until their deadlines. ctx bounds the wait.
func (s *LockSet) Extend(ctx context.Context) error {
	if ctx == nil {
		return invalid("context is nil for %s: use context.Background()", s.set.names())
	}
	if err := s.Err(); err != nil {
		return err
	}
	errs := make([]error, len(s.locks))
	sideBySide(len(s.locks), func(i int) { errs[i] = s.locks[i].Extend(ctx) })
	if err := s.Err(); err != nil {
		return err
	}
	return joined(errs)
}

// Release ends the set, whatever it returns, and releases all of its locks, side by side, whatever
// becomes of each: Done is closed, contexts are cancelled with ErrReleased.
//
// It returns nil if all locks were held until now, and an error that wraps ErrReleased if the set
// was released before. Otherwise its error joins what [Lock.Release] returns for each: a
// [*LostError] for every lock that was lost before; ErrUnavailable, ErrUnknown or the error of ctx
// where the backend has not confirmed, and then the release goes on in the background. ctx bounds
// the wait, not the release. A nil ctx, and a context that comes from the set or one of its locks
// and has not ended by anything else, count as the background context. Nested locks are ended
// alone, and their keys stay with the locks that they are nested in.
func (s *LockSet) Release(ctx context.Context) error {
	g := s.set
	if ctx == nil {
		ctx = context.Background()
	}
	own := g.carriedBy(ctx)
	first, tell := g.release()
	if !first {
		return (*releasedSet)(g)
	}
	if own {
		ctx = context.WithoutCancel(ctx)
	}
	errs := make([]error, len(s.locks))
	func() {
		// Deferred, so that a context that panics as it ends keeps no lock from being released.
		defer sideBySide(len(s.locks), func(i int) { errs[i] = s.locks[i].Release(ctx) })
		tell()
	}()
	for _, err := range errs {
		var lost *LostError
		if errors.As(err, &lost) {
			g.foundLost(lost)
			break
		}
	}
	return joined(errs)
}

// String describes the set for logs.
func (s *LockSet) String() string { return "locks on " + s.set.names() }

// joined returns nil for no errors, a single one as it is, and else all as one.
func joined(errs []error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	default:
		return manyErrors(errs)
	}
}

// quoted names keys in an error: a few of them, and how many there are.
func quoted(keys []string) string {
	const named = 3
	var text strings.Builder
	for i, key := range keys[:min(named, len(keys))] {
		if i > 0 {
			text.WriteString(", ")
		}
		if len(key) > 40 {
			fmt.Fprintf(&text, "%.40q...", key)
		} else {
			text.WriteString(strconv.Quote(key))
		}
	}
	if more := len(keys) - named; more > 0 {
		fmt.Fprintf(&text, " and %d more", more)
	}
	return text.String()
}

// keysError adds the operation and the keys to an error of a context.
func keysError(operation string, keys []string, err error) error {
	return fmt.Errorf("holdfast: %s %s: %w", operation, quoted(keys), err)
}
