package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

const votePresence = 10 * time.Second

// waiter is a claim that queues on three nodes, and what it hears of the first.
type waiter struct {
	q      *Quorum
	record *record
	claim  driver.Claim
}

func withWaiter(t *testing.T, f func(*testing.T, waiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Backend
		for range 3 {
			nodes = append(nodes, memhold.New())
		}
		q, err := New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		w := waiter{q: q, claim: driver.Claim{Key: "k", Owner: "o", TTL: time.Minute, Queue: true}}
		s := q.shardOf("k")
		s.mu.Lock()
		w.record = q.newRecord(s.keyLocked("k"), "o")
		s.keyLocked("k").add(w.record)
		w.record.begin(&w.claim, clock.Now())
		s.mu.Unlock()
		f(t, w)
		synctest.Wait()
	})
}

// busy notes the answer, of now, to a request made at start: the claim waits.
func (w waiter) busy(start clock.Instant) {
	w.answer(driver.Result{State: driver.Busy, Presence: votePresence, Place: 2}, start)
}

// answer notes the answer, of now, to a request made at start.
func (w waiter) answer(result driver.Result, start clock.Instant) {
	w.record.key.shard.mu.Lock()
	defer w.record.key.shard.mu.Unlock()
	w.record.queued.answered(0, &w.claim, result, start, w.q)
}

// notice notes a notice of a grant.
func (w waiter) notice() {
	w.record.key.shard.mu.Lock()
	defer w.record.key.shard.mu.Unlock()
	w.record.queued.notice(0, &driver.Notice{Kind: driver.Granted, Key: "k", Owner: "o", Token: 7})
}

func (w waiter) vote() vote {
	w.record.key.shard.mu.Lock()
	defer w.record.key.shard.mu.Unlock()
	return w.record.queued.votes[0]
}

// A notice counts as a grant until the node says that the claim waits, in the answer to a request
// that was made later. The answer to an earlier request may be from before the grant.
func TestAnswerRefutesEarlierNotices(t *testing.T) {
	for name, later := range map[string]bool{"to an earlier request": false,
		"to a later request": true} {
		t.Run(name, func(t *testing.T) {
			withWaiter(t, func(t *testing.T, w waiter) {
				w.busy(clock.Now())
				time.Sleep(time.Second)
				earlier := clock.Now()
				time.Sleep(time.Second)
				w.notice()
				if !w.vote().held {
					t.Error("the notice of a claim that waits does not count as a grant")
				}
				start := earlier
				if later {
					start = clock.Now() // not before the notice: the same moment is later
				}
				time.Sleep(time.Second)
				w.busy(start)
				if v := w.vote(); v.held == later || v.doubtful != later {
					t.Errorf("held: %v, doubtful: %v; want %v, %v",
						v.held, v.doubtful, !later, later)
				}
				w.notice()
				if v := w.vote(); v.held == later {
					t.Errorf("after another notice, held: %v; want %v", v.held, !later)
				}
			})
		})
	}
}

// A claim that may have been granted the key and have lost it again, because it was last known to
// wait a presence ago, is not granted anything by a notice: the notice may be of the grant that is
// over.
func TestNoticeAfterAnAbsence(t *testing.T) {
	for name, test := range map[string]struct {
		early time.Duration // before the presence, less the allowance for drift
		held  bool
	}{"present": {time.Nanosecond, true}, "absent": {0, false}} {
		t.Run(name, func(t *testing.T) {
			withWaiter(t, func(t *testing.T, w waiter) {
				w.busy(clock.Now())
				time.Sleep(votePresence / 2)
				asked := clock.Now() // the presence counts from the request last answered
				time.Sleep(time.Second)
				w.busy(asked)
				time.Sleep(votePresence - time.Second - w.q.config.allowance(votePresence) -
					test.early)
				w.busy(clock.Now())
				w.notice()
				if held := w.vote().held; held != test.held {
					t.Errorf("held: %v; want %v", held, test.held)
				}
			})
		})
	}
}

// An answer that the claim waits refutes a grant that the node told in an answer before: calls take
// effect in their order, whenever they began. After an absence it refutes any notice: that may be
// of a grant that is over.
func TestAnswerRefutesEarlierAnswers(t *testing.T) {
	withWaiter(t, func(t *testing.T, w waiter) {
		start := clock.Now()
		time.Sleep(time.Second)
		w.answer(driver.Result{State: driver.Held, Token: 7}, start)
		if !w.vote().held {
			t.Error("the answer counts for nothing")
		}
		w.busy(start) // it was asked for behind the other call, and began when that was under way
		if w.vote().held {
			t.Error("the claim counts as one that holds the key, and waits")
		}
	})
	withWaiter(t, func(t *testing.T, w waiter) {
		w.busy(clock.Now())
		time.Sleep(votePresence)
		start := clock.Now()
		time.Sleep(time.Millisecond)
		w.notice()
		w.busy(start)
		if v := w.vote(); v.held || !v.doubtful {
			t.Errorf("after an absence, held: %v, doubtful: %v", v.held, v.doubtful)
		}
	})
}

// A waiter has only the block of tokens that a majority has granted it, from the same token on.
func TestHandedOverBlock(t *testing.T) {
	withWaiter(t, func(t *testing.T, w waiter) {
		s := w.record.key.shard
		s.mu.Lock()
		defer s.mu.Unlock()
		q := w.record.queued
		q.told, q.promised = true, clock.Now().Add(time.Second)
		for i, block := range []uint64{3, 1} {
			q.votes[i] = vote{held: true, expires: q.promised, token: 7, block: block}
		}
		if v := q.handedOver(2); v == nil || v.block != 1 {
			t.Errorf("handed over: %+v; want a block of 1", v)
		}
		q.votes[1].token++
		if v := q.handedOver(2); v != nil {
			t.Errorf("handed over with two tokens: %+v", v)
		}
	})
}

// A caller that asks twice at a time may have the answers in any order. It counts a grant by notice
// from the later request, so that is how long the grant has to last.
func TestGrantLastsForTheLongestPromise(t *testing.T) {
	withWaiter(t, func(t *testing.T, w waiter) {
		earlier := &round{q: w.q, claim: w.claim, record: w.record, start: clock.Now()}
		time.Sleep(time.Second)
		later := &round{q: w.q, claim: w.claim, record: w.record, start: clock.Now()}
		for _, r := range []*round{later, earlier} {
			w.q.asked(r, &driver.Result{State: driver.Busy, Presence: votePresence}, nil)
		}
		if got, want := w.record.queued.promised, later.start.Add(votePresence); got != want {
			t.Errorf("a grant has to last until %v; want %v", got, want)
		}
	})
}

// Nothing that is heard by notice counts after a grant was given back: the notice may be of the
// grant that was given back.
func TestNoticeAfterAReturn(t *testing.T) {
	withWaiter(t, func(t *testing.T, w waiter) {
		w.busy(clock.Now())
		w.notice()
		s := w.record.key.shard
		s.mu.Lock()
		w.q.returnLocked(w.record, node.Only(0), true)
		s.mu.Unlock()
		w.busy(clock.Now()) // it queues again
		w.notice()
		if w.vote().held {
			t.Error("a notice after the return counts as a grant")
		}
	})
}

// What a round has gained counts for its own acquisition alone, and not for a later one of the same
// claim, nor after a release.
func TestGainsOfAnEarlierRound(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(waiter)
		held      bool
	}{
		"its own":       {func(waiter) {}, true},
		"a later round": {func(w waiter) { w.record.begin(&w.claim, clock.Now()) }, false},
		"released":      {func(w waiter) { w.record.end() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			withWaiter(t, func(t *testing.T, w waiter) {
				r := &round{q: w.q, claim: w.claim, record: w.record,
					generation: w.record.generation}
				test.meanwhile(w)
				w.q.gained(r, 7)
				if w.record.held != test.held {
					t.Errorf("held: %v; want %v", w.record.held, test.held)
				}
			})
		})
	}
}

// A round that has failed ends its own acquisition alone, and not a later one of the same claim.
func TestEndOfAnEarlierRound(t *testing.T) {
	for name, later := range map[string]bool{"its own": false, "a later round": true} {
		for _, touched := range []node.Set{0, node.Only(0)} {
			t.Run(name, func(t *testing.T) {
				withWaiter(t, func(t *testing.T, w waiter) {
					r := &round{q: w.q, claim: w.claim, record: w.record,
						generation: w.record.generation}
					if later {
						w.record.begin(&w.claim, clock.Now())
					}
					w.record.history.Touch(touched)
					left := w.q.endUnknown(r)
					if ended := w.record.history.Over(); ended != (touched == 0 && !later) {
						t.Errorf("touched %b: the claim has ended: %v", touched, ended)
					}
					if left != (touched != 0 && !later) {
						t.Errorf("touched %b: it is given back: %v", touched, left)
					}
				})
			})
		}
	}
}

// A waiter is present as long as the node says that forgets it first, if a majority has it in a
// queue or has granted it the key. Its place is the last of all.
func TestPresenceOfAWaiter(t *testing.T) {
	waits := func(presence time.Duration, place int) driver.Result {
		return driver.Result{State: driver.Busy, Presence: presence, Place: place}
	}
	held := driver.Result{State: driver.Held}
	for name, test := range map[string]struct {
		answers  []driver.Result
		presence time.Duration
		place    int
	}{
		"the shortest": {[]driver.Result{waits(3*time.Second, 1), waits(time.Second, 4),
			waits(2*time.Second, 2)}, time.Second, 4},
		"granted on one": {[]driver.Result{held, waits(2*time.Second, 1), waits(0, 0)},
			2 * time.Second, 1},
		"queued on a minority": {[]driver.Result{waits(0, 0), waits(2*time.Second, 1),
			waits(0, 0)}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			withWaiter(t, func(t *testing.T, w waiter) {
				r := &round{q: w.q, claim: w.claim}
				for _, answer := range test.answers {
					r.parts = append(r.parts,
						part{outcome: outcome{progress: answered, result: answer}})
				}
				tally := r.tally()
				got := r.busy(&tally)
				if got.Presence != test.presence || got.Place != test.place {
					t.Errorf("present for %v in place %d; want %v and %d", got.Presence, got.Place,
						test.presence, test.place)
				}
			})
		})
	}
}
