package goredishold_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/redistest"
)

const (
	patience = 30 * time.Second

	// testTTL is long against any pause of the machine. It is also the guard of a rule that waits for the
	// server to have been up for that long.
	testTTL = 8 * time.Second

	// holderEnv makes the test binary a process that holds a key: address, key and TTL, separated by newlines.
	holderEnv = "GOREDISHOLD_TEST_HOLDER"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(holderEnv); order != "" {
		if err := holdForEver(strings.Split(order, "\n")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	// Tests mostly wait for servers, so more of them may run than there are processors.
	flag.Parse()
	flag.Set("test.parallel", "12")
	os.Exit(m.Run())
}

func holdForEver(order []string) error {
	ttl, err := time.ParseDuration(order[2])
	if err != nil {
		return err
	}
	client := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: order[0]}))
	if strings.Contains(order[0], ",") {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(order[0], ",")})
	}
	b, err := goredishold.New(client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	claim := driver.Claim{Key: order[1], Owner: driver.NewOwner(driver.OwnerSuffix("doomed")), TTL: ttl}
	if r, err := b.Acquire(ctx, claim); err != nil || r.State != driver.Held {
		return fmt.Errorf("Acquire = %v, %w", r.State, err)
	}
	fmt.Println("held")
	select {}
}

// killHolder has a process of its own hold the key, and kills it.
func killHolder(t testing.TB, address, key string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join([]string{address, key, drivertest.DefaultShortTTL.String()}, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if line != "held\n" {
		t.Fatalf("the holder said %q", line)
	}
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
	Notify: true, Inspect: true, Guard: true, Identify: true,
	Queue: true, Holder: true, ExpiresIn: true, Expiry: true, Outlives: true,
	CanLose: true, CanKillHolder: true,
}

func TestConformanceClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
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
				KillHolder: func(t testing.TB, key string) { killHolder(t, server.Addr, key) },
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
	drivertest.Run(t, drivertest.Harness{
		NewStore: func(t testing.TB) drivertest.Store {
			cluster.FlushAll(t)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses}))
				},
				Lose:       func(t testing.TB, key string) { cluster.Owner(t, key).Do(t, "DEL", key) },
				KillHolder: func(t testing.TB, key string) { killHolder(t, strings.Join(addresses, ","), key) },
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
		NewStore: func(t testing.TB) drivertest.Store {
			s.Primary.Do(t, "FLUSHALL")
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					return open(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.PrimaryName, SentinelAddrs: addresses}))
				},
				Lose:       func(t testing.TB, key string) { s.Primary.Do(t, "DEL", key) },
				KillHolder: func(t testing.TB, key string) { killHolder(t, s.Primary.Addr, key) },
			}
		},
		Capabilities: capabilities,
		TTL:          testTTL,
	})
}

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")), TTL: time.Minute, Queue: true}
}

func TestNewBadInput(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"nil": nil, "nil client": (*redis.Client)(nil), "nil cluster client": (*redis.ClusterClient)(nil),
		"ring": redis.NewRing(&redis.RingOptions{}),
	} {
		if _, err := goredishold.New(client); !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	address := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	for name, client := range map[string]redis.UniversalClient{
		"client":  redis.NewClient(&redis.Options{Addr: address}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}}),
	} {
		b := open(t, client)
		if _, err := b.Acquire(t.Context(), claim("k")); !errors.Is(err, driver.ErrUnavailable) || driver.Permanent(err) || !strings.Contains(err.Error(), "refused") {
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
	for _, backend := range []driver.Backend{direct, open(t, redis.NewClient(&redis.Options{Addr: server.Addr}))} {
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
		redistest.Eventually(t, "the waiter is queued", func() error {
			entry, err := direct.Inspect(ctx, "lock:k")
			return errors.Join(err, redistest.Not(len(entry.Waiters) == 1, "%+v", entry))
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

// With the library's own limits a request to a server that hangs comes back late; the caller does not.
func TestStragglersAreKeptOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, redis.NewClient(&redis.Options{Addr: proxy.Addr, PoolSize: 1}))
	first, other := claim("k"), claim("other")
	// The scripts are known to the server, as what is sent late would else do nothing.
	for _, call := range []func(context.Context, driver.Claim) (driver.Result, error){b.Acquire, b.Release} {
		if _, err := call(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	deliver := proxy.Strand()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.Acquire(ctx, first); !errors.Is(err, driver.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire: %v", err)
	}
	// The library notices, and sends the acquisition again.
	proxy.BreakClients()
	redistest.Eventually(t, "released over a new connection", func() error {
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
