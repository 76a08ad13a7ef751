package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

// Acquire asks all nodes at once for the claim, as driver.Backend describes.
//
// It returns Held if a majority has granted the claim and acknowledged its token, within the
// claim's validity. It returns Busy if a majority has answered and others hold too many nodes, or
// so many that nodes which count as down would be needed: it may take a second until one that is
// back is asked. With Queue it also waits for the nodes that decide whether a majority has queued
// the claim. Otherwise it fails with an *Error in a *driver.Error, which is permanent if the nodes'
// errors are.
//
// A claim that is neither held nor queued is released at once on all nodes. If a node does not
// answer, it gets the release after the unanswered request, and again when it is back.
//
// ctx ends the wait, and not the requests that were sent. If ctx does not end, Acquire returns
// within the node timeout. If more nodes fail than a minority, it may take about twice the node
// timeout for each of its two steps.
func (q *Quorum) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	start := clock.Now()
	if err := q.admits(ctx, &claim); err != nil {
		return driver.Result{}, err
	}
	if !claim.Shared && q.sharesAlready(&claim) {
		return driver.Result{State: driver.Busy, Holder: claim.Owner}, nil
	}
	claim.Token = q.propose(claim.Token)
	r := q.begin(node.Acquiring, claim, start)
	result, err := q.conclude(ctx, r)
	switch {
	case !claim.Queue:
	case result.State == driver.Busy && result.Presence == 0:
		// Too few nodes have a queue. The caller asks again by itself, and leaves nothing on the
		// nodes until then.
		q.giveBack(claim)
	default:
		q.tell(q.asked(r, &result, err))
	}
	return result, err
}

// admits returns an error if the claim must not be sent to any node.
func (q *Quorum) admits(ctx context.Context, claim *driver.Claim) error {
	if err := q.ready(ctx); err != nil {
		return err
	}
	if claim.TTL <= 0 {
		return forbidden(fmt.Errorf("TTL %v: must be positive", claim.TTL))
	}
	if err := q.admitsMode(claim); err != nil {
		return err
	}
	return q.CheckTTL(claim.TTL)
}

// CheckTTL returns nil if claims with this TTL are allowed, as driver.Limited describes, and
// otherwise an error that wraps driver.ErrInvalid. The TTL must not be longer than the guard (see
// [WithGuard]). If a node timeout was set, the TTL, less the drift allowance, must be longer than
// that (see [WithNodeTimeout]), because a lease is of no use if it may end before the last node has
// answered.
func (q *Quorum) CheckTTL(ttl time.Duration) error {
	c := &q.config
	switch {
	case c.guard > 0 && ttl > c.guard:
		return forbidden(
			fmt.Errorf(
				"TTL %v is longer than the restart quarantine of %v: a node could forget such a lease and grant it again",
				ttl, c.guard))
	case c.timeout > 0 && c.timeout >= ttl-c.allowance(ttl):
		return forbidden(
			fmt.Errorf(
				"TTL %v is too short for a node timeout of %v: nothing would be left of the lease",
				ttl, c.timeout))
	}
	return nil
}

// conclude waits for the round and returns its outcome.
func (q *Quorum) conclude(ctx context.Context, r *round) (driver.Result, error) {
	if err := r.wait(ctx); err != nil {
		q.abandon(r)
		return driver.Result{}, unanswered(err)
	}
	r.mu.Lock()
	t := r.tally()
	if queues := t.answered >= q.need; t.held < q.need && r.missing(queues) {
		r.mu.Unlock()
		r.linger(ctx, queues)
		r.mu.Lock()
		t = r.tally()
	}
	switch {
	case t.held < q.need && t.answered >= q.need:
		// Perhaps some answers came after the node timeout: this process may have been late, for
		// example because it was stopped, and not the nodes.
		defer r.mu.Unlock()
		return r.busy(&t), nil
	case t.held < q.need || r.cleaned: // grants that came after the claim was given back are none
		defer r.mu.Unlock()
		return driver.Result{}, q.failed(r, &t)
	}
	token, behind, acks := r.token()
	r.mu.Unlock()

	if acks < q.need {
		q.counters.secondRounds.Add(1)
		if err := q.raise(ctx, r, token, behind, q.need-acks); err != nil {
			q.abandon(r)
			return driver.Result{}, err
		}
	}
	// The clock is read after the last answer, because this process may have been stopped
	// meanwhile, and the lease counts from before the first request.
	if took := clock.Now().Sub(r.start); took >= r.claim.TTL-q.config.allowance(r.claim.TTL) {
		q.counters.tooLate.Add(1)
		q.abandon(r)
		r.mu.Lock()
		defer r.mu.Unlock()
		t := r.tally()
		err := r.failure(&t, fmt.Errorf("%w: it took %v of a TTL of %v",
			ErrTooLate, took.Round(time.Microsecond), r.claim.TTL))
		err.Maybe = r.claim.Queue // then the claim stays on the nodes, and the caller has to know
		return driver.Result{}, err
	}
	q.counters.acquired.Add(1)
	q.gained(r, token)
	return driver.Result{State: driver.Held, Token: token}, nil
}

// failed returns the error of a round that has no majority, or whose claim was given back before it
// had one. Called with r.mu held.
func (q *Quorum) failed(r *round, t *tally) *driver.Error {
	var cause error
	if t.held >= q.need {
		cause = errLate
	}
	err := r.failure(t, cause)
	// With Queue, a request has a lasting effect even on a minority of nodes. A node that has not
	// answered yet may have carried out the request.
	open := t.maybe + t.asked
	err.Maybe = t.held+open >= q.need || r.claim.Queue && t.answered+open > 0
	if !err.Maybe && r.claim.Queue {
		q.dismiss(r)
	}
	return err
}

// abandon gives back what an acquisition may have got and nobody will use. A claim that queues
// stays in the queue: its caller asks again, or releases it.
func (q *Quorum) abandon(r *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.claim.Queue && !r.cleaned {
		r.cleaned = true
		q.giveBack(r.claim)
	}
}

// dismiss ends a claim that asked to queue and had no effect, so that its caller does not release
// it. If no node can have the claim, dismiss forgets it. But a node may have it from an earlier
// request, if too few nodes have a queue: then the claim was given back after that request, and
// this request has replaced the release. So dismiss gives the claim back again.
func (q *Quorum) dismiss(r *round) {
	if q.endUnknown(r) {
		q.giveBack(r.claim)
	}
}

// endUnknown forgets the round's claim if no node can have it. It reports whether a node may have
// the claim and the caller does not know that.
func (q *Quorum) endUnknown(r *round) (left bool) {
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.findLocked(r.claim.Key, r.claim.Owner)
	if known != r.record || known.generation != r.generation {
		return false
	}
	if known.history.Touched() == 0 {
		known.end()
		known.Tidy()
		return false
	}
	return !known.held && known.queued != nil && !known.queued.known
}

// giveBack releases a claim on all nodes, and does not wait for the answers.
func (q *Quorum) giveBack(claim driver.Claim) { q.begin(node.Releasing, claim, clock.Now()) }

// gained notes that the claim holds the key on a majority of nodes.
func (q *Quorum) gained(r *round, token driver.Token) {
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.record.generation == r.generation && !r.record.history.Over() {
		r.record.held = true
		r.record.drew(token, r.claim.Block)
		r.record.stopWaiting()
	}
}

// token returns the token of a round with a majority of grants, which is the largest token that was
// granted. It also returns the nodes that granted a smaller one (behind), and how many nodes have
// acknowledged the token by granting it (acks). Called with r.mu held.
//
// A larger token that arrives later acknowledges nothing: when a node acknowledges a token, the
// token that it granted itself must be at most that.
func (r *round) token() (token driver.Token, behind node.Set, acks int) {
	for i := range r.parts {
		if p := &r.parts[i]; p.progress == answered && p.result.State == driver.Held {
			token = max(token, p.result.Token)
		}
	}
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.progress != answered || p.result.State != driver.Held:
		case p.result.Token == token:
			acks++
		default:
			behind |= node.Only(i)
		}
	}
	return token, behind, acks
}

// raise has nodes acknowledge a token that is larger than the one they granted. A node that
// acknowledges it will grant only tokens above the claim's block from then on. A renewal with a
// block does exactly that. raise returns nil when as many nodes as missing have acknowledged the
// token.
//
// A node acknowledges only if the claim still holds the key there. If the node has granted the key
// to another claim since, that acquisition may have been completed with the same token.
func (q *Quorum) raise(ctx context.Context, r *round, token driver.Token, behind node.Set,
	missing int) error {
	claim := r.claim
	claim.Token, claim.Block, claim.Queue = token, max(claim.Block, 1), false
	lists := make([][]int32, len(q.nodes))
	for i := range lists {
		if behind.Has(i) {
			lists[i] = []int32{0}
		}
	}
	b := q.newBatch([]driver.Claim{claim}, clock.Now())
	b.tallies[0].need = int8(missing)
	b.ask(lists)
	if err := b.wait(ctx); err != nil {
		return unanswered(err)
	}
	b.mu.Lock()
	acknowledged := int(b.tallies[0].held)
	b.mu.Unlock()
	if acknowledged >= missing {
		return nil
	}
	q.counters.unraised.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally()
	err := r.failure(&t, fmt.Errorf("%w: %v", ErrNoMajorityToken, token))
	// The nodes that granted the claim hold it until it has been given back.
	err.Maybe = true
	return err
}

// busy returns the result of a round in which a majority has answered and others hold too many
// nodes. Called with r.mu held.
func (r *round) busy(t *tally) driver.Result {
	result := driver.Result{State: driver.Busy}
	votes := make(map[string]int, 1)
	var rests []time.Duration
	var places []int
	presence, queued := time.Duration(0), 0
	for i := range r.parts {
		p := &r.parts[i]
		if p.progress != answered {
			continue
		}
		here := p.result.Presence
		if p.result.State == driver.Held {
			here = r.claim.TTL // how long it keeps what it got, until its turn has come everywhere
		} else {
			holder := p.result.Holder
			votes[holder]++
			if best := votes[result.Holder]; holder != "" &&
				(result.Holder == "" || votes[holder] > best) {
				result.Holder = holder
			}
			rests = append(rests, p.result.ExpiresIn)
			if p.result.Place > 0 {
				places = append(places, p.result.Place)
			}
		}
		if here > 0 {
			if queued++; presence == 0 || here < presence {
				presence = here
			}
		}
	}
	// The claim can get the key when so many leases have ended that a majority is possible.
	slices.Sort(rests)
	if missing := r.q.need - t.held; missing <= len(rests) {
		result.ExpiresIn = rests[missing-1]
	}
	if !r.claim.Queue {
		return result
	}
	if len(places) > 0 {
		// on other nodes some of those before us may be missing still
		result.Place = slices.Max(places)
	}
	if queued >= r.q.need {
		result.Presence = presence
	}
	return result
}
