package redishold_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

const patience = 2 * time.Minute

// testTTL is long against any pause of the machine. It is also the guard of a rule that waits for
// the server to have been up for that long.
const testTTL = 8 * time.Second

// capabilities are those of every deployment.
var capabilities = drivertest.Capabilities{
	Notify: true, Inspect: true, Check: true, Guard: true, Identify: true, Member: true,
	Share: true,
	Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
	CanLose: true, CanKillHolder: true,
}

func TestConformanceStandalone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			server.Do(t, "FLUSHALL")
			proxies := make(map[driver.Backend]*redistest.Proxy)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					proxy := redistest.NewProxy(t, server)
					// "Busy" is not the end of an acquisition: it goes on to queue.
					proxy.Spare("_\r\n")
					b := open(t, proxy.URL())
					proxies[b] = proxy
					return b
				},
				Lose: func(t testing.TB, key string) { server.Do(t, "DEL", key) },
				CutReply: func(_ testing.TB, client driver.Backend) {
					proxies[client].SetReplies(redistest.CutOnce)
				},
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				Forget: func(t testing.TB) {
					server.Kill()
					server.Run(t)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, server.URL(), key)
				},
			}
		},
		Capabilities: with(func(c *drivertest.Capabilities) {
			c.CanFreeze, c.CanCutReply, c.CanForget = true, true, true
		}),
		TTL: testTTL,
	})
}

func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	drivertest.Run(t, drivertest.Harness{
		Light: true, // one server bears the whole load
		NewStore: func(t testing.TB) drivertest.Store {
			cluster.FlushAll(t)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend { return open(t, cluster.URL()) },
				Lose: func(t testing.TB, key string) {
					cluster.Owner(t, key).Do(t, "DEL", key)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, cluster.URL(), key)
				},
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					for _, p := range cluster.Primaries {
						p.Freeze()
					}
					return func() {
						for _, p := range cluster.Primaries {
							p.Thaw()
						}
					}
				},
			}
		},
		Capabilities: with(func(c *drivertest.Capabilities) { c.CanFreeze = true }),
		TTL:          testTTL,
	})
}

func TestConformanceSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	drivertest.Run(t, drivertest.Harness{
		Light: true, // one server bears the whole load
		NewStore: func(t testing.TB) drivertest.Store {
			s.Primary.Do(t, "FLUSHALL")
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend { return open(t, s.URL()) },
				Lose: func(t testing.TB, key string) { s.Primary.Do(t, "DEL", key) },
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, s.URL(), key)
				},
			}
		},
		Capabilities: capabilities,
		TTL:          testTTL,
	})
}

// with returns the capabilities of every deployment and more.
func with(more func(*drivertest.Capabilities)) drivertest.Capabilities {
	c := capabilities
	more(&c)
	return c
}

// open waits until it is connected: a busy machine may take longer than a connection is given.
func open(t testing.TB, url string, options ...redishold.Option) (b *redishold.Backend) {
	t.Helper()
	testserver.Eventually(t, "it is connected", func() (err error) {
		b, err = redishold.Open(context.Background(), url, options...)
		if driver.Permanent(err) {
			t.Fatal(err)
		}
		return err
	})
	t.Cleanup(func() { b.Close() })
	return b
}
