package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// keyOf returns a key that the primary with that index serves at first.
func keyOf(t *testing.T, c *redistest.Cluster, primary int, name string) string {
	t.Helper()
	for i := range 1000 {
		if key := fmt.Sprint(name, i); c.Owner(t, key) == c.Primaries[primary] {
			return key
		}
	}
	t.Fatal("no key found")
	return ""
}

func TestClusterRenewalIsNotHeldUpByOneShard(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	b := open(t, c.URL())
	var claims []driver.Claim
	for i := range 3 {
		for j := range 5 {
			claim := newClaim(keyOf(t, c, i, fmt.Sprint("k", j, "-")))
			mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
			claims = append(claims, claim)
		}
	}
	c.Primaries[1].Freeze()
	defer c.Primaries[1].Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results, err := b.Renew(ctx, claims)
	if err != nil || ctx.Err() != nil {
		t.Fatalf("Renew with one of three shards frozen: %v, %v", err, ctx.Err())
	}
	for i, r := range results {
		frozen := c.Owner(t, claims[i].Key) == c.Primaries[1]
		if !frozen && r.State != driver.Held || frozen &&
			(r.State != driver.Unknown || !errors.Is(r.Err, driver.ErrUnknown)) {
			t.Errorf("%s, shard frozen %v: %v, %v", claims[i].Key, frozen, r.State, r.Err)
		}
	}
	// Nor is anything else on the other shards.
	mustBe(t, "acquire", driver.Held)(b.Acquire(ctx, newClaim(keyOf(t, c, 0, "other"))))
}

func TestClusterSlotMovesUnderHolderAndWaiter(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	b, watcher := open(t, c.URL()), open(t, c.URL())
	key := keyOf(t, c, 0, "k")
	holder, waiter := newClaim(key), newClaim(key)
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), holder))
	mustBe(t, "queue", driver.Busy)(watcher.Acquire(t.Context(), waiter))
	from, to := c.Primaries[0], c.Primaries[2]
	c.MoveSlot(t, protocol.Slot(key), from, to, func() {
		// The keys are gone to the new server, the slot is not yet.
		results, err := b.Renew(t.Context(), []driver.Claim{holder})
		if err != nil || results[0].State != driver.Held {
			t.Errorf("Renew while the slot is being moved: %+v, %v", results, err)
		}
		// If the keys of a lock are on two servers, neither of them can be asked for it.
		another := newClaim("{" + protocol.Tag(protocol.Slot(key)) + "}")
		if _, err := b.Acquire(t.Context(), another); !errors.Is(err, driver.ErrUnavailable) ||
			driver.Permanent(err) {
			t.Errorf("Acquire while the slot is being moved: %v", err)
		}
	})
	r := mustBe(t, "the waiter asks at the old server",
		driver.Busy)(watcher.Acquire(t.Context(), waiter))
	if r.Place != 1 {
		t.Errorf("the waiter has lost its place: %+v", r)
	}
	// where there are no sharded channels, it comes from every server
	notices := make(chan driver.Notice, 9)
	defer watcher.Notify(func(n driver.Notice) { notices <- n })()
	mustBe(t, "release at the old server", driver.Held)(b.Release(t.Context(), holder))
	select {
	case n := <-notices:
		if n.Owner != waiter.Owner {
			t.Errorf("notice %+v", n)
		}
	case <-time.After(patience):
		t.Error("no notice from the new server")
	}
	mustBe(t, "the waiter's turn", driver.Held)(watcher.Acquire(t.Context(), waiter))
	mustBe(t, "release", driver.Held)(watcher.Release(t.Context(), waiter))
	works(t, b)
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	b := open(t, c.URL()+"?wait=1")
	key := keyOf(t, c, 1, "k")
	claim := newClaim(key)
	// With the replica's confirmation, which takes as long as it takes on a busy machine.
	first := granted(t, b, claim)
	c.Primaries[1].Kill()
	c.TakeOver(t, 1)
	// Without that confirmation, which no server can give any more, and while a server is missing.
	b = open(t, c.URL(), redishold.WithoutConnecting())
	stillHeld(t, b, claim)
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
	if again := granted(t, b, newClaim(key)); again.Token <= first.Token {
		t.Errorf("token %d after the failover, %d before", again.Token, first.Token)
	}
	for i := range 3 {
		granted(t, b, newClaim(keyOf(t, c, i, "other")))
	}
}

// stillHeld renews until there is an answer, which must be that the claim has its lock. A release
// would not serve: if its answer is late, the next one finds nothing.
func stillHeld(t *testing.T, b driver.Backend, claim driver.Claim) {
	t.Helper()
	testserver.Eventually(t, "the replica that has taken over answers", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		results, err := b.Renew(ctx, []driver.Claim{claim})
		if err != nil {
			return err
		}
		if r := results[0]; r.State == driver.Lost || driver.Permanent(r.Err) {
			t.Fatalf("the replica did not have the lock: %v, %v", r.State, r.Err)
		}
		return results[0].Err
	})
}

func TestClusterNodesFrozenAndReplaced(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	b := open(t, c.URL())
	key := keyOf(t, c, 1, "k")
	claim := newClaim(key)
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	// The connection stays open, so nothing but silence says that another server has taken over.
	c.Primaries[1].Freeze()
	defer c.Primaries[1].Thaw()
	c.TakeOver(t, 1)
	granted(t, b, claim)
	if got := c.Replicas[1][0].Info(t, "role"); got != "master" {
		t.Errorf("granted by a server whose role is %s", got)
	}
}

func TestClusterWithAPassword(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, redistest.WithPassword("secret"))
	works(t, open(t, c.URL()))
	refused(t, "redis+cluster://:wrong@"+c.Primaries[0].Addr, true, "WRONGPASS")
}

func TestClusterWithTLS(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	c := redistest.StartCluster(t, 3, 0, redistest.WithTLS(certificates))
	b := open(t, c.URL()+"?tls-ca="+certificates.CA+"&tls-cert="+certificates.ClientCert+
		"&tls-key="+certificates.ClientKey)
	works(t, b)
	for i := range 3 {
		granted(t, b, newClaim(keyOf(t, c, i, "k")))
	}
}

func TestClusterACLDocumentedMinimum(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	more := []string{"+spublish", "+ssubscribe", "+sunsubscribe", "+cluster|slots", "+asking"}
	if !redistest.AtLeast(t, 7, 0) {
		// there are no sharded channels, and the server refuses what it does not know
		more = more[3:]
	}
	for _, p := range c.Primaries {
		p.Do(t, append(append([]string{"ACL", "SETUSER", "locks"}, access(t)...), more...)...)
	}
	works(t, open(t, "redis+cluster://locks:secret@"+c.Primaries[0].Addr))
	for _, p := range c.Primaries {
		p.Do(t, "ACL", "SETUSER", "locks", "-cluster")
	}
	// |slots, say later servers
	refused(t, "redis+cluster://locks:secret@"+c.Primaries[0].Addr, true, "NOPERM", "'cluster")
}

// A process that always waits in new slots does not keep a channel for each of them for ever.
func TestClusterChannelsAreGivenUp(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	b := open(t, c.URL(), redishold.WithChannels(5, 0))
	for i := range 20 {
		holder, waiter := newClaim(fmt.Sprint("k", i)), newClaim(fmt.Sprint("k", i))
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), holder))
		asked := time.Now()
		mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), waiter))
		mustBe(t, "release", driver.Held)(b.Release(t.Context(), holder))
		r, err := b.Release(t.Context(), waiter)
		if err != nil || r.State != driver.Held && time.Since(asked) < protocol.Presence {
			t.Fatalf("release of who was handed the key: %v, %v", r.State, err)
		}
	}
	kind := "SHARDCHANNELS"
	if !redistest.AtLeast(t, 7, 0) {
		kind = "CHANNELS" // there are no others, and one is enough
	}
	testserver.Eventually(t, "channels are given up", func() error {
		channels := c.Primaries[0].Do(t, "PUBSUB", kind).([]any)
		return testserver.Not(len(channels) > 0 && len(channels) <= 5, "%d channels", len(channels))
	})
	works(t, b) // and used again where they are needed
}

func TestClusterRenewsInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	redistest.RenewInMovingSlot(t, c, open(t, c.URL()))
}

func TestSharedClientRenewsInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	redistest.RenewInMovingSlot(t, c,
		newShared(t, rueidis.ClientOption{InitAddress: []string{c.Primaries[0].Addr}}))
}

func TestClusterAcquiresInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	redistest.AcquireInMovingSlot(t, c, open(t, c.URL()))
}

func TestSharedClientAcquiresInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	redistest.AcquireInMovingSlot(t, c,
		newShared(t, rueidis.ClientOption{InitAddress: []string{c.Primaries[0].Addr}}))
}

func TestClusterDowngradesInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	redistest.DowngradeInMovingSlot(t, c, open(t, c.URL()))
}

// While the slot of a permit's key or of the semaphore's gate is moved, and some keys of it are at
// one server and some at the other, its holder keeps the permit, the other permits are given, and
// no more than there are. A set of locks that wants a key in the slot is told that it is
// unavailable, and leaves its other locks free.
func TestPermitsAndSetsWhileASlotIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	one := newLocker(t, open(t, c.URL()), holdfast.WithTTL(20*time.Second))
	other := newLocker(t, open(t, c.URL()))
	permits := holdfast.WithPermits(3)
	held, err := one.Acquire(ctx, "sem", permits)
	if err != nil {
		t.Fatal(err)
	}
	renewed := func(when string) {
		t.Helper()
		last := held.Deadline()
		testserver.Eventually(t, "it is renewed "+when, func() error {
			if held.Err() != nil {
				t.Fatalf("%s: %v", when, held.Err())
			}
			err := held.Extend(ctx)
			return errors.Join(err, testserver.Not(held.Deadline().After(last), "not yet"))
		})
	}
	permit := fmt.Sprint("lock:sem@permit/", held.Slot())
	for _, key := range []string{permit, "lock:sem@permit/gate3"} {
		finish := c.HalfMoveSlot(t, key, func(k string) bool { return k == key })
		renewed("with half of the slot of " + key)
		slots := map[int]bool{held.Slot(): true}
		var locks []*holdfast.Lock
		for range 2 {
			lock, err := other.Acquire(ctx, "sem", permits)
			if err != nil {
				t.Fatalf("with half of the slot of %s: %v", key, err)
			}
			if slots[lock.Slot()] {
				t.Errorf("with half of the slot of %s: slot %d is given twice", key, lock.Slot())
			}
			slots[lock.Slot()] = true
			locks = append(locks, lock)
		}
		if lock, err := other.TryAcquire(ctx, "sem", permits); err == nil ||
			!errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("with half of the slot of %s a fourth permit: %v, %v", key, lock, err)
		}
		for _, lock := range locks {
			if err := lock.Release(ctx); err != nil {
				t.Errorf("with half of the slot of %s: Release: %v", key, err)
			}
		}
		renewed("after that")
		finish()
		renewed("when the slot of " + key + " has moved")
	}

	// What a set wants is at one server, and the counter of its slot at the other.
	first, err := one.Acquire(ctx, "{moved}k")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	kept := newClaim("lock:{moved}kept")
	mustBe(t, "acquire", driver.Held)(open(t, c.URL()).Acquire(ctx, kept))
	finish := c.HalfMoveSlot(t, kept.Key, func(k string) bool { return k == kept.Key })
	set, err := one.AcquireAll(ctx, []string{"elsewhere", "{moved}k"})
	if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUnknown) {
		t.Errorf("AcquireAll: %v, %v; want ErrUnavailable", set, err)
	}
	bounded, stop := context.WithTimeout(ctx, 15*time.Second) // less than the TTL
	defer stop()
	lock, err := other.Acquire(bounded, "elsewhere")
	if err != nil {
		t.Errorf("a key of the set: %v", err)
	} else if err := lock.Release(ctx); err != nil {
		t.Error(err)
	}
	finish()
	testserver.Eventually(t, "the set is acquired when the slot has moved", func() error {
		set, err := one.AcquireAll(ctx, []string{"elsewhere", "{moved}k"})
		if err == nil {
			err = set.Release(ctx)
		}
		return err
	})
}
