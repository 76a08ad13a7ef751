package quorum

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// Renew extends the claims on all nodes at once, as driver.Backend describes. Each node gets one
// call for all claims, and each claim has a majority of its own. A claim is Held if a majority of
// nodes has extended it, and Lost if too many nodes do not have it any more for a majority.
// Otherwise it is Unknown, with an *Error in Result.Err. What is left of a lost claim is given
// back.
//
// Result.Waiting is set for a claim that is held if a node that has answered sets it.
//
// A node that has not answered an earlier release has no vote on that claim, because it may still
// pass the key on.
//
// In the background, a claim that is held is set again on nodes that have lost it or have no vote,
// unless the key is taken there. So it survives the loss of one node after the other.
//
// Renew fails as a whole only if ctx ends or the Quorum is closed. It returns within the node
// timeout and 20 us for each claim, or twice that if more nodes fail than a minority. If a claim
// has a Block, there may be a second step, which may take as long.
func (q *Quorum) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	start := clock.Now()
	results := make([]driver.Result, len(claims))
	// a copy: late nodes may read it when the caller has its own back
	sent := make([]driver.Claim, 0, len(claims))
	// where those sent are in claims; nil while all are sent
	var index []int
	for i := range claims {
		err := q.admits(ctx, &claims[i])
		if err != nil && index == nil {
			index = make([]int, i, len(claims))
			for k := range index {
				index[k] = k
			}
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		sent = append(sent, claims[i])
		if claims[i].Block > 0 {
			sent[len(sent)-1].Token = q.propose(claims[i].Token)
		}
		if index != nil {
			index = append(index, i)
		}
	}
	if len(sent) == 0 {
		return results, nil
	}
	if index == nil {
		return results, q.renew(ctx, sent, start, results)
	}
	partly := make([]driver.Result, len(sent))
	if err := q.renew(ctx, sent, start, partly); err != nil {
		return nil, err
	}
	for k, i := range index {
		results[i] = partly[k]
	}
	return results, nil
}

func (q *Quorum) renew(ctx context.Context, claims []driver.Claim, start clock.Instant,
	results []driver.Result) error {
	b := q.newBatch(claims, start)
	b.heals = true
	b.sharing()
	b.ask(nil)
	if err := b.wait(ctx); err != nil {
		return unanswered(err)
	}
	b.mu.Lock()
	leftovers := b.results(results)
	second, acks := b.second(results)
	b.mu.Unlock()
	for _, claim := range leftovers {
		// Not in the background: if the caller asks for the claim again, that must come later.
		q.giveBack(claim)
	}
	if second != nil {
		if err := q.settleTokens(ctx, second, acks, results); err != nil {
			return err
		}
	}
	for k := range results {
		switch results[k].State {
		case driver.Held:
			q.renewed(&claims[k], start, results[k].Token)
		case driver.Lost:
			q.ended(&claims[k])
		}
	}
	return nil
}

// results sets the result of each claim. It returns the claims that are lost as a whole but may
// hold some nodes, or wait there. Called with b.mu held.
func (b *batch) results(results []driver.Result) (leftovers []driver.Claim) {
	n := int8(len(b.parts))
	for k := range b.tallies {
		t, result := &b.tallies[k], &results[k]
		switch {
		case t.held >= t.need:
			result.State, result.Waiting = driver.Held, b.waiting(k)
		case t.lost > n-t.need:
			result.State = driver.Lost
		default:
			result.Err = b.failure(k, nil)
			continue
		}
		if result.State != driver.Held { // even if no node has it: it may wait on some
			leftovers = append(leftovers, b.claims[k])
		}
	}
	return leftovers
}

// waiting reports whether one of the nodes that have answered says that somebody waits for the key
// of a claim. A majority has, so no waiter is missed that a majority knows. One that only a few
// know may have given up: then passing the key on finds nobody. Called with b.mu held.
func (b *batch) waiting(k int) bool {
	if b.claims[k].Block == 0 {
		return false
	}
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == answered && p.answers[k].Waiting {
			return true
		}
	}
	return false
}

// failure returns the error of a claim without a majority. Called with b.mu held.
func (b *batch) failure(k int, cause error) error {
	e := &Error{Need: b.q.need, Nodes: make([]NodeError, len(b.parts)), cause: cause}
	permanent := 0
	for i := range b.parts {
		p, ne := &b.parts[i], &e.Nodes[i]
		ne.Node, ne.Err, ne.asked = b.q.nodes[i].Name, p.err, toRenew
		switch {
		case p.progress == answered:
			ne.State, ne.Err = p.answers[k].State, p.answers[k].Err
		case p.progress == asked:
			ne.Err = &driver.Error{Maybe: true, Err: errNotYet}
		}
		if ne.State == driver.Held {
			e.Got++
		}
		if driver.Permanent(ne.Err) {
			permanent++
		}
	}
	return &driver.Error{Maybe: true, Permanent: permanent > len(b.parts)-b.q.need, Err: e}
}

// second prepares the second step for claims that got a block of tokens: nodes that granted a
// smaller one have to acknowledge the largest, as in [Quorum.raise]. It returns nil if a majority
// agrees on every claim's token. lists is, by node, the claims in question. Called with b.mu held.
func (b *batch) second(results []driver.Result) (second *batch, lists [][]int32) {
	for k := range b.claims {
		if b.claims[k].Block == 0 || results[k].State != driver.Held {
			continue
		}
		token, acks := b.drawn(k)
		results[k].Token = token
		if acks >= b.tallies[k].need {
			continue
		}
		if second == nil {
			claims := append([]driver.Claim(nil), b.claims...)
			second = b.q.newBatch(claims, clock.Now())
			lists = make([][]int32, len(b.parts))
		}
		second.claims[k].Token = token
		second.tallies[k].need -= acks
		for i := range b.parts {
			if p := &b.parts[i]; p.progress == answered && p.answers[k].State == driver.Held &&
				p.answers[k].Token < token {
				lists[i] = append(lists[i], int32(k))
			}
		}
	}
	return second, lists
}

// drawn returns the largest token that nodes have granted to a claim, and how many nodes have
// granted that one. It notes the token, as later ones of the Quorum are larger. Called with b.mu
// held.
func (b *batch) drawn(k int) (token driver.Token, acks int8) {
	for i := range b.parts {
		if p := &b.parts[i]; p.progress == answered && p.answers[k].State == driver.Held {
			switch drawn := p.answers[k].Token; {
			case drawn > token:
				token, acks = drawn, 1
			case drawn == token:
				acks++
			}
		}
	}
	b.q.saw(token, b.claims[k].Block)
	return token, acks
}

// settleTokens takes the second step.
func (q *Quorum) settleTokens(ctx context.Context, b *batch, lists [][]int32,
	results []driver.Result) error {
	concerned := make([]bool, len(b.claims))
	for _, list := range lists {
		for _, k := range list {
			concerned[k] = true
		}
	}
	b.ask(lists)
	if err := b.wait(ctx); err != nil {
		return unanswered(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.claims {
		if !concerned[k] {
			continue
		}
		q.counters.secondRounds.Add(1)
		if t := &b.tallies[k]; t.held < t.need {
			q.counters.unraised.Add(1)
			err := fmt.Errorf("%w: %v", ErrNoMajorityToken, results[k].Token)
			results[k] = driver.Result{Err: &driver.Error{Maybe: true, Err: err}}
		}
	}
	return nil
}

// renewed notes that a claim holds a majority.
func (q *Quorum) renewed(claim *driver.Claim, start clock.Instant, token driver.Token) {
	s := q.shardOf(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.findLocked(claim.Key, claim.Owner)
	if r == nil || !r.held {
		return
	}
	r.expires = max(r.expires, q.surelyEnded(claim, start))
	if claim.Block > 0 {
		r.drew(token, claim.Block)
	}
	r.stopWaiting()
}

// ended notes that no node has the claim, or that it is being released.
func (q *Quorum) ended(claim *driver.Claim) {
	s := q.shardOf(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.findLocked(claim.Key, claim.Owner); r != nil && r.held {
		r.end()
		r.Tidy()
	}
}
