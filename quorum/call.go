package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// operation is what a call asks of a node.
type operation uint8

const (
	acquiring operation = iota
	releasing
)

// call is one operation on one node, in its key's track.
type call struct {
	q      *Quorum
	op     operation
	node   int
	probe  bool
	forced bool   // the node is needed, down or not
	unmade bool   // it was not made: the node turned out to be down while this waited for its turn
	first  bool   // no acquisition was sent to the node before it
	queued bool   // it had to wait for its turn, so the round's bound is not its own
	number uint32 // among those of the record

	claim  *driver.Claim // not changed as long as the call lives
	track  *track
	record *record
	start  clock.Instant
	bound  time.Duration
	ctx    bounded // its deadline is set already if it need not be set when the call is made
	to     receiver
}

// receiver is told how a call ended, on the call's goroutine and with no lock held.
type receiver interface {
	answer(c *call, result driver.Result, err error)
}

// run makes the call, and then those that have waited for it.
func (c *call) run() {
	for c != nil {
		c = c.perform()
	}
}

// perform makes one call and returns the one whose turn it is then.
func (c *call) perform() (next *call) {
	q, n := c.q, c.q.nodes[c.node]
	var result driver.Result
	err := c.late(n)
	c.unmade = err != nil
	if !c.unmade {
		result, err = c.ask(n)
		q.note(n, err, c.op == acquiring, c.probe)
		if result.Token > 0 {
			q.saw(result.Token, c.claim.Block) // also if it comes too late: the next one is to be larger
		}
	}
	n.pending.Add(-1)

	s := q.shardOf(c.claim.Key)
	s.mu.Lock()
	r := c.record
	r.calls--
	owes := false
	latest := r.last[c.node] == c.number
	switch {
	case err == nil:
	case c.op == acquiring && c.first && latest && !maybe(err):
		r.touched &^= only(c.node)
	case c.op == releasing && !r.touched.has(c.node):
		// It had no need to get through.
		result, err = driver.Result{State: driver.Lost}, nil
	}
	if c.op == releasing && err != nil && latest && !driver.Permanent(err) {
		owes = !r.owed.has(c.node)
		r.owed |= only(c.node)
	}
	var news news
	if w := r.waiter; w != nil && c.op == acquiring && c.claim.Queue && latest && err == nil {
		w.answered(c.node, c.claim, result, c.start, q)
		news = q.weighLocked(r, c.claim.Key)
	}
	if next = c.track.next(c.node); next == nil {
		c.track.busy &^= only(c.node)
	}
	s.tidyLocked(c.track, r)
	s.mu.Unlock()

	if owes {
		q.owe(n, debt{c.claim.Key, c.claim.Owner})
	}
	if c.to != nil {
		c.to.answer(c, result, err)
	}
	q.tell(news)
	q.flight.end()
	return next
}

// late says why a call that has waited for its turn is not made: while it waited, its node turned out to be down. If
// the round needs the node nevertheless, it asks again, with force.
func (c *call) late(n *node) error {
	if c.queued && !c.probe && !c.forced && n.isDown() {
		return refused(n.excuse(), false)
	}
	return nil
}

func (c *call) ask(n *node) (result driver.Result, err error) {
	ctx := &c.ctx
	ctx.base = c.q.base
	if ctx.deadline.IsZero() || c.queued {
		ctx.deadline = clock.In(c.bound)
	}
	defer ctx.end()
	switch c.op {
	case acquiring:
		result, err = n.backend.Acquire(ctx, *c.claim)
	case releasing:
		result, err = n.backend.Release(ctx, *c.claim)
	}
	return result, explain(ctx, err, c.bound)
}

// explain says in our words that a node did not answer in time.
func explain(ctx context.Context, err error, bound time.Duration) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return &driver.Error{Maybe: maybe(err), Err: errClosed}
	}
	return &driver.Error{Maybe: maybe(err), Err: slowError(bound)}
}

// slowError says that a node did not answer within the bound.
func slowError(bound time.Duration) error {
	if bound >= 10*time.Millisecond {
		bound = bound.Round(time.Millisecond) // a batch has some microseconds more
	}
	return fmt.Errorf("%w within %v", errNoReply, bound)
}
