package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// While nodes do not answer, acquisitions of a key fail, and each leaves a release that its caller
// repeats until it is answered. When the nodes answer again, these releases are made once each, and
// do not keep the nodes too busy for new acquisitions, which would fail and leave more of them.
func TestReleasesAfterAnOutageLeaveNodesTime(t *testing.T) {
	for _, c := range []struct {
		clients int
		each    time.Duration // that a node takes for a call; it does one after the other
	}{{1, 20 * time.Millisecond}, {20, 5 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d clients", c.clients), func(t *testing.T) {
			testRecovery(t, c.clients, c.each)
		})
	}
}

func testRecovery(t *testing.T, clients int, each time.Duration) {
	bubble(t, func(t *testing.T) {
		servers := busyServers(3)
		var quorums []*quorum.Quorum
		for range clients {
			quorums = append(quorums, quorumOf(t, servers, nil))
		}
		for _, s := range servers {
			s.takes(each)
		}
		var callers sync.WaitGroup
		var failed atomic.Int64
		attempt := func(i int) {
			q := quorums[i%clients]
			claim := driver.Claim{Key: "k", Owner: fmt.Sprint(i), TTL: 5 * time.Second,
				Token: driver.Token(i + 1)}
			if _, err := q.Acquire(t.Context(), claim); err != nil {
				failed.Add(1)
			}
			end := time.Now().Add(2 * claim.TTL)
			for n := 0; time.Now().Before(end); n++ {
				if _, err := q.Release(t.Context(), claim); err == nil {
					return
				}
				pause := min(50*time.Millisecond<<min(n, 5), time.Second)
				time.Sleep(pause/2 + rand.N(pause/2))
			}
		}
		n := 0
		attempts := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				i := n
				callers.Go(func() { attempt(i) })
				time.Sleep(100 * time.Millisecond)
			}
		}
		attempts(5 * time.Second)
		if n := failed.Swap(0); n > 0 {
			t.Fatalf("%d acquisitions failed before the outage; want none", n)
		}
		for _, s := range servers {
			s.hangFor(5 * time.Second)
		}
		attempts(5 * time.Second)
		before := servers[0].all()
		attempts(30 * time.Second) // after 10 s some fail in one run of sixteen
		failed.Store(0)
		attempts(5 * time.Second)
		if n := failed.Load(); n > 0 {
			t.Errorf("%d of 50 acquisitions failed 30 s after the outage; want none", n)
		}
		callers.Wait()
		t.Logf("a node was asked %d times since", servers[0].all()-before)
	})
}

// turnstile is a node whose calls wait while it is shut. It counts the releases of owner "a".
type turnstile struct {
	*memhold.Backend
	mu       sync.Mutex
	shut     chan struct{} // nil: it is open
	releases int
}

func (n *turnstile) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shut = make(chan struct{})
}

func (n *turnstile) open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.shut)
	n.shut = nil
}

func (n *turnstile) pass(op string) {
	n.mu.Lock()
	if op == "release a" {
		n.releases++
	}
	shut := n.shut
	n.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func (n *turnstile) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	n.pass("acquire " + claim.Owner)
	return n.Backend.Acquire(ctx, claim)
}

func (n *turnstile) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	n.pass("release " + claim.Owner)
	return n.Backend.Release(ctx, claim)
}

func turnstiles(t *testing.T) (*quorum.Quorum, []*turnstile) {
	t.Helper()
	var nodes []*turnstile
	for range 3 {
		nodes = append(nodes, &turnstile{Backend: memhold.New()})
	}
	return quorumOf(t, nodes, nil), nodes
}

// giveUp begins a release and gives it up at once.
func giveUp(t *testing.T, q *quorum.Quorum, claim driver.Claim) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if r, err := q.Release(ctx, claim); !errors.Is(err, context.Canceled) {
		t.Fatalf("Release = %v, %v; want an error that wraps %v", r.State, err, context.Canceled)
	}
}

// Of the releases of one claim that wait for their turn at a node, one is made. The claim held the
// key until then, so this is what all of them say.
func TestReleaseThatWaitsIsMadeOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes := turnstiles(t)
		claim := driver.Claim{Key: "k", Owner: "a", TTL: time.Minute, Token: 1}
		other := driver.Claim{Key: "k", Owner: "b", TTL: time.Minute, Token: 1}
		mustHold(t, q, claim)
		rest()
		for _, n := range nodes {
			n.close()
		}
		var asks sync.WaitGroup
		asks.Go(func() { q.Acquire(t.Context(), other) })
		synctest.Wait()
		giveUp(t, q, claim)
		for range 3 {
			asks.Go(func() {
				if r, err := q.Release(t.Context(), claim); err != nil || r.State != driver.Held {
					t.Errorf("Release = %v, %v; want %v", r.State, err, driver.Held)
				}
			})
		}
		time.Sleep(time.Millisecond)
		for _, n := range nodes {
			n.open()
		}
		asks.Wait()
		rest()
		for i, n := range nodes {
			if n.releases != 1 {
				t.Errorf("node %d was asked for %d releases; want 1", i, n.releases)
			}
		}
		mustHold(t, q, other)
		if keys, claims := q.Remembered(); keys != 1 || claims != 1 {
			t.Errorf("%d keys and %d claims are remembered; want that of the holder", keys, claims)
		}
	})
}

// A node that has confirmed the release of a claim is not asked again as long as another one has
// not, unless the claim was asked for since.
func TestConfirmedReleaseIsNotRepeated(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked for since %v", asked), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				q, nodes := turnstiles(t)
				claim := driver.Claim{Key: "k", Owner: "a", TTL: time.Minute, Token: 1}
				mustHold(t, q, claim)
				rest()
				nodes[1].close()
				nodes[2].close()
				giveUp(t, q, claim)
				if asked {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					if r, err := q.Acquire(ctx, claim); err == nil {
						t.Fatalf("Acquire = %v, want an error", r.State)
					}
					synctest.Wait() // it is given back
				}
				giveUp(t, q, claim)
				nodes[1].open()
				nodes[2].open()
				rest()
				want := 1
				if asked {
					want = 2
				}
				if n := nodes[0].releases; n != want {
					t.Errorf("node 0 was asked for %d releases; want %d", n, want)
				}
				mustHold(t, q, driver.Claim{Key: "k", Owner: "b", TTL: time.Minute, Token: 1})
				for i, n := range nodes {
					if r, err := n.Backend.Release(t.Context(), claim); err != nil ||
						r.State != driver.Lost {
						t.Errorf("node %d: Release = %v, %v; want %v", i, r.State, err, driver.Lost)
					}
				}
			})
		})
	}
}

// A release that is repeated does not have nodes asked that are down: they get it when they are
// back.
func TestRepeatedReleaseSparesNodesThatAreDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, a, claim := held(t, 3)
		c.freeze(0, 1, 2)
		sent := func() (n uint64) {
			c.do(func() { n = a.conns[0].made["release"] })
			return n
		}
		for range 100 {
			if r, err := a.Release(t.Context(), claim); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("Release = %v, %v; want an error that wraps %v", r.State, err,
					driver.ErrUnknown)
			}
			time.Sleep(50 * time.Millisecond)
		}
		// A probe, or the pending release, is made after 50, 100, 200, 400, 800 ms and then every
		// second, for about 5 s, in each case after a part of that by chance.
		if n := sent(); n > 40 {
			t.Errorf("a node that hangs was sent %d of 100 releases; want one now and then", n)
		}
		c.thaw(0, 1, 2)
		time.Sleep(2 * time.Second)
		c.clean(claim.Key)
		a.release(claim, driver.Lost)
	})
}
