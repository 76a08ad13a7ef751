package protocol_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// moving is a Cluster with a slot that has arrived after so many scripts were refused. The old
// server sends every other one to the new server, which refuses it.
func moving(refusals int) *fake {
	f := &fake{cluster: true}
	asked := 0
	f.answer = func(c protocol.Command) protocol.Reply {
		switch {
		case c[0] != "EVALSHA":
			return protocol.Reply{Kind: protocol.Failure, Str: "ASK 1 a:1"}
		case asked >= refusals:
			return protocol.Reply{Kind: protocol.Integer, Int: 1}
		case slices.Equal(f.sent[max(0, len(f.sent)-2)], protocol.Command{"ASKING"}):
			asked++
			return protocol.Reply{Kind: protocol.Failure, Str: "TRYAGAIN Multiple keys request"}
		}
		return protocol.Reply{Kind: protocol.Failure, Str: "ASK 1 a:1"}
	}
	return f
}

// A lock in a slot that is being moved is asked for again until the slot has arrived, though not
// for ever and not after the end of the context. Nothing was done in the meantime.
func TestSlotThatIsBeingMoved(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		refusals int
		within   time.Duration // of the context
		took     time.Duration
		held     bool
	}{
		"arrives at once":       {refusals: 1, within: time.Hour, took: 10 * ms, held: true},
		"arrives soon":          {refusals: 6, within: time.Hour, took: 630 * ms, held: true},
		"arrives late":          {refusals: 7, within: time.Hour, took: 630 * ms},
		"the context ends":      {refusals: 9, within: 50 * ms, took: 50 * ms},
		"the context had ended": {refusals: 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for what, call := range map[string]func(*protocol.Backend, context.Context,
					driver.Claim) (driver.Result, error){
					"Acquire": (*protocol.Backend).Acquire,
					"Release": (*protocol.Backend).Release,
				} {
					b := protocol.New(moving(test.refusals), protocol.Options{})
					ctx, cancel := context.WithTimeout(t.Context(), test.within)
					start := time.Now()
					r, err := call(b, ctx, claim())
					cancel()
					if took := time.Since(start); took != test.took {
						t.Errorf("%s took %v; want %v", what, took, test.took)
					}
					switch held := err == nil && r.State == driver.Held; {
					case held != test.held:
						t.Errorf("%s: %+v, %v; want held %v", what, r, err, test.held)
					case !held && (!errors.Is(err, driver.ErrUnavailable) ||
						errors.Is(err, driver.ErrUnknown) || driver.Permanent(err)):
						t.Errorf("%s: %v; want ErrUnavailable for now", what, err)
					}
				}
			})
		})
	}
}

// A renewal does not wait for a slot: others are renewed with it.
func TestRenewalDoesNotWaitForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := claim()
		start := time.Now()
		results, err := protocol.New(moving(1), protocol.Options{}).Renew(t.Context(),
			[]driver.Claim{turn})
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		if err != nil || !errors.Is(results[0].Err, driver.ErrUnavailable) {
			t.Errorf("Renew: %+v, %v; want ErrUnavailable", results, err)
		}
	})
}
