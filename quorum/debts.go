package quorum

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A release that a node has not confirmed is a debt: the node may hold the claim still. While the node's
// connection lives, the request itself is on its way, in order; if the connection breaks, it may be
// lost though the acquisition was not. So debts are made good as soon as the node answers again.

// owe remembers a release. The record's owed bit is set already.
func (q *Quorum) owe(n *node, d debt) {
	forgotten, start := n.owe(d)
	if forgotten.owner != "" {
		q.counters.forgotten.Add(1)
		q.forget(n, forgotten)
	}
	if start {
		q.flushLater(n)
	}
}

// forget clears a debt that will not be paid: its key runs into its TTL.
func (q *Quorum) forget(n *node, d debt) {
	s := q.shardOf(d.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, r := s.findLocked(d.key, d.owner); r != nil {
		r.owed &^= only(n.index)
		s.tidyLocked(t, r)
	}
}

// flushLater has the debts looked at when the node has had a moment.
func (q *Quorum) flushLater(n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.base.Err() != nil {
		return
	}
	n.timer = time.AfterFunc(n.pause(), func() {
		if n.stopFlushTimer() {
			q.crew.start(&flush{q, n})
		}
	})
}

// stopFlushTimer reports whether the caller is the one to flush now: only one is.
func (n *node) stopFlushTimer() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer == nil {
		return false
	}
	n.timer.Stop()
	n.timer = nil
	return true
}

// flush pays a node's debts.
type flush struct {
	q *Quorum
	n *node
}

// run implements job.
func (f *flush) run() {
	done := make(answers, hands)
	for {
		due := f.n.pay(hands)
		if len(due) == 0 {
			f.q.report(f.n)
			return
		}
		sent, bad := 0, false
		for _, d := range due {
			if f.q.repay(f.n, d, done) {
				sent++
			}
		}
		for range sent {
			// Those that fail have become debts again.
			bad = <-done != nil || bad
		}
		if bad {
			f.q.flushLater(f.n)
			return
		}
	}
}

// repay makes an owed release, unless it has been made, or the claim is asked for again. It reports whether it
// has made a call.
func (q *Quorum) repay(n *node, d debt, to receiver) bool {
	s := q.shardOf(d.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t, r := s.findLocked(d.key, d.owner)
	if r == nil || !r.owed.has(n.index) {
		return false
	}
	c := &call{
		q: q, op: releasing, node: n.index, record: r,
		claim: &driver.Claim{Key: d.key, Owner: d.owner}, bound: q.config.bound(0), to: to,
	}
	q.flight.add(1)
	if t.push(c) {
		q.crew.start(c)
	}
	return true
}
