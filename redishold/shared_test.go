package redishold_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
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
					// None of these is the answer to the call: the greeting of one more connection,
					// that a channel is subscribed to, and that a script has to be sent.
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
				CutReply: func(_ testing.TB, client driver.Backend) {
					proxies[client].SetReplies(redistest.CutOnce)
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
			c.CanFreeze, c.CanForget, c.CanCutReply = true, true, true
		}),
		TTL: testTTL,
	})
}

func TestConformanceSharedClusterClient(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	drivertest.Run(t, drivertest.Harness{
		Light: true, // the client of one server bears the whole load
		NewStore: func(t testing.TB) drivertest.Store {
			cluster.FlushAll(t)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return newShared(t,
						rueidis.ClientOption{InitAddress: []string{cluster.Primaries[0].Addr}})
				},
				Lose: func(t testing.TB, key string) {
					cluster.Owner(t, key).Do(t, "DEL", key)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, cluster.URL(), key)
				},
			}
		},
		Capabilities: capabilities,
		TTL:          testTTL,
	})
}

func TestNewNeedsAClient(t *testing.T) {
	_, err := redishold.New(nil)
	if !errors.Is(err, driver.ErrInvalid) || !driver.Permanent(err) ||
		!strings.Contains(err.Error(), "client is nil") {
		t.Errorf("New(nil): %v", err)
	}
}

// Open and New refuse the same options by the same words, before they ask a server.
func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	client, err := rueidis.NewClient(
		rueidis.ClientOption{InitAddress: []string{redistest.Start(t).Addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, c := range []struct {
		option redishold.CommonOption
		want   []string
	}{
		{nil, []string{"option 1 is nil: leave it out"}},
		{redishold.WithReplicas(-1, 0), []string{"-1 replicas", "0 to 255"}},
		{redishold.WithReplicas(256, 0), []string{"256 replicas", "0 to 255"}},
		{redishold.WithReplicas(1, time.Microsecond), []string{"replica timeout 1µs", "1ms to 1s"}},
		{redishold.WithReplicas(1, time.Minute), []string{"replica timeout 1m0s", "1ms to 1s"}},
	} {
		_, fromNew := redishold.New(client, c.option)
		_, fromOpen := redishold.Open(t.Context(), "redis://127.0.0.1:1", c.option)
		for _, err := range []error{fromNew, fromOpen} {
			for _, want := range c.want {
				if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v: want ErrInvalid with %q", err, want)
				}
			}
		}
	}
}

// Replicas given to Open are waited for as those of the URL are, and prevail over them.
func TestOpenWaitsForReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.URL(), redishold.WithReplicas(1, time.Millisecond))
	if _, err := b.Acquire(t.Context(), newClaim("replicas")); err == nil ||
		!strings.Contains(err.Error(), "replica") {
		t.Errorf("without a replica: %v, want an error that tells of replicas", err)
	}
	b = open(t, server.URL()+"?wait=1", redishold.WithReplicas(0, 0))
	if r, err := b.Acquire(t.Context(), newClaim("none")); err != nil || r.State != driver.Held {
		t.Errorf("the option does not prevail: %v, %v", r, err)
	}
}

// overProxy returns a Backend whose client has one connection, by way of the proxy.
func overProxy(t *testing.T) (*redistest.Server, *redistest.Proxy, *redishold.Backend) {
	t.Helper()
	server := redistest.Start(t)
	proxy, b := proxied(t, server)
	return server, proxy, b
}

// proxied is overProxy for a server that is there already.
func proxied(t *testing.T, server *redistest.Server) (*redistest.Proxy, *redishold.Backend) {
	t.Helper()
	proxy := redistest.NewProxy(t, server)
	return proxy, newShared(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr},
		ConnWriteTimeout: testserver.Patience, PipelineMultiplex: -1})
}

// A request that the library gave up, and that arrives after what was sent since over another
// connection, must not take the lock for an acquisition that was released.
func TestStragglersOfASharedClientAreKeptOut(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	claim := newClaim("k")
	// The server must know the scripts, or a late request would do nothing.
	other := newClaim("other")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), other))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), other))
	deliver := proxy.Strand()
	unanswered(t, b, claim)
	proxy.BreakClients()
	testserver.Eventually(t, "released over a new connection", func() error {
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

// A claim that was released although a request of it may still arrive can be asked for again, as a
// waiter over several nodes does. The late request is kept out nevertheless.
func TestClaimIsAskedForAgainAfterItsEnd(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	holder, claim := newClaim("k"), newClaim("k")
	claim.Queue = true
	// The server must know the scripts, or a late request would do nothing.
	other := newClaim("other")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), other))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), other))
	deliver := proxy.Strand()
	unanswered(t, b, claim)
	proxy.BreakClients()
	eventually := func(what string, want driver.State, call func(context.Context,
		driver.Claim) (driver.Result, error), claim driver.Claim) driver.Result {
		t.Helper()
		var r driver.Result
		testserver.Eventually(t, what, func() (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err = call(ctx, claim)
			return err
		})
		if r.State != want {
			t.Fatalf("%s: %v; want %v", what, r.State, want)
		}
		return r
	}
	eventually("released over a new connection", driver.Lost, b.Release, claim)
	eventually("another claim has the key", driver.Held, b.Acquire, holder)
	if r := eventually("queued again", driver.Busy, b.Acquire, claim); r.Presence == 0 {
		t.Error("the claim does not queue again after its release")
	}
	eventually("the other claim is released", driver.Held, b.Release, holder)
	eventually("asked for again", driver.Held, b.Acquire, claim)
	eventually("released again", driver.Held, b.Release, claim)
	deliver()
	server.Do(t, "PING")
	if value := server.Do(t, "GET", "k"); value != nil {
		t.Errorf("the first request took effect after the release: %v", value)
	}
}

// A release that the library gave up, and that arrives after its claim was asked for again, as a
// waiter over several nodes does, must not undo that.
func TestLateReleaseUndoesNoLaterGrant(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	holder, claim := newClaim("k"), newClaim("k")
	claim.Queue = true
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
	for _, waits := range []bool{false, true} {
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
		deliver := proxy.Strand()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := b.Release(ctx, claim); !errors.Is(err, driver.ErrUnknown) {
			t.Fatalf("Release: %v", err)
		}
		proxy.BreakClients()
		want := driver.Held
		if waits {
			want = driver.Busy
			server.Do(t, "SET", "k", holder.Owner)
		}
		testserver.Eventually(t, "asked for again over a new connection", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := b.Acquire(ctx, claim)
			if err == nil && r.State != want {
				t.Fatalf("Acquire: %v, want %v", r.State, want)
			}
			return err
		})
		deliver()
		server.Do(t, "PING")
		if waits {
			mustBe(t, "release of the waiter", driver.Busy)(b.Release(t.Context(), claim))
			continue
		}
		mustBe(t, "release of the later grant", driver.Held)(b.Release(t.Context(), claim))
	}
}

// Somebody else may release a claim by its owner value. That request has a smaller number, and is
// not late.
func TestReleaseByAnotherClientIsNotLate(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
	proxy.Strand()
	unanswered(t, b, claim)
	proxy.BreakClients()
	granted(t, b, claim) // tells of the request before it
	another := newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}})
	mustBe(t, "release by another client", driver.Held)(another.Release(t.Context(), claim))
}

// If requests of two clients about a claim are late, the server remembers both of them.
func TestLateRequestsOfTwoClients(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	others, other := proxied(t, server)
	claim := newClaim("k")
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
	mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
	deliver := proxy.Strand()
	unanswered(t, b, claim)
	proxy.BreakClients()
	granted(t, b, claim) // tells of the request before it
	others.Strand()
	unanswered(t, other, claim)
	others.BreakClients()
	testserver.Eventually(t, "released by the other, which tells of its own", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := other.Release(ctx, claim)
		return err
	})
	deliver()
	server.Do(t, "PING")
	next := newClaim("k")
	mustBe(t, "acquire by the next", driver.Held)(b.Acquire(t.Context(), next))
}

// What the server is told of one claim's late requests leaves those of another one as they are,
// also in the same slot, if the earlier ones are told of last.
func TestLateRequestsOfTwoClaims(t *testing.T) {
	t.Parallel()
	server, proxy, b := overProxy(t)
	claims := []driver.Claim{newClaim("{slot}a"), newClaim("{slot}b")}
	for _, claim := range claims {
		mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
		mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
		mustBe(t, "acquire again", driver.Held)(b.Acquire(t.Context(), claim))
	}
	var delivers []func()
	for _, claim := range claims {
		delivers = append(delivers, proxy.Strand())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := b.Release(ctx, claim); !errors.Is(err, driver.ErrUnknown) {
			t.Fatalf("Release: %v", err)
		}
		proxy.BreakClients()
		testserver.Eventually(t, "there is a new connection", func() error {
			_, err := b.Inspect(t.Context(), claim.Key)
			return err
		})
	}
	for _, claim := range slices.Backward(claims) {
		mustBe(t, "acquire once more", driver.Held)(b.Acquire(t.Context(), claim))
	}
	for _, deliver := range delivers {
		deliver()
	}
	server.Do(t, "PING")
	for _, claim := range claims {
		mustBe(t, "release of the later grant", driver.Held)(b.Release(t.Context(), claim))
	}
}

// A server that is out of memory cannot remember which releases are late, but releases. The next
// request tells it again, whatever the release has found there.
func TestLateReleaseOfAServerThatWasOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		lost  bool
		next  bool         // another one waits behind the claim
		state driver.State // of the claim
	}{
		{name: "held", state: driver.Held},
		{name: "held, and another one waits", next: true, state: driver.Held},
		{name: "lost", lost: true, state: driver.Held},
		{name: "waits", state: driver.Busy},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, proxy, b := overProxy(t)
			claim, other := newClaim("k"), newClaim("k")
			mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), claim))
			mustBe(t, "release", driver.Held)(b.Release(t.Context(), claim))
			claim.Queue = true
			if test.state == driver.Busy {
				mustBe(t, "acquire by the other", driver.Held)(b.Acquire(t.Context(), other))
			}
			mustBe(t, "acquire again", test.state)(b.Acquire(t.Context(), claim))
			if other.Queue = true; test.next {
				mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), other))
			}
			deliver := proxy.Strand()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := b.Release(ctx, claim); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("Release: %v", err)
			}
			proxy.BreakClients()
			if test.lost {
				server.Do(t, "DEL", "k")
			}
			server.Do(t, "CONFIG", "SET", "maxmemory", "1")
			testserver.Eventually(t, "released over a new connection", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := b.Release(ctx, claim)
				return err
			})
			server.Do(t, "CONFIG", "SET", "maxmemory", "0")
			if test.next {
				mustBe(t, "release of the next", driver.Held)(b.Release(t.Context(), other))
			}
			mustBe(t, "acquire once more", test.state)(b.Acquire(t.Context(), claim))
			deliver()
			server.Do(t, "PING")
			mustBe(t, "release of what came later", test.state)(b.Release(t.Context(), claim))
		})
	}
}

// Redis 6.2 has no sharded channels, not even on a cluster. There notices go to one channel, by way
// of all servers.
func TestSharedClientWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	var without redistest.Option = func(*redistest.Server) {}
	if redistest.AtLeast(t, 7, 0) {
		without = redistest.WithArgs("--rename-command", "SSUBSCRIBE", "", "--rename-command",
			"SPUBLISH", "")
	}
	cluster := redistest.StartCluster(t, 3, 0, without)
	cluster.AwaitPublishing(t)
	b := newShared(t, rueidis.ClientOption{InitAddress: []string{cluster.Primaries[0].Addr}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, key := range []string{"a", "b", "c", "d"} {
		// The first that waits may find out that there are no such channels.
		holder, waiter := newClaim(key), newClaim(key)
		mustBe(t, "acquire", driver.Held)(b.Acquire(ctx, holder))
		mustBe(t, "queue", driver.Busy)(b.Acquire(ctx, waiter))
		for _, claim := range []driver.Claim{waiter, holder} {
			if _, err := b.Release(ctx, claim); err != nil {
				t.Fatalf("release: %v", err)
			}
		}
		for !handsOver(ctx, t, b, key) {
		}
	}
}
