package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The contract, over five real servers.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	drivertest.Run(t, drivertest.Harness{
		Light:    true, // the servers have the load of five
		ShortTTL: briefTTL,
		NewStore: func(t testing.TB) drivertest.Store {
			for _, s := range c.servers {
				s.Do(t, "FLUSHALL")
			}
			order := &arrivals{known: make(map[string]bool)}
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return &settled{client: c.client(t, brisk), order: order}
				},
				Lose: func(t testing.TB, key string) {
					for _, s := range c.servers {
						s.Do(t, "DEL", key)
					}
				},
				CutReply: func(_ testing.TB, b driver.Backend) { b.(*settled).cut.Store(true) },
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					for _, s := range c.servers {
						s.Freeze()
					}
					return func() {
						for _, s := range c.servers {
							s.Thaw()
						}
					}
				},
				Forget: func(t testing.TB) {
					for _, s := range c.servers {
						s.Kill()
						s.Run(t)
					}
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, c.url(brisk), key, briefTTL)
				},
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Check: true, Share: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanForget: true, CanKillHolder: true,
		},
	})
}

// settled is a client whose calls return only when the nodes that were not waited for have
// answered, too, because the suite looks from a second client at exactly what has changed, while
// only a majority is promised to have changed. It also loses a reply when it is told to.
//
// A client takes it to be earlier than it is by as long as an answer took to come back, and its
// waiters go ahead of others' by as much. So a call that queues a claim returns when more time has
// passed than any such call took so far: then whoever queues next, over whichever client, is later
// by its ticket, too.
type settled struct {
	*client
	cut   atomic.Bool
	order *arrivals
}

// arrivals is what all clients of the servers have queued.
type arrivals struct {
	mu      sync.Mutex
	known   map[string]bool // owners
	slowest time.Duration   // call
}

// apart notes a call that queued owner, and returns how much later the next one must be for a sure
// order of arrival.
func (a *arrivals) apart(owner string, took time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slowest = max(a.slowest, took)
	if a.known[owner] {
		return 0
	}
	a.known[owner] = true
	return a.slowest
}

// settle waits until no call is under way, or for as long as a node may take: in a rule that
// freezes the servers none will answer. It fails if the reply is to be lost.
func (s *settled) settle(ctx context.Context) error {
	for i := 0; s.pending() && i < 100; i++ {
		runtime.Gosched()
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.pending() && ctx.Err() == nil {
		<-look.C
	}
	if s.cut.Swap(false) {
		return &driver.Error{Maybe: true, Err: errors.New("reply lost")}
	}
	return nil
}

// Acquire is the Quorum's, except that it asks again when nobody got a majority: the suite's rule
// about contenders is for a backend that decides at one place.
func (s *settled) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	for {
		start := time.Now()
		r, err := s.Quorum.Acquire(ctx, claim)
		queued := err == nil && claim.Queue && r.State == driver.Busy
		if err == nil {
			err = s.settle(ctx)
		}
		if queued { // also if the reply is lost
			<-time.After(s.order.apart(claim.Owner, time.Since(start)))
		}
		if err != nil || r.State != driver.Busy || claim.Queue {
			return r, err
		}
		if e, err := s.Inspect(ctx, claim.Key); err != nil || e.Holder.Owner != "" ||
			len(e.Sharers) > 0 {
			return r, nil
		}
		pause := time.NewTimer(rand.N(5 * time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return r, nil
		}
	}
}

func (s *settled) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	r, err := s.Quorum.Renew(ctx, claims)
	if err == nil {
		err = s.settle(ctx)
	}
	return r, err
}

func (s *settled) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := s.Quorum.Release(ctx, claim)
	if err == nil {
		err = s.settle(ctx)
	}
	return r, err
}
