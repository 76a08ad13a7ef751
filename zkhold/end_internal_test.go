package zkhold

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A release that fails goes on in the background, and so does the end of a claim whose time is
// over.
//
// Fails if the code is broken like this: Release without abandon, or end without rearm.
func TestEndGoesOn(t *testing.T) {
	for name, released := range map[string]bool{"released": true, "its time is over": false} {
		t.Run(name, func(t *testing.T) {
			ttl := time.Second
			if released {
				ttl = time.Hour
			}
			// The server that is played has no slots, so each attempt fails.
			fakeBackend(t, ttl, func(t *testing.T, b *Backend, c *claim) {
				if released {
					r, err := b.Release(t.Context(), driver.Claim{Key: "k", Owner: "o"})
					if err == nil {
						t.Fatalf("a release without a slot = %v", r)
					}
				}
				time.Sleep(time.Minute)
				b.mu.Lock()
				defer b.mu.Unlock()
				if c.failures < 3 || !c.ending || b.claims[c.identity] != c {
					t.Errorf("it has failed to end %d times in a minute, and is ending: %v; "+
						"want 3 times at least", c.failures, c.ending)
				}
			})
		})
	}
}

// A claim whose acquisition was not answered is ended too, when its time is over.
//
// Fails if the code is broken like this: doubt without arm.
func TestDoubtfulClaimEnds(t *testing.T) {
	fakeBackend(t, time.Hour, func(t *testing.T, b *Backend, _ *claim) {
		c, _ := b.claimOf(driver.Claim{Key: "asked", Owner: "o", TTL: time.Second})
		b.doubt(c, time.Second)
		time.Sleep(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.failures == 0 || !c.ending {
			t.Errorf("it has failed to end %d times in a minute, and is ending: %v; want once "+
				"at least", c.failures, c.ending)
		}
	})
}

// A party counts as dead if this Backend made it and does not know of it any more, or its time is
// over. What others have made is theirs.
func TestWhoIsDead(t *testing.T) {
	b := &Backend{instance: "i", claims: make(map[identity]*claim)}
	now := driver.LeaseClock()
	b.claims[identity{"k", "lives"}] = &claim{deadline: now + time.Hour}
	b.claims[identity{"k", "over"}] = &claim{deadline: now}
	dead := b.dead("k", names{backend: b, id: 1})
	former, another := names{backend: b, id: 2}.prefix()+"1", "j-0000000000000001-1"
	for _, c := range []struct {
		node, owner string
		want        bool
	}{
		{names{backend: b, id: 1}.prefix() + "1", "lives", false},
		{former, "lives", false}, // the session's end removes it
		{former, "over", true},
		{former, "unknown", true},
		{another, "over", false},
		{another, "unknown", false},
	} {
		if got := dead(&party{Node: c.node, Owner: escape(c.owner)}); got != c.want {
			t.Errorf("%s of %s is dead: %v, want %v", c.node, c.owner, got, c.want)
		}
	}
}

// A waiter is written again if it asks for another block, or if the token that it proposes has
// jumped ahead of the clock.
func TestWhenAWaiterIsOutdated(t *testing.T) {
	b := new(Backend)
	asked := driver.LeaseClock()
	later := driver.Token(time.Hour.Microseconds())
	for name, test := range map[string]struct {
		phase phase
		asks  driver.Claim
		want  bool
	}{
		"the same":       {waits, driver.Claim{Token: 100, Block: 5}, false},
		"smaller":        {waits, driver.Claim{Token: 1, Block: 5}, false},
		"with the clock": {waits, driver.Claim{Token: 100 + 500_000, Block: 5}, false},
		"a jump":         {waits, driver.Claim{Token: 100 + later, Block: 5}, true},
		"another block":  {waits, driver.Claim{Token: 100, Block: 6}, true},
		"a holder":       {holds, driver.Claim{Token: 100 + later, Block: 6}, false},
	} {
		c := &claim{phase: test.phase, asked: asked, token: 100, block: 5}
		if got := b.outdated(c, test.asks); got != test.want {
			t.Errorf("%s: outdated %v, want %v", name, got, test.want)
		}
	}
}
