//go:build unix

package zkhold_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/zkhold"
)

// presence is short enough to wait for, and longer than most pauses of a busy machine.
const presence = 3 * time.Second

func TestConformance(t *testing.T) {
	// One root is empty again after each rule: sessions that have ended leave nothing behind.
	url := newURL(t)
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			cutters := make(map[driver.Backend]*cutter)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					c := new(cutter)
					b := open(t, url, zkhold.WithPresence(presence), zkhold.WithDialer(c.dial))
					cutters[b] = c
					return b
				},
				Lose: func(t testing.TB, key string) { lose(t, url, key) },
				CutReply: func(_ testing.TB, client driver.Backend) {
					cutters[client].armed.Store(true)
				},
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, url, key)
				},
			}
		},
		Light: true,
		// A request takes milliseconds, and some rules have thousands.
		TTL:      10 * time.Minute,
		Patience: testserver.Patience,
		Capabilities: drivertest.Capabilities{
			Notify: true, Inspect: true, Check: true, Share: true,
			Queue: true, Holder: true, Expiry: true,
			CanLose: true, CanCutReply: true, CanFreeze: true, CanKillHolder: true,
		},
	})
}

// direct returns a client of ZooKeeper itself.
func direct(t testing.TB) *zk.Conn {
	t.Helper()
	start(t)
	c, _, err := zk.Connect([]string{server.Address}, long, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// lose deletes what the holders of a key have, behind their backs.
func lose(t testing.TB, url, key string) {
	t.Helper()
	nodes := zkhold.HolderNodes(t, url, direct(t), key)
	if len(nodes) == 0 {
		t.Errorf("nobody held %q", key)
	}
	for _, node := range nodes {
		if err := direct(t).Delete(node, -1); err != nil {
			t.Fatal(err)
		}
	}
}
