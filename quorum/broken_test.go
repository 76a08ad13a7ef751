//go:build !race

package quorum_test

import (
	"strings"
	"testing"
	"time"
)

// The simulation notices broken nodes, each by the invariant that it breaks. With the race detector
// that takes minutes, and shows nothing more, so make test runs it without.
func TestSimulationNotices(t *testing.T) {
	for _, test := range []struct {
		name   string
		broken fault
		want   string
		setup  func(*plan)
	}{
		{"tokens that are acknowledged and not kept", deafToRaise, "tokens: ", func(p *plan) {
			p.forgets = false
		}},
		{"tokens that are acknowledged without the key", raiseWithoutKey, "", func(p *plan) {
			p.forgets = false
		}},
		{"releases without comparing the owner", releaseForAll, "exclusion: ", nil},
		{"renewals without comparing the owner", renewForAll, "exclusion: ", nil},
		{"votes in quarantine", serveInQuarantine, "exclusion: ", func(p *plan) {
			p.crashes, p.forgets, p.jumps, p.guard = true, true, false, p.ttl+guardOverTTL
		}},
		{"losses that nobody sees", lossUnseen, "exclusion: ", func(p *plan) {
			p.crashes, p.forgets, p.jumps, p.durable, p.guard = true, true, false, false,
				p.ttl+guardOverTTL
		}},
		{"keys that are granted twice", grantTwice, "exclusion: ", nil},
		{"releases that are confirmed and not done", ignoreReleases, "debris: ", nil},
		{"notices of a server in quarantine", noticeInQuarantine, "exclusion: ", func(p *plan) {
			p.crashes, p.forgets, p.jumps, p.guard, p.nodes = true, true, false,
				p.ttl+guardOverTTL, 3
			p.presence = max(p.presence, 300*time.Millisecond)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const most = 3000
			for seed := range uint64(most) {
				p := newPlan(seed)
				p.broken = test.broken
				if test.setup != nil {
					test.setup(p)
				}
				for _, violation := range simulate(t, p).violations {
					if strings.Contains(violation, test.want) {
						t.Logf("%v: %s", p, violation)
						return
					}
				}
			}
			t.Errorf("%d histories without a violation; want one", most)
		})
	}
}
