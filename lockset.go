package holdfast

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// LockSet is several locks that were acquired together, by [Locker.AcquireAll]. It ends when the
// first of its locks ends. It is never reused. All methods are safe for concurrent use.
type LockSet struct {
	set   *heldSet
	locks []*Lock // those of set, or handles on them; see Lock.newHandle
}

// Locks returns the locks in the order in which the caller named the keys. A key that was named
// twice has the place where it was named first. The caller may change the slice. Releasing one of
// the locks ends the set.
func (s *LockSet) Locks() []*Lock { return slices.Clone(s.locks) }

// Lock returns the lock on the key, or nil if the set has no such key.
func (s *LockSet) Lock(key string) *Lock {
	if i, ok := s.set.find(key); ok {
		return s.locks[i]
	}
	return nil
}

// Token returns the fencing token of the lock on the key, or 0 if the set has no such key. Each key
// has a Token of its own: with a write, send the Token of the key that guards what is written.
func (s *LockSet) Token(key string) Token {
	if lock := s.set.lock(key); lock != nil {
		return lock.token
	}
	return 0
}

// Deadline returns the earliest deadline of the locks: until then all of them are valid if no
// further renewal succeeds. After the set has ended, Deadline returns a time that is not in the
// future.
func (s *LockSet) Deadline() time.Time {
	if s.set.reason() != nil { // its locks may not have ended yet
		return clock.Time(clock.Now())
	}
	earliest := s.locks[0].Deadline()
	for _, lock := range s.locks[1:] {
		if d := lock.Deadline(); d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Done returns a channel that is closed when the set ends, by Release or when the first of its
// locks is lost. After a loss the channel is closed as early as that of [Lock.Done] is. The other
// locks stay held until Release.
func (s *LockSet) Done() <-chan struct{} { return s.set.ended() }

// Err returns nil while all locks are held. It returns an error that wraps ErrReleased after
// Release, and the [*LostError] of the first lock that was lost after a loss. If one of the locks
// was released by itself, the error wraps ErrReleased and names its key. Err reads the clock, so
// nil means that all locks were valid when it was called.
func (s *LockSet) Err() error {
	g := s.set
	for i := 0; g.reason() == nil && i < len(g.locks); i++ {
		if err := g.locks[i].Err(); err != nil {
			g.end(err) // its own way there may take a moment longer
		}
	}
	return g.reason()
}

// Context returns a context that is derived from parent and ends when parent ends or the set ends.
// After the end of the set, context.Cause returns what [LockSet.Err] returns. There is nothing to
// cancel: the context's resources are freed when it ends. Context panics if parent is nil.
//
// The context carries all locks of the set: acquiring keys of the set with it gives nested locks.
// What [Lock.Context] says about goroutines that share a context applies here too.
func (s *LockSet) Context(parent context.Context) context.Context { return s.set.context(parent) }

// Extend renews all leases now, in parallel, each to the full TTL. ctx bounds the wait for the
// backend.
//
// If the set has ended, or ends meanwhile, Extend fails with the error that Err returns. If ctx is
// nil, it fails with ErrInvalid. If the backend does not answer for some of the leases, Extend
// joins an error for each of them: ErrUnavailable, ErrUnknown or the error of ctx. Their locks are
// still held, as after [Lock.Extend].
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

// Release ends the set and releases all of its locks, in parallel. Whatever it returns, Done is
// closed, and the set's contexts are cancelled with ErrReleased as the cause.
//
// Release returns nil if all locks were held until now, and an error that wraps ErrReleased if the
// set was released before. Otherwise it joins the errors that [Lock.Release] returns for each lock:
// a [*LostError] if the lock was lost before, or ErrUnavailable, ErrUnknown or the error of ctx if
// the backend has not confirmed the release, which then goes on in the background. If a lock is
// nested, Release ends only the nested lock.
//
// ctx bounds the wait, not the release. A nil ctx means context.Background(). A context that comes
// from the set or from one of its locks, and ends with it, does not end the wait.
func (s *LockSet) Release(ctx context.Context) error {
	g := s.set
	if ctx == nil {
		ctx = context.Background()
	}
	if !g.release() {
		g.end((*releasedSet)(g)) // another goroutine may not have ended everything yet
		return (*releasedSet)(g)
	}
	errs := make([]error, len(s.locks))
	func() {
		// Deferred, so that a context that panics keeps no lock from being released.
		defer sideBySide(len(s.locks), func(i int) { errs[i] = s.locks[i].Release(ctx) })
		defer g.end((*releasedSet)(g))
		if g.carriedBy(ctx) {
			ctx = context.WithoutCancel(ctx)
		}
	}()
	for _, err := range errs {
		// Not errors.As: the cause of ctx may be the loss of a lock outside of the set.
		if lost, ok := err.(*LostError); ok {
			g.foundLost(lost)
			break
		}
	}
	return joined(errs)
}

// String describes the set for logs.
func (s *LockSet) String() string { return "locks on " + s.set.names() }

// joined joins errs without its nils. It returns nil if there is no error, and a single error as it
// is.
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

// quoted returns a text for errors that names a few of the keys, and says how many more there are.
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
