package redislock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Lock is a lock that was obtained, on one key or several. It ends after its TTL unless it is
// refreshed. It is safe for concurrent use. The methods that return an error may be called on a nil
// Lock. Its Close is that of the Client, and ends all locks of that.
type Lock struct {
	*Client

	keys            []string
	token, metadata string
	held            *held
}

// Key returns the key; of several, the first.
func (l *Lock) Key() string { return l.keys[0] }

// Keys returns all keys.
func (l *Lock) Keys() []string { return l.keys }

// Token returns the Token of [Options], or the random one. It is no fencing token: [Lock.Held] has
// that.
func (l *Lock) Token() string { return l.token }

// Metadata returns the Metadata of [Options].
func (l *Lock) Metadata() string { return l.metadata }

// label is what others see of the lock: token and metadata, if that is allowed, as in the old
// library.
func (l *Lock) label() string {
	const longest = 128
	label := l.token + l.metadata
	if len(label) > longest || strings.ContainsFunc(label, func(r rune) bool {
		return r < ' ' || r > '~'
	}) {
		return l.token
	}
	return label
}

// Held returns the lock as Holdfast knows it: the fencing token of each key, for the stores that it
// protects, and a channel and a context that end when it is lost. Use [Lock.Release] to release it.
// The old library has no such method.
func (l *Lock) Held() *holdfast.LockSet { return l.held.set }

// TTL returns what is left of the TTL, or 0 if the lock has ended. It makes no request. Its error
// is nil, or [ErrLockNotHeld] for a nil Lock. Work has to end a little earlier: by the deadline of
// [Lock.Held], which allows for clocks that differ.
func (l *Lock) TTL(context.Context) (time.Duration, error) {
	if l == nil {
		return 0, ErrLockNotHeld
	}
	return l.held.left(), nil
}

// Refresh has the lock end ttl from now. If the lock has ended already, it fails at once with
// [ErrNotObtained]. If Redis does not answer, it tries again as the RetryStrategy says, and in the
// end fails with holdfast.ErrUnavailable, holdfast.ErrUnknown or the error of ctx; with
// holdfast.ErrInvalid if ctx is nil. Then the lock is still held, until its deadline.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	if l == nil {
		return ErrNotObtained
	}
	ttl = max(ttl, minTTL)
	return retry(ctx, ttl, opt.orDefault().RetryStrategy, func(ctx context.Context) (bool, error) {
		err := l.held.refresh(ctx, ttl)
		return err == nil || err == ErrNotObtained || errors.Is(err, holdfast.ErrClosed), err
	})
}

// Release releases the lock. It fails with [ErrLockNotHeld] if the lock has ended already. If Redis
// does not confirm the release, it fails with holdfast.ErrUnavailable, holdfast.ErrUnknown or the
// error of ctx, and the release goes on in the background.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	over := l.held.set.Err() != nil
	err := l.held.release(ctx)
	if err != nil && (over || l.held.hasEnded(err)) {
		return ErrLockNotHeld
	}
	return err
}

// held is what Redis has granted. Several Locks with one token have the same.
type held struct {
	set *holdfast.LockSet
	ttl time.Duration // with which the keys are renewed

	site   *site
	ends   int           // itself and its releases, until they have ended; guarded by site.mu
	vanish func()        // takes it off the site, once; called under site.mu
	gone   chan struct{} // closed by vanish

	mu      sync.Mutex
	until   time.Time     // when it ends
	over    bool          // it is being released, as until is over
	keeping bool          // a goroutine sees to it that it does not end sooner or later
	wake    chan struct{} // has an element when until has changed
}

func (h *held) left() time.Duration {
	if h.set.Err() != nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, time.Until(h.until))
}

// release releases the lock. It is noted in site until the release has ended.
func (h *held) release(ctx context.Context) error {
	h.site.mu.Lock()
	h.ends++
	h.site.mu.Unlock()
	defer h.leave()
	return h.set.Release(ctx)
}

// leave notes that the lock, or a release of it, has ended.
func (h *held) leave() {
	h.site.mu.Lock()
	defer h.site.mu.Unlock()
	if h.ends--; h.ends == 0 {
		h.vanish()
	}
}

// hasEnded reports whether err, with which an Extend or a release has failed, says that the lock
// has ended.
func (h *held) hasEnded(err error) bool {
	// Not errors.Is: the cause of the context may be the end of another lock.
	reason := h.set.Err()
	_, lost := reason.(*holdfast.LostError)
	return lost || err == reason
}

// refresh has the lock end ttl from now. The keys are renewed with the TTL with which they were
// obtained, because a lease has one TTL.
func (h *held) refresh(ctx context.Context, ttl time.Duration) error {
	asked := time.Now()
	if err := h.set.Extend(ctx); err != nil {
		if h.hasEnded(err) {
			return ErrNotObtained
		}
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return ErrNotObtained
	}
	h.until = asked.Add(ttl)
	switch {
	case h.keeping:
		select {
		case h.wake <- struct{}{}:
		default:
		}
	case ttl != h.ttl:
		h.keeping = true
		go h.keep()
	}
	return nil
}

// keep renews the keys until the lock is to end, and releases them then.
func (h *held) keep() {
	for {
		h.mu.Lock()
		left := time.Until(h.until)
		h.over = left <= 0
		h.mu.Unlock()
		if left <= 0 {
			h.release(context.Background()) // as if Redis had ended it
			return
		}
		wait := min(left, h.ttl/3)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			if left -= wait; left > 0 {
				// If it fails, it is tried again a third of the TTL later. If no time is left for
				// that, the lock is lost, and its context says so.
				ctx, cancel := context.WithTimeout(context.Background(), min(left, h.ttl/3))
				h.set.Extend(ctx)
				cancel()
			}
		case <-h.wake:
			timer.Stop()
		case <-h.set.Done():
			timer.Stop()
			return
		}
	}
}
