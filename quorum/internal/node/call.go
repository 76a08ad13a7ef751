package node

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Operation is what a call asks of a node.
type Operation uint8

// Operations on one claim.
const (
	Acquiring Operation = iota
	Releasing
	renewing // by a [Renewal], never by a Call
)

// Call is one operation on one claim at one node, in its key's order.
type Call struct {
	Node    *Node
	Op      Operation
	Claim   *driver.Claim // not changed while the call lives
	History *History
	Began   clock.Instant // the instant from which the caller counts; for the keeper
	Bound   time.Duration // how long the node has to answer
	Until   time.Time     // when that time is over; if zero, Bound counts from the call's turn
	Probe   bool          // see [Node.Admit]
	Forced  bool          // the node is needed, down or not
	To      Receiver      // may be nil

	unmade bool // it was not made: its node turned out to be down while it waited for its turn
	queued bool // it had to wait for its turn, so Bound counts from then and Until does not apply
	number uint32
	ends   uint32 // how often the claim had ended when the call's turn came
	key    *Key
	ctx    bounded
}

// Receiver is told how a call ended, on the call's goroutine and with no mutex held.
type Receiver interface {
	Answer(c *Call, result driver.Result, err error)
}

// Answers is a Receiver of the calls' errors alone. It must have room for all of them.
type Answers chan error

// Answer implements Receiver.
func (a Answers) Answer(_ *Call, _ driver.Result, err error) { a <- err }

// Unmade reports whether the call was not made after all. Then its receiver may ask again.
func (c *Call) Unmade() bool { return c.unmade }

// Queued reports whether the call had to wait for its turn.
func (c *Call) Queued() bool { return c.queued }

// Push puts the call in its place in the key's order. If it reports that the call's turn has come,
// the caller starts the call after unlocking. The caller holds the mutex of the claim's history.
func (c *Call) Push() (turn bool) {
	c.Node.group.calls.add(1)
	c.Node.calls.Add(1)
	c.History.push(c)
	c.key = c.History.Key
	if i := c.Node.Index; c.key.busy.Has(i) {
		c.queued = true
		c.key.waiting = append(c.key.waiting, c)
		return false
	}
	c.key.busy |= Only(c.Node.Index)
	c.History.started(c)
	return true
}

// Start makes the call whose turn has come. It does not block.
func (c *Call) Start() { c.Node.group.workers.start(c) }

// Make puts the call in its place, and starts it if its turn has come.
func (c *Call) Make() {
	if c.Push() {
		c.Start()
	}
}

// Run makes the call, and then the calls that waited behind it.
func (c *Call) Run() {
	for c != nil {
		c = c.run()
	}
}

// run makes one call and returns the one whose turn it is then.
func (c *Call) run() (next *Call) {
	n, h := c.Node, c.History
	var result driver.Result
	err := c.late()
	c.unmade = err != nil
	switch {
	case c.unmade:
	case c.needless():
		result.State = driver.Lost
	default:
		sent := clock.Now()
		result, err = c.ask()
		if err == nil && TellsClock(c.Op, &result) {
			n.read(result.Clock, sent, clock.Now())
		}
		n.returned(err, c.Op, c.Probe)
	}
	n.calls.Add(-1)

	h.mu.Lock()
	latest := h.latest(c)
	result, err, pend := h.returned(c, result, err)
	after := h.keeper.Answered(c, result, err, latest)
	next = c.key.next(n.Index)
	h.keeper.Tidy()
	h.mu.Unlock()

	if pend {
		n.Pend(h, c.Claim.Key, c.Claim.Owner)
	}
	if c.To != nil {
		c.To.Answer(c, result, err)
	}
	if after != nil {
		after()
	}
	n.group.calls.end()
	return next
}

// late returns why a call that has waited for its turn must not be made, or nil. There are two
// reasons: its node turned out to be down meanwhile, or its claim was released. A receiver that
// needs the node anyway asks again, with force. An acquisition must not be made after its release,
// because perhaps nobody would release it again.
func (c *Call) late() error {
	switch {
	case !c.queued:
		return nil
	case c.Op == Acquiring && c.over():
		if c.Probe {
			c.Node.unprobed()
		}
		return Refused(ErrOvertaken, false)
	case c.Probe || c.Forced:
		return nil
	}
	if excuse := c.Node.excuse(); excuse != nil {
		return Refused(excuse, false)
	}
	return nil
}

// needless reports whether the call is a release that has waited for its turn, and the node does
// not have the claim: the acquisition before it was not made, or a release was confirmed. Callers
// repeat a release until it is answered. If each of these were made, they would keep a slow node so
// busy that acquisitions fail, which leave more of them.
func (c *Call) needless() bool {
	if c.Op != Releasing || !c.queued || c.Probe {
		return false
	}
	c.History.mu.Lock()
	defer c.History.mu.Unlock()
	return !c.History.touched.Has(c.Node.Index)
}

// over reports whether the claim was released, and not asked for again.
func (c *Call) over() bool {
	c.History.mu.Lock()
	defer c.History.mu.Unlock()
	return c.History.over
}

func (c *Call) ask() (result driver.Result, err error) {
	g, ctx := c.Node.group, &c.ctx
	ctx.base, ctx.deadline = g.base, c.Until
	if c.Until.IsZero() || c.queued {
		ctx.deadline = clock.In(c.Bound)
	}
	defer ctx.end()
	switch c.Op {
	case Acquiring:
		result, err = c.Node.Backend.Acquire(ctx, *c.Claim)
		if result.Presence <= min(c.Bound, g.config.MinPresence) {
			// A grant to a waiter might end before the other nodes have granted too.
			result.Presence, result.Place = 0, 0
		}
	case Releasing:
		result, err = c.Node.Backend.Release(ctx, *c.Claim)
	}
	return result, g.explain(ctx, err, c.Bound)
}
