package holdfast

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// shardCount spreads unrelated keys over as many mutexes. A power of two.
const shardCount = 32

// closeTime bounds how long Close waits for the backend.
const closeTime = 5 * time.Second

// Locker acquires locks on one backend. It is safe for concurrent use, and one per process and backend is enough:
// the goroutines of one Locker queue in memory, renewals are sent together. It has no goroutine while nothing is held or
// waited for. It is not a sync.Locker: that is what [Lock] comes closest to.
type Locker struct {
	backend  driver.Backend
	config   config
	suffix   string // of owner values with the default label
	pushes   bool   // the backend is a Notifier
	unnotify func()

	seed     maphash.Seed
	shards   [shardCount]shard
	watchdog watchdog
	pool     waiterPool
	grants   grants
	highest  highest
	counters counters

	closed  atomic.Bool
	closing chan struct{}   // closed by Close: ends waits
	life    context.Context // ended by Close when its time is up: ends requests
	end     context.CancelFunc

	// tasks counts leaders, releases and clean-ups. It is raised by what it counts already, or under the mutex of a
	// shard that is not closed: so never from 0 once Close waits for it.
	tasks sync.WaitGroup
}

// shard is the part of a Locker's keys that one mutex guards.
type shard struct {
	mu     sync.Mutex
	keys   map[string]*cohort
	holds  holdList // all leases, also of cohorts that are not in keys
	closed bool     // Close has been here
}

// New returns a Locker on backend, which it does not own: several Lockers may share one, and whoever opened the backend
// closes it, after the Lockers. It fails with ErrInvalid if backend is nil or an option is out of range.
func New(backend driver.Backend, options ...Option) (*Locker, error) {
	if backend == nil {
		return nil, invalid("backend nil: open one, for example with memhold.New")
	}
	c := defaults()
	for _, o := range options {
		if o == nil {
			return nil, invalid("option nil: leave it out")
		}
		o.applyToLocker(&c)
	}
	if err := c.validate(); err != nil {
		return nil, err
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
	l.watchdog.locker = l
	l.watchdog.wake = make(chan struct{}, 1)
	if n, ok := backend.(driver.Notifier); ok {
		l.pushes = true
		l.unnotify = n.Notify(l.grants.deliver)
	}
	return l, nil
}

// Acquire waits until the key is ours, or ctx ends. On success the caller must Release the Lock.
//
// Goroutines of this Locker are served in the order in which they asked; between processes, the backend's queue decides if
// it keeps one. With a ctx that comes from [Lock.Context] of a lock on the same key that is still held, the result is a nested Lock:
// it shares token and lease, options do not apply, and only the release of the outermost frees the key.
//
// On failure nothing is held, and what a request may have left behind is removed in the background. The
// error is that of ctx, with its cause, if ctx ended; ErrUnavailable or ErrUnknown if the backend gave no answer, at
// once if it never did, or for a whole TTL after it last did; at once if it refuses for good; ErrInvalid for a bad key or option;
// ErrClosed after Close.
func (l *Locker) Acquire(ctx context.Context, key string, options ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, key, true, options)
}

// TryAcquire is Acquire with a single attempt. If the key is taken it fails with a [*HeldError], and leaves no trace.
// A key that another goroutine of this Locker holds, waits for, or is releasing, is taken; the backend is not asked.
func (l *Locker) TryAcquire(ctx context.Context, key string, options ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, key, false, options)
}

// Do acquires the key as [Locker.Acquire] does, calls f, and releases the lock, also when f panics. The context
// that f gets ends with the lock. Do returns the error of f, joined with a [*LostError] if the lock was lost before
// f returned. A release that is not confirmed is no error of f's work: it goes on in the background, and hooks and log tell.
func (l *Locker) Do(ctx context.Context, key string, f func(context.Context, *Lock) error, options ...AcquireOption) error {
	if f == nil {
		return invalid("function nil for %q: give one", key)
	}
	lock, err := l.Acquire(ctx, key, options...)
	if err != nil {
		return err
	}
	// Not the caller's context: that it ended is no reason to leave the key to its TTL.
	defer lock.Release(context.WithoutCancel(ctx))
	err = f(lock.Context(ctx), lock)
	var lost *LostError
	if errors.As(lock.Release(context.WithoutCancel(ctx)), &lost) && !errors.Is(err, error(lost)) {
		return errors.Join(err, lost)
	}
	return err
}

// Stats returns the Locker's counters. It takes no lock.
func (l *Locker) Stats() Stats { return l.counters.snapshot() }

// Close ends every wait with ErrClosed, ends every lock with a [*LostError] that wraps ErrClosed, releases the keys, and
// waits for clean-ups that are under way; if the backend does not answer, for five seconds at most. It returns an error if
// keys may be left to their TTL. No goroutine of the Locker is left then. Closing again does nothing and
// returns nil. The backend stays open.
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
	l.watchdog.stop()
	left := l.releaseAll(claims)
	l.tasks.Wait()
	if l.unnotify != nil {
		l.unnotify()
	}
	if len(left) > 0 {
		return fmt.Errorf("holdfast: close: release of %d of %d keys not confirmed: %w", len(left), len(claims), errors.Join(left...))
	}
	return nil
}

// closeShard ends everything in a shard and returns the claims to release.
func (l *Locker) closeShard(s *shard) (claims []driver.Claim) {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.keys {
		for w := c.waiters.pop(); w != nil; w = c.waiters.pop() {
			w.ready <- verdict{err: ErrClosed}
		}
	}
	var after []func()
	for h := s.holds.first; h != nil; h = s.holds.first {
		claims = append(claims, h.claim())
		after = append(after, h.cohort.lose(h, ErrClosed))
	}
	s.mu.Unlock()
	for _, f := range after {
		f()
	}
	return claims
}

// releaseAll releases claims side by side and returns the errors.
func (l *Locker) releaseAll(claims []driver.Claim) (failed []error) {
	const workers = 64
	var (
		mu   sync.Mutex
		wait sync.WaitGroup
		next atomic.Int64
	)
	for range min(workers, len(claims)) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(claims) {
					return
				}
				r := l.request(context.Background(), requestTime(claims[i].TTL))
				_, err := l.backend.Release(r, claims[i])
				r.end()
				if err != nil {
					mu.Lock()
					failed = append(failed, keyError("release", l.userKey(claims[i].Key), r.explain(err)))
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	return failed
}

// shard returns the shard of a full key.
func (l *Locker) shard(fullKey string) *shard {
	return &l.shards[maphash.String(l.seed, fullKey)%shardCount]
}

// fullKey is the key as the backend knows it.
func (l *Locker) fullKey(key string) (string, error) {
	switch full := l.config.prefix + key; {
	case key == "":
		return "", invalid("key %q: must have 1 to %d bytes", key, driver.MaxKeyLen-len(l.config.prefix))
	case len(full) > driver.MaxKeyLen:
		return "", invalid("key %.40q... has %d bytes with its prefix: at most %d are allowed", key, len(full), driver.MaxKeyLen)
	default:
		return full, nil
	}
}

// userKey is the key as the caller knows it.
func (l *Locker) userKey(fullKey string) string { return fullKey[len(l.config.prefix):] }

// abandon releases a claim in the background: one whose acquisition was given up, whose lease ran out without an answer, or
// whose release was not confirmed. It asks until it has an answer, or until what it would remove has expired by itself. The
// caller is allowed to raise tasks.
func (l *Locker) abandon(claim driver.Claim) {
	l.tasks.Go(func() {
		until := clock.Now().Add(claim.TTL)
		for attempt := 0; ; attempt++ {
			r := l.request(context.Background(), requestTime(claim.TTL))
			_, err := l.backend.Release(r, claim)
			r.end()
			if err == nil {
				return
			}
			if clock.Now() >= until || driver.Permanent(err) || !l.sleep(backoff(attempt)) {
				l.config.logger.Warn("holdfast: key left to its TTL", "key", l.userKey(claim.Key), "error", r.explain(err))
				return
			}
		}
	})
}

// sleep waits for d, and reports false if the Locker's life ended.
func (l *Locker) sleep(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.life, d)
	defer cancel()
	<-ctx.Done()
	return l.life.Err() == nil
}
