// Package workload is a workload for the tests of deploy. Everything that the metrics of promhold
// and otelhold count happens in it again and again, the bad things too. It runs on locks in memory.
package workload

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// Metrics are what counts: those of promhold, or the Telemetry of otelhold.
type Metrics interface {
	// Hooks returns hooks for a Locker with that TTL.
	Hooks(ttl time.Duration) holdfast.Hooks

	// Follow has the Locker looked at when metrics are collected.
	Follow(name string, locker *holdfast.Locker) (stop func())

	// FollowNodes has the nodes of a quorum looked at when metrics are collected.
	FollowNodes(name string, status func() quorum.Status) (stop func())
}

// workload is a run of it.
type workload struct {
	metrics []Metrics
	memory  *memhold.Backend
}

// Run makes trouble until ctx ends, and counts it in all metrics. One lock is held for good, and
// Run calls ready when it is: no grant that is counted from then on is the first grant of that
// lock. The error is that of a Locker that could not be made.
func Run(ctx context.Context, ready func(), metrics ...Metrics) error {
	// Waiters are told often that the key is still held.
	w := &workload{metrics, memhold.New(memhold.WithPresence(time.Second))}
	defer w.memory.Close()

	stuck, _, end, err := w.locker("stuck", 0)
	if err != nil {
		return err
	}
	defer end()
	if _, err := stuck.Acquire(ctx, "stuck/1"); err != nil {
		return err
	}
	for _, m := range metrics {
		defer m.FollowNodes("main", nodes)()
	}
	ready()

	var parts sync.WaitGroup
	var errs [8]error
	for i, part := range []func(context.Context) error{w.waitsForever, w.waitsLong, w.losesLocks,
		w.renewsLate, w.hasNoAnswer, w.handsOver, w.isRefused, w.leavesReleases} {
		parts.Go(func() { errs[i] = part(ctx) })
	}
	parts.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// locker makes a Locker as that of another process. end closes it.
func (w *workload) locker(name string, ttl time.Duration) (l *holdfast.Locker,
	faults memhold.Faults, end func(), err error) {
	if ttl == 0 {
		ttl = holdfast.DefaultTTL
	}
	client := w.memory.Client()
	options := []holdfast.Option{holdfast.WithTTL(ttl)}
	for _, m := range w.metrics {
		options = append(options, holdfast.WithHooks(m.Hooks(ttl)))
	}
	l, err = holdfast.New(client, options...)
	if err != nil {
		return nil, faults, nil, err
	}
	var stops []func()
	for _, m := range w.metrics {
		stops = append(stops, m.Follow(name, l))
	}
	return l, client.Faults(), func() {
		l.Close()
		client.Close()
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// repeat calls f with a Locker until ctx ends, at most a hundred times a second.
func (w *workload) repeat(ctx context.Context, name string, ttl time.Duration,
	f func(l *holdfast.Locker, faults memhold.Faults)) error {
	l, faults, end, err := w.locker(name, ttl)
	if err != nil {
		return err
	}
	defer end()
	for ctx.Err() == nil {
		f(l, faults)
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// waitsForever waits for the lock that is never released.
func (w *workload) waitsForever(ctx context.Context) error {
	return w.repeat(ctx, "waits", 0, func(l *holdfast.Locker, _ memhold.Faults) {
		l.Acquire(ctx, "stuck/1")
	})
}

// waitsLong waits for more than a second, for another process and within this one.
func (w *workload) waitsLong(ctx context.Context) error {
	return w.repeat(ctx, "orders", 0, func(l *holdfast.Locker, _ memhold.Faults) {
		lock, err := l.Acquire(ctx, "order/1")
		if err != nil {
			return
		}
		var waiter sync.WaitGroup
		waiter.Go(func() {
			if next, err := l.Acquire(ctx, "order/1"); err == nil {
				next.Release(ctx)
			}
		})
		pause(ctx, 1300*time.Millisecond)
		lock.Release(ctx)
		waiter.Wait()
	})
}

// losesLocks holds locks that are removed at the backend, and locks that are held for too long.
func (w *workload) losesLocks(ctx context.Context) error {
	const ttl = 300 * time.Millisecond
	return w.repeat(ctx, "lossy", ttl, func(l *holdfast.Locker, faults memhold.Faults) {
		if lock, err := l.Acquire(ctx, "lost/1"); err == nil {
			faults.Lose("lost/1")
			<-lock.Done()
		}
		if lock, err := l.Acquire(ctx, "lost/2", holdfast.WithMaxHold(ttl)); err == nil {
			<-lock.Done()
			lock.Release(ctx)
		}
	})
}

// renewsLate holds a lock of three seconds whose renewal, due after one, has no answer for more
// than two.
func (w *workload) renewsLate(ctx context.Context) error {
	return w.repeat(ctx, "late", 3*time.Second, func(l *holdfast.Locker, faults memhold.Faults) {
		lock, err := l.Acquire(ctx, "late/1")
		if err != nil {
			return
		}
		remove := faults.Inject(memhold.Fault{Calls: memhold.Renewals,
			Err: driver.ErrUnavailable})
		pause(ctx, 2200*time.Millisecond)
		remove()
		pause(ctx, 500*time.Millisecond)
		lock.Release(ctx)
	})
}

// hasNoAnswer asks a backend that does not answer.
func (w *workload) hasNoAnswer(ctx context.Context) error {
	return w.repeat(ctx, "cut off", 0, func(l *holdfast.Locker, faults memhold.Faults) {
		defer faults.Inject(memhold.Fault{Calls: memhold.Acquires, Err: driver.ErrUnavailable})()
		l.TryAcquire(ctx, "unreachable/1")
	})
}

// handsOver has goroutines hand a lock to each other, share one, and use permits.
func (w *workload) handsOver(ctx context.Context) error {
	return w.repeat(ctx, "busy", 0, func(l *holdfast.Locker, _ memhold.Faults) {
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for _, o := range []holdfast.AcquireOption{holdfast.WithExclusive(),
					holdfast.WithShared(), holdfast.WithPermits(2)} {
					if lock, err := l.Acquire(ctx, "busy/1", o); err == nil {
						lock.Release(ctx)
					}
				}
			})
		}
		users.Wait()
	})
}

// isRefused tries to acquire locks that others hold.
func (w *workload) isRefused(ctx context.Context) error {
	return w.repeat(ctx, "refused", 0, func(l *holdfast.Locker, _ memhold.Faults) {
		l.TryAcquire(ctx, "stuck/1")
	})
}

// leavesReleases releases locks at a backend that does not answer at once.
func (w *workload) leavesReleases(ctx context.Context) error {
	return w.repeat(ctx, "leaves", 0, func(l *holdfast.Locker, faults memhold.Faults) {
		if lock, err := l.Acquire(ctx, "left/1"); err == nil {
			faults.Inject(memhold.Fault{Calls: memhold.Releases, Times: 1,
				Err: driver.ErrUnavailable})
			lock.Release(ctx)
		}
	})
}

// nodes are those of a quorum that is in a bad state.
func nodes() quorum.Status {
	return quorum.Status{Need: 2, Nodes: []quorum.NodeStatus{
		{Name: "h1:6379", State: quorum.Up},
		{Name: "h2:6379", State: quorum.Down, Pending: 1, Owed: 5},
		{Name: "h3:6379", State: quorum.Quarantined},
	}}
}
