package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
)

// fences sets the last token granted of each server.
func (c *cluster) fences(fences ...driver.Token) {
	c.do(func() {
		for i, f := range fences {
			c.servers[i].fence = f
		}
	})
}

// Tokens rise whatever the clients' clocks say, and whichever majority is there (R38).
func TestR38_TokensRise(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		ahead, behind := c.client(), c.client()
		var last driver.Token
		down := 0
		for i := range 100 {
			cl, claim := ahead, ahead.claim()
			if i%2 == 0 {
				cl, claim = behind, behind.claim()
				claim.Token = 1
			} else {
				claim.Token += driver.Token(i) * 1e9
			}
			claim.Block = uint64(i % 4)
			c.crash(down, (down+1)%5)
			token := cl.hold(claim).Token
			if token <= last {
				t.Fatalf("acquisition %d got token %d after %d; want a larger one", i, token, last)
			}
			last = token + driver.Token(max(claim.Block, 1)) - 1
			cl.release(claim, driver.Held)
			c.restart(false, down, (down+1)%5)
			time.Sleep(3 * time.Second) // until the breakers have seen that they are back
			down = (down + 1) % 5
		}
	})
}

// If somebody set the counter of a key near its end on a server, only that key runs out of tokens.
// A key on servers whose counters are sound gets tokens of its own time.
func TestBrokenCounterDoesNotSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		sound := a.now()
		c.fences(1<<53-1000, sound, sound)
		claim := a.claim()
		if token := a.hold(claim).Token; token < 1<<52 {
			t.Fatalf("token %d; want one of the broken counter", token)
		}
		a.release(claim, driver.Held)
		rest()
		c.fences(sound, sound, sound) // those of another slot
		claim = a.claim()
		if token := a.hold(claim).Token; token >= 1<<52 {
			t.Errorf("token %d of sound counters; want less than 1<<52", token)
		}
	})
}

// While the nodes agree, one round is enough. If they do not, those behind are raised, which is
// counted.
func TestSecondRoundOnlyIfNodesDisagree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a := c.client()
		for range 50 {
			claim := a.claim()
			c.soon("acquiring", 1, func() { a.hold(claim) })
			a.release(claim, driver.Held)
			rest()
		}
		if s := a.Status(); s.SecondRounds != 0 || s.Acquired != 50 {
			t.Errorf("%d second rounds in %d acquisitions; want 0 in 50",
				s.SecondRounds, s.Acquired)
		}
		now := a.now()
		c.fences(now+1e9, now+2e9, now+3e9, now+4e9, now+5e9)
		claim := a.claim()
		claim.Block = 7
		var token driver.Token
		c.soon("acquiring from nodes that disagree", 2, func() { token = a.hold(claim).Token })
		if s := a.Status(); s.SecondRounds != 1 {
			t.Errorf("%d second rounds; want 1", s.SecondRounds)
		}
		c.do(func() {
			acknowledged := 0
			for _, s := range c.servers {
				if s.fence >= token+6 {
					acknowledged++
				}
			}
			if acknowledged < 3 {
				t.Errorf("%d nodes have acknowledged token %d with a block of 7; want 3",
					acknowledged, token)
			}
		})
		a.release(claim, driver.Held)
		rest()
		// And from then on they agree again.
		next := a.claim()
		c.soon("acquiring", 1, func() { a.hold(next) })
		a.release(next, driver.Held)
	})
}

// A claim that a node loses before its token was raised there is not complete, and is given back.
func TestRaiseNeedsTheKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a := c.client()
		now := a.now()
		c.fences(now+1e9, now+2e9, now+3e9)
		c.crash(2)
		claim := a.claim()
		done := make(chan error, 1)
		go func() {
			_, err := a.Acquire(context.Background(), claim)
			done <- err
		}()
		// Node 1 is behind node 2, and loses the key as soon as it has granted it.
		for lost := false; !lost; time.Sleep(10 * time.Microsecond) {
			c.do(func() {
				if k := c.servers[0].keys["k"]; k != nil && k.owner != "" {
					k.owner, lost = "", true
				}
			})
		}
		err := <-done
		if !errors.Is(err, quorum.ErrNoMajorityToken) {
			t.Errorf("Acquire: %v; want ErrNoMajorityToken", err)
		}
		if n := a.Status().Unraised; n != 1 {
			t.Errorf("Status counts %d; want 1", n)
		}
		rest()
		c.clean("k")
	})
}

// A token counts if a majority has acknowledged it, and not if one node less has: of three nodes
// that answer out of five, and that granted three tokens, both that are behind have to be raised.
func TestR38_EachRaiseCounts(t *testing.T) {
	for _, lost := range []int{0, 1} {
		for _, renewing := range []bool{false, true} {
			name := fmt.Sprintf("lost on %d nodes, renewing %v", lost, renewing)
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) { raises(t, lost, renewing) })
			})
		}
	}
}

func raises(t *testing.T, lost int, renewing bool) {
	c := newCluster(t, 5)
	a := c.client()
	claim := a.claim()
	if renewing {
		a.hold(claim)
		rest()
		claim.Block = 3
	}
	now := a.now()
	c.crash(3, 4)
	c.fences(now+1e9, now+2e9, now+3e9, now, now)
	done := make(chan error, 1)
	go func() {
		if !renewing {
			_, err := a.Acquire(context.Background(), claim)
			done <- err
			return
		}
		results, err := a.Renew(context.Background(), []driver.Claim{claim})
		if err == nil {
			err = results[0].Err
		}
		done <- err
	}()
	// The first nodes lose the key as soon as they have drawn a token.
	for i := 0; i < lost; time.Sleep(10 * time.Microsecond) {
		c.do(func() {
			if k := c.servers[i].keys["k"]; k != nil && k.token > now {
				k.owner = ""
				i++
			}
		})
	}
	err := <-done
	if want := lost > 0; errors.Is(err, quorum.ErrNoMajorityToken) != want || want == (err == nil) {
		t.Errorf("%v; want ErrNoMajorityToken: %v", err, want)
	}
	if s := a.Status(); s.SecondRounds != 1 || s.Unraised != uint64(lost) {
		t.Errorf("%d second rounds, %d in vain; want 1 and %d", s.SecondRounds, s.Unraised, lost)
	}
	c.restart(false, 3, 4)
	a.Release(context.Background(), claim)
	rest()
	c.clean("k")
}

// A renewal that takes another block of tokens has a majority acknowledge that as well.
func TestR38_RenewalTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 5)
		a, b := c.client(), c.client()
		claim := a.claim()
		last := a.hold(claim).Token
		rest()
		now := a.now()
		c.fences(now+5e9, now+4e9, now+3e9, now+2e9, now+1e9)
		claim.Block = 10
		var token driver.Token
		c.soon("renewing on nodes that disagree", 2, func() {
			token = a.renew(claim, driver.Held).Token
		})
		if token <= last {
			t.Errorf("the renewal got token %d after %d; want a larger one", token, last)
		}
		a.release(claim, driver.Held)
		rest()
		// A majority that has only one node in common with any that may have acknowledged it.
		c.crash(0, 1)
		next := b.claim()
		next.Token = 1
		if got := b.hold(next).Token; got < token+10 {
			t.Errorf("after a block of 10 from %d, token %d; want one behind the block", token, got)
		}
	})
}

// A client's own tokens rise even if all nodes have lost their counters and its clock was set back:
// it has seen each token that a node has answered with, in time or too late, or has told it of.
func TestR38_TokensOfAClientRise(t *testing.T) {
	for name, first := range map[string]func(*cluster, *client) driver.Token{
		"acquired": func(c *cluster, a *client) driver.Token {
			claim := a.claim()
			claim.Block = 5
			token := a.hold(claim).Token + 4
			a.release(claim, driver.Held)
			return token
		},
		"answered too late": func(c *cluster, a *client) driver.Token {
			ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
			defer cancel()
			claim := a.claim()
			if r, err := a.Acquire(ctx, claim); err == nil {
				c.t.Fatalf("Acquire = %v; want no answer in time", r)
			}
			return claim.Token
		},
		"handed over": func(c *cluster, a *client) driver.Token {
			b, in := c.client(), a.inbox()
			holder, waiting := b.claim(), a.queued()
			b.hold(holder)
			waiting.Block = 5
			a.busy(waiting)
			b.release(holder, driver.Held)
			token := c.told(in, 2).Token + 4
			a.release(waiting, driver.Held)
			return token
		},
		"renewed": func(c *cluster, a *client) driver.Token {
			claim := a.claim()
			a.hold(claim)
			claim.Block, claim.Token = 5, claim.Token+1e9
			token := a.renew(claim, driver.Held).Token + 4
			a.release(claim, driver.Held)
			return token
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a := c.client()
				now := a.now()
				c.fences(now+1e9, now+1e9, now+1e9)
				last := first(c, a)
				rest()
				c.fences(1, 1, 1)
				next := a.claim()
				next.Token = 1
				if token := a.hold(next).Token; token <= last {
					t.Errorf("token %d after %d", token, last)
				}
				a.release(next, driver.Held)
			})
		})
	}
}
