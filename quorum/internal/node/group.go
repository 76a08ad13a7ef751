package node

import (
	"context"
	"sync"
	"time"
)

// Config is how a Group is set up.
type Config struct {
	// Observe is called with each change of a node's state, one after the other. May be nil.
	Observe func(Change)

	// Identify asks all nodes who they are. A node that has not been identified yet has it called
	// when it answers.
	Identify func(context.Context)

	// Closed is the error of a call that ended with the group.
	Closed error

	// Keep is how many idle goroutines are kept.
	Keep int

	// ReleaseBound is how long a pending release may take when it is made again.
	ReleaseBound time.Duration

	// MinPresence: a node whose presence is no longer than this counts as one without a queue.
	MinPresence time.Duration
}

// Group is what nodes that work together share: the context of their calls, and the goroutines that
// make them. Make one with [NewGroup].
type Group struct {
	config Config

	// base ends with Cancel. Calls run under it, not under a caller's context: a caller's context
	// ends the caller's wait only, and what was begun has to be finished.
	base   context.Context
	cancel context.CancelFunc

	workers workers
	calls   inFlight

	reporting sync.Mutex // one change after the other
}

// NewGroup makes a Group without nodes.
func NewGroup(c Config) *Group {
	g := &Group{config: c, calls: newInFlight()}
	g.base, g.cancel = context.WithCancel(context.Background())
	g.workers.keep, g.workers.alive = c.Keep, newInFlight()
	return g
}

// Context ends with [Group.Cancel].
func (g *Group) Context() context.Context { return g.base }

// Start runs j on a goroutine of its own. It does not block.
func (g *Group) Start(j Job) { g.workers.start(j) }

// Go runs f, which counts as a call under way, on a new goroutine.
func (g *Group) Go(f func()) {
	g.calls.add(1)
	go func() {
		f()
		g.calls.end()
	}()
}

// Wait returns when no call is under way, or after most.
func (g *Group) Wait(most time.Duration) { g.calls.wait(most) }

// Cancel ends all calls.
func (g *Group) Cancel() { g.cancel() }

// Close ends the goroutines. It waits until calls and then goroutines have ended, and no longer
// than most for each of the two.
func (g *Group) Close(most time.Duration) {
	g.workers.close()
	g.calls.wait(most)
	g.workers.alive.wait(most)
}
