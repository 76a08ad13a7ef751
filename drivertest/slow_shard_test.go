package drivertest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

// TestSlowShardPasses checks that no rule about batches takes a busy machine for a broken backend:
// claims of a slow shard are unknown, and asked for again, whether the first request arrived or
// not.
func TestSlowShardPasses(t *testing.T) {
	for name, arrives := range map[string]bool{"arrives": true, "does not arrive": false} {
		late := false // every second batch is answered in time
		m := &mutant{renew: func(b *memhold.Backend, ctx context.Context,
			claims []driver.Claim) ([]driver.Result, error) {
			if late = !late && len(claims) > 1; !late {
				return b.Renew(ctx, claims)
			}
			slow := func(c driver.Claim) bool { return c.Key[len(c.Key)-1]%2 == 1 }
			results := make([]driver.Result, len(claims))
			for i, c := range claims {
				if !slow(c) || arrives {
					r, err := b.Renew(ctx, []driver.Claim{c})
					if err != nil {
						return nil, err
					}
					results[i] = r[0]
				}
				if slow(c) {
					results[i] = driver.Result{Err: &driver.Error{Maybe: true,
						Err: errors.New("its shard did not answer")}}
				}
			}
			return results, nil
		}}
		for _, rule := range []string{"Renew/BatchKeepsOrder", "Renew/BatchOfThousand",
			"Handoff/WaitingInBatch", "Load/TenThousandKeys", "Keys/EveryByte"} {
			late = false
			if failed, log := drivertest.Broken(t, harnessOf(m), rule); failed {
				t.Errorf("%s, when what is late %s: %s", rule, name, log)
			}
		}
	}
}
