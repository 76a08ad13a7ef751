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

// shardCount is how many mutexes the keys are spread over. It is a power of two.
const shardCount = 32

// closeTime bounds how long Close waits for the backend.
const closeTime = 5 * time.Second

// Locker acquires locks on one backend. It is safe for concurrent use. A process needs only one
// Locker for each backend: then its goroutines queue in memory, and their renewals are sent
// together. A moment after its last lock has ended, a Locker has no goroutine, unless a release
// still goes on in the background. A Locker is not a sync.Locker.
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

	// tasks counts leaders, scouts, releases, renewals and clean-ups. Only two kinds of goroutine
	// may raise it: a counted task, and a caller that holds the mutex of a shard that is not
	// closed. So it does not rise from 0 while Close waits for it.
	tasks sync.WaitGroup
}

// shard is the part of a Locker's keys that one mutex guards.
type shard struct {
	mu     sync.Mutex
	keys   map[string]*cohort // the first of each key, see cohort.other
	leases leaseList          // all leases, also of cohorts that are not in keys
	// those that have a cohort or a waiter
	semaphores map[semaphoreKey]*semaphore
	// by the name of a semaphore that was retired: the slot that was held last
	lastSlots map[string]int
	closed    bool // Close has ended what was in it
}

// New returns a Locker on backend. The Locker does not own the backend: several Lockers may share a
// backend, and the program that opened it closes it after the Lockers.
//
// New fails with ErrInvalid if backend is nil or a nil pointer, if an option is nil or has a value
// that is not allowed, if the backend does not allow the TTL (driver.Limited), or if [WithShared]
// is given and the backend cannot share keys (driver.Sharer).
func New(backend driver.Backend, options ...Option) (*Locker, error) {
	// A variable has a nil pointer if Open failed, or was never called.
	if v := reflect.ValueOf(backend); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("backend is nil: open one, for example with memhold.New")
	}
	c := defaults()
	for i, o := range options {
		if o == nil { // no function of the package makes an option that is a nil pointer
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

// Acquire waits until it has the key or ctx ends. On success the caller must call Release on the
// Lock. ctx bounds only the wait: the Lock stays held after ctx has ended. A key is 1 to 1,024
// arbitrary bytes, prefix included (see [WithPrefix]).
//
// Goroutines of this Locker that ask on the same terms (the TTL, renewed or not, shared or not, of
// how many permits) get the key in the order in which they asked. Between different terms, between
// processes, and if local handoff is switched off (see [WithCohort]), the backend's queue decides,
// if it has one.
//
// If ctx comes from [Lock.Context] of a lock on the key that this Locker still holds, Acquire
// returns a nested Lock at once, and ignores all options except WithShared and WithPermits: see
// Reentrancy in the package documentation.
//
// On failure the caller holds nothing, and the Locker removes in the background what a request may
// have left at the backend. The error is
//   - the error of ctx, with its cause, if ctx ended first;
//   - ErrUnavailable or ErrUnknown if the backend gave no answer, as described below; it is
//     ErrUnknown if any request may have taken effect, even an earlier one;
//   - ErrInvalid if key or an option is not allowed, ctx is nil, [WithShared] is given and the
//     backend cannot share keys, or an exclusive acquisition has the context of a shared lock on
//     the key; also if the key is reserved for [WithPermits]: such a key ends with "@permit/", and
//     then a number below 1,000, or "scout", or "gate" and a number;
//   - ErrClosed after Close.
//
// If the backend does not answer, the wait ends
//   - at once, if the error is permanent (see driver.Permanent);
//   - after one request, if the backend has not answered before;
//   - after two requests, if it has not answered before and the first may have taken effect;
//   - otherwise after a whole TTL without an answer.
//
// It has answered before if it answered this call, or, with local handoff, goroutines of this
// Locker that have held the key or waited for it on the same terms, one after the other, until this
// call began. With [WithPermits], a request is one for a slot and then one for three more slots.
func (l *Locker) Acquire(ctx context.Context, key string, options ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, key, true, options)
}

// TryAcquire is like [Locker.Acquire], but it makes a single attempt and does not wait for the key.
// If the key is taken, it fails with a [*HeldError] and leaves nothing at the backend. Its other
// errors are those of Acquire.
//
// If another goroutine of this Locker holds the key on the same terms, waits for it, or is
// releasing it, the key counts as taken and TryAcquire does not ask the backend. If local handoff
// is switched off (see [WithCohort]), it always asks.
//
// With [WithShared], TryAcquire joins the goroutines of this Locker that share the key, or else
// asks the backend. With [WithPermits], it fails if a goroutine of this Locker waits for a permit
// on the same terms. Otherwise it asks for every slot that this Locker does not have. If none is
// free, and a slot gave no answer, it fails with the error of that slot.
func (l *Locker) TryAcquire(ctx context.Context, key string,
	options ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, key, false, options)
}

// Do acquires the key as [Locker.Acquire] does, calls f, and releases the lock, even if f panics.
// The context that it passes to f is derived from ctx and ends with the lock (see [Lock.Context]).
//
// Do returns the error of Acquire if that fails, and otherwise the error of f. If the lock was lost
// before f returned, Do joins a [*LostError] to the error of f. A release that the backend does not
// confirm is no error of Do: it goes on in the background, and hooks and log report it. If f is
// nil, Do fails with ErrInvalid.
func (l *Locker) Do(ctx context.Context, key string, f func(context.Context, *Lock) error,
	options ...AcquireOption) error {
	if f == nil {
		return invalid("function is nil for %q: give one", key)
	}
	lock, err := l.Acquire(ctx, key, options...)
	if err != nil {
		return err
	}
	// The key must be released even if the caller's context has ended.
	defer lock.Release(context.WithoutCancel(ctx))
	err = f(lock.Context(ctx), lock)
	var lost *LostError
	if errors.As(lock.Release(context.WithoutCancel(ctx)), &lost) && !errors.Is(err, error(lost)) {
		return errors.Join(err, lost)
	}
	return err
}

// Stats returns the Locker's counters. It is fast, and never waits.
func (l *Locker) Stats() Stats { return l.counters.snapshot() }

// Close ends every wait with ErrClosed, and every lock with a [*LostError] that wraps ErrClosed. It
// releases all keys, and waits for these releases and for those that go on in the background. If
// the backend does not answer, Close waits for five seconds at most. The backend stays open.
// Closing again does nothing and returns nil.
//
// Close returns an error if keys may stay locked until their TTL ends, including keys of earlier
// releases in the background. The error wraps the error of each such key, and its text names five
// of them at most. If a request to the backend does not return even when its context ends, after
// these five seconds, Close returns another second later, with an error that also wraps ErrUnknown.
// So it does if a context of a caller's own kind hangs as it ends with a lock. That error does not
// name the keys that wait for what hangs. Otherwise, when Close has returned, no goroutine of the
// Locker is left except those that call hooks and the logger. So a hook may call Close.
//
// There are two things that Close cannot know, and so it may return nil although a key is still
// taken. A request that was given up may still be in the network. If no later release is answered,
// and the backend carries out the request more than the TTL and five seconds after it was given up,
// the key is then taken for a TTL. Over the connections of a library even an answered release may
// not be enough: package goredishold says when. And a backend may do things by itself: a quorum
// that has answered that it does not hold a key may still be giving back what some of its nodes
// granted. To wait for that, close the quorum after the Locker.
func (l *Locker) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	close(l.closing)
	timer := time.AfterFunc(closeTime, l.end)
	defer timer.Stop()
	defer l.end()

	var ended []endedLease
	for i := range l.shards {
		ended = append(ended, l.closeShard(&l.shards[i])...)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.watchdog.stop()
		l.releaseAll(ended)
		l.tasks.Wait()
		if l.unnotify != nil {
			l.unnotify()
		}
	}()
	// Close must return even if a request to the backend outlives its context, or waits for Close,
	// and even if a context hangs as it ends.
	select {
	case <-done:
	case <-l.life.Done():
		// Counted only from here: a process that was paused meanwhile has this time, too.
		stuck := make(chan struct{})
		late := time.AfterFunc(time.Second, func() { close(stuck) })
		defer late.Stop()
		select {
		case <-done:
		case <-stuck:
			return fmt.Errorf("holdfast: close: a request to the backend has not returned, "+
				"or a context hangs as it ends: %w",
				append(manyErrors{ErrUnknown}, l.unreleased.errors()...))
		}
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

// endedLease is a lease that Close has ended. The claim is released after tell has returned.
type endedLease struct {
	claim driver.Claim
	tell  func()
}

// closeShard ends everything in a shard.
func (l *Locker) closeShard(s *shard) (ended []endedLease) {
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
	defer s.mu.Unlock()
	for h := s.leases.first; h != nil; h = s.leases.first {
		claim := h.claim()
		ended = append(ended, endedLease{claim, h.cohort.loseLease(h, ErrClosed)})
	}
	return ended
}

// releaseAll tells the ends of locks, and releases the claims side by side.
func (l *Locker) releaseAll(ended []endedLease) {
	const workers = 64
	free := make(chan driver.Claim, len(ended))
	var told, released sync.WaitGroup
	for _, e := range ended {
		told.Go(func() {
			defer func() { free <- e.claim }() // even if a context ends the goroutine
			e.tell()
		})
	}
	for range min(workers, len(ended)) {
		released.Go(func() {
			for claim := range free {
				l.releaseUntilAnswered(claim)
			}
		})
	}
	told.Wait()
	close(free)
	released.Wait()
}
