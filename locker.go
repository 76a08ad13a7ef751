package holdfast

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// shardCount spreads unrelated keys over as many mutexes. A power of two.
const shardCount = 32

// closeTime bounds how long Close waits for the backend.
const closeTime = 5 * time.Second

// Locker acquires locks on one backend. It is safe for concurrent use. One per process and backend
// is enough: its goroutines queue in memory, and it sends renewals together. A moment after the
// last lock has ended it has no goroutine, unless a release still goes on in the background. It is
// not a sync.Locker.
type Locker struct {
	backend  driver.Backend
	config   config
	suffix   string // of owner values with the default label
	pushes   bool   // the backend is a Notifier
	unnotify func() // ends its notices; nil if it sends none

	seed       maphash.Seed
	shards     [shardCount]shard
	watchdog   watchdog
	pool       waiterPool
	addressees addressees
	highest    highest
	counters   counters
	log        observer
	unreleased unreleased

	closed  atomic.Bool
	closing chan struct{}   // closed by Close: ends waits
	life    context.Context // ended by Close when its time is up: ends requests
	end     context.CancelFunc

	// tasks counts leaders, scouts, releases, renewals and clean-ups. Only a counted task may raise
	// it, or a caller with the mutex of a shard that is not closed. So it never rises from 0 once
	// Close waits for it.
	tasks sync.WaitGroup
}

// shard is the part of a Locker's keys that one mutex guards.
type shard struct {
	mu     sync.Mutex
	keys   map[string]*cohort // the first of each key, see cohort.other
	leases leaseList          // all leases, also of cohorts that are not in keys
	// those that have a cohort or a waiter
	semaphores map[semaphoreKey]*semaphore
	// by the name of a semaphore that is gone: the slot that was held last
	lastSlots map[string]int
	closed    bool // Close has ended what was in it
}

// New returns a Locker on backend. The Locker does not own the backend: several Lockers may share
// one, and the program that opened the backend closes it after the Lockers. New fails with
// ErrInvalid if backend is nil or a nil pointer, or an option is nil or out of range. It also fails
// with ErrInvalid if the backend does not allow the TTL (driver.Limited), or if [WithShared] is
// given and the backend cannot share keys (driver.Sharer).
func New(backend driver.Backend, options ...Option) (*Locker, error) {
	// A nil pointer is what a variable has whose Open failed, or was never called.
	if v := reflect.ValueOf(backend); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("backend is nil: open one, for example with memhold.New")
	}
	c := defaults()
	for i, o := range options {
		if o == nil { // no function makes one that is a nil pointer
			return nil, nilOption(i)
		}
		o.applyToLocker(&c)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.sharedKeys != nil {
		return nil, invalid("WithSharedKeys(%s) for a Locker: it is for one call of AcquireAll",
			quoted(c.sharedKeys))
	}
	if err := takes(backend, &c); err != nil {
		return nil, fmt.Errorf("holdfast: %w", err)
	}
	l := &Locker{
		backend: backend,
		config:  c,
		suffix:  driver.OwnerSuffix(c.label),
		seed:    maphash.MakeSeed(),
		closing: make(chan struct{}),
	}
	l.life, l.end = context.WithCancel(context.Background())
	for i := range l.shards {
		l.shards[i].keys = make(map[string]*cohort)
	}
	l.log.logger = c.logger
	for _, hooks := range c.observers {
		l.config.hooks = l.config.hooks.and(hooks.on(&observer{logger: c.logger, log: &l.log}))
	}
	l.watchdog.locker = l
	l.watchdog.wake = make(chan struct{}, 1)
	if n, ok := backend.(driver.Notifier); ok {
		l.pushes = true
		l.unnotify = n.Notify(l.addressees.deliver)
	}
	return l, nil
}

// Acquire waits until it has the key, or ctx ends. ctx bounds the wait only: the Lock outlives it.
// On success the caller must Release the Lock. A key has 1 to 1,024 bytes of any kind, prefix
// included (see WithPrefix).
//
// Goroutines of this Locker that ask on the same terms (TTL, renewed or not, shared or not) get the
// key in the order in which they asked. Between terms and between processes, the backend's queue
// decides, if it has one. If ctx comes from [Lock.Context] of this Locker's lock on the key, still
// held, the result is a nested Lock, and options but WithShared do not apply: see Reentrancy in the
// package documentation.
//
// On failure the caller holds nothing, and the Locker removes in the background what a request may
// have left behind. The error is
//   - the error of ctx, with its cause, if ctx ended first;
//   - ErrUnavailable or ErrUnknown if the backend gave no answer, see below; ErrUnknown also if the
//     last request was refused, but one before may have taken effect;
//   - ErrInvalid for a bad key or option, a nil ctx, [WithShared] on a backend that cannot share,
//     an exclusive acquisition with the context of a shared lock on the key, or a key that ends
//     with "@permit/" and a number below 1,000, "scout", or "gate" and a number: see
//     [WithPermits];
//   - ErrClosed after Close.
//
// Without an answer the wait ends
//   - at once, if the backend refuses for good;
//   - after one request, if the backend has not answered any for this key yet;
//   - after a second one, if the first of these may have taken effect;
//   - otherwise after a whole TTL without an answer.
func (l *Locker) Acquire(ctx context.Context, key string, options ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, key, true, options)
}

// TryAcquire is Acquire with a single attempt. If the key is taken it fails with a [*HeldError],
// and leaves no trace. Other errors are those of Acquire. While another goroutine of this Locker
// holds the key on the same terms, waits for it or releases it, the key counts as taken, and the
// backend is not asked. With local handoff switched off, TryAcquire always asks. With [WithShared]
// it joins those that share the key in this Locker, or asks. With [WithPermits] it fails if a
// goroutine of this Locker waits on the same terms. Otherwise it asks for every slot that this
// Locker does not have before it fails: with the error of a slot that gave no answer, if one did.
func (l *Locker) TryAcquire(ctx context.Context, key string,
	options ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, key, false, options)
}

// Do acquires the key as [Locker.Acquire] does, calls f, and releases the lock, even if f panics.
// The context that f gets ends with the lock. Do returns the error of f, or that of Acquire if it
// did not call f; ErrInvalid if f is nil. It joins a [*LostError] if the lock was lost before f
// returned. An unconfirmed release is not an error of Do: it goes on in the background, and hooks
// and log report it.
func (l *Locker) Do(ctx context.Context, key string, f func(context.Context, *Lock) error,
	options ...AcquireOption) error {
	if f == nil {
		return invalid("function is nil for %q: give one", key)
	}
	lock, err := l.Acquire(ctx, key, options...)
	if err != nil {
		return err
	}
	// Not the caller's context: the key must be released even if that has ended.
	defer lock.Release(context.WithoutCancel(ctx))
	err = f(lock.Context(ctx), lock)
	var lost *LostError
	if errors.As(lock.Release(context.WithoutCancel(ctx)), &lost) && !errors.Is(err, error(lost)) {
		return errors.Join(err, lost)
	}
	return err
}

// Stats returns the Locker's counters. It takes no mutex.
func (l *Locker) Stats() Stats { return l.counters.snapshot() }

// Close ends every wait with ErrClosed, and every lock with a [*LostError] that wraps ErrClosed. It
// releases the keys, and waits for these releases and for clean-ups under way: for five seconds at
// most, if the backend does not answer.
//
// It returns an error if keys may be left to their TTL, even by an earlier clean-up. Its text names
// five of them at most; errors.Is and errors.As look at all. If a call of the backend outlives its
// context, Close returns a second later, with an error that wraps ErrUnknown too. Otherwise no
// goroutine of the Locker is left, except those that still tell hooks and log what has happened: so
// a hook may call Close. Closing again does nothing and returns nil. The backend stays open.
//
// Close cannot know two things. A request that was given up may still be in the network. If no
// later release is answered, and the backend carries the request out more than the TTL and five
// seconds after it was given up, then the key is taken for a TTL from there, and Close may have
// returned nil. And a backend may do things by itself: a quorum that has answered that it does not
// hold a key may still be giving back what some of its nodes granted. Closing that backend after
// the Locker waits for it, for a moment.
func (l *Locker) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	close(l.closing)
	timer := time.AfterFunc(closeTime, l.end)
	defer timer.Stop()
	defer l.end()

	var claims []driver.Claim
	for i := range l.shards {
		claims = append(claims, l.closeShard(&l.shards[i])...)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.watchdog.stop()
		l.releaseAll(claims)
		l.tasks.Wait()
		if l.unnotify != nil {
			l.unnotify()
		}
	}()
	// Close must return even if a call of the backend outlives its context, or waits for Close.
	stuck := make(chan struct{})
	late := time.AfterFunc(closeTime+time.Second, func() { close(stuck) })
	defer late.Stop()
	select {
	case <-done:
	case <-stuck:
		return fmt.Errorf("holdfast: close: a call of the backend has not returned: %w",
			append(manyErrors{ErrUnknown}, l.unreleased.errors()...))
	}
	if left := l.unreleased.errors(); len(left) > 0 {
		keys := "keys"
		if len(left) == 1 {
			keys = "key"
		}
		return fmt.Errorf("holdfast: close: release of %d %s not confirmed: %w", len(left), keys,
			left)
	}
	return nil
}

// closeShard ends everything in a shard and returns the claims to release.
func (l *Locker) closeShard(s *shard) (claims []driver.Claim) {
	s.mu.Lock()
	s.closed = true
	for _, first := range s.keys {
		for c := first; c != nil; c = c.other {
			for w := c.waiters.pop(); w != nil; w = c.waiters.pop() {
				w.ready <- outcome{err: ErrClosed}
			}
		}
	}
	for _, m := range s.semaphores {
		m.endWaits(ErrClosed)
	}
	after := many{}
	for h := s.leases.first; h != nil; h = s.leases.first {
		claims = append(claims, h.claim())
		after = append(after, h.cohort.loseLease(h, ErrClosed))
	}
	s.mu.Unlock()
	l.contain(after.call)
	return claims
}

// releaseAll releases claims side by side.
func (l *Locker) releaseAll(claims []driver.Claim) {
	const workers = 64
	var (
		wait sync.WaitGroup
		next atomic.Int64
	)
	for range min(workers, len(claims)) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(claims); i = int(next.Add(1)) - 1 {
				l.releaseUntilAnswered(claims[i])
			}
		})
	}
	wait.Wait()
}
