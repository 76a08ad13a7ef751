package redsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Mutex is a lock on one key. Make it with [Redsync.NewMutex]. It may be locked again after it was
// unlocked or lost. It is safe for concurrent use, but it is one lock: if a goroutine locks it
// while another goroutine has it, the first waits for the other, and then has it.
//
// Each Lock needs an Unlock, also when the lock was lost: an Unlock that comes late ends no lock
// that a goroutine of the same Mutex has acquired since.
//
// The lock is not renewed (but see [WithRenewal]): it ends with its expiry unless it is extended.
type Mutex struct {
	redsync *Redsync
	name    string

	expiry        time.Duration
	tries         int
	delayFunc     DelayFunc
	genValueFunc  func() (string, error)
	driftFactor   float64
	timeoutFactor float64
	setNXOnExtend bool
	renew         bool
	queue         bool

	mu    sync.Mutex
	value string    // of WithValue
	until time.Time // of an Extend by that value
	// locks are those that are not unlocked yet. All but one, and what is nested in it, are lost.
	// That one need not be the last: a goroutine may be stopped between its grant and got.
	locks []*hold
	last  *hold // the last one that was unlocked; nil: none
}

// hold is a lock that was acquired.
type hold struct {
	lock  *holdfast.Lock
	value string
	until time.Time // the Mutex's mu guards it
}

// errQueued is why a wait in the queue has ended.
var errQueued = errors.New("redsync: held by others for as long as the tries take")

// Name returns the name, which is the key in Redis.
func (m *Mutex) Name() string { return m.name }

// Value returns the value of the last acquisition, or that of [WithValue]; "" if there is none.
func (m *Mutex) Value() string {
	if h := m.current(); h != nil {
		return h.value
	}
	return m.value
}

// Until returns the time until which the lock is valid, as of the last Lock or Extend, or with
// [WithRenewal] as of now. It is zero before the first Lock.
func (m *Mutex) Until() time.Time {
	h := m.current()
	renewed := h != nil && m.renew && h.lock.Err() == nil
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case h == nil:
		return m.until
	case renewed:
		h.until = h.lock.Deadline()
	}
	return h.until
}

// Held returns the lock of the last acquisition, which may have ended since, or nil if there was
// none. It has the fencing token, and tells of a loss: by Done, Err and Context. Use [Mutex.Unlock]
// to release it. The old library has no such method.
func (m *Mutex) Held() *holdfast.Lock {
	if h := m.current(); h != nil {
		return h.lock
	}
	return nil
}

// current returns the last lock that is held; if none is, the last one; nil if there was none.
func (m *Mutex) current() *hold {
	locks, last := m.holds()
	for _, h := range slices.Backward(locks) {
		if !h.endedAmong(locks) {
			return h
		}
	}
	if len(locks) > 0 {
		return locks[len(locks)-1]
	}
	return last
}

// endedAmong reports whether the lock has ended. If another one has a larger token, that was
// granted after the end of this one, also if this process has not heard of the end. A nested lock
// has the token of the outer one.
func (h *hold) endedAmong(locks []*hold) bool {
	return h.lock.Err() != nil || slices.ContainsFunc(locks, func(other *hold) bool {
		return other.lock.Token() > h.lock.Token()
	})
}

// holds returns a copy of the locks, because Err may call a context of the caller's own kind, which
// may call the Mutex: so Err is never called while mu is held.
func (m *Mutex) holds() (locks []*hold, last *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.locks), m.last
}

// take returns the lock that an Unlock is about, nil if there was none. It is not known which
// goroutine calls. Of several locks one that has ended is taken, so no held lock is released too
// soon; otherwise the innermost.
func (m *Mutex) take() *hold {
	for {
		locks, last := m.holds()
		if len(locks) == 0 {
			return last
		}
		h := locks[len(locks)-1]
		i := slices.IndexFunc(locks, func(h *hold) bool { return h.endedAmong(locks) })
		if i >= 0 {
			h = locks[i]
		}
		if m.remove(h) {
			return h
		}
	}
}

// remove reports whether h was not unlocked before.
func (m *Mutex) remove(h *hold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.locks, h)
	if i < 0 {
		return false
	}
	m.locks, m.last = slices.Delete(m.locks, i, i+1), h
	return true
}

// TryLock is [Mutex.TryLockContext] with the background context.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext is [Mutex.LockContext] with a single try.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lockContext(ctx, 1) }

// Lock is [Mutex.LockContext] with the background context.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext acquires the lock, with as many tries as [WithTries] says. It fails with
//   - a [*ErrTaken] if another had it at the last try, and a [*RedisError] if the only server did
//     not answer;
//   - [ErrFailed] if a majority of several did not, or ctx has ended; its cause is wrapped;
//   - the error of [WithGenValueFunc];
//   - holdfast.ErrInvalid for an argument or option that is not allowed;
//   - holdfast.ErrClosed after [Redsync.Close].
//
// A nil ctx counts as the background context.
func (m *Mutex) LockContext(ctx context.Context) error { return m.lockContext(ctx, m.tries) }

func (m *Mutex) lockContext(ctx context.Context, tries int) error {
	ctx = or(ctx)
	s, err := m.redsync.site(ctx, m)
	if err != nil {
		return err
	}
	value, err := m.genValueFunc()
	if err != nil {
		return err
	}
	if m.queue && tries > 1 {
		return m.wait(ctx, s, value, tries)
	}
	err = ErrFailed // what no tries give
	for i := range tries {
		if i > 0 && !sleep(ctx, m.delayFunc(i)) {
			return ended(ctx)
		}
		err = m.try(ctx, s, value)
		switch {
		case err == nil || hopeless(ctx, err):
			return err
		case ctx.Err() != nil:
			return ended(ctx)
		case i == tries-1:
			return m.refusal(err)
		}
	}
	return err
}

// try asks for the lock once, and notes it.
func (m *Mutex) try(ctx context.Context, s *site, value string) error {
	lock, err := m.ask(ctx, s, value)
	if err != nil {
		return err
	}
	m.got(lock, value)
	return nil
}

// ask asks for the lock once.
func (m *Mutex) ask(ctx context.Context, s *site, value string) (*holdfast.Lock, error) {
	cancel := func() {}
	if len(m.redsync.pools) == 1 { // a quorum ends by itself, and says which servers did not answer
		ctx, cancel = context.WithTimeout(ctx, m.timeout())
	}
	return m.acquire(ctx, cancel, s.locker.TryAcquire, value)
}

// wait waits for the lock in the queue, for as long as the tries would take. Then it tries once
// more: the answer says who has the lock, or which servers give none.
func (m *Mutex) wait(ctx context.Context, s *site, value string, tries int) error {
	within, cancel := context.WithTimeoutCause(ctx, m.span(tries), errQueued)
	lock, err := m.acquire(within, cancel, s.locker.Acquire, value)
	switch {
	case err == nil:
		m.got(lock, value)
		return nil
	case errors.Is(err, errQueued):
		err = m.try(ctx, s, value)
	}
	switch {
	case err == nil:
		return nil
	case hopeless(ctx, err):
		return err
	case ctx.Err() != nil:
		return ended(ctx)
	}
	return m.refusal(err)
}

// acquire calls f, which is a method of a Locker, and then cancel. If the caller's context panics
// in cancel, nobody has the lock.
func (m *Mutex) acquire(ctx context.Context, cancel func(), f func(context.Context, string,
	...holdfast.AcquireOption) (*holdfast.Lock, error), value string) (lock *holdfast.Lock,
	err error) {
	defer func() {
		kept := false
		defer func() {
			if !kept && lock != nil {
				lock.Release(context.Background())
			}
		}()
		cancel()
		kept = true
	}()
	return f(ctx, m.name, m.lockOptions(value)...)
}

// maxSpan is longer than any wait. Two of it are a Duration.
const maxSpan = 100 * 365 * 24 * time.Hour

// span returns how long the tries would take with their delays. If there are very many tries, it
// counts the delays of the others as those of the first ones.
func (m *Mutex) span(tries int) time.Duration {
	const most = 10_000
	span := m.timeout()
	asked := min(tries-1, most)
	for i := 1; i <= asked && span < maxSpan; i++ {
		span += min(max(m.delayFunc(i), 0), maxSpan)
	}
	if tries-1 > asked {
		span = time.Duration(min(float64(span)/float64(asked)*float64(tries-1), float64(maxSpan)))
	}
	return span
}

func (m *Mutex) timeout() time.Duration {
	return time.Duration(float64(m.expiry) * m.timeoutFactor)
}

func (m *Mutex) lockOptions(value string) []holdfast.AcquireOption {
	options := []holdfast.AcquireOption{holdfast.WithTTL(m.expiry), holdfast.WithLabel(value)}
	if !m.renew {
		options = append(options, holdfast.WithoutRenewal())
	}
	return options
}

func (m *Mutex) got(lock *holdfast.Lock, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks = append(m.locks, &hold{lock, value, lock.Deadline()})
}

// sleep reports whether ctx has not ended before d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Unlock is [Mutex.UnlockContext] with the background context.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock, and reports whether it was held until now. If not, the error
// wraps [ErrLockAlreadyExpired] and, after a loss, a [*holdfast.LostError]. Without an answer the
// error is a [*RedisError], or with several pools one that wraps [ErrFailed]. Then the release goes
// on in the background. ctx bounds the wait for the release.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	h := m.take()
	if h == nil {
		return m.unlockByValue(ctx)
	}
	lock := h.lock
	err := lock.Release(ctx)
	switch {
	case err == nil:
		return true, nil
	case hasEnded(lock, err):
		return false, fmt.Errorf("%w: %w", ErrLockAlreadyExpired, err)
	}
	return false, m.noAnswer(ErrFailed, err)
}

// Extend is [Mutex.ExtendContext] with the background context.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext renews the lock to its whole expiry, and reports whether it did. If the lock has
// ended it fails with a [*ErrTaken] that wraps [ErrExtendFailed] and, after a loss, a
// [*holdfast.LostError]. Without an answer the error is a [*RedisError], or with several pools one
// that wraps ErrExtendFailed. Then the lock is still held, until its deadline.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	ctx = or(ctx)
	h := m.current()
	if h == nil {
		return m.extendByValue(ctx)
	}
	lock := h.lock
	err := lock.Extend(ctx)
	switch {
	case err == nil:
		m.mu.Lock()
		defer m.mu.Unlock()
		h.until = lock.Deadline()
		return true, nil
	case !hasEnded(lock, err):
		return false, m.noAnswer(ErrExtendFailed, err)
	case m.setNXOnExtend && errors.Is(lock.Err(), holdfast.ErrLost) && m.anew(ctx, h):
		return true, nil
	}
	return false, m.taken(fmt.Errorf("%w: %w", ErrExtendFailed, err))
}

// anew acquires the lock in the place of h, which is lost, and reports whether it did. If h was
// unlocked, before or meanwhile, nobody would unlock the new lock, so there is none.
func (m *Mutex) anew(ctx context.Context, h *hold) bool {
	if locks, _ := m.holds(); !slices.Contains(locks, h) {
		return false
	}
	s, err := m.redsync.site(ctx, m)
	if err != nil {
		return false
	}
	lock, err := m.ask(ctx, s, h.value)
	if err != nil {
		return false
	}
	if m.replace(h, &hold{lock, h.value, lock.Deadline()}) {
		return true
	}
	lock.Release(ctx)
	return false
}

// replace puts a lock in the place of another, and reports whether that was not unlocked before.
func (m *Mutex) replace(h, by *hold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.locks, h)
	if i >= 0 {
		m.locks[i] = by
	}
	return i >= 0
}

// Valid is [Mutex.ValidContext] with the background context.
//
// Deprecated: use Until, or Held.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext reports whether the servers say that the lock is held with the value of this Mutex.
// That may have changed when it returns. Without an answer the error is that of UnlockContext.
//
// Deprecated: use Until, or Held.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	_, owner, _, err := m.owner(ctx, ErrFailed)
	return owner != "", err
}
