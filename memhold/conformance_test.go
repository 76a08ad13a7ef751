package memhold_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

// harness describes memhold to the conformance suite.
func harness(bubble bool) drivertest.Harness {
	return drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			first := memhold.New(memhold.WithPresence(600 * time.Millisecond))
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

func TestConformance(t *testing.T) { drivertest.Run(t, harness(true)) }

// TestConformanceInRealTime checks that the suite serves a backend that cannot be put into a
// bubble.
func TestConformanceInRealTime(t *testing.T) {
	t.Parallel() // it mostly waits
	h := harness(false)
	h.ShortTTL = 200 * time.Millisecond
	drivertest.Run(t, h)
}
