package quorum

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// hands is how many goroutines share work on many claims that nobody waits for.
const hands = 8

// healing sets claims again on nodes that have lost them.
type healing struct {
	q     *Quorum
	start clock.Instant // of the renewal that found it
	list  []patient
}

type patient struct {
	claim *driver.Claim
	node  int
}

// heal finds what to heal when all nodes have answered, the slowest too: a node that was restarted may always be
// the slowest. Called with b.mu held.
func (b *batch) heal() {
	var list []patient
	for k := range b.tallies {
		if t := &b.tallies[k]; t.held < t.need || t.lost == 0 {
			continue
		}
		for i := range b.parts {
			if p := &b.parts[i]; p.status == answered && p.answers[k].State == driver.Lost {
				list = append(list, patient{&b.claims[k], i})
			}
		}
	}
	share(list, func(part []patient) { b.q.crew.start(&healing{b.q, b.start, part}) })
}

// share cuts a list in pieces, one for each hand.
func share[T any](list []T, f func([]T)) {
	if len(list) > 0 {
		for part := range slices.Chunk(list, (len(list)+hands-1)/hands) {
			f(part)
		}
	}
}

// run implements job.
func (h *healing) run() {
	done := make(answers, 1)
	for _, p := range h.list {
		if h.q.heal(p, h.start, done) {
			<-done
		}
	}
}

// answers is a receiver that only wants to know when a call has ended.
type answers chan error

func (a answers) answer(_ *call, _ driver.Result, err error) { a <- err }

// heal sets a claim on a node where it was lost, by an acquisition: that never takes a key from another. It
// reports whether it has made a call.
func (q *Quorum) heal(p patient, start clock.Instant, to receiver) bool {
	s := q.shardOf(p.claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t, r := s.findLocked(p.claim.Key, p.claim.Owner)
	// A release that was begun before wins, as the record tells; one that begins from now on comes
	// after this call on its track. And without validity there is nothing to heal.
	if r == nil || !r.held || clock.Now().Sub(start) >= p.claim.TTL-q.config.allowance(p.claim.TTL) {
		return false
	}
	claim := *p.claim
	claim.Queue, claim.Yield, claim.Block = false, false, 1
	claim.Token = r.top // so a node that has forgotten its fence goes on above it
	c := &call{
		q: q, op: acquiring, node: p.node, claim: &claim, record: r,
		bound: q.config.bound(claim.TTL), to: to,
	}
	q.flight.add(1)
	q.counters.healed.Add(1)
	if t.push(c) {
		q.crew.start(c)
	}
	return true
}
