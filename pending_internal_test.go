package holdfast

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// An Acquire that waits behind a single attempt of unknown outcome asks itself, even if the backend
// has been silent for a TTL by then. In every other case the two end together.
//
// Fails if the code is broken like this: missed without leavesOpen.
func TestMissedBehindASingleAttempt(t *testing.T) {
	const ttl = time.Second
	unknown := &driver.Error{Maybe: true, Err: errors.New("connection cut")}
	refused := &driver.Error{Err: errors.New("connection refused")}
	forGood := &driver.Error{Maybe: true, Permanent: true, Err: errors.New("no permission")}
	silent := clock.Now()
	for _, c := range []struct {
		name           string
		err            error
		after          time.Duration // from the last answer; 0: there never was one
		cut            bool
		single, waiter bool // who waits goes on after a single attempt, or a waiter's
	}{
		{"never answered, unknown", unknown, 0, false, true, true},
		{"never answered, refused", refused, 0, false, false, false},
		{"in an outage, unknown", unknown, ttl - 1, false, true, true},
		{"in an outage, refused", refused, ttl - 1, false, true, true},
		{"after a TTL, unknown", unknown, ttl, false, true, false},
		{"after a TTL, refused", refused, ttl, false, false, false},
		{"for good", forGood, ttl - 1, false, false, false},
		{"the context has ended", unknown, ttl - 1, true, false, false},
	} {
		for wait, want := range map[bool]bool{false: c.single, true: c.waiter} {
			t.Run(fmt.Sprintf("%s, wait %v", c.name, wait), func(t *testing.T) {
				p := &pendingClaim{claim: driver.Claim{TTL: ttl}}
				if c.after != 0 {
					p.outageFrom = silent
				}
				_, goesOn := p.missed(c.err, silent.Add(c.after), &call{wait: wait}, c.cut)
				if goesOn != want {
					t.Errorf("goes on: %v, want %v", goesOn, want)
				}
			})
		}
	}
}

// queuedClaim returns a claim that was found queued just now, and its cohort.
func queuedClaim(t *testing.T, presence time.Duration) (*cohort, *pendingClaim) {
	t.Helper()
	memory := memhold.New()
	t.Cleanup(func() { memory.Close() })
	l, err := New(memory)
	if err != nil {
		t.Fatal(err)
	}
	c := &cohort{locker: l, shard: &l.shards[0], terms: terms{ttl: time.Minute, renew: true}}
	p := &pendingClaim{claim: driver.Claim{TTL: time.Minute, Block: 64}, asked: clock.Now()}
	if !c.heard(p, driver.Result{State: driver.Busy, Presence: presence}, p.asked) {
		t.Fatal("the first answer says nothing of the place")
	}
	return c, p
}

// A claim may have lost its place if the presence was over before the next request, even if the
// next presence is longer.
//
// Fails if the code is broken like this: heard without min.
func TestPresenceThatWasOverBeforeALongerOne(t *testing.T) {
	for after, want := range map[time.Duration]bool{time.Second / 2: true, 5 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			c, p := queuedClaim(t, time.Second)
			time.Sleep(after)
			answer := driver.Result{State: driver.Busy, Presence: time.Minute}
			if known := c.heard(p, answer, clock.Now()); known != want {
				t.Errorf("%v after a presence of 1s began: known %v, want %v", after, known, want)
			}
		})
	}
}

// A run has the tokens that the notice brings, and no more than were asked for.
//
// Fails if the code is broken like this: pushed without min, or with the block of the claim.
func TestBlockOfANotice(t *testing.T) {
	for got, want := range map[uint64]uint64{0: 1, 1: 1, 10: 10, 64: 64, 100: 64} {
		synctest.Test(t, func(t *testing.T) {
			c, p := queuedClaim(t, time.Second)
			g, ok := c.pushed(p, driver.Notice{Kind: driver.Granted, Token: 7, Block: got})
			if !ok || g.block != want || g.token != 7 {
				t.Errorf("block of %d: %v, %+v; want %d tokens", got, ok, g, want)
			}
		})
	}
}
