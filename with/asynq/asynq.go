package withasynq

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

// Scheduler is an asynq.Scheduler or an asynq.PeriodicTaskManager.
type Scheduler interface {
	Start() error // has it enqueue, until Shutdown
	Shutdown()    // stops it, and waits for what is being enqueued
}

var (
	_ Scheduler = (*asynq.Scheduler)(nil)
	_ Scheduler = (*asynq.PeriodicTaskManager)(nil)
)

// Run campaigns until ctx ends, as election.Election.Run does, and returns its error. For each term
// it calls build, starts the scheduler that build returns, and shuts it down at the end of the
// term. build makes a new scheduler each time, with the connection that it is given. That
// connection makes clients as redis does, and they are closed at the end of the term. The term has
// a token.
//
// An error of build or of Start ends the term. It is told to election.WithOnError, and after a
// pause Run campaigns again. With election.WithStopOnError Run returns it instead. Run fails with
// holdfast.ErrInvalid if an argument is nil.
func Run(ctx context.Context, e *election.Election, redis asynq.RedisConnOpt,
	build func(term election.Term, redis asynq.RedisConnOpt) (Scheduler, error)) error {
	switch {
	case e == nil:
		return invalid("election is nil: make one with election.New")
	case redis == nil || build == nil:
		return invalid("connection or function is nil for %q: give both", e.Name())
	}
	return e.Run(ctx, func(ctx context.Context, term election.Term) error {
		gate := newGate(term, redis)
		defer gate.close()
		s, err := build(term, gate)
		switch {
		case err != nil:
			return fmt.Errorf("withasynq: make the scheduler for %v: %w", term, err)
		case s == nil:
			return invalid("the function has returned no scheduler for %v", term)
		}
		if err := s.Start(); err != nil {
			return fmt.Errorf("withasynq: start the scheduler for %v: %w", term, err)
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	})
}

// invalid returns an error that wraps holdfast.ErrInvalid and says what is wrong in full.
func invalid(format string, args ...any) error {
	return fmt.Errorf("withasynq: %w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
}
