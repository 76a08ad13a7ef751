package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Acquire asks all nodes at once for the claim, as driver.Backend describes (R12, R23).
//
// It returns Held when a majority granted the claim and acknowledged its token, within the claim's
// validity (R14, R18); Busy when a majority answered, and others hold too many nodes; and else an *Error in a
// *driver.Error, which is permanent if the nodes' errors are. Of a claim that it does not report as held, and that
// does not queue, it has everything given back at once on all nodes (R17, R24): where a node does not answer, behind the
// unanswered request, and again when it is back.
//
// ctx ends the wait, not what follows from it. Without that, it returns within the node timeout, and within about
// twice that for each of its two steps if more than a minority of nodes fails.
func (q *Quorum) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	start := clock.Now()
	if err := q.admits(ctx, &claim); err != nil {
		return driver.Result{}, err
	}
	claim.Token = q.propose(claim.Token)
	r := q.begin(acquiring, claim, start)
	result, err := q.conclude(ctx, r)
	if claim.Queue {
		q.tell(q.asked(r, result))
	}
	return result, err
}

// admits returns an error for a claim that is not to be sent at all.
func (q *Quorum) admits(ctx context.Context, claim *driver.Claim) error {
	if err := q.ready(ctx); err != nil {
		return err
	}
	switch guard := q.config.guard; {
	case claim.TTL <= 0:
		return refused(fmt.Errorf("TTL %v: must be positive", claim.TTL), true)
	case guard > 0 && claim.TTL > guard:
		return refused(overGuard(claim.TTL, guard), true)
	}
	return nil
}

func overGuard(ttl, guard time.Duration) error {
	return fmt.Errorf("TTL %v is longer than the restart quarantine of %v: a node could forget such a lease and grant it again", ttl, guard)
}

// conclude waits for the round and says what it amounts to.
func (q *Quorum) conclude(ctx context.Context, r *round) (driver.Result, error) {
	if err := r.wait(ctx); err != nil {
		q.abandon(r)
		return driver.Result{}, unanswered(err)
	}
	r.mu.Lock()
	t := r.tally()
	if t.held < q.need {
		if t.answered >= q.need {
			defer r.mu.Unlock()
			return r.busy(&t), nil
		}
		r.mu.Unlock()
		r.linger(ctx)
		r.mu.Lock()
		if t = r.tally(); t.held < q.need || r.cleaned {
			defer r.mu.Unlock()
			var cause error
			if t.held >= q.need {
				cause = errLate
			}
			err := r.failure(&t, cause)
			// With the queue also a minority of requests has an effect that lasts.
			err.Maybe = t.held+t.maybe >= q.need || r.claim.Queue && t.answered+t.maybe > 0
			return driver.Result{}, err
		}
	}
	token, behind, acks := r.token()
	q.saw(token, r.claim.Block)
	r.mu.Unlock()

	if acks < q.need {
		q.counters.secondRounds.Add(1)
		if err := q.raise(ctx, r, token, behind, q.need-acks); err != nil {
			q.abandon(r)
			return driver.Result{}, err
		}
	}
	// Read after the last answer: also if this process was stopped in between, the lease is measured from
	// before the first request (K2).
	if took := clock.Now().Sub(r.start); took >= r.claim.TTL-q.config.allowance(r.claim.TTL) {
		q.counters.tooLate.Add(1)
		q.abandon(r)
		r.mu.Lock()
		defer r.mu.Unlock()
		t := r.tally()
		return driver.Result{}, r.failure(&t, fmt.Errorf("%w: it took %v of a TTL of %v", ErrTooLate, took.Round(time.Microsecond), r.claim.TTL))
	}
	q.counters.acquired.Add(1)
	q.gained(r, token)
	return driver.Result{State: driver.Held, Token: token}, nil
}

// abandon gives back what an acquisition may have got that will not be used. A claim that queues
// stays in the queue: its caller asks again, or releases it.
func (q *Quorum) abandon(r *round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.claim.Queue && !r.cleaned {
		r.cleaned = true
		q.giveBack(r.claim)
	}
}

// giveBack releases a claim on all nodes, without waiting for it.
func (q *Quorum) giveBack(claim driver.Claim) { q.begin(releasing, claim, clock.Now()) }

// gained takes note that the claim holds a majority.
func (q *Quorum) gained(r *round, token driver.Token) {
	s := q.shardOf(r.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.record.gen == r.gen && !r.record.over {
		r.record.held = true
		r.record.drew(token, r.claim.Block)
		r.record.stopWaiting()
	}
}

// token finds the token of a round with a majority of grants: the largest of theirs. It returns the nodes that
// granted a smaller one, and how many have acknowledged it by granting it. Called with r.mu held.
//
// A grant that arrives later and is larger acknowledges nothing: what counts is that a node's own grant
// was at most the token when it acknowledged it.
func (r *round) token() (token driver.Token, behind nodeSet, acks int) {
	for i := range r.parts {
		if p := &r.parts[i]; p.status == answered && p.result.State == driver.Held {
			token = max(token, p.result.Token)
		}
	}
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case p.status != answered || p.result.State != driver.Held:
		case p.result.Token == token:
			acks++
		default:
			behind |= only(i)
		}
	}
	return token, behind, acks
}

// raise has nodes acknowledge a token that is larger than the one they granted: if the key there is still the
// claim's, their next grant will be larger than the block. A renewal with a block says just that. It
// returns nil when missing of them have done so.
//
// That the key has to be the claim's still is essential: a node that has granted it to another since
// may have let that one's acquisition be completed with the same token.
func (q *Quorum) raise(ctx context.Context, r *round, token driver.Token, behind nodeSet, missing int) error {
	claim := r.claim
	claim.Token, claim.Block, claim.Queue = token, max(claim.Block, 1), false
	lists := make([][]int32, len(q.nodes))
	for i := range lists {
		if behind.has(i) {
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
	// The nodes that granted it may hold it until it has been given back.
	err.Maybe = true
	return err
}

// busy is the result when a majority answered and others hold too many nodes. Called with r.mu held.
func (r *round) busy(t *tally) driver.Result {
	result := driver.Result{State: driver.Busy}
	votes := make(map[string]int, 1)
	var rests []time.Duration
	var places []int
	presence, queued := time.Duration(0), 0
	for i := range r.parts {
		p := &r.parts[i]
		if p.status != answered {
			continue
		}
		here := p.result.Presence
		if p.result.State == driver.Held {
			here = r.claim.TTL // what it was given to hold until its turn has come everywhere
		} else {
			holder := p.result.Holder
			votes[holder]++
			if best := votes[result.Holder]; holder != "" && (result.Holder == "" || votes[holder] > best) {
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
	// The key can be ours when as many leases have ended as are missing to a majority.
	slices.Sort(rests)
	if missing := r.q.need - t.held; missing <= len(rests) {
		result.ExpiresIn = rests[missing-1]
	}
	if !r.claim.Queue {
		return result
	}
	if len(places) > 0 {
		result.Place = slices.Max(places) // on other nodes some of those before us may not have arrived yet
	}
	if queued >= r.q.need {
		result.Presence = presence
	}
	return result
}
