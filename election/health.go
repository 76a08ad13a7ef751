package election

import (
	"context"
	"fmt"
	"runtime/debug"
)

// watch checks the health until ctx ends.
func (e *Election) watch(ctx context.Context, fail context.CancelCauseFunc) {
	for {
		sleep(ctx, e.config.checkEvery)
		if ctx.Err() != nil {
			return
		}
		e.probe(ctx, fail)
	}
}

// probe calls the health check once. If the check fails, probe calls fail, which ends ctx. The
// first cause counts: if ctx had ended before, its cause stays.
func (e *Election) probe(ctx context.Context, fail context.CancelCauseFunc) {
	c := &e.config
	unhealthy := func(err error) { fail(fmt.Errorf("%w: %w", ErrUnhealthy, err)) }
	late := fmt.Errorf("no answer within %v", c.checkEvery)
	ctx, cancel := context.WithTimeoutCause(ctx, c.checkEvery, late)
	defer cancel()
	// The check may hang, so the term ends when the check's time is over, not when the check
	// returns.
	unhook := context.AfterFunc(ctx, func() { unhealthy(context.Cause(ctx)) })
	defer unhook()
	select { // a check of a campaign may still run
	case e.checking <- struct{}{}:
		defer func() { <-e.checking }()
	case <-ctx.Done():
		unhealthy(context.Cause(ctx)) // unhook may have taken the function back before it ran
		return
	}
	answered := false
	defer func() {
		if !answered {
			unhealthy(fmt.Errorf("it panicked: %v\n%s", recover(), debug.Stack()))
		}
	}()
	err := c.check(ctx)
	answered = true
	if err == nil {
		// A check that returns because its time is over may be faster than the function that says
		// so, and unhook would take that back.
		err = context.Cause(ctx)
	}
	if err != nil {
		unhealthy(err)
	}
}
