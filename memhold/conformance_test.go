package memhold_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/memhold"
)

// harness describes memhold, with a presence, to the conformance suite.
func harness(bubble bool, presence time.Duration) drivertest.Harness {
	return drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			first := memhold.New(memhold.WithPresence(presence))
			t.Cleanup(func() { first.Close() })
			return drivertest.Store{
				Open: func(testing.TB) driver.Backend { return first.Client() },
				Lose: func(t testing.TB, key string) {
					if !first.Faults().Lose(key) {
						t.Errorf("Lose(%q): nobody held it", key)
					}
				},
				CutReply: func(_ testing.TB, client driver.Backend) {
					client.(*memhold.Backend).Faults().Inject(
						memhold.Fault{Calls: memhold.Acquires | memhold.Renewals | memhold.Releases,
							Times: 1, CutReply: true})
				},
				Freeze: func(_ testing.TB, client driver.Backend) (thaw func()) {
					faults := client.(*memhold.Backend).Faults()
					faults.Freeze()
					return faults.Thaw
				},
				Forget: func(testing.TB) { first.Faults().Forget() },
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Guard: true, Identify: true, Member: true, Share: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanForget: true,
		},
		Bubble: bubble,
	}
}

func TestConformance(t *testing.T) { drivertest.Run(t, harness(true, 600*time.Millisecond)) }

// TestConformanceOutsideOfABubble checks that the suite serves a backend that cannot be put into a
// bubble. Time passes as in a suspend, so leases are longer than any pause of the machine, and
// nobody waits for their end.
func TestConformanceOutsideOfABubble(t *testing.T) {
	h := harness(false, 5*time.Second)
	h.ShortTTL = 5 * time.Second
	h.Elapse = func(_ testing.TB, d time.Duration) { clock.SimulateSuspend(d) }
	drivertest.Run(t, h)
}
