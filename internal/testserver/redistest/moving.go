//go:build unix

package redistest

import (
	"errors"
	"fmt"
	"strings"
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
	// Fresh tokens are drawn from another key, and there is no server to ask for both. It says so,
	// and nothing was done.
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

// awaitRenewed waits until one renewal has renewed all claims of claimsInSlot. One that takes long
// on a busy machine is unknown, and asked for again.
func awaitRenewed(t *testing.T, b driver.Backend, claims []driver.Claim, when string) {
	t.Helper()
	testserver.Eventually(t, "all are renewed "+when, func() error {
		results, err := b.Renew(t.Context(), claims)
		for i, r := range results {
			want := driver.Held
			if i == released {
				want = driver.Lost // and it spoils none
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
