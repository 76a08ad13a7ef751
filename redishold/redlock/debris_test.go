package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

var (
	tries = flag.Int("redlock.tries", 120, "how often TestNothingLeftBehind tries")
	seed  = flag.Uint64("redlock.seed", 0, "of tests with randomness; 0: another one in each run")
)

// newRandom returns a source of randomness, and logs its seed.
func newRandom(t *testing.T) *rand.Rand {
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-redlock.seed=%d", n)
	return rand.New(rand.NewPCG(n, n))
}

// R2, R17, R24, R25: when the servers answer again, nothing of an acquisition is left on any of
// them, whatever became of it, and long before a lease ends. In each round servers are stopped, cut
// off or killed, sometimes too many for the lock. Meanwhile locks are taken, given back, waited for
// without success, and given up.
func TestNothingLeftBehind(t *testing.T) {
	t.Parallel()
	const perRound = 12
	random := newRandom(t)
	c := start(t, 5)
	// Short enough for a round, and nothing depends on who is slow.
	k := c.behindProxies(t, "restart-guard=0s&node-timeout=20ms")
	s := &scene{cluster: c, t: t, a: k}
	held, failed := 0, 0
	for round := range *tries / perRound {
		fault := serverFaults[random.IntN(len(serverFaults))]
		struck := random.Perm(5)[:1+random.IntN(4)]
		var all sync.WaitGroup
		var mu sync.Mutex
		for i := range perRound {
			patience := time.Duration(random.IntN(40)) * time.Millisecond
			claim := newClaim(fmt.Sprintf("k%d", i/2), longTTL) // two want each key
			claim.Queue = random.IntN(2) == 0
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				r, err := k.Acquire(ctx, claim)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && r.State == driver.Held:
					held++
				default:
					failed++
				}
				if err == nil && r.State != driver.Held && !claim.Queue {
					return // nothing may be left of it without being released
				}
				if err != nil && !claim.Queue && round%2 == 0 {
					return // neither
				}
				release, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, _ = k.Release(release, claim) // if it fails it goes on in the background
			})
		}
		for _, i := range struck {
			fault.strike(s, i)
		}
		all.Wait()
		for _, i := range struck {
			fault.mend(s, i)
		}
		c.nothingLeft(t)
	}
	t.Logf("%d held, %d not", held, failed)
}

// The same through the library: waiters that are given up, and a Locker that is closed.
func TestLockerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	k := c.client(t, calm)
	locker, err := holdfast.New(k.Quorum, holdfast.WithPrefix("lock:"), holdfast.WithTTL(longTTL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close() })
	ctx, cancel := limit()
	defer cancel()
	lock, err := locker.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	c.servers[0].Freeze()
	c.servers[1].Freeze()
	other := c.client(t, calm)
	waiting, err := holdfast.New(other.Quorum, holdfast.WithPrefix("lock:"),
		holdfast.WithTTL(longTTL))
	if err != nil {
		t.Fatal(err)
	}
	given, giveUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := waiting.Acquire(given, "k")
		ended <- err
	}()
	testserver.Eventually(t, "the other one waits", func() error {
		e, err := k.Inspect(ctx, "lock:k")
		if err != nil {
			return err
		}
		return testserver.Not(len(e.Waiters) == 1, "%d wait", len(e.Waiters))
	})
	giveUp()
	if err := <-ended; err == nil {
		t.Error("a wait that was given up ends with a lock")
	}
	if err := waiting.Close(); err != nil {
		t.Error(err)
	}
	if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	c.servers[0].Thaw()
	c.servers[1].Thaw()
	c.nothingLeft(t)
}
