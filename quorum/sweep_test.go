package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// What is known of a claim is forgotten when its lease has surely ended, and not before: a claim
// that is renewed, that waits, that got the key after a long wait, or that a node has not released
// yet, is known for as long.
func TestSweepSparesWhatIsNeeded(t *testing.T) {
	for name, test := range map[string]struct {
		live func(*testing.T, *cluster, *client) // for more than two TTLs
		kept int
	}{
		"held and left behind": {func(t *testing.T, c *cluster, a *client) {
			a.hold(a.claim())
			time.Sleep(3 * ttlOf(a))
		}, 0},
		"renewed": {func(t *testing.T, c *cluster, a *client) {
			claim := a.claim()
			a.hold(claim)
			for range 9 {
				time.Sleep(claim.TTL / 3)
				a.renew(claim, driver.Held)
			}
		}, 1},
		"waiting, and silent": {func(t *testing.T, c *cluster, a *client) {
			b := c.client()
			holder := b.claim()
			b.hold(holder)
			a.busy(a.queued())
			time.Sleep(3 * ttlOf(a))
		}, 1},
		"granted after a wait": {func(t *testing.T, c *cluster, a *client) {
			b := c.client()
			holder, waiting := b.claim(), a.queued()
			b.hold(holder)
			for range 9 {
				a.busy(waiting)
				time.Sleep(holder.TTL / 3)
				b.renew(holder, driver.Held)
			}
			c.do(func() { c.presence = 0 }) // so that asking decides, and no notice
			b.release(holder, driver.Held)
			a.hold(waiting)
		}, 1},
		"not released by one node": {func(t *testing.T, c *cluster, a *client) {
			claim := a.claim()
			a.hold(claim)
			rest()
			c.freeze(0)
			a.release(claim, driver.Held)
			time.Sleep(3 * claim.TTL)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a := c.client()
				test.live(t, c, a)
				rest()
				a.Sweep()
				if _, claims := a.Remembered(); claims != test.kept {
					t.Errorf("%d claims are remembered; want %d", claims, test.kept)
				}
				c.thaw(0)
			})
		})
	}
}

func ttlOf(a *client) time.Duration { return a.claim().TTL }

// A claim that is renewed for longer than two TTLs is healed like a new one, however many other
// keys the client has.
func TestSweepLeavesHealing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		for range 9 {
			time.Sleep(claim.TTL / 3)
			a.renew(claim, driver.Held)
		}
		a.Sweep()
		c.crash(0)
		c.restart(true, 0)
		for range 3 {
			a.Renew(context.Background(), []driver.Claim{claim})
			rest()
		}
		if n := c.holds(claim); n != 3 {
			t.Errorf("%d nodes have the claim; want 3", n)
		}
		a.release(claim, driver.Held)
	})
}
