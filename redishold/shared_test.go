package redishold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/redistest"
)

// newShared returns a Backend over a client with the library's own defaults.
func newShared(t testing.TB, option rueidis.ClientOption) *redishold.Backend {
	t.Helper()
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	b, err := redishold.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		client.Close()
	})
	return b
}

func TestConformanceSharedClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			server.Do(t, "FLUSHALL")
			proxies := make(map[driver.Backend]*redistest.Proxy)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					proxy := redistest.NewProxy(t, server)
					// None of these is the answer to the call: the greeting of one more connection, that a
					// channel is subscribed to, and that a script has to be sent.
					proxy.Spare("%", ">", "-NOSCRIPT")
					b := newShared(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr}})
					proxies[b] = proxy
					return b
				},
				Lose: func(t testing.TB, key string) { server.Do(t, "DEL", key) },
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				CutReply: func(_ testing.TB, client driver.Backend) { proxies[client].SetReplies(redistest.CutOnce) },
				Forget: func(t testing.TB) {
					server.Kill()
					server.Run(t)
				},
				KillHolder: func(t testing.TB, key string) { killHolder(t, server.URL(), key) },
			}
		},
		Capabilities: with(func(c *drivertest.Capabilities) { c.CanFreeze, c.CanForget, c.CanCutReply = true, true, true }),
		TTL:          testTTL,
	})
}

func TestConformanceSharedClusterClient(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			cluster.FlushAll(t)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return newShared(t, rueidis.ClientOption{InitAddress: []string{cluster.Primaries[0].Addr}})
				},
				Lose:       func(t testing.TB, key string) { cluster.Owner(t, key).Do(t, "DEL", key) },
				KillHolder: func(t testing.TB, key string) { killHolder(t, cluster.URL(), key) },
			}
		},
		Capabilities: capabilities,
		TTL:          testTTL,
	})
}

func TestNewNeedsAClient(t *testing.T) {
	if _, err := redishold.New(nil); !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
		t.Errorf("New(nil): %v", err)
	}
}

// A request that the library gave up, and that arrives after what was sent since over another connection,
// must not take the lock for an acquisition that was released.
func TestStragglersOfASharedClientAreKeptOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := newShared(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr}, ConnWriteTimeout: time.Second, PipelineMultiplex: -1})
	claim := newClaim("k")
	// The scripts are known to the server, as what is sent late would else do nothing.
	other := newClaim("other")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), other))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), other))
	deliver := proxy.Strand()
	if _, err := b.Acquire(brief(t), claim); !errors.Is(err, driver.ErrUnknown) {
		t.Fatalf("Acquire: %v", err)
	}
	proxy.BreakClients()
	redistest.Eventually(t, "released over a new connection", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := b.Release(ctx, claim)
		if err == nil && r.State != driver.Lost {
			t.Fatalf("Release: %v", r.State)
		}
		return err
	})
	deliver()
	server.Do(t, "PING")
	if value := server.Do(t, "GET", "k"); value != nil {
		t.Errorf("the acquisition took effect after its release: %v", value)
	}
	granted(t, b, newClaim("k"))
}
