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
// it calls build, and starts what that returns; at the end of the term it shuts that down. build
// makes a new scheduler each time, with the connection it is given, which makes clients as redis
// does; they are closed at the end of the term. The term has a token.
//
// An error of build or of Start ends the term: it is told to election.WithOnError, and after a
// pause Run campaigns again, or returns it, with election.WithStopOnError. Run fails with
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
