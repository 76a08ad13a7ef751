package node

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Renewal is one call that renews many claims at one node.
//
// It has no place in the keys' order. A renewal creates nothing and ends nothing, so a release may
// overtake it, and it must not wait behind a slow key. It may also overtake a release. Package
// quorum deals with that.
type Renewal struct {
	Node   *Node
	Claims []driver.Claim // not changed as long as the call lives
	Probe  bool           // see [Node.Admit]
	Bound  time.Duration  // how long the node has to answer
	Until  time.Time      // when that time is over
	To     Renewer

	ctx bounded
}

// Renewer is told how a Renewal ended: with an error, or with one result for each claim. It is
// called with no mutex held.
type Renewer interface {
	Renewed(n *Node, results []driver.Result, err error)
}

// Start makes the call. It does not block.
func (r *Renewal) Start() {
	g := r.Node.group
	r.ctx.base, r.ctx.deadline = g.base, r.Until
	g.calls.add(1)
	r.Node.calls.Add(1)
	g.workers.start(r)
}

// Run implements Job.
func (r *Renewal) Run() {
	g := r.Node.group
	results, err := r.Node.Backend.Renew(&r.ctx, r.Claims)
	err = g.explain(&r.ctx, err, r.Bound)
	r.ctx.end()
	if err == nil && len(results) != len(r.Claims) {
		err = &driver.Error{Maybe: true, Err: errResults}
	}
	r.Node.returned(err, renewing, r.Probe)
	r.Node.calls.Add(-1)
	r.To.Renewed(r.Node, results, err)
	g.calls.end()
}
