package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// R1, R26, R38: several Lockers, as in several processes, want one lock, while servers are stopped,
// killed and restarted, a minority at a time, and now and then a caller gives up. The servers
// forget nothing: a lock may be on three of the five only, and then two that forget are a majority
// of those. Invariants:
//
//   - nobody is inside while another is whose lock has not told a loss;
//   - each turn has a larger token than the one before;
//   - in the end nothing is left.
//
// An answer that a busy machine does not give in time is only a failed try.
func TestR1_ContentionWithFaults(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	c := start(t, 5, redistest.WithAOF("always"))
	s := &scene{cluster: c, t: t}
	const lockers, workers, rounds = 3, 3, 12
	ctx, cancel := limit()
	defer cancel()

	var mu sync.Mutex
	var inside *holdfast.Lock
	var last holdfast.Token
	turns := 0
	var all sync.WaitGroup
	for range lockers {
		k := c.client(t, "restart-guard=1m&node-timeout=1s&durable=always")
		locker, err := holdfast.New(k.Quorum, holdfast.WithPrefix("lock:"),
			holdfast.WithTTL(20*time.Second), holdfast.WithCohort(2, time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := locker.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		for worker := range workers {
			all.Go(func() {
				for round := range rounds {
					impatient, cancel := ctx, context.CancelFunc(func() {})
					if round%5 == worker {
						impatient, cancel = context.WithTimeout(ctx, 3*time.Millisecond)
					}
					lock, err := locker.Acquire(impatient, "k")
					cancel()
					if err != nil {
						if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) &&
							!errors.Is(err, holdfast.ErrUnknown) &&
							!errors.Is(err, holdfast.ErrUnavailable) {
							t.Errorf("Acquire: %v", err)
						}
						continue
					}
					mu.Lock()
					if inside != nil && inside.Err() == nil || lock.Token() <= last {
						t.Errorf("inside %v, token %v after %v", inside, lock.Token(), last)
					}
					inside, last = lock, lock.Token()
					turns++
					mu.Unlock()

					mu.Lock()
					inside = nil
					mu.Unlock()
					// Of three servers that have the lock, two may be gone. Then the release is not
					// reported as done, and is done when they are back.
					if err := lock.Release(ctx); err != nil &&
						!errors.Is(err, holdfast.ErrUnknown) &&
						!errors.Is(err, holdfast.ErrUnavailable) {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	moreTurns := func(when string) (over bool) {
		t.Helper()
		before := turnsOf(&mu, &turns)
		testserver.Eventually(t, "turns are taken "+when, func() error {
			select {
			case <-done:
				over = true
				return nil
			default:
				return testserver.Not(turnsOf(&mu, &turns) > before+5, "none")
			}
		})
		return over
	}
	for over := false; !over; {
		fault := serverFaults[random.IntN(3)] // those of servers
		pair := random.Perm(5)[:2]
		for _, i := range pair {
			fault.strike(s, i)
		}
		moreTurns("while a minority is " + fault.name)
		for _, i := range pair {
			fault.mend(s, i)
		}
		over = moreTurns("afterwards")
	}
	if want := lockers * workers * rounds / 2; turns < want {
		t.Errorf("%d turns; want at least %d", turns, want)
	}
	t.Logf("%d turns", turns)
	c.nothingLeft(t)
}

func turnsOf(mu *sync.Mutex, turns *int) int {
	mu.Lock()
	defer mu.Unlock()
	return *turns
}

// confirm renews a claim that was granted by a notice, and returns its token. Where that is too
// late, as after a pause of the machine, it asks for the claim.
func (k *client) confirm(claim driver.Claim, token driver.Token, asked time.Time) driver.Token {
	k.t.Helper()
	ctx, cancel := limit()
	defer cancel()
	results, err := k.Renew(ctx, []driver.Claim{claim})
	if err == nil && results[0].State == driver.Held {
		return token
	}
	if time.Since(asked) < protocol.Presence {
		k.t.Fatalf("Renew = %+v, %v; want held", results, err)
	}
	return k.granted(claim).Token
}

// A waiter of another client is handed the lock while a minority of servers is stopped: the release
// grants it to the waiter, which need not ask. How soon it learns of that is measured elsewhere.
// Its length shows that the waiter did not wait for a lease to end.
func TestHandoffWithMinorityStopped(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	a, b := c.client(t, calm), c.client(t, calm)
	notices := make(chan driver.Notice, 16)
	defer b.Notify(func(n driver.Notice) { notices <- n })()
	a.healthy()
	b.healthy()
	c.servers[0].Freeze()
	c.servers[3].Freeze()
	var last driver.Token
	for range 20 {
		first, second := newClaim("k", longTTL), newClaim("k", longTTL)
		r := a.hold(first)
		if r.Token <= last {
			t.Errorf("token %v after %v", r.Token, last)
		}
		second.Queue = true
		asked := time.Now()
		if r := b.busy(second); r.Place != 1 || r.Presence <= 0 || r.Holder != first.Owner {
			t.Fatalf("%+v; want to be next after %q", r, first.Owner)
		}
		a.release(first, driver.Held)
		over := time.NewTimer(protocol.Presence) // after which it may have to ask
		for granted := false; !granted; {
			select {
			case <-over.C:
				granted, last = true, b.granted(second).Token
			case n := <-notices:
				if n.Owner != second.Owner {
					continue // of a turn before
				}
				if n.Kind == driver.Granted {
					granted, last = true, b.confirm(second, n.Token, asked)
				} else if r, err := b.ask(second); err == nil && r.State == driver.Held {
					granted, last = true, r.Token
				}
			}
		}
		over.Stop()
		if last <= r.Token {
			t.Errorf("token %v after %v", last, r.Token)
		}
		b.release(second, driver.Held)
	}
	if n := b.Status().Handoffs; n == 0 {
		t.Error("not one grant came by notices")
	}
	c.servers[0].Thaw()
	c.servers[3].Thaw()
	c.nothingLeft(t)
}
