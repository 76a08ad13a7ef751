package drivertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

func mutants() []*mutant {
	return slices.Concat(
		harnessMutants(), exclusionMutants(), releaseMutants(), renewalMutants(), tokenMutants(),
		queueMutants(),
		handoffMutants(), shareMutants(), noticeMutants(), callMutants(), keyMutants(),
		inspectionMutants(), guardMutants(), closeMutants(),
	)
}

// holderOf returns who holds the key.
func holderOf(b *memhold.Backend, key string) driver.Party {
	e, _ := b.Inspect(context.Background(), key)
	return e.Holder
}

// owners remembers owner values.
type owners struct{ m sync.Map }

func (o *owners) add(owner string)      { o.m.Store(owner, true) }
func (o *owners) has(owner string) bool { _, ok := o.m.Load(owner); return ok }

func harnessMutants() []*mutant {
	state := func(name string, red string, f func(*drivertest.Capabilities)) *mutant {
		return &mutant{name: name, red: []string{red}, harness: func(h *drivertest.Harness) {
			f(&h.Capabilities)
		}}
	}
	return []*mutant{
		state("states a Checker that is not there", "Capabilities/Interfaces",
			func(c *drivertest.Capabilities) {
				c.Check = true
			}),
		state("does not state its Inspector", "Capabilities/Interfaces",
			func(c *drivertest.Capabilities) {
				c.Inspect = false
			}),
		state("does not state its Notifier", "Capabilities/Interfaces",
			func(c *drivertest.Capabilities) {
				c.Notify = false
			}),
		state("does not state its guard", "Capabilities/Interfaces",
			func(c *drivertest.Capabilities) {
				c.Guard = false
			}),
		state("does not state its membership", "Capabilities/Interfaces",
			func(c *drivertest.Capabilities) {
				c.Member = false
			}),
		state("does not state its identity", "Capabilities/Interfaces",
			func(c *drivertest.Capabilities) {
				c.Identify = false
			}),
		state("does not state its hooks", "Capabilities/Hooks", func(c *drivertest.Capabilities) {
			c.CanLose = false
		}),
		state("does not state its queue", "Capabilities/Answers", func(c *drivertest.Capabilities) {
			c.Queue = false
		}),
		state("does not state its queue, 2", "Exclusion/BusyWithoutQueue",
			func(c *drivertest.Capabilities) {
				c.Queue = false
			}),
		state("does not state that it names holders", "Capabilities/Answers",
			func(c *drivertest.Capabilities) {
				c.Holder = false
			}),
		state("does not state that it tells leases", "Capabilities/Answers",
			func(c *drivertest.Capabilities) {
				c.ExpiresIn = false
			}),
		state("does not state that leases end", "Capabilities/NoExpiry",
			func(c *drivertest.Capabilities) {
				c.Expiry = false
			}),
		state("does not state that leases run on", "Capabilities/EndsWithItsClient",
			func(c *drivertest.Capabilities) {
				c.Outlives = false
			}),
		{name: "states a hook that is not there", red: []string{"Capabilities/Hooks"},
			store: func(s *drivertest.Store, _ *memhold.Backend) { s.KillHolder = nil }},
	}
}

func exclusionMutants() []*mutant {
	again := func(change func(*driver.Result)) *mutant {
		var held owners
		return &mutant{acquire: func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			if held.has(c.Owner) && holderOf(b, c.Key).Owner == c.Owner {
				r := driver.Result{State: driver.Held, Token: holderOf(b, c.Key).Token}
				change(&r)
				return r, nil
			}
			r, err := b.Acquire(ctx, c)
			if r.State == driver.Held {
				held.add(c.Owner)
			}
			return r, err
		}}
	}
	refusesItself := again(func(r *driver.Result) { r.State = driver.Busy })
	refusesItself.name = "refuses a claim what it holds"
	refusesItself.red = []string{"Exclusion/AskingAgainConfirms",
		"Unknown/AcquireIsMineOnAskingAgain"}
	// After a cut reply it has nothing to remember: it has to look.
	refusesItself.acquire = func(b *memhold.Backend, ctx context.Context,
		c driver.Claim) (driver.Result, error) {
		if h := holderOf(b, c.Key); h.Owner == c.Owner {
			return driver.Result{State: driver.Busy, Holder: h.Owner}, nil
		}
		return b.Acquire(ctx, c)
	}
	noRefresh := again(func(*driver.Result) {})
	noRefresh.name = "does not refresh the lease of a claim that asks again"
	noRefresh.red = []string{"Exclusion/AskingAgainRefreshes"}

	answer := func(name string, change func(*driver.Claim, *driver.Result), red ...string) *mutant {
		return &mutant{name: name, red: red, acquire: func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := b.Acquire(ctx, c)
			change(&c, &r)
			return r, err
		}}
	}
	claimed := func(name string, change func(*driver.Claim), red ...string) *mutant {
		return &mutant{name: name, red: red, acquire: func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			change(&c)
			return b.Acquire(ctx, c)
		}}
	}
	return []*mutant{
		refusesItself, noRefresh,
		answer("grants what is busy", func(_ *driver.Claim, r *driver.Result) {
			if r.State == driver.Busy && r.Presence == 0 {
				*r = driver.Result{State: driver.Held, Token: 1}
			}
		}, "Exclusion/R1_SecondIsBusy", "Exclusion/R26_OneOfManyWins", "Load/Stress"),
		{name: "looks first and takes later", red: []string{"Exclusion/R26_OneOfManyWins",
			"Load/Stress"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if h := holderOf(b, c.Key); h.Owner != "" && h.Owner != c.Owner {
					return b.Acquire(ctx, c)
				}
				<-time.After(time.Microsecond) // until all others have looked, in the bubble
				b.Faults().Give(c.Key, c.Owner, c.TTL)
				return b.Acquire(ctx, c)
			}},
		answer("cuts the holder's owner value", func(_ *driver.Claim, r *driver.Result) {
			r.Holder, _, _ = strings.Cut(r.Holder, " ")
		}, "Exclusion/BusyNamesHolder"),
		answer("names nobody", func(_ *driver.Claim, r *driver.Result) {
			r.Holder = ""
		}, "Capabilities/Answers", "Exclusion/R1_SecondIsBusy"),
		answer("tells leases in the wrong unit", func(_ *driver.Claim, r *driver.Result) {
			r.ExpiresIn /= 1000
		}, "Exclusion/BusyTellsLease"),
		answer("tells the lease asked for", func(c *driver.Claim, r *driver.Result) {
			r.ExpiresIn += c.TTL
		}, "Exclusion/BusyTellsLease"),
		claimed("queues who did not ask to", func(c *driver.Claim) {
			c.Queue = true
		}, "Exclusion/BusyLeavesNoTrace"),
		claimed("lets leases end early", func(c *driver.Claim) {
			c.TTL = c.TTL * 9 / 10
		}, "Exclusion/R2_LeaseEndsByItself"),
		claimed("lets leases end late", func(c *driver.Claim) {
			c.TTL *= 1000
		}, "Exclusion/R2_LeaseEndsByItself",
			"Process/R2_KilledHolder", "Process/R2_KilledHolderHandsOver"),
		claimed("does not let a queue claim in at once", func(c *driver.Claim) {
			if c.Queue {
				c.Key += "?"
			}
		}, "Queue/FreeKeyIsGrantedAtOnce"),
	}
}

func releaseMutants() []*mutant {
	pretend := func(from, to driver.State) func(*memhold.Backend, context.Context,
		driver.Claim) (driver.Result, error) {
		return func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
			error) {
			r, err := b.Release(ctx, c)
			if err == nil && r.State == from {
				r.State = to
			}
			return r, err
		}
	}
	return []*mutant{
		{name: "releases without comparing", red: []string{"Release/R7_ComparesOwner",
			"Release/R8_LateSparesNextHolder",
			"Release/OfLostIsLost", "Unknown/ReleaseIsDoneOnce",
			"Queue/ReleaseOfStrangerMovesNobody", "Renew/R34_SparesAnother"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if r, err := b.Release(ctx, c); err != nil || r.State != driver.Lost {
					return r, err
				}
				c.Owner = holderOf(b, c.Key).Owner
				b.Release(ctx, c)
				return driver.Result{State: driver.Lost}, nil
			}},
		{name: "compares a part of the owner value", red: []string{"Release/R7_ComparesOwner"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if h := holderOf(b, c.Key).Owner; strings.HasPrefix(h, c.Owner) {
					c.Owner = h
				}
				return b.Release(ctx, c)
			}},
		{name: "does not release",
			red: []string{"Release/FreesAtOnce", "Tokens/R38_RiseOverAcquisitions"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if holderOf(b, c.Key).Owner == c.Owner {
					return driver.Result{State: driver.Held}, ctxError(ctx)
				}
				return b.Release(ctx, c)
			}},
		{name: "takes a release of nothing for one",
			red: []string{"Release/R25_Twice", "Release/R25_OfUnknown",
				"Release/OfExpiredIsLost"},
			release: pretend(driver.Lost, driver.Held)},
		{name: "calls a release lost", red: []string{"Release/FreesAtOnce"},
			release: pretend(driver.Held, driver.Lost)},
		{name: "fails to release what it does not know", red: []string{"Release/R25_OfUnknown"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Release(ctx, c)
				if err == nil && r.State == driver.Lost {
					err = &driver.Error{Err: errors.New("no such key")}
				}
				return r, err
			}},
	}
}

func renewalMutants() []*mutant {
	results := func(name string, change func([]driver.Result) []driver.Result,
		red ...string) *mutant {
		return &mutant{name: name, red: red, renew: func(b *memhold.Backend, ctx context.Context,
			claims []driver.Claim) ([]driver.Result, error) {
			r, err := b.Renew(ctx, claims)
			return change(r), err
		}}
	}
	// each renews claims one by one by f.
	each := func(name string, f func(*memhold.Backend, context.Context,
		driver.Claim) (driver.Result, error), red ...string) *mutant {
		return &mutant{name: name, red: red, renew: func(b *memhold.Backend, ctx context.Context,
			claims []driver.Claim) ([]driver.Result, error) {
			results := make([]driver.Result, len(claims))
			for i, c := range claims {
				r, err := f(b, ctx, c)
				if err != nil {
					return nil, err
				}
				results[i] = r
			}
			return results, nil
		}}
	}
	renew := func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result, error) {
		r, err := b.Renew(ctx, []driver.Claim{c})
		if err != nil {
			return driver.Result{}, err
		}
		return r[0], nil
	}
	return []*mutant{
		each("creates what it should renew", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			if err == nil && r.State == driver.Lost {
				if r, err = b.Acquire(ctx, c); r.State == driver.Busy {
					r.State = driver.Lost
				}
			}
			return r, err
		}, "Renew/R34_NeverCreates", "Renew/R34_NeverRecreatesExpired",
			"Renew/R34_NeverRecreatesLost"),
		each("creates what it should renew with tokens", func(b *memhold.Backend,
			ctx context.Context, c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			if err == nil && r.State == driver.Lost && c.Block > 0 {
				if r, err = b.Acquire(ctx, c); r.State == driver.Busy {
					r.State = driver.Lost
				}
			}
			return r, err
		}, "Renew/R34_NeverCreates", "Renew/R34_NeverRecreatesExpired",
			"Renew/R34_NeverRecreatesLost"),
		each("renews whoever holds the key", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			if h := holderOf(b, c.Key).Owner; h != "" {
				c.Owner = h
			}
			return renew(b, ctx, c)
		}, "Renew/R34_SparesAnother", "Renew/NeverExtendsAnother", "Queue/WaiterDoesNotHold",
			"Handoff/OldHolderHasLost", "Handoff/StrangerIsToldNothing"),
		each("extends another's lease and says lost", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			if err == nil && r.State == driver.Lost {
				c.Owner = holderOf(b, c.Key).Owner
				c.Owner = c.Owner + strings.Repeat("?", max(0, 1-len(c.Owner)))
				renew(b, ctx, c)
			}
			return r, err
		}, "Renew/NeverExtendsAnother"),
		each("does not extend", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			if holderOf(b, c.Key).Owner == c.Owner && c.Block == 0 {
				return driver.Result{State: driver.Held}, ctxError(ctx)
			}
			return renew(b, ctx, c)
		}, "Renew/Extends", "Handoff/RenewConfirmsGrant"),
		each("tells always that somebody waits", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			r.Waiting = r.State == driver.Held && c.Block > 0
			return r, err
		}, "Renew/NobodyWaits", "Handoff/NobodyWaits", "Handoff/TheDeadDoNotWait",
			"Handoff/WaitingInBatch", "Handoff/AfterWaitingWasTold", "Sharing/WaitingIsTold"),
		each("never tells that somebody waits", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			r.Waiting = false
			return r, err
		}, "Handoff/AfterWaitingWasTold", "Handoff/NobodyWaits", "Handoff/TheDeadDoNotWait",
			"Handoff/WaitingInBatch", "Sharing/WaitingIsTold", "Sharing/WhoIsLetInDoesNotWait"),
		each("tells it of another's hold", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			if e, _ := b.Inspect(ctx, c.Key); r.State == driver.Lost {
				r.Waiting = len(e.Waiters) > 0
			}
			return r, err
		}, "Handoff/StrangerIsToldNothing"),
		each("hands over where it should tell", func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := renew(b, ctx, c)
			if r.Waiting {
				b.Release(ctx, c)
			}
			return r, err
		}, "Handoff/AfterWaitingWasTold", "Handoff/NobodyWaits", "Handoff/WaitingInBatch",
			"Sharing/WaitingIsTold"),
		results("mixes up the results", func(r []driver.Result) []driver.Result {
			slices.Reverse(r)
			return r
		}, "Renew/BatchKeepsOrder", "Renew/BatchOfThousand"),
		results("drops results", func(r []driver.Result) []driver.Result {
			return r[:min(len(r), 512)]
		}, "Renew/BatchOfThousand"),
		results("gives up at the first that is lost", func(r []driver.Result) []driver.Result {
			for i := range r {
				if r[i].State == driver.Lost {
					for j := range r[i:] {
						r[i+j] = driver.Result{State: driver.Lost}
					}
				}
			}
			return r
		}, "Renew/BatchKeepsOrder", "Renew/BatchOfThousand", "Handoff/WaitingInBatch"),
		{name: "refuses an empty batch", red: []string{"Renew/EmptyBatch"},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				if len(claims) == 0 {
					return nil, &driver.Error{Err: errors.New("wrong number of arguments")}
				}
				return b.Renew(ctx, claims)
			}},
	}
}

func tokenMutants() []*mutant {
	claimed := func(name string, change func(*driver.Claim), red ...string) *mutant {
		return &mutant{name: name, red: red,
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				change(&c)
				return b.Acquire(ctx, c)
			}}
	}
	renewed := func(name string, change func(*memhold.Backend, *driver.Claim),
		red ...string) *mutant {
		return &mutant{name: name, red: red,
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				claims = slices.Clone(claims)
				for i := range claims {
					change(b, &claims[i])
				}
				return b.Renew(ctx, claims)
			}}
	}
	return []*mutant{
		{name: "gives each acquisition the same token",
			red: []string{"Tokens/R38_RiseOverAcquisitions", "Tokens/R38_RiseOverExpiry",
				"Tokens/R38_RiseOverLoss", "Tokens/R38_RiseOverHandoff",
				"Tokens/R38_RiseOverClients",
				"Load/Stress", "Load/StressWithQueue",
				"Process/R2_KilledHolder"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				r.Token = min(r.Token, 1)
				return r, err
			}},
		claimed("ignores the proposed token", func(c *driver.Claim) {
			c.Token = 0
		}, "Tokens/ProposedIsHonoured", "Tokens/ProposedIsHonouredAfterHandoff"),
		claimed("ignores what waiters propose", func(c *driver.Claim) {
			if c.Queue {
				c.Token = 0
			}
		}, "Tokens/ProposedIsHonouredAfterHandoff"),
		claimed("ignores blocks", func(c *driver.Claim) {
			c.Block = 0
		}, "Tokens/BlocksDoNotOverlap", "Tokens/BlocksDoNotOverlapAfterAskingAgain",
			"Tokens/BlocksDoNotOverlapAfterHandoff", "Tokens/RenewReservesBlock"),
		claimed("ignores the blocks of waiters", func(c *driver.Claim) {
			if c.Queue {
				c.Block = 0
			}
		}, "Tokens/BlocksDoNotOverlapAfterHandoff"),
		renewed("renews without a block", func(_ *memhold.Backend, c *driver.Claim) {
			c.Block = 0
		}, "Tokens/RenewReservesBlock"),
		renewed("ignores what a renewal proposes", func(_ *memhold.Backend, c *driver.Claim) {
			c.Token = 0
		}, "Tokens/RenewReservesBlock"),
		renewed("always reserves", func(_ *memhold.Backend, c *driver.Claim) {
			c.Block = max(c.Block, 1)
		}, "Tokens/RenewWithoutBlockReservesNone"),
		renewed("reserves for those who lost", func(b *memhold.Backend, c *driver.Claim) {
			if c.Block > 0 && holderOf(b, c.Key).Owner != c.Owner {
				other := *c
				other.Key = "other"
				b.Acquire(context.Background(), other)
			}
		}, "Tokens/RenewOfLostReservesNone"),
	}
}

func queueMutants() []*mutant {
	var tickets atomic.Uint64
	ticket := func(name string, change func(*driver.Claim), red ...string) *mutant {
		var given sync.Map // the first ticket is kept
		return &mutant{name: name, red: red, acquire: func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			change(&c)
			first, _ := given.LoadOrStore(c.Owner, c.Ticket)
			c.Ticket = first.(uint64)
			return b.Acquire(ctx, c)
		}}
	}
	var beaten owners
	return []*mutant{
		ticket("serves the last first", func(c *driver.Claim) {
			c.Ticket = 1<<40 - tickets.Add(1)
		}, "Queue/InOrderOfArrival", "Queue/ReportsPlaces",
			"Queue/HeartbeatKeepsPlace", "Handoff/OnExpiry", "Handoff/GrantAfterCancelIsGivenBack"),
		ticket("ignores tickets", func(c *driver.Claim) {
			c.Ticket = 0
		}, "Queue/InOrderOfTickets", "Inspect/WaitersInOrder"),
		ticket("orders tickets by their first digits", func(c *driver.Claim) {
			for c.Ticket > 99 {
				c.Ticket /= 10
			}
		}, "Queue/InOrderOfTickets"),
		ticket("orders equal tickets by arrival", func(c *driver.Claim) {
			c.Ticket = c.Ticket<<10 + tickets.Add(1)
		}, "Queue/EqualTicketsByOwner"),
		{name: "puts who asks again at the end", red: []string{"Queue/HeartbeatKeepsPlace"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if r, err := b.Acquire(ctx, c); err != nil || r.State != driver.Busy ||
					r.Presence == 0 {
					return r, err
				}
				b.Release(ctx, c)
				return b.Acquire(ctx, c)
			}},
		{name: "ignores heartbeats", red: []string{"Queue/HeartbeatKeepsPresent"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if !c.Queue || !beaten.has(c.Owner) {
					beaten.add(c.Owner)
					return b.Acquire(ctx, c)
				}
				return driver.Result{State: driver.Busy, Holder: holderOf(b, c.Key).Owner, Place: 1,
					Presence: presence}, nil
			}},
		{name: "reports no places", red: []string{"Queue/ReportsPlaces"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				r.Place = min(r.Place, 1)
				return r, err
			}},
		{name: "does not let waiters leave",
			red: []string{"Queue/WaiterLeaves", "Queue/LastWaiterLeaves",
				"Unknown/QueueingIsUndoneByRelease"},
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
		{name: "does not skip the dead",
			red: []string{"Queue/DeadHeadIsSkipped", "Queue/DeadMiddleIsSkipped",
				"Queue/ManyDeadAreSkipped",
				"Queue/OnlyDeadWaiters", "Handoff/TheDeadDoNotWait", "Inspect/DeadAreNotShown",
				"Close/WaitersRunOut"},
			options: []memhold.Option{memhold.WithPresence(time.Hour)},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				told := min(presence, c.TTL)
				if c.Queue {
					c.TTL = time.Hour
				}
				r, err := b.Acquire(ctx, c)
				r.Presence = min(r.Presence, told)
				return r, err
			}},
		{name: "forgets the queue when a reply is cut",
			red: []string{"Unknown/QueueingIsKeptOnAskingAgain"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if err != nil && c.Queue {
					b.Release(ctx, c)
				}
				return r, err
			}},
	}
}

func handoffMutants() []*mutant {
	// dismiss sends all waiters of a key away.
	dismiss := func(b *memhold.Backend, key string) {
		e, _ := b.Inspect(context.Background(), key)
		for _, w := range e.Waiters {
			b.Release(context.Background(), driver.Claim{Key: key, Owner: w.Owner})
		}
	}
	prolong := func(name string, lease time.Duration, red ...string) *mutant {
		return &mutant{name: name, red: red, release: func(b *memhold.Backend, ctx context.Context,
			c driver.Claim) (driver.Result, error) {
			r, err := b.Release(ctx, c)
			if h := holderOf(b, c.Key).Owner; h != "" && r.State == driver.Held {
				b.Renew(ctx, []driver.Claim{{Key: c.Key, Owner: h, TTL: lease}})
			}
			return r, err
		}}
	}
	var waited, told owners
	var queued, granted owners
	return []*mutant{
		{name: "dismisses the queue with a release",
			red: []string{"Handoff/OnRelease", "Queue/InOrderOfArrival"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if holderOf(b, c.Key).Owner == c.Owner {
					dismiss(b, c.Key)
				}
				return b.Release(ctx, c)
			}},
		{name: "keeps who was granted the key and gave up",
			red: []string{"Handoff/GrantAfterCancelIsGivenBack"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if waited.add(c.Owner); r.State == driver.Held {
					told.add(c.Owner)
				}
				return r, err
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if waited.has(c.Owner) && !told.has(c.Owner) &&
					holderOf(b, c.Key).Owner == c.Owner {
					return driver.Result{State: driver.Held}, nil
				}
				return b.Release(ctx, c)
			}},
		{name: "lets in whoever comes to a free key",
			red: []string{"Handoff/NobodyBargesIn", "Handoff/NobodyBargesInByQueue",
				"Handoff/SecondLeavesFreeKeyToFirst", "Handoff/WaiterLeavesFreeKey"},
			store: func(s *drivertest.Store, first *memhold.Backend) {
				s.Lose = func(_ testing.TB, key string) {
					dismiss(first, key)
					first.Faults().Lose(key)
				}
			}},
		{name: "tells a waiter once more to wait", red: []string{"Handoff/FirstTakesFreeKey",
			"Notices/LostOneIsFoundByAsking", "Handoff/AskingConfirmsGrant"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if r.State == driver.Busy {
					queued.add(c.Owner)
				}
				if r.State == driver.Held && queued.has(c.Owner) && !granted.has(c.Owner) {
					granted.add(c.Owner)
					return driver.Result{State: driver.Busy, Place: 1, Presence: presence}, err
				}
				return r, err
			}},
		prolong("hands over for a whole TTL", time.Minute, "Handoff/GrantEndsWithPresence",
			"Handoff/GrantIsRestOfPresence"),
		prolong("hands over for a whole presence", presence, "Handoff/GrantIsRestOfPresence"),
		prolong("hands over for less than the rest of the presence", presence/2,
			"Handoff/GrantIsRestOfPresence"),
	}
}

func noticeMutants() []*mutant {
	notices := func(name string, change func(*driver.Notice) bool, red ...string) *mutant {
		return &mutant{name: name, red: red,
			notify: func(b *memhold.Backend, f func(driver.Notice)) func() {
				return b.Notify(func(n driver.Notice) {
					if change(&n) {
						f(n)
					}
				})
			}}
	}
	return []*mutant{
		notices("pushes nothing", func(*driver.Notice) bool {
			return false
		}, "Notices/GrantIsPushed"),
		notices("pushes a token that is too small", func(n *driver.Notice) bool {
			n.Token -= 2
			return true
		}, "Notices/GrantIsPushed"),
		notices("pushes no block", func(n *driver.Notice) bool {
			n.Block = 0
			return true
		}, "Notices/GrantIsPushed"),
		notices("pushes another key", func(n *driver.Notice) bool {
			n.Key = "lock:" + n.Key
			return true
		}, "Notices/GrantIsPushed"),
		notices("calls grants freed", func(n *driver.Notice) bool {
			n.Kind = driver.Freed
			return true
		}, "Notices/GrantIsPushed"),
		notices("addresses others", func(n *driver.Notice) bool {
			n.Owner = "somebody"
			return true
		}, "Notices/AddressTheWaiter", "Notices/GrantIsPushed"),
		{name: "does not stop", red: []string{"Notices/NoneAfterStop"},
			notify: func(b *memhold.Backend, f func(driver.Notice)) func() {
				b.Notify(f)
				return func() {}
			}},
	}
}

// callMutants break what holds for every call.
func callMutants() []*mutant {
	endless := context.WithoutCancel
	known := func(err error) error {
		if errors.Is(err, driver.ErrUnknown) {
			return &driver.Error{Err: errors.Unwrap(err)}
		}
		return err
	}
	var unknown, ended owners
	return []*mutant{
		{name: "refuses a claim that was undone after a cut reply",
			red: []string{"Unknown/UndoneClaimIsAskedForAgain"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if ended.has(c.Owner) {
					return driver.Result{State: driver.Busy}, nil
				}
				r, err := b.Acquire(ctx, c)
				if err != nil {
					unknown.add(c.Owner)
				}
				return r, err
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if unknown.has(c.Owner) {
					ended.add(c.Owner)
				}
				return b.Release(ctx, c)
			}},
		{name: "releases nothing after a cut reply",
			red: []string{"Unknown/AcquireIsUndoneByRelease", "Unknown/QueueingIsUndoneByRelease"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if err != nil {
					unknown.add(c.Owner)
				}
				return r, err
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if unknown.has(c.Owner) {
					return driver.Result{State: driver.Lost}, nil
				}
				return b.Release(ctx, c)
			}},
		{name: "undoes a renewal whose reply is cut", red: []string{"Unknown/RenewalCounts"},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				results, err := b.Renew(ctx, claims)
				if err != nil {
					b.Faults().Lose(claims[0].Key)
				}
				return results, err
			}},
		{name: "releases again what another holds", red: []string{"Unknown/ReleaseIsDoneOnce"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if unknown.has(c.Owner) {
					b.Faults().Lose(c.Key)
				}
				r, err := b.Release(ctx, c)
				if err != nil {
					unknown.add(c.Owner)
				}
				return r, err
			}},
		{name: "does not mind the context", red: []string{"Context/EndedBeforeTheCall",
			"Context/EndsHangingCalls"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				return b.Acquire(endless(ctx), c)
			},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				return b.Renew(endless(ctx), claims)
			}},
		{name: "does not mind the context of a release", red: []string{"Context/EndedBeforeTheCall",
			"Context/EndsHangingCalls"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				return b.Release(endless(ctx), c)
			}},
		{name: "does not mind the context of an inspection",
			red: []string{"Context/EndsHangingCalls"},
			inspect: func(b *memhold.Backend, ctx context.Context, key string) (driver.Entry,
				error) {
				return b.Inspect(endless(ctx), key)
			}},
		{name: "hides the context's error", red: []string{"Context/EndedBeforeTheCall",
			"Context/EndsHangingCalls"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if err != nil {
					err = &driver.Error{Maybe: true, Err: errors.New("i/o timeout")}
				}
				return r, err
			}},
		{name: "drops a release that it can not send at once",
			red: []string{"Context/R17_ReleaseFollowsAcquire", "Context/ReleaseFollowsQueueing"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if b.Faults().Hanging() > 0 {
					<-ctx.Done()
					return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
				}
				return b.Release(ctx, c)
			}},
		{name: "lets calls overtake releases", red: []string{"Context/AcquireFollowsRelease"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Release(ctx, c)
				if errors.Is(err, ctx.Err()) {
					b.Faults().ThawDropping()
					b.Faults().Freeze()
				}
				return r, err
			}},
		{name: "calls a cut reply unavailable", red: []string{"Unknown/AcquireIsMineOnAskingAgain",
			"Unknown/AcquireIsUndoneByRelease", "Unknown/UndoneClaimIsAskedForAgain",
			"Unknown/QueueingIsKeptOnAskingAgain", "Unknown/QueueingIsUndoneByRelease",
			"Unknown/ReleaseIsDoneOnce", "Unknown/RenewalCounts"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				return r, known(err)
			},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				r, err := b.Renew(ctx, claims)
				return r, known(err)
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Release(ctx, c)
				return r, known(err)
			}},
		{name: "calls a cut reply busy", red: []string{"Unknown/AcquireIsMineOnAskingAgain",
			"Unknown/AcquireIsUndoneByRelease"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if errors.Is(err, driver.ErrUnknown) {
					return driver.Result{State: driver.Busy}, nil
				}
				return r, err
			}},
	}
}

func keyMutants() []*mutant {
	// keyed has all calls use another key.
	keyed := func(name string, key func(string) string, red ...string) *mutant {
		return &mutant{name: name, red: red,
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				c.Key = key(c.Key)
				return b.Acquire(ctx, c)
			},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				claims = slices.Clone(claims)
				for i := range claims {
					claims[i].Key = key(claims[i].Key)
				}
				return b.Renew(ctx, claims)
			},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				c.Key = key(c.Key)
				return b.Release(ctx, c)
			}}
	}
	return []*mutant{
		keyed("has one lock", func(string) string {
			return "k"
		}, "Exclusion/KeysAreIndependent", "Keys/EveryByte"),
		keyed("folds case", strings.ToLower, "Keys/EveryByte", "Keys/EveryByteWithin",
			"Keys/Awkward"),
		keyed("ends keys at NUL", func(key string) string {
			key, _, _ = strings.Cut(key, "\x00")
			return key + "."
		}, "Keys/Awkward"),
		keyed("ends keys at a newline", func(key string) string {
			key, _, _ = strings.Cut(key, "\n")
			return key + "."
		}, "Keys/Awkward"),
		keyed("repairs UTF-8", func(key string) string {
			return strings.ToValidUTF8(key, "?")
		}, "Keys/EveryByte", "Keys/EveryByteWithin", "Keys/Awkward"),
		keyed("trims keys", func(key string) string {
			return strings.TrimSpace(key) + "."
		}, "Keys/Awkward"),
		keyed("cleans paths", func(key string) string {
			return strings.ReplaceAll(key, "//", "/")
		}, "Keys/Awkward"),
		keyed("cuts long keys", func(key string) string {
			return key[:min(len(key), driver.MaxKeyLen-1)]
		}, "Keys/Awkward"),
		keyed("uses the hash tag", func(key string) string {
			if _, after, ok := strings.Cut(key, "{"); ok {
				if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
					return tag
				}
			}
			return key
		}, "Keys/Awkward"),
		keyed("folds hashes", func(key string) string {
			if len(key) > 4 && key[:4] == "key/" {
				return key[:len(key)-1]
			}
			return key
		}, "Load/TenThousandKeys"),
	}
}

func inspectionMutants() []*mutant {
	shown := func(name string, change func(*driver.Entry), red ...string) *mutant {
		return &mutant{name: name, red: red, inspect: func(b *memhold.Backend, ctx context.Context,
			key string) (driver.Entry, error) {
			e, err := b.Inspect(ctx, key)
			change(&e)
			return e, err
		}}
	}
	listed := func(name string, change func(*driver.Entry), red ...string) *mutant {
		return &mutant{name: name, red: red, list: func(b *memhold.Backend, ctx context.Context,
			prefix string) iter.Seq2[driver.Entry, error] {
			return func(yield func(driver.Entry, error) bool) {
				for e, err := range b.List(ctx, prefix) {
					if change(&e); !yield(e, err) {
						return
					}
				}
			}
		}}
	}
	checked := func(name string, findings ...driver.Finding) *mutant {
		return &mutant{name: name, red: []string{"Check/Findings"},
			harness: func(h *drivertest.Harness) { h.Capabilities.Check = true },
			store: func(s *drivertest.Store, first *memhold.Backend) {
				s.Open = func(testing.TB) driver.Backend {
					return inspected{&backend{first.Client(), &mutant{}}, findings}
				}
			}}
	}
	return []*mutant{
		shown("shows a holder of a free key", func(e *driver.Entry) {
			e.Holder.Owner += "?"
		}, "Inspect/FreeKey", "Inspect/Holder"),
		shown("shows another token", func(e *driver.Entry) { e.Holder.Token++ }, "Inspect/Holder"),
		shown("shows the lease in the wrong unit", func(e *driver.Entry) {
			e.Holder.ExpiresIn *= 1000
		}, "Inspect/Holder"),
		shown("shows the last waiter first", func(e *driver.Entry) {
			slices.Reverse(e.Waiters)
		}, "Inspect/WaitersInOrder"),
		{name: "describes many keys in another order", red: []string{"Inspect/Holder"},
			batch: func(all []driver.Inspected) []driver.Inspected {
				if len(all) > 1 {
					all[0], all[1] = all[1], all[0]
				}
				return all
			}},
		{name: "describes one of many keys", red: []string{"Inspect/FreeKey"},
			batch: func(all []driver.Inspected) []driver.Inspected {
				return all[:min(1, len(all))]
			}},
		{name: "leaves out waiters of many keys", red: []string{"Inspect/WaitersInOrder"},
			batch: func(all []driver.Inspected) []driver.Inspected {
				for i := range all {
					all[i].Entry.Waiters = nil
				}
				return all
			}},
		{name: "lists with a pattern", red: []string{"List/ByPrefix"},
			list: func(b *memhold.Backend, ctx context.Context,
				prefix string) iter.Seq2[driver.Entry, error] {
				prefix, _, _ = strings.Cut(prefix, "*")
				return b.List(ctx, prefix)
			}},
		listed("lists with waiters", func(e *driver.Entry) {
			e.Waiters = []driver.Party{}
		}, "List/ShowsHolders"),
		listed("lists other holders", func(e *driver.Entry) {
			e.Holder.Owner = ""
		}, "List/ShowsHolders"),
		{name: "does not tell of answers to a list", red: []string{"List/TellsOfAnswers"},
			list: func(b *memhold.Backend, ctx context.Context,
				prefix string) iter.Seq2[driver.Entry, error] {
				return b.List(driver.OnAnswer(ctx, func() {}), prefix)
			}},
		{name: "lists on when the context has ended", red: []string{"List/CanBeStopped"},
			list: func(b *memhold.Backend, ctx context.Context,
				prefix string) iter.Seq2[driver.Entry, error] {
				return b.List(context.WithoutCancel(ctx), prefix)
			}},
		checked("finds nothing in particular", driver.Finding{Severity: driver.Note}),
		checked("finds the worst last", driver.Finding{Severity: driver.Note, Code: "a",
			Summary: "A."}, driver.Finding{Severity: driver.Failure, Code: "b", Summary: "B."}),
		checked("grades outside the scale", driver.Finding{Severity: 7, Code: "a", Summary: "A."}),
		{name: "has a new identity each time", red: []string{"Identity/IsStable"},
			identity: func(*memhold.Backend, context.Context) (string, error) {
				return rand.Text(), nil
			}},
		{name: "has the same identity always", red: []string{"Identity/R32_ChangesWithRestart"},
			identity: func(*memhold.Backend, context.Context) (string, error) {
				return "server", nil
			}},
	}
}

func guardMutants() []*mutant {
	return []*mutant{
		{name: "has no guard", red: []string{"Guard/RefusesLongerTTL", "Guard/R32_Quarantine"},
			guard: func(*memhold.Backend, time.Duration) {}},
		{name: "guards for ever", red: []string{"Guard/OffByZero", "Guard/R32_Quarantine"},
			guard: func(b *memhold.Backend, _ time.Duration) { b.Guard(time.Hour) }},
		{name: "calls the quarantine permanent", red: []string{"Guard/R32_Quarantine"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if err != nil {
					err = &driver.Error{Permanent: true, Err: err}
				}
				return r, err
			}},
		{name: "takes part in renewals only", red: []string{"Guard/R32_Quarantine"},
			renew: func(b *memhold.Backend, ctx context.Context,
				claims []driver.Claim) ([]driver.Result, error) {
				r, err := b.Renew(ctx, claims)
				if q := new(driver.QuarantineError); errors.As(err, &q) {
					return make([]driver.Result, len(claims)), nil
				}
				return r, err
			}},
		{name: "refuses releases in quarantine", red: []string{"Guard/R32_Quarantine"},
			release: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				if _, err := b.Acquire(ctx, driver.Claim{Key: "probe", Owner: "probe",
					TTL: time.Millisecond}); err != nil {
					return driver.Result{}, err
				}
				return b.Release(ctx, c)
			}},
		{name: "takes part for everybody", red: []string{"Member/TakesPartForOneSet"},
			join: func(*memhold.Backend, driver.Set) {}},
		{name: "moves from wherever it is", red: []string{"Member/TakesPartForOneSet"},
			move: func(b *memhold.Backend, ctx context.Context, _, to driver.Set) (driver.Set,
				error) {
				from, _ := b.Belongs(ctx)
				return b.Move(ctx, from, to)
			}},
		{name: "takes one attempt at a move for another",
			red: []string{"Member/TakesPartForOneSet"},
			move: func(b *memhold.Backend, ctx context.Context, from, to driver.Set) (driver.Set,
				error) {
				if have, _ := b.Belongs(ctx); have.Moving != "" && from.Moving != "" {
					from = have
				}
				return b.Move(ctx, from, to)
			}},
		{name: "does not move", red: []string{"Member/TakesPartForOneSet"},
			move: func(b *memhold.Backend, ctx context.Context, _, _ driver.Set) (driver.Set,
				error) {
				return b.Belongs(ctx)
			}},
		{name: "calls another set an outage", red: []string{"Member/TakesPartForOneSet"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if e := new(driver.SetError); errors.As(err, &e) {
					err = &driver.Error{Err: e}
				}
				return r, err
			}},
	}
}

func closeMutants() []*mutant {
	var closed sync.Map
	return []*mutant{
		{name: "fails to close twice", red: []string{"Close/Twice"},
			close: func(b *memhold.Backend) error {
				if _, twice := closed.LoadOrStore(b, true); twice {
					return errors.New("closed already")
				}
				return b.Close()
			}},
		{name: "does not close", red: []string{"Close/CallsAreRefused"},
			close: func(*memhold.Backend) error {
				return nil
			}},
		{name: "fails in a closed client with an unknown outcome",
			red: []string{"Close/CallsAreRefused"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, err := b.Acquire(ctx, c)
				if err != nil {
					err = &driver.Error{Maybe: true, Err: errors.New("use of closed connection")}
				}
				return r, err
			}},
		{name: "takes everything along", red: []string{"Close/SparesOthers", "Close/LeasesRunOn"},
			close: func(b *memhold.Backend) error {
				b.Faults().Forget()
				return b.Close()
			}},
		{name: "fails to close under load", red: []string{"Close/WhileCalling"},
			close: func(*memhold.Backend) error {
				return errors.New("in use")
			}},
		{name: "swallows errors", red: []string{"Close/EndsHangingCalls", "Close/CallsAreRefused"},
			acquire: func(b *memhold.Backend, ctx context.Context, c driver.Claim) (driver.Result,
				error) {
				r, _ := b.Acquire(ctx, c)
				return r, nil
			}},
	}
}
