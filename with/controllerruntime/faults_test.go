package withcontrollerruntime_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/memhold"
	withcontrollerruntime "github.com/holdfast-go/holdfast/with/controllerruntime"
)

// TestFaults is the test of itest/with, without bringing Kubernetes there: of two processes one
// works. Whatever becomes of the backend, the work ends, even without an answer, and before that of
// another begins. When the backend is back, somebody works.
func TestFaults(t *testing.T) {
	t.Parallel()
	for how, process := range map[string]func(*fleet, context.Context, *holdfast.Locker,
		manager.RunnableFunc){
		"Run": func(f *fleet, ctx context.Context, l *holdfast.Locker,
			work manager.RunnableFunc) {
			withcontrollerruntime.Run(ctx, f.electionOver(l), nowhere, options(),
				func(mgr manager.Manager, _ election.Term) error { return mgr.Add(work) })
		},
		"Elect": func(f *fleet, ctx context.Context, l *holdfast.Locker,
			work manager.RunnableFunc) {
			mgr := f.electedOver(l, 20*time.Millisecond)
			if err := mgr.Add(work); err != nil {
				f.Error(err)
			}
			mgr.Start(ctx)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			s := &stage{T: t, works: make(chan *turn, 100)}
			for range 2 {
				client := f.memory.Client()
				// The machine may be busy: half a second lies between a loss and the next lock.
				locker := f.lockerOver(client, holdfast.WithTTL(2*time.Second),
					holdfast.WithDrift(0.25))
				f.begin(func(ctx context.Context) error {
					for ctx.Err() == nil { // with Elect the process ends, and is started again
						process(f, ctx, locker, func(ctx context.Context) error {
							s.begin(&turn{ctx, client})
							<-ctx.Done()
							return nil
						})
					}
					return ctx.Err()
				})
			}
			for _, fault := range []struct {
				hurt, heal func(memhold.Faults)
				forgets    bool // two may have the lock until the first one hears of it
			}{
				{memhold.Faults.Freeze, memhold.Faults.Thaw, false},
				{memhold.Faults.Freeze, memhold.Faults.ThawDropping, false},
				{memhold.Faults.Forget, nil, true},
				{func(f memhold.Faults) { f.Lose(name) }, nil, true},
				{func(f memhold.Faults) {
					f.Forget()
					f.Inject(memhold.Fault{Err: holdfast.ErrUnavailable})
				}, memhold.Faults.Clear, true},
			} {
				now := s.working(fault.forgets)
				fault.hurt(now.client.Faults())
				<-now.ctx.Done()
				isLoss(t, now.ctx)
				if fault.heal != nil {
					s.working(true) // the other process
					fault.heal(now.client.Faults())
				}
			}
			s.working(true)
		})
	}
}

// stage is where two processes work.
type stage struct {
	*testing.T
	works chan *turn

	mu      sync.Mutex
	last    *turn
	forgets bool
}

// turn is the work of one process, once.
type turn struct {
	ctx    context.Context
	client *memhold.Backend
}

func (s *stage) begin(now *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.ctx.Err() == nil && !s.forgets {
		s.Error("two work at a time")
	}
	s.last = now
	s.works <- now
}

// working waits until somebody works.
func (s *stage) working(forgets bool) *turn {
	for {
		s.mu.Lock()
		if s.last != nil && s.last.ctx.Err() == nil {
			defer s.mu.Unlock()
			s.forgets = forgets
			return s.last
		}
		s.mu.Unlock()
		<-s.works
	}
}
