package quorum

import (
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Calls for one key go to each node one after the other, in the order in which they were made: the next one is
// made when the one before has returned. It returns after the node timeout at the latest, and by then
// has its place in the node's own order. That is what makes a release sound that follows an acquisition
// which was never answered. Different nodes, and different keys, do not wait for each other.

// shards is how many independent parts the table of keys has.
const shards = 32

// minSweep is the size below which a shard does not look for claims that were never released.
const minSweep = 64

type shard struct {
	mu      sync.Mutex
	tracks  map[string]*track
	sweepAt int
}

// track is one key: the order of its calls and what is known of its claims. Guarded by its shard's mutex.
type track struct {
	key     string
	busy    nodeSet // nodes with a call for the key under way
	waiting []*call // those behind them, in the order in which they were made
	records []*record
}

// record is one claim, for as long as there is something to remember of it.
type record struct {
	owner string

	// held: as far as is known here, the claim holds a majority. Only then is it healed.
	held bool

	// over: the claim was released or given up, and is not asked for since.
	over bool

	// gen is another number after each acquisition: a round that is about an earlier one asks no more nodes.
	gen uint64

	// made counts calls, and last is the number of the last one on each node. Only what that one brings is
	// true of the node, and only that one, if it is a release, may be made again: an earlier one would
	// undo what came after it.
	made uint32
	last [MaxNodes]uint32

	// top is the largest token that the claim has.
	top driver.Token

	touched nodeSet // nodes that an acquisition was sent to, and not surely in vain: the claim may be there
	owed    nodeSet // nodes with a debt, see node.debts
	calls   int     // calls under way or waiting

	expires clock.Instant // when the last lease asked for has surely ended; for the sweep
	waiter  *waiter       // while it queues
}

func (q *Quorum) shardOf(key string) *shard { return &q.shards[q.hash(key)%shards] }

// trackLocked returns the track of key, and makes one if there is none.
func (s *shard) trackLocked(key string) *track {
	t := s.tracks[key]
	if t == nil {
		if len(s.tracks) >= s.sweepAt {
			s.sweepLocked(clock.Now())
		}
		t = &track{key: key}
		s.tracks[key] = t
	}
	return t
}

// findLocked returns what is known of a claim, or nil.
func (s *shard) findLocked(key, owner string) (*track, *record) {
	if t := s.tracks[key]; t != nil {
		return t, t.find(owner)
	}
	return nil, nil
}

func (t *track) find(owner string) *record {
	for _, r := range t.records {
		if r.owner == owner {
			return r
		}
	}
	return nil
}

// push puts a call in its place. It reports whether the call's turn has come: then it is to be started, once
// the shard's mutex is free.
func (t *track) push(c *call) (now bool) {
	c.track = t
	c.record.calls++
	c.record.made++
	c.number = c.record.made
	c.record.last[c.node] = c.number
	// A release pays the debt, and an acquisition needs what the debt would undo.
	c.record.owed &^= only(c.node)
	if c.op == acquiring {
		c.first = !c.record.touched.has(c.node)
		c.record.touched |= only(c.node)
	}
	c.q.nodes[c.node].pending.Add(1)
	if t.busy.has(c.node) {
		c.queued = true
		t.waiting = append(t.waiting, c)
		return false
	}
	t.busy |= only(c.node)
	return true
}

// next takes the first waiting call for node i, or nil.
func (t *track) next(i int) *call {
	for k, c := range t.waiting {
		if c.node == i {
			t.waiting = slices.Delete(t.waiting, k, k+1)
			return c
		}
	}
	return nil
}

// tidyLocked forgets a claim of which there is nothing more to know, and a key without claims and calls.
func (s *shard) tidyLocked(t *track, r *record) {
	if r != nil && r.over && r.calls == 0 && r.owed == 0 {
		if k := slices.Index(t.records, r); k >= 0 {
			t.records = slices.Delete(t.records, k, k+1)
		}
	}
	if len(t.records) == 0 && t.busy == 0 && s.tracks[t.key] == t {
		delete(s.tracks, t.key)
	}
}

// sweepLocked forgets claims that ran into their TTL and were never released. It waits for the table to double, so
// it costs each key a constant.
func (s *shard) sweepLocked(now clock.Instant) {
	for _, t := range s.tracks {
		t.records = slices.DeleteFunc(t.records, func(r *record) bool {
			// A claim that waits is kept: what is known of its past decides whether a notice is believed.
			return r.calls == 0 && r.owed == 0 && r.waiter == nil && now > r.expires
		})
		s.tidyLocked(t, nil)
	}
	s.sweepAt = max(minSweep, 2*len(s.tracks))
}

// drew takes note of a block of tokens.
func (r *record) drew(first driver.Token, block uint64) {
	r.top = max(r.top, first+driver.Token(max(block, 1))-1)
}
