package quorum

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Waiting over N nodes. A claim queues on every node with the same ticket. So all nodes have the
// waiters in the same order, and a release hands over to the same waiter on most of them. Each
// node's handoff arrives as a notice. A majority of notices, with the same token and with time
// left, is a grant. Everything else only makes the caller ask again (driver.Freed), and then the
// ordinary acquisition decides. So a notice that is lost, late, repeated or wrong costs time, but
// never exclusion.
//
// If several waiters hold some nodes each, all but one of them have to give their nodes back. A
// waiter that has no majority after a short random time gives back the nodes that it holds, and
// queues there again at once, behind waiters with earlier tickets. The waiter that is next in line
// holds its nodes longer, and so gets what the others give back. If another claim holds a majority,
// a waiter gives back its nodes, and queues there again only when it next asks, so that the holder
// can heal these nodes.

const (
	// patience is the part of the node timeout after which, at the earliest, a waiter gives back a
	// minority of grants.
	patience = 0.1
	// seniority is how many times longer the waiter that is next in line holds its nodes.
	seniority = 4
	// maxRetreat bounds how often the time doubles, as long as nobody else wants what is given
	// back.
	maxRetreat = 4
)

// queuedClaim is what is known of a claim in the queue. Comments in this file call it a waiter.
// Guarded by its shard's mutex.
type queuedClaim struct {
	claim driver.Claim  // as in the last request
	began clock.Instant // just before the first request

	// asking is the number of acquisitions under way. While there are any, no notice is passed on,
	// because their answer comes first.
	asking int

	// promised is until when the caller accepts a Granted notice: the presence that the caller was
	// told, counted from before it asked. Before the caller was told a presence (told), it accepts
	// no Granted notice.
	told     bool
	promised clock.Instant

	// known says that the caller knows that a node may have the claim, and so asks again or
	// releases it.
	known bool

	votes []vote

	// nodes that were asked without the ticket, and may have given the claim a ticket of their own
	unplaced node.Set

	hints   node.Set // nodes that sent something for which the caller has to ask again
	fresh   bool     // a node has sent something since the caller last asked
	hinted  bool     // the caller was told to ask, and has not asked yet
	granted bool     // the caller was told that it holds the key
	handed  bool     // it was, and was answered Busy since
	// nodes that the claim gave back without queuing there again, since the caller last asked
	left    node.Set
	retreat int // how often grants were given back and came again at once

	timer  *time.Timer // until a minority is given back; nil if none is set
	timers int         // counts them: so one that fires late knows that it was stopped
	due    bool        // the timer has fired
}

// vote is what a waiter knows of one node.
type vote struct {
	// queued says that the claim waits there, by the node's last answer, and counts as present
	// until the time present.
	queued  bool
	present clock.Instant

	// doubtful says that a notice from this node does not prove that the claim holds the key there
	// now. While the claim is in the node's queue without a break, there can be only one grant,
	// which lasts as long as the presence. After a break, a notice may be about an earlier grant,
	// which is over. A node that is doubtful for a claim stays doubtful.
	doubtful bool

	held    bool          // the claim holds the key there
	noticed bool          // held is known from a notice, so it lasts as long as the presence
	expires clock.Instant // otherwise, the earliest time at which it ends
	since   clock.Instant // when held became known
	token   driver.Token
	block   uint64

	holder   string // who held the key at the node's last answer; empty if not known
	place    int    // the claim's place in the queue then; 0 if not known
	returned bool   // the claim was given back since then, and queues again
}

// wait notes that a request for the claim with Queue is about to be sent. It gives the claim its
// ticket.
func (r *record) wait(claim *driver.Claim, start clock.Instant) {
	q, w := r.q, r.queued
	if w == nil {
		if claim.Ticket == 0 {
			claim.Ticket = q.newTicket(start)
		}
		w = &queuedClaim{votes: make([]vote, len(q.nodes)), began: start}
		w.claim.Ticket = claim.Ticket
		if claim.Ticket == 0 {
			w.unplaced = node.Every(len(q.nodes))
		}
		r.queued = w
	}
	// The ticket is the claim's place, so it stays the same while the claim waits. A claim that
	// began without a ticket gets one when the nodes' clocks are known. Nodes where it already
	// waits have given it one of their own, which is about the same unless a request was late or
	// lost; see returnLocked.
	if w.claim.Ticket == 0 {
		w.claim.Ticket = q.ticket(w.began)
	}
	claim.Ticket = w.claim.Ticket
	w.claim = *claim
	w.asking++
	w.hints, w.fresh, w.hinted, w.left = 0, false, false, 0
}

// stopWaiting forgets the place in the queue, because the claim holds the key or has ended.
func (r *record) stopWaiting() {
	if r.queued != nil {
		r.queued.stop()
		r.queued = nil
	}
}

// stop ends the timer.
func (w *queuedClaim) stop() {
	w.timers++
	w.due = false
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// arm sets the timer. The timer runs on while the caller asks again, because how often the caller
// asks must not decide whether anything is given back.
func (w *queuedClaim) arm(r *record) {
	w.stop()
	q, s, number := r.q, r.key.shard, w.timers
	w.timer = time.AfterFunc(q.holdOut(w), func() {
		s.mu.Lock()
		var n driver.Notice
		if r.queued == w && w.timers == number {
			w.timer, w.due = nil, true
			n = q.weighLocked(r)
		}
		s.mu.Unlock()
		q.tell(n)
	})
}

// answered notes a node's answer to a request made at start.
func (w *queuedClaim) answered(i int, claim *driver.Claim, result driver.Result,
	start clock.Instant,
	q *Quorum) {
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
		// If the claim had been granted before this request took effect, the grant would still
		// hold, and the answer would not be Busy. But if the claim was last known to wait more than
		// a presence ago, it may have been granted the key and have lost it again. If there was no
		// earlier answer, count from the first request, which may have taken effect too.
		before := w.began.Add(result.Presence)
		if v.queued {
			before = v.present
		}
		if now >= before.Add(-q.config.allowance(result.Presence)) {
			v.doubtful = true
		}
		// A notice that came after the request was sent may be about a grant that was made after
		// the request took effect. The answer refutes older notices.
		if v.held && (v.doubtful || !v.noticed || v.since <= start) {
			v.held, v.doubtful = false, true
		}
		v.queued, v.present = result.Presence > 0, start.Add(result.Presence)
		if v.returned {
			w.retreat = 0 // another claim wanted the node
		}
		v.holder, v.place, v.returned = result.Holder, result.Place, false
	}
}

// notice notes a node's notice.
func (w *queuedClaim) notice(i int, n *driver.Notice) {
	w.fresh = true
	v := &w.votes[i]
	// The holder has given the key back. If two waiters give back nodes, neither must take the
	// other for the holder.
	v.holder = ""
	if n.Kind != driver.Granted || v.doubtful || !v.queued {
		w.hints |= node.Only(i)
		return
	}
	if !v.held {
		v.held, v.noticed, v.since = true, true, clock.Now()
		v.token, v.block = n.Token, max(n.Block, 1)
	}
}

// lasts returns the time until which the claim holds the key on the node at least.
func (v *vote) lasts() clock.Instant {
	if v.noticed {
		return v.present
	}
	return v.expires
}

// weighLocked looks at the nodes that a waiter holds, and returns the notice for its caller, or the
// zero notice if there is none.
func (q *Quorum) weighLocked(r *record) (n driver.Notice) {
	w := r.queued
	if w == nil || w.asking > 0 || w.granted {
		return n
	}
	if v := w.handedOver(q.need); v != nil {
		w.granted = true
		w.stop()
		r.held = true
		r.drew(v.token, v.block)
		q.saw(v.token, v.block)
		q.counters.handoffs.Add(1)
		return driver.Notice{Kind: driver.Granted, Key: r.key.name, Owner: r.owner, Token: v.token,
			Block: v.block}
	}
	switch some := w.heldOn() | w.hints; {
	case some == 0:
		w.stop()
	case some.Count() >= q.need && w.fresh && !w.hinted:
		// There are enough grants, but tokens differ or some grant is doubtful. A request settles
		// both. If nothing is new, a request would bring the last answer again, perhaps for ever.
		return q.hint(r)
	case w.due:
		w.due = false
		return q.retreatLocked(r, some)
	case w.timer == nil:
		w.arm(r)
		fallthrough
	default:
		if w.left != 0 && !w.hinted {
			// The claim's turn begins, but it does not wait on all nodes. Nodes where it does not
			// wait never hand over to it, and if others hang, these nodes may be what is missing.
			return q.hint(r)
		}
	}
	return n
}

// heldOn returns the nodes where the claim holds the key.
func (w *queuedClaim) heldOn() (nodes node.Set) {
	for i := range w.votes {
		if w.votes[i].held {
			nodes |= node.Only(i)
		}
	}
	return nodes
}

// handedOver returns a vote with which as many nodes as need agree: they granted the same token,
// for as long as the caller was promised. It returns nil if there is none. A notice that comes
// after that time, for example because the process was stopped, is about a grant that is over. The
// caller must not get it, because it may have asked again since, and would take the notice for the
// answer to that.
func (w *queuedClaim) handedOver(need int) *vote {
	if !w.told || clock.Now() >= w.promised {
		return nil
	}
	for i := range w.votes {
		v := &w.votes[i]
		if v.held && w.alike(v) >= need {
			return v
		}
	}
	return nil
}

// alike counts the votes that agree with v.
func (w *queuedClaim) alike(v *vote) (n int) {
	for k := range w.votes {
		o := &w.votes[k]
		if o.held && o.token == v.token && o.block >= v.block && o.lasts() >= w.promised {
			n++
		}
	}
	return n
}

// hint tells the caller to ask now.
func (q *Quorum) hint(r *record) driver.Notice {
	r.queued.hinted = true
	return driver.Notice{Kind: driver.Freed, Key: r.key.name, Owner: r.owner}
}

// holdOut returns how long a minority of grants is kept.
func (q *Quorum) holdOut(w *queuedClaim) time.Duration {
	d := patience * float64(q.config.bound(w.claim.TTL)) * (1 + q.config.random())
	if w.next() {
		d *= seniority
	}
	return time.Duration(d * float64(int(1)<<w.retreat))
}

// next reports whether the waiter was next in line on all nodes where it had to queue.
func (w *queuedClaim) next() bool {
	for i := range w.votes {
		if w.votes[i].place > 1 {
			return false
		}
	}
	return true
}

// retreatLocked gives a minority of grants back.
func (q *Quorum) retreatLocked(r *record, some node.Set) (n driver.Notice) {
	w := r.queued
	if some.Count() >= q.need {
		w.retreat = min(w.retreat+1, maxRetreat)
		w.arm(r)
		return q.hint(r)
	}
	holders := make(map[string]int)
	another := false // another claim holds a majority
	for i := range w.votes {
		if v := &w.votes[i]; !v.held && v.holder != "" {
			holders[v.holder]++
			another = another || holders[v.holder] >= q.need
		}
	}
	w.hints = 0
	// A caller that has stopped asking does not queue again either.
	again := !another && w.told && clock.Now() < w.promised
	if !again {
		w.left |= some
	}
	q.returnLocked(r, some, again)
	return n
}

// returnLocked gives grants of a waiter back, and the nodes pass them on to their next waiter. With
// again it queues there again, and also anew on nodes that placed it without its ticket. Nodes that
// have waiters in different orders grant to different ones: if these kept their places elsewhere,
// each node would alternate between its first two.
func (q *Quorum) returnLocked(r *record, nodes node.Set, again bool) {
	w := r.queued
	if w.claim.Ticket == 0 {
		w.claim.Ticket = q.ticket(w.began)
	}
	claim := w.claim // a copy: w.claim changes with the next request
	q.counters.returned.Add(uint64(nodes.Count()))
	operations, granted := []node.Operation{node.Releasing, node.Acquiring}, nodes
	if !again {
		operations = operations[:1]
	} else if claim.Ticket != 0 {
		nodes |= w.unplaced
		w.unplaced = 0
	}
	for i := range w.votes {
		if !nodes.Has(i) {
			continue
		}
		w.votes[i] = vote{doubtful: true, returned: again && granted.Has(i)}
		for _, op := range operations {
			c := &node.Call{
				Node: q.nodes[i], Op: op, Claim: &claim, History: &r.history, Began: clock.Now(),
				Bound: q.config.bound(claim.TTL),
			}
			c.Make()
		}
	}
}

// asked notes how an acquisition with Queue ended, and looks at the notices that came meanwhile.
//
// If the caller was told that it holds the key, it may have asked before it has read that, and
// would count the grant from this request. So from then on the claim's presence ends when that
// grant does, and the caller has to ask with another owner value.
func (q *Quorum) asked(r *round, result *driver.Result, err error) (n driver.Notice) {
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := r.record.queued
	if w == nil || r.record.history.Over() {
		return n
	}
	w.asking--
	w.known = w.known || result.Presence > 0 || err != nil && node.Maybe(err)
	if result.State == driver.Busy {
		w.handed = w.handed || w.granted
		w.granted = false
		if w.handed {
			result.Presence = min(result.Presence, max(w.promised.Sub(r.start), 1))
		}
		if result.Presence > 0 {
			// The largest of all answers: the caller may not have seen the latest yet.
			if until := r.start.Add(result.Presence); !w.told || until > w.promised {
				w.told, w.promised = true, until
			}
			result.Clock = q.clockFor(w, r.start)
		}
	}
	return q.weighLocked(r.record)
}

// clockFor returns the nodes' clock at the start of a waiter's request, for its answer. For the
// first request that is the waiter's ticket: with it, the caller can ask for the same place with
// another owner value.
func (q *Quorum) clockFor(w *queuedClaim, start clock.Instant) uint64 {
	if start == w.began && w.claim.Ticket != 0 {
		return w.claim.Ticket
	}
	return q.ticket(start)
}

// heard handles a notice of node i. It does not block and calls no node.
func (q *Quorum) heard(i int, notice driver.Notice) {
	if notice.Kind == driver.Granted && !q.nodes[i].TakesPart() {
		// A backend in quarantine should not send it: a node that has lost data may grant a key
		// that is still held.
		notice.Kind = driver.Freed
	}
	var out []driver.Notice
	s := q.shardOf(notice.Key)
	s.mu.Lock()
	if k := s.keys[notice.Key]; k != nil {
		for _, r := range k.records {
			if r.queued == nil || notice.Owner != r.owner &&
				(notice.Owner != "" || notice.Kind != driver.Freed) {
				continue
			}
			r.queued.notice(i, &notice)
			if n := q.weighLocked(r); n.Kind != 0 {
				out = append(out, n)
			}
		}
	}
	s.mu.Unlock()
	for _, n := range out {
		q.tell(n)
	}
}
