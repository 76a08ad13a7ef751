package withgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/election"
)

// ErrNotLeader says that this process does not lead, so it runs no job.
var ErrNotLeader = errors.New("not the leader")

// Elector lets jobs run only where an election.Election leads. It is a gocron.Elector, for
// gocron.WithDistributedElector. Make it with [NewElector]. It is safe for concurrent use.
type Elector struct {
	election *election.Election

	mu   sync.Mutex
	term *term // nil: it does not lead
}

var _ gocron.Elector = (*Elector)(nil)

type term struct {
	election.Term
	ctx  context.Context
	jobs sync.WaitGroup // of Task; counted while Elector.mu is held
}

// NewElector returns an Elector that leads while [Elector.Run] runs and e leads. It fails with
// holdfast.ErrInvalid if e is nil.
func NewElector(e *election.Election) (*Elector, error) {
	if e == nil {
		return nil, invalid("election is nil: make one with election.New")
	}
	return &Elector{election: e}, nil
}

// Run campaigns until ctx ends, as election.Election.Run does, and returns its error. When a term
// is ended on purpose, the next process leads when the jobs of [Elector.Task] that run here have
// returned, or when the grace is over (election.WithGrace). Run does not wait for other jobs.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(ctx context.Context, t election.Term) error {
		now := &term{Term: t, ctx: ctx}
		e.set(now)
		<-ctx.Done()
		e.set(nil)
		now.jobs.Wait()
		return nil
	})
}

func (e *Elector) set(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// IsLeader returns nil if this process leads now, by its clock. Otherwise it returns an error that
// wraps [ErrNotLeader] and, after a loss, a [*holdfast.LostError]. gocron calls it before each run,
// and skips the run if there is an error. It makes no request, so ctx is not used.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.leading()
	return err
}

// leading returns the term. The caller has the mutex.
func (e *Elector) leading() (*term, error) {
	t := e.term
	switch {
	case t == nil:
		return nil, fmt.Errorf("withgocron: %q: %w", e.election.Name(), ErrNotLeader)
	case t.Err() != nil:
		return nil, fmt.Errorf("withgocron: %q: %w: %w", e.election.Name(), ErrNotLeader, t.Err())
	case t.ctx.Err() != nil:
		return nil, fmt.Errorf("withgocron: %q: %w: %w", e.election.Name(), ErrNotLeader,
			context.Cause(t.ctx))
	}
	return t, nil
}

// Task returns a function for gocron.NewTask that calls f with the term, and with a context that
// ends with the term or with the one that gocron gives. The function returns the error of f, joined
// with a [*holdfast.LostError] if the lock was lost before f returned. If the process does not lead
// any more it does not call f, and fails as [Elector.IsLeader] does.
func (e *Elector) Task(f func(ctx context.Context, term election.Term) error) func(
	context.Context) error {
	return func(ctx context.Context) error {
		e.mu.Lock()
		t, err := e.leading()
		if err == nil {
			t.jobs.Add(1)
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
		defer t.jobs.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
		return withLoss(f(ctx, t.Term), t.Err())
	}
}
