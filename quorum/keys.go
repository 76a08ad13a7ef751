package quorum

import (
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// shards is the number of independent parts of the table of keys.
const shards = 32

// minSweep is the size up to which a shard does not look for claims that were never released.
const minSweep = 64

type shard struct {
	mu      sync.Mutex
	keys    map[string]*key
	sweepAt int
}

// key is the order of a key's calls and what is known of its claims. Guarded by its shard's mutex.
type key struct {
	name    string
	shard   *shard
	calls   node.Key
	records []*record
}

// record is what is known of a claim, for as long as that is needed. Guarded by the mutex of its
// key's shard.
type record struct {
	q       *Quorum
	key     *key
	owner   string
	history node.History

	// held says that the claim was granted a majority, and has not ended since. Only then is it
	// healed, when a renewal finds that it still has one.
	held bool

	// shared says that nodes may have the claim as shared, because a request or a renewal said so.
	shared bool

	// generation changes with each acquisition, so that a round of an earlier one asks no more
	// nodes.
	generation uint64

	// top is the largest token that the claim has.
	top driver.Token

	// unsure is the nodes that may not know the last token of the key, because the claim was set
	// there again. SetAt is when a call that may have set it returned last.
	unsure node.Set
	setAt  clock.Instant

	expires clock.Instant // when the last lease asked for has surely ended; for the sweep
	queued  *queuedClaim  // while it queues
}

func (q *Quorum) shardOf(key string) *shard { return &q.shards[q.hash(key)%shards] }

// keyLocked returns the key of that name, and makes one if there is none.
func (s *shard) keyLocked(name string) *key {
	k := s.keys[name]
	if k == nil {
		if len(s.keys) >= s.sweepAt {
			s.sweepLocked(clock.Now())
		}
		k = &key{name: name, shard: s}
		s.keys[name] = k
	}
	return k
}

// findLocked returns what is known of a claim, or nil.
func (s *shard) findLocked(name, owner string) *record {
	if k := s.keys[name]; k != nil {
		return k.find(owner)
	}
	return nil
}

func (k *key) find(owner string) *record {
	for _, r := range k.records {
		if r.owner == owner {
			return r
		}
	}
	return nil
}

// newRecord returns the record of a claim of which nothing is known. The caller adds it to its key.
func (q *Quorum) newRecord(k *key, owner string) *record {
	r := &record{q: q, owner: owner}
	r.history = node.NewHistory(&k.shard.mu, r, &q.doubts)
	return r
}

// add makes the record one of the key's.
func (k *key) add(r *record) {
	r.key, r.history.Key = k, &k.calls
	k.records = append(k.records, r)
}

// Answered implements node.Keeper: it notes what an answer says of tokens and of the queue. Only
// the answer to the latest call is true of the node.
func (r *record) Answered(
	c *node.Call, result driver.Result, err error, latest bool,
) (after func()) {
	if result.Token > 0 {
		// Also if it comes too late: the next token must be larger.
		r.q.saw(result.Token, c.Claim.Block)
	}
	if err == nil && c.Claim.Ticket == 0 && node.TellsClock(c.Op, &result) {
		r.q.placed(result.Clock)
	}
	if c.Op == node.Acquiring && r.unsure != 0 {
		r.setAt = clock.Now()
	}
	if w := r.queued; w != nil && c.Op == node.Acquiring && c.Claim.Queue && latest && err == nil {
		w.answered(c.Node.Index, c.Claim, result, c.Began, r.q)
		if n := r.q.weighLocked(r); n.Kind != 0 {
			return func() { r.q.tell(n) }
		}
	}
	return nil
}

// Tidy implements node.Keeper. It forgets the claim if nothing needs to be known of it any more,
// and then the key if it has no claims and calls.
func (r *record) Tidy() {
	if k := r.key; r.history.Over() && r.history.Idle() {
		if i := slices.Index(k.records, r); i >= 0 {
			k.records = slices.Delete(k.records, i, i+1)
		}
		r.history.Forget()
	}
	r.key.tidy()
}

// tidy forgets a key without claims and calls.
func (k *key) tidy() {
	if s := k.shard; len(k.records) == 0 && !k.calls.Busy() && s.keys[k.name] == k {
		delete(s.keys, k.name)
	}
}

// sweepLocked forgets claims whose TTL has ended and that were never released. It waits until the
// table has doubled, so its cost for each key is constant.
func (s *shard) sweepLocked(now clock.Instant) {
	for _, k := range s.keys {
		k.records = slices.DeleteFunc(k.records, func(r *record) bool {
			// A queued claim is kept: its past decides whether a notice is believed.
			over := r.history.Idle() && r.queued == nil && now > r.expires
			if over {
				r.history.Forget()
				r.notSure(0)
			}
			return over
		})
		k.tidy()
	}
	s.sweepAt = max(minSweep, 2*len(s.keys))
}

// drew notes that the claim was granted a block of tokens.
func (r *record) drew(first driver.Token, block uint64) {
	r.top = max(r.top, first+driver.Token(max(block, 1))-1)
}

// begin notes that an acquisition begins.
func (r *record) begin(claim *driver.Claim, start clock.Instant) {
	until := r.q.surelyEnded(claim, start)
	if r.generation == 0 || until > r.expires {
		r.expires = until
	}
	r.generation = r.q.generation.Add(1)
	r.history.Begin()
	r.shared = r.shared || claim.Shared
	if claim.Queue {
		r.wait(claim, start)
	}
}

// surelyEnded returns the time at which a lease that was asked for at start has ended on all nodes.
func (q *Quorum) surelyEnded(claim *driver.Claim, start clock.Instant) clock.Instant {
	return start.Add(2*claim.TTL + q.config.bound(claim.TTL))
}

// end notes that the claim is released or given up.
func (r *record) end() {
	r.history.End()
	r.held = false
	r.notSure(0)
	r.stopWaiting()
}
