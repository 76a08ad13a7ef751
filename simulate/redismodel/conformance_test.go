package redismodel_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/simulate/redismodel"
)

// steady is a link that takes d in each direction. Without it, time would stand still between two
// calls, and a queue would have no order of arrival.
func steady(d time.Duration) redismodel.Link {
	always := func() time.Duration { return d }
	return redismodel.Link{Request: always, Reply: always}
}

// TestConformance runs the backends' contract on the model, each rule in fake time.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Bubble: true,
		NewStore: func(t testing.TB) drivertest.Store {
			server := redismodel.New(redismodel.Options{})
			clients := make(map[driver.Backend]*redismodel.Client)
			return drivertest.Store{
				Open: func(testing.TB) driver.Backend {
					client := server.Client(steady(20 * time.Microsecond))
					b := client.Backend()
					clients[b] = client
					return b
				},
				Lose: func(_ testing.TB, key string) { server.Evict(key) },
				CutReply: func(_ testing.TB, b driver.Backend) {
					// An acquisition does not end when the key is busy: it goes on to queue.
					clients[b].CutReply(func(_ []protocol.Command, replies []protocol.Reply) bool {
						return replies[0].Kind != protocol.Nil
					})
				},
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Pause()
					return server.Resume
				},
				Forget: func(testing.TB) { server.Start(nil) },
			}
		},
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Check: true, Guard: true, Identify: true, Member: true,
			Share: true,
			Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanForget: true,
		},
	})
}
