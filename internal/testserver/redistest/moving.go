//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// RenewInMovingSlot moves a slot with leases of b, lock by lock, and fails the test if one of them
// cannot be renewed meanwhile. While a slot is moved, some of its keys are at one server and some
// at the other, and neither answers for both together. The last claims share their locks.
func RenewInMovingSlot(t *testing.T, c *Cluster, b driver.Backend) {
	t.Helper()
	claims := claimsInSlot(t, b)
	from, to := c.Owner(t, claims[0].Key), c.Primaries[0]
	if from == to {
		to = c.Primaries[1]
	}
	slot := from.Int(t, "CLUSTER", "KEYSLOT", claims[0].Key)
	moveKey := c.openSlot(t, uint16(slot), from, to)
	keys := from.Do(t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "100").([]any)
	move := func(lock string) {
		for _, key := range keys {
			if key := key.(string); key == lock || strings.HasSuffix(key, "}:"+lock) {
				moveKey(key)
			}
		}
	}
	renewed := func(when string) {
		t.Helper()
		awaitRenewed(t, b, claims, when)
	}
	renewed("before any has moved")
	move(claims[0].Key)
	move(claims[3].Key)
	move(claims[6].Key)
	renewed("when some have moved")
	// Fresh tokens are drawn from another key, and no server has both. The error says so, and
	// nothing was done.
	turn := claims[1]
	turn.Block = 1
	testserver.Eventually(t, "a fresh run is an outage, and no other's", func() error {
		results, err := b.Renew(t.Context(), []driver.Claim{claims[2], turn, claims[3]})
		if err != nil {
			return err
		}
		fresh := results[1]
		return testserver.Not(results[0].State == driver.Held && results[2].State == driver.Held &&
			fresh.State == driver.Unknown &&
			errors.Is(fresh.Err, driver.ErrUnavailable) && !driver.Permanent(fresh.Err),
			"%+v", results)
	})
	for _, i := range []int{1, 2, 4, 7} {
		move(claims[i].Key)
	}
	renewed("when all have moved")
}

// released is the claim of claimsInSlot that holds its lock no more.
const released = 5

// claimsInSlot returns claims in one slot that hold their locks, but for one. The last ones are
// shared, and two of them hold one lock. A renewal gives them a longer TTL.
func claimsInSlot(t *testing.T, b driver.Backend) (claims []driver.Claim) {
	t.Helper()
	for i := range 9 {
		claim := driver.Claim{Key: fmt.Sprintf("{moved}%d", i),
			Owner: driver.NewOwner(driver.OwnerSuffix("test")), TTL: time.Minute, Shared: i > 5}
		if i == 8 {
			claim.Key = claims[7].Key
		}
		if r, err := b.Acquire(t.Context(), claim); r.State != driver.Held {
			t.Fatalf("acquire: %v, %v", r.State, err)
		}
		claim.TTL += time.Hour
		claims = append(claims, claim)
	}
	if r, err := b.Release(t.Context(), claims[released]); r.State != driver.Held {
		t.Fatalf("release: %v, %v", r.State, err)
	}
	return claims
}

// awaitRenewed waits until one renewal has renewed all claims of claimsInSlot. The outcome of a
// renewal that takes long on a busy machine is unknown. It is made again.
func awaitRenewed(t *testing.T, b driver.Backend, claims []driver.Claim, when string) {
	t.Helper()
	testserver.Eventually(t, "all are renewed "+when, func() error {
		results, err := b.Renew(t.Context(), claims)
		for i, r := range results {
			want := driver.Held
			if i == released {
				want = driver.Lost // and it spoils no other
			}
			if r.State != want {
				err = errors.Join(err, fmt.Errorf("claim %d is %v, %v; want %v", i, r.State,
					r.Err, want))
			}
			if r.State != want && r.State != driver.Unknown {
				t.Fatalf("%s: %v", when, err)
			}
		}
		return err
	})
}

// AcquireInMovingSlot moves a slot and asks b for locks in it meanwhile. It fails the test unless
// each answer is true. While some keys of a slot are at one server and some at the other, no server
// acquires or releases a lock with several keys (ASK, TRYAGAIN). So the answer must be that the
// lock is unavailable and nothing was done, not that it is held, and not that it may have been
// acquired. Afterwards everything works.
func AcquireInMovingSlot(t *testing.T, c *Cluster, b driver.Backend) {
	t.Helper()
	holder, free := claimIn("{moved}held"), claimIn("{moved}free")
	await(t, b.Acquire, holder, "acquire", driver.Held)
	from, to := c.Owner(t, holder.Key), c.Primaries[0]
	if from == to {
		to = c.Primaries[1]
	}
	slot := uint16(from.Int(t, "CLUSTER", "KEYSLOT", holder.Key))
	untouched := func(when string) {
		t.Helper()
		var all sync.WaitGroup // each asks for a while
		for _, shared := range []bool{false, true} {
			for _, key := range []string{holder.Key, free.Key} {
				claim := claimIn(key)
				claim.Shared, claim.Queue = shared, !shared
				all.Go(func() { nothingDone(t, b.Acquire, claim, when+": acquire") })
			}
		}
		all.Go(func() { nothingDone(t, b.Release, holder, when+": release") })
		all.Wait()
		for _, s := range []*Server{from, to} {
			for _, key := range s.keysIn(t, slot) {
				if strings.HasSuffix(key, "}:"+holder.Key) || strings.HasSuffix(key, free.Key) {
					t.Errorf("%s: there is %q", when, key)
				}
			}
		}
	}
	move := c.openSlot(t, slot, from, to)
	untouched("before any key has moved")
	move(holder.Key)
	untouched("when the lock has moved")
	for _, key := range from.keysIn(t, slot) {
		move(key)
	}
	untouched("when all keys have moved")
	c.closeSlot(t, slot, from, to)
	await(t, b.Acquire, free, "acquire in a slot that has moved", driver.Held)
	await(t, b.Release, holder, "release in a slot that has moved", driver.Held)
}

func claimIn(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")),
		TTL: time.Hour}
}

// keysIn returns the keys that the server has in the slot.
func (s *Server) keysIn(t testing.TB, slot uint16) (keys []string) {
	t.Helper()
	for _, key := range s.Do(t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "100").([]any) {
		keys = append(keys, key.(string))
	}
	return keys
}

// ask is Acquire or Release of a Backend.
type ask func(context.Context, driver.Claim) (driver.Result, error)

// await asks until the answer is known. It must be the one that is wanted.
func await(t *testing.T, f ask, claim driver.Claim, what string, want driver.State) {
	t.Helper()
	testserver.Eventually(t, what, func() error {
		r, err := f(t.Context(), claim)
		if err == nil && r.State != want {
			t.Fatalf("%s: %v; want %v", what, r.State, want)
		}
		return err
	})
}

// nothingDone asks, and fails unless the error says that nothing was done, for now.
func nothingDone(t *testing.T, f ask, claim driver.Claim, what string) {
	t.Helper()
	r, err := f(t.Context(), claim)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) ||
		driver.Permanent(err) || r.State == driver.Busy {
		t.Errorf("%s of %q: %v, %v; want ErrUnavailable for now", what, claim.Key, r.State, err)
	}
}

// DowngradeInMovingSlot downgrades a claim of b in a slot that is being moved, while all keys of
// the lock are still at one server, and somebody waits. It fails the test if that loses the claim.
// A script that has removed a key there must not use it again: the server takes it for one that has
// moved, and ends the script halfway.
func DowngradeInMovingSlot(t *testing.T, c *Cluster, b driver.Backend) {
	t.Helper()
	claim, waiter := claimIn("{moved}down"), claimIn("{moved}down")
	from, to := c.Owner(t, claim.Key), c.Primaries[0]
	if from == to {
		to = c.Primaries[1]
	}
	slot := uint16(from.Int(t, "CLUSTER", "KEYSLOT", claim.Key))
	// The lock is removed under one that shares it, so the key beside it is out of date.
	reader := claimIn(claim.Key)
	reader.Shared = true
	await(t, b.Acquire, reader, "share", driver.Held)
	from.Do(t, "DEL", claim.Key)
	await(t, b.Acquire, claim, "acquire", driver.Held)
	waiter.Queue = true
	await(t, b.Acquire, waiter, "queue", driver.Busy)
	move := c.openSlot(t, slot, from, to)
	claim.Shared = true
	if results, err := b.Renew(t.Context(), []driver.Claim{claim}); err != nil ||
		results[0].State != driver.Held {
		t.Errorf("downgrade: %+v, %v", results, err)
	}
	for _, key := range from.keysIn(t, slot) {
		move(key)
	}
	c.closeSlot(t, slot, from, to)
	await(t, b.Acquire, claimIn(claim.Key), "another acquires", driver.Busy)
	testserver.Eventually(t, "it is renewed where it has moved to", func() error {
		results, err := b.Renew(t.Context(), []driver.Claim{claim})
		if err == nil && results[0].State == driver.Lost {
			t.Fatal("it is lost")
		}
		return errors.Join(err, testserver.Not(results[0].State == driver.Held, "%+v", results))
	})
}
