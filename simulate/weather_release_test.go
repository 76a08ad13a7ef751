package simulate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// A release takes effect even without the TTL of the claim. A quorum repeats a release like that.
func TestReleaseWithoutTTLArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plan{processes: 1, workers: 1, keys: 1, nodes: 1, ttls: []time.Duration{time.Minute},
			delay: time.Millisecond}
		h := &history{plan: p, start: time.Now(), ring: newRing()}
		h.ring.begin(h.start)
		node := memhold.New()
		defer node.Close()
		w := newWire(h, nil, 0, node.Client())
		claim := driver.Claim{Key: "k0", Owner: "an-owner", TTL: time.Minute, Token: 1}
		if r, err := w.Acquire(t.Context(), claim); err != nil || r.State != driver.Held {
			t.Fatalf("Acquire: %v, %v; want held", r.State, err)
		}
		if r, err := w.Release(t.Context(),
			driver.Claim{Key: claim.Key, Owner: claim.Owner}); err != nil ||
			r.State != driver.Held {
			t.Errorf("Release without a TTL: %v, %v; want held", r.State, err)
		}
	})
}
