package quorum

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// A renewal may be overtaken by a later call, and one that yields passes the key on. So while a
// node has not answered such a renewal, it may pass the key on after it has renewed the claim
// again: its later renewals of this claim are no votes, nor is an acquisition that confirms it. If
// it never answers, none is until the claim has ended. Other nodes may still make a majority.
//
// The same with a release: a waiter gives back what it holds on a few nodes, and if one of these is
// slow the waiter may hold a majority before the release takes effect there. Renewals do not wait
// for it as acquisitions do.

var errStillYielding = &driver.Error{Maybe: true,
	Err: errors.New("held, but may still be handed on: an earlier request is unanswered")}

// yieldSweep is the time between two looks for claims that ended without a release and have
// requests to yield without an answer.
const yieldSweep = time.Second

// yields counts the claims that have requests to yield without an answer, so that renewals sweep
// them only if there are any. A claim counts until all answers are noted or it has ended.
type yields struct {
	claims atomic.Int64
	sweep  atomic.Int64 // when to look next for claims that have ended; a clock.Instant
}

// claimID identifies a claim.
type claimID struct{ key, owner string }

// yielding is a claim that has requests to yield without an answer. It is apart from the claim's
// record: a claim may be renewed of which nothing else is known, if an earlier process acquired it
// or its lease has surely ended once. Guarded by the mutex of its key's shard.
type yielding struct {
	shard   *shard
	id      claimID
	open    [node.Max]int32 // by node, requests without an answer
	all     int             // the sum of open
	expires clock.Instant   // when the last lease asked for has surely ended
}

// doubt notes which nodes have not answered each claim's earlier requests to yield, or to release.
// Called before any node is asked, with b.mu held.
func (b *batch) doubt() {
	q := b.q
	if q.yields.claims.Load() > 0 {
		q.sweepYields()
	}
	for k := range b.claims {
		s := q.shardOf(b.claims[k].Key)
		s.mu.Lock()
		late := q.lateLocked(s, &b.claims[k], b.start)
		if r := s.findLocked(b.claims[k].Key, b.claims[k].Owner); r != nil {
			late |= r.history.Ending()
		}
		s.mu.Unlock()
		if late != 0 && b.late == nil {
			b.late = make([]node.Set, len(b.claims))
		}
		if late != 0 {
			b.late[k] = late
		}
	}
}

// yielding notes that node i is about to be asked, if that is to yield.
func (b *batch) yielding(i int) {
	b.parts[i].each(len(b.claims), func(at, k int) {
		claim := &b.claims[k]
		if !claim.Yield {
			return
		}
		if b.yields == nil {
			b.yields = make([]*yielding, len(b.parts)*len(b.claims))
		}
		s := b.q.shardOf(claim.Key)
		s.mu.Lock()
		defer s.mu.Unlock()
		y := b.q.yieldingLocked(s, claim, b.start)
		y.open[i]++
		y.all++
		b.yields[i*len(b.claims)+at] = y
	})
}

// yielded notes that a node has answered, or surely was not reached: what it was asked for, it will
// not do any more.
func (b *batch) yielded(i int, results []driver.Result, err error) {
	if b.yields == nil || err != nil && node.Maybe(err) {
		return
	}
	all := len(b.claims)
	for at, y := range b.yields[i*all : (i+1)*all] {
		if y == nil || err == nil && results[at].State == driver.Unknown &&
			(results[at].Err == nil || node.Maybe(results[at].Err)) {
			continue
		}
		y.shard.mu.Lock()
		y.open[i]--
		if y.all--; y.all == 0 {
			y.shard.forgetYieldsLocked(b.q, y)
		}
		y.shard.mu.Unlock()
	}
}

// vote returns what a node's answer about a claim counts for.
func (b *batch) vote(i, k int, result driver.Result) driver.Result {
	if result.State == driver.Held && b.late != nil && b.late[k].Has(i) {
		return driver.Result{Err: errStillYielding}
	}
	return result
}

// last notes when a lease that is asked for has surely ended.
func (y *yielding) last(expires clock.Instant) { y.expires = max(y.expires, expires) }

// lateLocked returns the nodes that may pass the claim's key on yet. A lease is asked for at start.
func (q *Quorum) lateLocked(s *shard, claim *driver.Claim, start clock.Instant) (nodes node.Set) {
	y := s.yields[claimID{claim.Key, claim.Owner}]
	if y == nil {
		return 0
	}
	y.last(q.surelyEnded(claim, start))
	for i, calls := range y.open {
		if calls > 0 {
			nodes |= node.Only(i)
		}
	}
	return nodes
}

// yieldingLocked finds what is known of a claim's requests to yield, or begins to count them.
func (q *Quorum) yieldingLocked(s *shard, claim *driver.Claim, start clock.Instant) *yielding {
	id, ended := claimID{claim.Key, claim.Owner}, q.surelyEnded(claim, start)
	if y := s.yields[id]; y != nil {
		y.last(ended)
		return y
	}
	y := &yielding{shard: s, id: id, expires: ended} // instants may be negative
	if s.yields == nil {
		s.yields = make(map[claimID]*yielding)
	}
	s.yields[id] = y
	q.yields.claims.Add(1)
	return y
}

// forgetYieldsLocked forgets a claim's requests to yield, if it has not done so before. Answers
// that come later find the old count, and not that of later requests.
func (s *shard) forgetYieldsLocked(q *Quorum, y *yielding) {
	if y != nil && s.yields[y.id] == y {
		delete(s.yields, y.id)
		q.yields.claims.Add(-1)
	}
}

// sweepYields forgets the requests to yield of claims that have ended without a release, now and
// then.
func (q *Quorum) sweepYields() {
	now, due := clock.Now(), q.yields.sweep.Load()
	if now < clock.Instant(due) ||
		!q.yields.sweep.CompareAndSwap(due, int64(now.Add(yieldSweep))) {
		return
	}
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		for _, y := range s.yields {
			if now > y.expires {
				s.forgetYieldsLocked(q, y)
			}
		}
		s.mu.Unlock()
	}
}
