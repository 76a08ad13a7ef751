//go:build unix

package pghold_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/pghold"
)

// presence is short enough to wait for, and long enough for some commits on a busy disk.
const presence = 3 * time.Second

// capabilities are those of every way to the server.
var capabilities = drivertest.Capabilities{
	Notify: true, Inspect: true, Check: true, Guard: true, Identify: true, Member: true,
	Share: true,
	Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
	CanLose: true, CanKillHolder: true,
}

// empty makes a server a new store. What the server knows of its last start stays.
const empty = "TRUNCATE holdfast.locks, holdfast.sharers, holdfast.waiters, holdfast.ended; " +
	"UPDATE holdfast.server SET member = ''"

func TestConformance(t *testing.T) {
	s := running(t)
	pool := connect(t)
	c := capabilities
	c.CanFreeze, c.CanCutReply, c.CanForget = true, true, true
	drivertest.Run(t, drivertest.Harness{
		Light: true, // a request takes milliseconds of its client and server
		NewStore: func(t testing.TB) drivertest.Store {
			noneProxied(t, pool)
			run(t, pool, empty)
			proxies := make(map[driver.Backend]*proxy)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					p := newProxy(t, socketOf(s))
					b := open(t, p.url(), pghold.WithPresence(presence))
					proxies[b] = p
					return b
				},
				Lose: func(t testing.TB, key string) {
					run(t, pool, "UPDATE holdfast.locks SET owner = NULL WHERE key = $1",
						[]byte(key))
					run(t, pool, "DELETE FROM holdfast.sharers WHERE key = $1", []byte(key))
				},
				CutReply: func(_ testing.TB, client driver.Backend) {
					proxies[client].cutReply()
				},
				Freeze: func(_ testing.TB, client driver.Backend) (thaw func()) {
					return proxies[client].freeze()
				},
				Forget: func(t testing.TB) {
					s.Kill()
					if err := s.Run(); err != nil {
						t.Fatal(err)
					}
					pool.Reset()
					run(t, pool, empty)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, urlOf(s, ""), key)
				},
			}
		},
		Capabilities: c,
	})
}
