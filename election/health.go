package election

import (
	"context"
	"fmt"
	"runtime/debug"
)

// watch checks the health until the term ends.
func (t *term) watch() {
	for {
		sleep(t.ctx, t.election.config.checkEvery)
		if t.ctx.Err() != nil {
			return
		}
		t.check()
	}
}

// check ends the term if the health check fails. The first cause counts, so an end that came before
// stays what it was.
func (t *term) check() {
	c := &t.election.config
	late := fmt.Errorf("no answer within %v", c.checkEvery)
	ctx, cancel := context.WithTimeoutCause(t.ctx, c.checkEvery, late)
	defer cancel()
	// At that moment, and not when the check returns: it may hang.
	unhook := context.AfterFunc(ctx, func() { t.unhealthy(context.Cause(ctx)) })
	defer unhook()
	answered := false
	defer func() {
		if !answered {
			t.unhealthy(fmt.Errorf("it panicked: %v\n%s", recover(), debug.Stack()))
		}
	}()
	err := c.check(ctx)
	answered = true
	if err != nil {
		t.unhealthy(err)
	}
}

func (t *term) unhealthy(err error) { t.cancel(fmt.Errorf("%w: %w", ErrUnhealthy, err)) }
