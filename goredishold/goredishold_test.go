package goredishold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

const (
	patience = 2 * time.Minute

	// testTTL is long against any pause of the machine. It is also the guard of a rule that waits
	// for the server to have been up for that long.
	testTTL = 8 * time.Second
)

func TestMain(m *testing.M) {
	testserver.PlayHolder(func(_ context.Context, address string) (driver.Backend, error) {
		if strings.Contains(address, ",") {
			return goredishold.New(
				redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(address, ",")}))
		}
		return goredishold.New(redis.NewClient(&redis.Options{Addr: address}))
	})
	// Tests mostly wait for servers, so more of them may run than there are processors.
	flag.Parse()
	flag.Set("test.parallel", "12")
	os.Exit(m.Run())
}

// open returns a Backend over a client, both closed at the end of the test.
func open(t testing.TB, client redis.UniversalClient) *goredishold.Backend {
	t.Helper()
	b, err := goredishold.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		client.Close()
	})
	return b
}

var capabilities = drivertest.Capabilities{
	Notify: true, Inspect: true, Check: true, Guard: true, Identify: true, Member: true,
	Share: true,
	Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
	CanLose: true, CanKillHolder: true,
}

func TestConformanceClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// If the server does not know a script, a request whose caller is gone does nothing.
	warm(t, open(t, redis.NewClient(&redis.Options{Addr: server.Addr})))
	all := capabilities
	all.CanFreeze, all.CanForget = true, true
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			server.Do(t, "FLUSHALL")
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return open(t, redis.NewClient(&redis.Options{Addr: server.Addr}))
				},
				Lose: func(t testing.TB, key string) { server.Do(t, "DEL", key) },
				Freeze: func(testing.TB, driver.Backend) (thaw func()) {
					server.Freeze()
					return server.Thaw
				},
				Forget: func(t testing.TB) {
					server.Kill()
					server.Run(t)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, server.Addr, key)
				},
			}
		},
		Capabilities: all,
		TTL:          testTTL,
	})
}

func TestConformanceClusterClient(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	var addresses []string
	for _, p := range cluster.Primaries {
		addresses = append(addresses, p.Addr)
	}
	addresses = slices.Clip(addresses) // each client appends to them
	drivertest.Run(t, drivertest.Harness{
		Light: true, // the client of one server bears the whole load
		NewStore: func(t testing.TB) drivertest.Store {
			cluster.FlushAll(t)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses}))
				},
				Lose: func(t testing.TB, key string) {
					cluster.Owner(t, key).Do(t, "DEL", key)
				},
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, strings.Join(addresses, ","), key)
				},
			}
		},
		Capabilities: capabilities,
		TTL:          testTTL,
	})
}

func TestConformanceFailoverClient(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t)
	var addresses []string
	for _, sentinel := range s.Sentinels {
		addresses = append(addresses, sentinel.Addr)
	}
	drivertest.Run(t, drivertest.Harness{
		Light: true, // the client of one server bears the whole load
		NewStore: func(t testing.TB) drivertest.Store {
			s.Primary.Do(t, "FLUSHALL")
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return open(t,
						redis.NewFailoverClient(
							&redis.FailoverOptions{MasterName: redistest.PrimaryName,
								SentinelAddrs: addresses}))
				},
				Lose: func(t testing.TB, key string) { s.Primary.Do(t, "DEL", key) },
				KillHolder: func(t testing.TB, key string) {
					testserver.KillHolder(t, s.Primary.Addr, key)
				},
			}
		},
		Capabilities: capabilities,
		TTL:          testTTL,
	})
}

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")),
		TTL: time.Minute, Queue: true}
}

func TestNewBadInput(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"nil": nil, "nil client": (*redis.Client)(nil),
		"nil cluster client": (*redis.ClusterClient)(nil),
		"ring":               redis.NewRing(&redis.RingOptions{}),
	} {
		if _, err := goredishold.New(client); !errors.Is(err, driver.ErrInvalid) ||
			!driver.Permanent(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	for want, option := range map[string]goredishold.Option{
		"option 1 is nil: leave it out": nil,
		"-1 replicas":                   goredishold.WithReplicas(-1, 0),
		"replica timeout 1m0s":          goredishold.WithReplicas(1, time.Minute),
	} {
		if _, err := goredishold.New(client, option); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want ErrInvalid with %q", err, want)
		}
	}
}

// A URL is no address to the library, which repeats it in its errors, with the password.
func TestNewShowsNoSecret(t *testing.T) {
	t.Parallel()
	const url = "redis://user:hidden@127.0.0.1:1"
	for name, client := range map[string]redis.UniversalClient{
		"client": redis.NewClient(&redis.Options{Addr: url}),
		"cluster client": redis.NewClusterClient(
			&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", url}}),
	} {
		b, err := goredishold.New(client)
		if err == nil {
			_, err = b.Acquire(t.Context(), claim("k"))
			t.Errorf("%s: New takes it; Acquire: %v", name, err)
			continue
		}
		if !driver.Permanent(err) || strings.Contains(err.Error(), "hidden") ||
			!strings.Contains(err.Error(), "ParseURL") {
			t.Errorf("%s: %v", name, err)
		}
	}
	open(t, redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/a@b.sock"}))
}

// A failover client does not show the addresses of its Sentinels, so New cannot refuse URLs there.
// The library's errors repeat them, in several lines.
func TestSentinelsURLShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://user:hidden@127.0.0.1:1", "redis://:hidden@h:1/0",
		"user:hidden@127.0.0.1:1", "redis://user:hid den@127.0.0.1:1",
		"redis://user:hid@hidden@127.0.0.1:1"} {
		b := open(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m",
			SentinelAddrs: []string{"127.0.0.1:1", url}, MaxRetries: -1,
			DialerRetries: 1}))
		_, err := b.Acquire(t.Context(), claim("k"))
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "sentinels") {
			t.Errorf("%s: Acquire: %v", url, err)
		}
		for _, part := range []string{"hid", "den", "user", "\n"} {
			if err != nil && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error has %q: %v", url, part, err)
			}
		}
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	address := fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))
	for name, client := range map[string]redis.UniversalClient{
		"client":  redis.NewClient(&redis.Options{Addr: address}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}}),
	} {
		b := open(t, client)
		if _, err := b.Acquire(t.Context(), claim("k")); !errors.Is(err, driver.ErrUnavailable) ||
			driver.Permanent(err) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whichever package a process uses, the lock is the same.
func TestBothPackagesOnOneServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	direct, err := redishold.Open(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	var lockers []*holdfast.Locker
	for _, backend := range []driver.Backend{direct,
		open(t, redis.NewClient(&redis.Options{Addr: server.Addr}))} {
		locker, err := holdfast.New(backend, holdfast.WithPrefix("lock:"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		lockers = append(lockers, locker)
	}
	var last holdfast.Token
	for i := range 10 {
		holder, waiter := lockers[i%2], lockers[(i+1)%2]
		lock, err := holder.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := waiter.TryAcquire(ctx, "k"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("TryAcquire: %v", err)
		}
		next := make(chan *holdfast.Lock, 1)
		go func() {
			lock, err := waiter.Acquire(ctx, "k")
			if err != nil {
				t.Error(err)
			}
			next <- lock
		}()
		testserver.Eventually(t, "the waiter is queued", func() error {
			entry, err := direct.Inspect(ctx, "lock:k")
			return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%+v", entry))
		})
		if err := lock.Release(ctx); err != nil {
			t.Fatal(err)
		}
		second := <-next
		if lock.Token() <= last || second.Token() <= lock.Token() {
			t.Fatalf("tokens %d, %d, %d", last, lock.Token(), second.Token())
		}
		last = second.Token()
		if err := second.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClientStaysOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	b := open(t, client)
	b.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// With the library's own limits a request to a server that hangs comes back late; the caller does
// not.
func TestStragglersAreKeptOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, redis.NewClient(&redis.Options{Addr: proxy.Addr, PoolSize: 1}))
	first, other := claim("k"), claim("other")
	// The server must know the scripts, or a late request would do nothing.
	for _, call := range []func(context.Context, driver.Claim) (driver.Result, error){b.Acquire,
		b.Release} {
		if _, err := call(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	deliver := proxy.Strand()
	testserver.Eventually(t, "the acquisition is sent", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := b.Acquire(ctx, first)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire: %v", err)
		}
		return testserver.Not(errors.Is(err, driver.ErrUnknown), "%v", err)
	})
	// The library notices, and sends the acquisition again.
	proxy.BreakClients()
	testserver.Eventually(t, "released over a new connection", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Release(ctx, first)
		return err
	})
	deliver()
	server.Do(t, "PING")
	if value := server.Do(t, "GET", "k"); value != nil {
		t.Errorf("the acquisition took effect after its release: %v", value)
	}
}

// counting counts the acquisitions that fail.
type counting struct {
	*goredishold.Backend
	failed atomic.Int32
}

func (c *counting) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	r, err := c.Backend.Acquire(ctx, claim)
	if err != nil {
		c.failed.Add(1)
	}
	return r, err
}

// A primary behind one name takes no writes for a moment while another one takes over.
func TestWaiterOutlastsAReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: server.Addr})
	}
	backend := &counting{Backend: open(t, client())}
	var lockers []*holdfast.Locker
	for _, b := range []driver.Backend{open(t, client()), backend} {
		locker, err := holdfast.New(b, holdfast.WithTTL(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		lockers = append(lockers, locker)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := lockers[0].Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := lockers[1].Acquire(ctx, "k")
		if err == nil {
			err = second.Release(ctx)
		}
		got <- err
	}()
	testserver.Eventually(t, "the waiter is queued", func() error {
		entry, err := backend.Inspect(ctx, "k")
		return errors.Join(err, testserver.Not(len(entry.Waiters) == 1, "%+v", entry))
	})
	server.Do(t, "REPLICAOF", "127.0.0.1", "1")
	testserver.Eventually(t, "the waiter was refused", func() error {
		select {
		case err := <-got:
			t.Fatalf("the wait ended: %v", err)
		default:
		}
		return testserver.Not(backend.failed.Load() >= 2, "%d times", backend.failed.Load())
	})
	server.Do(t, "REPLICAOF", "NO", "ONE")
	testserver.Eventually(t, "released", func() error { return lock.Release(ctx) })
	if err := <-got; err != nil {
		t.Errorf("Acquire while the server was read-only: %v", err)
	}
}

// A user that may not subscribe hears of grants by asking, and gets a free lock as everybody does.
func TestSubscribingIsForbidden(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, rules := range map[string][]string{
		"no command":  {"on", ">secret", "~*", "&*", "+@all", "-subscribe"},
		"no channels": {"on", ">secret", "~*", "resetchannels", "+@all"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do(t, append([]string{"ACL", "SETUSER", "mute", "reset"}, rules...)...)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "mute",
				Password: "secret"})
			b := open(t, client)
			// Long, and shorter than what a subscription may take.
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			holder, waiter := claim("k"), claim("k")
			if r, err := b.Acquire(ctx, holder); err != nil || r.State != driver.Held {
				t.Fatalf("Acquire of a free key: %v, %v", r.State, err)
			}
			subscribing := func() string { return server.String(t, "INFO", "commandstats") }
			if r, err := b.Acquire(ctx, waiter); err != nil || r.State != driver.Busy ||
				r.Place != 1 {
				t.Fatalf("Acquire of a key that is held: %+v, %v", r, err)
			}
			before := calls(subscribing(), "subscribe")
			for range 5 {
				if r, err := b.Acquire(ctx, waiter); err != nil || r.State != driver.Busy {
					t.Fatalf("Acquire of a key that is held: %+v, %v", r, err)
				}
			}
			if after := calls(subscribing(), "subscribe"); after != before {
				t.Errorf("it asked again and again: %q, then %q", before, after)
			}
			if r, err := b.Release(ctx, holder); err != nil || r.State != driver.Held {
				t.Fatalf("Release: %v, %v", r.State, err)
			}
			if r, err := b.Acquire(ctx, waiter); err != nil || r.State != driver.Held {
				t.Errorf("Acquire when its turn has come: %v, %v", r.State, err)
			}
			if r, err := b.Release(ctx, waiter); err != nil || r.State != driver.Held {
				t.Errorf("Release: %v, %v", r.State, err)
			}
		})
	}
}

// calls returns the line of INFO commandstats on a command; empty if there is none.
func calls(stats, command string) string {
	for line := range strings.Lines(stats) {
		if strings.HasPrefix(line, "cmdstat_"+command+":") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// Every call returns when its context ends. This holds even while the library asks a server that
// hangs who serves which slot, where it ignores contexts.
func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	var addresses []string
	for _, p := range cluster.Primaries {
		addresses = append(addresses, p.Addr)
		p.Freeze()
	}
	b := open(t,
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, ReadTimeout: -1,
			DialTimeout: time.Hour}))
	for name, call := range map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := b.Acquire(ctx, claim("k"))
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := b.Release(ctx, claim("k"))
			return err
		},
		"Renew": func(ctx context.Context) error {
			results, err := b.Renew(ctx, []driver.Claim{claim("a"), claim("b"), claim("c")})
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			return err
		},
		"Identity": func(ctx context.Context) error { _, err := b.Identity(ctx); return err },
		"Inspect":  func(ctx context.Context) error { _, err := b.Inspect(ctx, "k"); return err },
		"List": func(ctx context.Context) error {
			for _, err := range b.List(ctx, "") {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) ||
					!errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUnknown) {
					t.Errorf("%v", err)
				}
			case <-time.After(patience / 3):
				t.Errorf("goes on after the end of its context, for as long as the servers hang")
			}
		})
	}
	for _, p := range cluster.Primaries {
		p.Thaw()
	}
	testserver.Eventually(t, "the servers are of use again", func() error {
		r, err := b.Acquire(t.Context(), claim("k"))
		return errors.Join(err, testserver.Not(r.State == driver.Held, "%v", r.State))
	})
}

// onCluster starts a Cluster of two and opens a Backend on it that knows one of them.
func onCluster(t *testing.T) (*redistest.Cluster, *goredishold.Backend) {
	t.Helper()
	c := redistest.StartCluster(t, 2, 0)
	return c, open(t,
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Primaries[0].Addr}}))
}

func TestClusterClientRenewsInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c, b := onCluster(t)
	redistest.RenewInMovingSlot(t, c, b)
}

func TestClusterClientAcquiresInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c, b := onCluster(t)
	redistest.AcquireInMovingSlot(t, c, b)
}

func TestClusterClientDowngradesInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c, b := onCluster(t)
	redistest.DowngradeInMovingSlot(t, c, b)
}

// A server repeats the beginning of a command that it does not know, and the library's greeting has
// the login in it.
func TestServersWordsTellNoSecret(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--rename-command", "HELLO", "",
		"--rename-command", "AUTH", ""))
	for name, client := range map[string]redis.UniversalClient{
		"client": redis.NewClient(&redis.Options{Addr: server.Addr, Username: "u",
			Password: "hidden"}),
		"cluster client": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr},
			Username: "u", Password: "hidden"}),
	} {
		_, err := open(t, client).Acquire(t.Context(), claim("k"))
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
