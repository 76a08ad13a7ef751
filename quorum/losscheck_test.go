package quorum_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// promised is a token of an acquisition that is complete, and whether later ones have to be larger.
//
// That is so while a majority of nodes knows it. If a loss leaves fewer, the token is at risk until
// the claims that hold the key then, its guardians, have brought it back to a majority. Only a
// clock keeps later tokens above it if one of those few nodes is lost before that, or once the
// guardians are gone, or for who comes meanwhile.
type promised struct {
	token     driver.Token
	void      bool
	atRisk    bool
	was       time.Time // when it was at risk last
	guardians []*grip
}

// grip is a claim that a client was told it holds.
type grip struct {
	claim    driver.Claim
	client   *lossClient
	deadline clock.Instant
	over     bool
	shared   bool // or may be
	number   int  // of its client
}

func (g *grip) valid(now clock.Instant) bool { return !g.over && now < g.deadline }

// lossCheck is what is known of the locks of a history, and what is wrong with them. Guarded by the
// network's mutex.
type lossCheck struct {
	net        *network
	guarded    bool
	need       int
	tokens     map[string][]*promised // by key
	grips      map[string][]*grip     // by key, those not over
	violations []string
	log        []string
}

func (c *lossCheck) violate(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf("%v: ", time.Since(c.net.start))+
		fmt.Sprintf(format, args...))
	c.note("VIOLATION "+format, args...)
}

func (c *lossCheck) note(format string, args ...any) {
	if *verbose {
		c.log = append(c.log, fmt.Sprintf("%v: ", time.Since(c.net.start))+
			fmt.Sprintf(format, args...))
	}
}

// knowing returns the servers that know a token.
func (c *lossCheck) knowing(key string, token driver.Token) (servers []int) {
	for i, s := range c.net.servers {
		if s.fenceOf(key) >= token {
			servers = append(servers, i)
		}
	}
	return servers
}

// weigh looks at who knows the tokens of a key.
func (c *lossCheck) weigh(key string) {
	now := clock.Now()
	for _, p := range c.tokens[key] {
		if p.void {
			continue
		}
		switch risk := len(c.knowing(key, p.token)) < c.need; {
		case !risk && p.atRisk:
			p.atRisk, p.was, p.guardians = false, time.Now(), nil
			c.note("%s: token %d is known again", key, p.token)
		case risk && !p.atRisk:
			p.atRisk, p.guardians = true, slices.Clone(c.holding(key, now))
			c.note("%s: token %d is at risk, %d guardians", key, p.token, len(p.guardians))
		}
		held := func(g *grip) bool { return g.valid(now) }
		if p.atRisk && !slices.ContainsFunc(p.guardians, held) {
			p.void = true
			c.note("%s: token %d is void, no guardians", key, p.token)
		}
	}
}

func (c *lossCheck) holding(key string, now clock.Instant) []*grip {
	c.grips[key] = slices.DeleteFunc(c.grips[key], func(g *grip) bool { return !g.valid(now) })
	return c.grips[key]
}

// losing notes that a server is about to lose what it knows of a key.
func (c *lossCheck) losing(key string, server int) {
	c.weigh(key)
	for _, p := range c.tokens[key] {
		if k := c.knowing(key, p.token); len(k) < c.need && slices.Contains(k, server) && !p.void {
			p.void = true
			c.note("%s: token %d is void, lost", key, p.token)
		}
	}
}

// above returns the tokens that a new acquisition of the key has to exceed.
func (c *lossCheck) above(key string) []*promised { return slices.Clone(c.tokens[key]) }

// drawn checks a token that was drawn from start on, after those others were complete.
func (c *lossCheck) drawn(g *grip, token driver.Token, others []*promised, start time.Time) {
	key := g.claim.Key
	c.weigh(key)
	for _, p := range others {
		if token <= p.token && !p.void && !p.atRisk && p.was.Before(start) {
			c.violate("%s: %s got token %d, and %d was complete before:%s", key, g.claim.Owner, token,
				p.token, c.net.describeLocked(key))
		}
	}
	p := &promised{token: token}
	if len(c.knowing(key, token)) < c.need { // nodes were lost since they acknowledged it
		p.atRisk, p.guardians = true, []*grip{g}
	}
	tokens := slices.DeleteFunc(c.tokens[key], func(p *promised) bool { return p.void })
	slices.SortFunc(tokens, func(a, b *promised) int { return cmp.Compare(a.token, b.token) })
	// The smaller ones are known wherever a larger one is.
	left := max(0, len(tokens)-4)
	for _, p := range tokens[:left] {
		p.void = true // nobody looks any more at who knows it
	}
	c.tokens[key] = append(tokens[left:], p)
}

// gained notes that a claim holds its key.
func (c *lossCheck) gained(g *grip) {
	now := clock.Now()
	for _, other := range c.holding(g.claim.Key, now) {
		if c.guarded && !(g.shared && other.shared) && other != g {
			c.violate("%s: %s (shared %v) is granted while %s (shared %v) holds it for another %v",
				g.claim.Key, g.claim.Owner, g.shared, other.claim.Owner, other.shared,
				other.deadline.Sub(now))
		}
	}
	if !slices.Contains(c.grips[g.claim.Key], g) {
		c.grips[g.claim.Key] = append(c.grips[g.claim.Key], g)
	}
}

// having returns the servers that have a claim.
func (c *lossCheck) having(claim *driver.Claim) (servers []int) {
	for i, s := range c.net.servers {
		k, now := s.keys[claim.Key], s.now()
		if k == nil {
			continue
		}
		if at := k.sharer(claim.Owner); at >= 0 && now < k.sharers[at].expires ||
			k.owner == claim.Owner && now < k.expires {
			servers = append(servers, i)
		}
	}
	return servers
}

// calm checks what has to be true when nothing is wrong any more, for some renewals.
func (c *lossCheck) calm() {
	for key, tokens := range c.tokens {
		c.weigh(key)
		for _, p := range tokens {
			if p.atRisk && !p.void {
				c.violate("%s: only servers %v know token %d, though claims were renewed", key,
					c.knowing(key, p.token), p.token)
			}
		}
		for _, g := range c.holding(key, clock.Now()) {
			if n := len(c.having(&g.claim)); n < len(c.net.servers) {
				c.violate("%s: only %d servers have %s", key, n, g.claim.Owner)
			}
		}
	}
}

// clean checks that servers know of no claim any more.
func (c *lossCheck) clean() {
	for _, s := range c.net.servers {
		now := s.now()
		for key, k := range s.keys {
			if k.owner != "" && now < k.expires {
				c.violate("server %d has %q, held by %s for another %v", s.index, key, k.owner,
					k.expires-now)
			}
			for _, w := range k.queue {
				if now < w.until {
					c.violate("server %d has %s in the queue of %q", s.index, w.owner, key)
				}
			}
		}
	}
}
