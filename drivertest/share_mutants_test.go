package drivertest_test

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

// sharersOf returns who shares the key.
func sharersOf(b *memhold.Backend, key string) []driver.Party {
	e, _ := b.Inspect(context.Background(), key)
	return e.Sharers
}

// sharing is a mutant with another Acquire for shared claims.
func sharing(name string, acquire func(b *memhold.Backend, ctx context.Context,
	c driver.Claim) (driver.Result, error), red ...string) *mutant {
	return &mutant{name: name, red: red, acquire: func(b *memhold.Backend, ctx context.Context,
		c driver.Claim) (driver.Result, error) {
		if !c.Shared {
			return b.Acquire(ctx, c)
		}
		return acquire(b, ctx, c)
	}}
}

// renewing is a mutant that renews claims one by one, in its own way.
func renewing(name string, renew func(b *memhold.Backend, ctx context.Context,
	c driver.Claim) driver.Result, red ...string) *mutant {
	return &mutant{name: name, red: red, renew: func(b *memhold.Backend, ctx context.Context,
		claims []driver.Claim) (results []driver.Result, err error) {
		for _, c := range claims {
			results = append(results, renew(b, ctx, c))
		}
		return results, nil
	}}
}

func renewOne(b *memhold.Backend, ctx context.Context, c driver.Claim) driver.Result {
	results, err := b.Renew(ctx, []driver.Claim{c})
	if err != nil {
		return driver.Result{Err: err}
	}
	return results[0]
}

// grantFalsely turns Busy into a grant if that is asked for.
func grantFalsely(r driver.Result, err error, c driver.Claim, falsely bool) (driver.Result, error) {
	if err == nil && r.State == driver.Busy && falsely {
		return driver.Result{State: driver.Held, Token: c.Token + 1<<40}, nil
	}
	return r, err
}

func shareMutants() []*mutant {
	var counts sync.Map // how often a claim was acquired
	var firsts sync.Map // the first token of a key
	var longest sync.Map
	var alone owners
	return []*mutant{
		{name: "does not state that it shares", red: []string{"Capabilities/Interfaces"},
			harness: func(h *drivertest.Harness) { h.Capabilities.Share = false }},
		sharing("takes shared claims for exclusive ones", func(b *memhold.Backend,
			ctx context.Context, c driver.Claim) (driver.Result, error) {
			c.Shared = false
			return b.Acquire(ctx, c)
		}, "Sharing/Together", "Sharing/AskingAgainConfirms", "Sharing/EachLeaseEnds",
			"Sharing/AllAreLost", "Sharing/InBatch", "Sharing/IsShown",
			"Sharing/LetsInAllUpToTheNextWriter", "Sharing/GrantsArePushed",
			"Sharing/WriterDiesInTheQueue", "Sharing/LastLeaseEnds"),
		sharing("shares beside a writer", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := b.Acquire(ctx, c)
			return grantFalsely(r, err, c, holderOf(b, c.Key).Owner != "")
		}, "Sharing/WritersExclude", "Sharing/Downgrade", "Sharing/DowngradeOfStrangerMovesNobody"),
		{name: "grants beside those who share", red: []string{"Sharing/ExcludesWriters",
			"Sharing/LastsAsTheLongestLeft"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				return grantFalsely(r, err, c, !c.Shared && len(sharersOf(b, c.Key)) > 0)
			}},
		sharing("lets those who share go ahead of a writer", func(b *memhold.Backend,
			ctx context.Context, c driver.Claim) (driver.Result, error) {
			r, err := b.Acquire(ctx, c)
			return grantFalsely(r, err, c, len(sharersOf(b, c.Key)) > 0)
		}, "Sharing/WaitsBehindWriter", "Sharing/LetsInAllUpToTheNextWriter"),
		sharing("forgets that a waiter would share", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			c.Shared = !c.Queue
			return b.Acquire(ctx, c)
		}, "Sharing/LetsInAllUpToTheNextWriter", "Sharing/GrantsArePushed",
			"Sharing/EarlierTicketNeedNotWait", "Sharing/WriterLeavesTheQueue",
			"Sharing/DowngradeLetsIn"),
		{name: "counts who asks again twice", red: []string{"Sharing/AskingAgainConfirms"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				n, _ := counts.LoadOrStore(c.Owner, 0)
				counts.Store(c.Owner, n.(int)+1)
				return b.Acquire(ctx, c)
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if n, _ := counts.LoadOrStore(c.Owner, 0); n.(int) > 1 {
					counts.Store(c.Owner, n.(int)-1)
					return driver.Result{State: driver.Held}, nil
				}
				return b.Release(ctx, c)
			}},
		{name: "releases who shares only if told so", red: []string{"Sharing/ReleaseFindsItAnyhow"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if !c.Shared && c.Owner == firstOf(sharersOf(b, c.Key)) {
					return driver.Result{State: driver.Lost}, nil
				}
				return b.Release(ctx, c)
			}},
		{name: "makes one who shares a writer", red: []string{"Sharing/NeverBecomesExclusive"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				c.Shared = c.Shared || c.Owner == firstOf(sharersOf(b, c.Key))
				return b.Acquire(ctx, c)
			}},
		{name: "an overtaken renewal shuts others out",
			red: []string{"Sharing/Downgrade", "Sharing/NeverBecomesExclusive"},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				for _, c := range claims {
					if !c.Shared && len(sharersOf(b, c.Key)) > 0 {
						alone.add(c.Key)
					}
				}
				return b.Renew(ctx, claims)
			},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if alone.has(c.Key) && c.Shared {
					return driver.Result{State: driver.Busy,
						Holder: firstOf(sharersOf(b, c.Key))}, nil
				}
				return b.Acquire(ctx, c)
			},
			store: func(*drivertest.Store, *memhold.Backend) { alone = owners{} }},
		sharing("gives all who share one token", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := b.Acquire(ctx, c)
			if r.State == driver.Held {
				first, _ := firsts.LoadOrStore(sharersOf(b, c.Key)[0].Owner, r.Token)
				r.Token = first.(driver.Token)
			}
			return r, err
		}, "Sharing/R13_Tokens"),
		renewing("renews all who share", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) driver.Result {
			for _, p := range sharersOf(b, c.Key) {
				other := c
				other.Owner, other.Block = p.Owner, 0
				renewOne(b, ctx, other)
			}
			return renewOne(b, ctx, c)
		}, "Sharing/RenewsOnlyOne"),
		{name: "keeps a key for the longest lease that there was",
			red: []string{"Sharing/LastsAsTheLongestLeft"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if ttl, ok := longest.Load(c.Key); !ok || ttl.(time.Duration) < c.TTL {
					longest.Store(c.Key, c.TTL)
				}
				return b.Acquire(ctx, c)
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Release(ctx, c)
				ttl, _ := longest.Load(c.Key)
				for _, p := range sharersOf(b, c.Key) {
					other := c
					other.Owner, other.TTL = p.Owner, ttl.(time.Duration)
					renewOne(b, ctx, other)
				}
				return r, err
			}},
		{name: "one release ends all shares",
			red: []string{"Sharing/Together", "Sharing/ExcludesWriters"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				for _, p := range sharersOf(b, c.Key) {
					if p.Owner != c.Owner {
						other := c
						other.Owner = p.Owner
						b.Release(ctx, other)
					}
				}
				return b.Release(ctx, c)
			}},
		renewing("does not downgrade", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) driver.Result {
			c.Shared = false
			return renewOne(b, ctx, c)
		}, "Sharing/Downgrade", "Sharing/DowngradeLetsIn"),
		renewing("downgrades whoever holds", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) driver.Result {
			if holder := holderOf(b, c.Key).Owner; c.Shared && holder != "" {
				c.Owner = holder
			}
			return renewOne(b, ctx, c)
		}, "Sharing/DowngradeOfStrangerMovesNobody"),
		renewing("tells of a reader that it lets in", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) driver.Result {
			e, _ := b.Inspect(ctx, c.Key)
			r := renewOne(b, ctx, c)
			r.Waiting = r.Waiting || c.Block > 0 && len(e.Waiters) > 0
			return r
		}, "Sharing/WhoIsLetInDoesNotWait"),
		renewing("tells only who holds the key alone", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) driver.Result {
			r := renewOne(b, ctx, c)
			r.Waiting = r.Waiting && !c.Shared
			return r
		}, "Sharing/WaitingIsTold"),
		{name: "lets no reader leave the queue",
			red: []string{"Sharing/WaiterLeaves", "Sharing/WriterLeavesTheQueue"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				e, _ := b.Inspect(ctx, c.Key)
				for _, w := range e.Waiters {
					if w.Owner == c.Owner {
						return driver.Result{State: driver.Busy}, nil
					}
				}
				return b.Release(ctx, c)
			}},
		{name: "lets in two at most", red: []string{"Sharing/LetsInAllUpToTheNextWriter"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Release(ctx, c)
				for i, p := range sharersOf(b, c.Key) {
					if i >= 2 {
						b.Release(ctx, driver.Claim{Key: c.Key, Owner: p.Owner, Shared: true})
					}
				}
				return r, err
			}},
		{name: "shows those who share as one holder", red: []string{"Sharing/IsShown"},
			inspect: func(b *memhold.Backend, ctx context.Context, key string) (driver.Entry,
				error) {
				e, err := b.Inspect(ctx, key)
				if n := len(e.Sharers); n > 0 {
					e.Holder, e.Sharers = e.Sharers[n-1], nil
				}
				return e, err
			}},
	}
}

// firstOf returns the owner value of the first party, or "".
func firstOf(parties []driver.Party) string {
	if len(parties) == 0 {
		return ""
	}
	return parties[0].Owner
}
