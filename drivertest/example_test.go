package drivertest_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memhold"
)

var t *testing.T // of TestConformance(t *testing.T)

// A backend that speaks to a server leaves Bubble out, and starts the server in NewStore.
func ExampleRun() {
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			memory := memhold.New()
			t.Cleanup(func() { memory.Close() })
			return drivertest.Store{
				Open: func(testing.TB) driver.Backend { return memory.Client() },
				Lose: func(_ testing.TB, key string) { memory.Faults().Lose(key) },
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Guard: true, Identify: true, Member: true, Share: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true,
		},
		Bubble: true,
	})
}
