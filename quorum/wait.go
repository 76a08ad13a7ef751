package quorum

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Waiting over N nodes. A claim queues on every node, with one ticket, so that all nodes have waiters in the same order
// and a release hands over to the same one on most of them. Each node's handoff reaches us as a
// notice; a majority of them, with one token and with time left, is a grant. Everything else only makes us ask
// again (driver.Freed), and asking is what decides then: it is the ordinary acquisition. So a
// notice that is lost, late, repeated or wrong costs time, never exclusion.
//
// Where several waiters hold a part each, all but one have to let go. Whoever has no majority after a short
// random time gives back what it holds, and queues there again at once, behind those with earlier tickets. Those
// that are next in line wait longer, so they are given what the others let go. A waiter behind somebody who
// does hold a majority lets go and does not queue again before it asks next: the nodes are for the holder to heal.

const (
	// patience is the part of the node timeout after which a minority of grants is given back, at the earliest.
	patience = 0.1
	// seniority is how much longer the waiter holds on that is next in line.
	seniority = 4
	// maxRetreat bounds how often that time doubles, while nobody else wants what is given back.
	maxRetreat = 4
)

// waiter is what is known of a claim in the queue. Guarded by its shard's mutex.
type waiter struct {
	claim driver.Claim  // as it was asked for last
	began clock.Instant // before it was asked for first

	// asking counts acquisitions under way. Their answer comes first: no notice is passed on meanwhile.
	asking int

	// promised is until when, at most, the caller will count a Granted notice as valid: what it was told about its
	// presence, from before it asked. Before it was told anything it counts none.
	told     bool
	promised clock.Instant

	votes []vote

	hints   nodeSet // nodes that said something that calls for asking
	fresh   bool    // a node has said something since the caller asked last
	hinted  bool    // the caller was told to ask, and has not yet
	granted bool    // the caller was told that it holds the key
	left    nodeSet // nodes that it let go without queuing there again, since the caller asked last
	retreat int     // how often grants were given back, and got again at once

	timer *time.Timer // until a minority is given back; nil if none is set
	turn  int         // tells a timer that it was replaced
	due   bool        // the timer has fired
}

// vote is what a waiter knows of one node.
type vote struct {
	// queued: the node's last answer was that the claim waits there, and counts as present until present.
	queued  bool
	present clock.Instant

	// doubtful: a notice from this node does not prove that the claim holds the key there now. While the claim
	// has been in the node's queue without a break, only one grant can have been made, and it lasts as long as the
	// presence. After a break a notice may be about an earlier one, which is over. It stays so for this claim.
	doubtful bool

	held    bool          // the claim holds the key there
	noticed bool          // known from a notice: it lasts as long as the presence
	expires clock.Instant // else: at the earliest
	since   clock.Instant // when that became known
	token   driver.Token
	block   uint64

	holder   string // who held it when the node answered last; empty if not known
	place    int    // and our place in its queue; 0 if not known
	returned bool   // the claim was given back since, and is queuing again
}

// news is a notice to be passed on when no lock is held; with Kind 0 it is none.
type news = driver.Notice

// wait takes note that the claim is about to be asked for with Queue. It gives the claim its ticket.
func (r *record) wait(claim *driver.Claim, start clock.Instant, q *Quorum) {
	w := r.waiter
	if w == nil {
		if claim.Ticket == 0 {
			claim.Ticket = newTicket()
		}
		w = &waiter{votes: make([]vote, len(q.nodes)), began: start}
		w.claim.Ticket = claim.Ticket
		r.waiter = w
	}
	// The same ticket as long as it waits: it is the claim's place.
	claim.Ticket = w.claim.Ticket
	w.claim = *claim
	w.asking++
	w.hints, w.fresh, w.hinted, w.left = 0, false, false, 0
}

// lastTicket is the last ticket of this process.
var lastTicket atomic.Uint64

// newTicket returns the time, raised over the last ticket: waiters of one process are served in the order in which they
// came, also when its clock stands still or is set back.
func newTicket() uint64 {
	for {
		last := lastTicket.Load()
		if ticket := max(last+1, clock.Microseconds()); lastTicket.CompareAndSwap(last, ticket) {
			return ticket
		}
	}
}

// stopWaiting forgets the waiter: its claim holds the key, or is over.
func (r *record) stopWaiting() {
	if r.waiter != nil {
		r.waiter.stop()
		r.waiter = nil
	}
}

// stop ends the timer.
func (w *waiter) stop() {
	w.turn++
	w.due = false
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// arm sets the timer. It runs on while the caller asks again: how often that is must not decide
// whether anything is given back.
func (w *waiter) arm(q *Quorum, r *record) {
	w.stop()
	turn, key := w.turn, w.claim.Key
	w.timer = time.AfterFunc(q.holdOut(w), func() {
		s := q.shardOf(key)
		s.mu.Lock()
		var n news
		if r.waiter == w && w.turn == turn {
			w.timer, w.due = nil, true
			n = q.weighLocked(r, key)
		}
		s.mu.Unlock()
		q.tell(n)
	})
}

// answered takes note of a node's answer to a request made at start.
func (w *waiter) answered(i int, claim *driver.Claim, result driver.Result, start clock.Instant, q *Quorum) {
	now := clock.Now()
	v := &w.votes[i]
	switch result.State {
	case driver.Held:
		if v.returned {
			w.retreat = min(w.retreat+1, maxRetreat)
		}
		v.held, v.noticed, v.since = true, false, now
		v.holder, v.place, v.returned = "", 0, false
		v.expires = start.Add(claim.TTL)
		v.token, v.block = result.Token, max(claim.Block, 1)
	case driver.Busy:
		// A grant made before this request took effect would still have lasted, and the answer been another. Unless
		// the claim may have been in the queue for longer than a presence since it was last known to wait: it
		// may have been granted the key and have lost it again. Without an earlier answer, that is since it
		// was asked for first, as also requests without an answer take effect.
		before := w.began.Add(result.Presence)
		if v.queued {
			before = v.present
		}
		if now >= before.Add(-q.config.allowance(result.Presence)) {
			v.doubtful = true
		}
		// A notice that came after the request was made can be about a grant made after the request took effect. An
		// older one is refuted by the answer.
		if v.held && (v.doubtful || !v.noticed || v.since <= start) {
			v.held, v.doubtful = false, true
		}
		v.queued, v.present = result.Presence > 0, start.Add(result.Presence)
		if v.returned {
			w.retreat = 0 // somebody wanted it
		}
		v.holder, v.place, v.returned = result.Holder, result.Place, false
	}
}

// notice takes note of a node's notice.
func (w *waiter) notice(i int, n *driver.Notice) {
	w.fresh = true
	v := &w.votes[i]
	v.holder = "" // whoever it was has let go: two waiters that let go must not each take the other for the holder
	if n.Kind != driver.Granted || v.doubtful || !v.queued {
		w.hints |= only(i)
		return
	}
	if !v.held {
		v.held, v.noticed, v.since = true, true, clock.Now()
		v.token, v.block = n.Token, max(n.Block, 1)
	}
}

// lasts is until when the claim holds the key on the node, at least.
func (v *vote) lasts() clock.Instant {
	if v.noticed {
		return v.present
	}
	return v.expires
}

// weighLocked looks at what a waiter has got, and says what to tell its caller.
func (q *Quorum) weighLocked(r *record, key string) (n news) {
	w := r.waiter
	if w == nil || w.asking > 0 || w.granted {
		return n
	}
	var held nodeSet
	for i := range w.votes {
		v := &w.votes[i]
		if !v.held {
			continue
		}
		held |= only(i)
		alike := 0
		for k := range w.votes {
			o := &w.votes[k]
			if o.held && o.token == v.token && o.block >= v.block && o.lasts() >= w.promised {
				alike++
			}
		}
		if alike >= q.need && w.told {
			w.granted = true
			w.stop()
			r.held = true
			r.drew(v.token, v.block)
			q.saw(v.token, v.block)
			q.counters.handoffs.Add(1)
			return driver.Notice{Kind: driver.Granted, Key: key, Owner: r.owner, Token: v.token, Block: v.block}
		}
	}
	switch some := held | w.hints; {
	case some == 0:
		w.stop()
	case some.count() >= q.need && w.fresh && !w.hinted:
		// Enough, but with tokens to be settled, or in doubt: asking does both. Without anything new the
		// last answer is what asking brings, and asking at once again could go on for ever.
		return q.hint(r, key)
	case w.due:
		w.due = false
		return q.retreatLocked(r, key, some)
	case w.timer == nil:
		w.arm(q, r)
		fallthrough
	default:
		if w.left != 0 && !w.hinted {
			// Its turn begins while it does not wait everywhere: where it does not, nobody hands over to it, and if
			// nodes hang that may be all that is missing.
			return q.hint(r, key)
		}
	}
	return n
}

// hint tells the caller to ask now.
func (q *Quorum) hint(r *record, key string) news {
	r.waiter.hinted = true
	return driver.Notice{Kind: driver.Freed, Key: key, Owner: r.owner}
}

// holdOut is how long a minority of grants is kept.
func (q *Quorum) holdOut(w *waiter) time.Duration {
	d := patience * float64(q.config.bound(w.claim.TTL)) * (1 + q.config.random())
	if w.next() {
		d *= seniority
	}
	return time.Duration(d * float64(int(1)<<w.retreat))
}

// next reports whether the waiter was next in line wherever it had to queue.
func (w *waiter) next() bool {
	for i := range w.votes {
		if w.votes[i].place > 1 {
			return false
		}
	}
	return true
}

// retreatLocked gives a minority of grants back.
func (q *Quorum) retreatLocked(r *record, key string, some nodeSet) (n news) {
	w := r.waiter
	if some.count() >= q.need {
		w.retreat = min(w.retreat+1, maxRetreat)
		w.arm(q, r)
		return q.hint(r, key)
	}
	holders := make(map[string]int)
	another := false // holds a majority
	for i := range w.votes {
		if v := &w.votes[i]; !v.held && v.holder != "" {
			holders[v.holder]++
			another = another || holders[v.holder] >= q.need
		}
	}
	w.hints = 0
	// Not again for a caller that has stopped asking, either.
	again := !another && w.told && clock.Now() < w.promised
	if !again {
		w.left |= some
	}
	q.returnLocked(r, key, some, again)
	return n
}

// returnLocked gives grants of a waiter back: the nodes pass them on to their next waiter. With again it queues
// there again.
func (q *Quorum) returnLocked(r *record, key string, nodes nodeSet, again bool) {
	w := r.waiter
	t := q.shardOf(key).trackLocked(key)
	claim := w.claim // a copy: the waiter's changes with its next request
	operations := []operation{releasing, acquiring}
	if !again {
		operations = operations[:1]
	}
	for i := range w.votes {
		if !nodes.has(i) {
			continue
		}
		w.votes[i] = vote{doubtful: true, returned: again}
		q.counters.returned.Add(1)
		for _, op := range operations {
			c := &call{
				q: q, op: op, node: i, record: r, start: clock.Now(),
				claim: &claim, bound: q.config.bound(claim.TTL),
			}
			q.flight.add(1)
			if t.push(c) {
				q.crew.start(c)
			}
		}
	}
}

// asked takes note of how an acquisition with Queue ended, and looks again at what came meanwhile.
func (q *Quorum) asked(r *round, result driver.Result) (n news) {
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := r.record.waiter
	if w == nil || r.record.over {
		return n
	}
	w.asking--
	if result.State == driver.Busy {
		w.granted, r.record.held = false, false
		if result.Presence > 0 {
			// The largest of all answers: the caller may not have seen the last one yet.
			if until := r.start.Add(result.Presence); !w.told || until > w.promised {
				w.told, w.promised = true, until
			}
		} else {
			// Too few nodes keep a queue: the caller comes back by itself, and leaves nothing meanwhile.
			var held nodeSet
			for i := range w.votes {
				if w.votes[i].held {
					held |= only(i)
				}
			}
			q.returnLocked(r.record, r.claim.Key, held, false)
		}
	}
	return q.weighLocked(r.record, r.claim.Key)
}

// heard takes in a notice of node i. It does not block and calls no node.
func (q *Quorum) heard(i int, notice driver.Notice) {
	var out []news
	s := q.shardOf(notice.Key)
	s.mu.Lock()
	if t := s.tracks[notice.Key]; t != nil {
		for _, r := range t.records {
			if r.waiter == nil || notice.Owner != r.owner && (notice.Owner != "" || notice.Kind != driver.Freed) {
				continue
			}
			r.waiter.notice(i, &notice)
			if n := q.weighLocked(r, notice.Key); n.Kind != 0 {
				out = append(out, n)
			}
		}
	}
	s.mu.Unlock()
	for _, n := range out {
		q.tell(n)
	}
}
