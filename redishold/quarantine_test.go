package redishold_test

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
)

const (
	testGuard = 10 * time.Minute
	testAge   = time.Hour
)

// aged starts a server that says that it has been up for an hour, longer than any test's guard.
func aged(t *testing.T, options ...redistest.Option) (*redistest.Server, *redistest.Clock) {
	t.Helper()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, append(options, redistest.WithClock(clock))...)
	remember(t, server)
	clock.Step(t, testAge)
	testserver.Eventually(t, "the server has read its clock", func() error {
		up := server.Info(t, "uptime_in_seconds")
		return testserver.Not(len(up) == len("3600"), "up for %s s", up)
	})
	return server, clock
}

// remember has the server take note since when it has its data, as it does for its first client.
func remember(t *testing.T, server *redistest.Server, options ...redishold.Option) {
	t.Helper()
	b := open(t, server.URL(), options...)
	b.Guard(testGuard)
	quarantined(t, b)
	b.Close()
}

// quarantined asks until the backend says that the server is in quarantine.
func quarantined(t *testing.T, b *redishold.Backend) {
	t.Helper()
	testserver.Eventually(t, "the server is in quarantine", func() error {
		var q *driver.QuarantineError
		r, err := b.Acquire(t.Context(), driver.Claim{Key: "other", Owner: driver.NewOwner(""),
			TTL: time.Second})
		if r.State == driver.Held {
			t.Fatal("granted")
		}
		return testserver.Not(errors.As(err, &q), "%v, %v", r.State, err)
	})
}

// A server that came back with older data has an older queue. It hands over in a release, as that
// is served; the heir must not take the notice for a grant, since it would be refused an
// acquisition (R32).
func TestR32_NoNoticesFromQuarantine(t *testing.T) {
	t.Parallel()
	server, clock := aged(t, redistest.WithArgs("--dbfilename", "dump.rdb"))
	a, b := open(t, server.URL()), open(t, server.URL())
	a.Guard(testGuard)
	b.Guard(testGuard)
	var mu sync.Mutex
	var heard []driver.Notice
	defer b.Notify(func(n driver.Notice) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, n)
	})()
	holder, waiter := newClaim("k"), newClaim("k")
	waiter.Queue = true
	mustBe(t, "acquire", driver.Held)(a.Acquire(t.Context(), holder))
	mustBe(t, "queue", driver.Busy)(b.Acquire(t.Context(), waiter))
	clock.Step(t, -20*time.Second) // the waiter is present for long, however slow the machine is
	server.Do(t, "SAVE")
	server.Kill()
	server.Run(t)
	quarantined(t, a)
	quarantined(t, b)
	mustBe(t, "release", driver.Held)(a.Release(t.Context(), holder))
	// A notice would be ahead of this answer, on the same connection.
	mustBe(t, "release of nothing", driver.Lost)(b.Release(t.Context(), newClaim("nothing")))
	mu.Lock()
	defer mu.Unlock()
	if len(heard) > 0 {
		t.Errorf("heard %+v from a server in quarantine", heard)
	}
}

// replicate makes the server the other one's replica, and then a primary again, in the same run.
func replicate(t *testing.T, server, other *redistest.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(other.Addr)
	run := server.Info(t, "run_id")
	server.Do(t, "REPLICAOF", host, port)
	testserver.Eventually(t, "the replica has the primary's data", func() error {
		status := server.Info(t, "master_link_status")
		return testserver.Not(status == "up", "link is %s", status)
	})
	server.Do(t, "REPLICAOF", "NO", "ONE")
	if server.Info(t, "run_id") != run || server.Int(t, "EXISTS", "k") != 0 {
		t.Fatal("this is not the case that the test is about: same run, no data")
	}
}

// flip makes the server another one's replica, which costs it all its data, and then a primary
// again, in the same run.
func flip(t *testing.T, server *redistest.Server) {
	t.Helper()
	empty := redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	replicate(t, server, empty)
}

// A server that was briefly a replica has lost its data in the same run and with the same uptime.
// That counts as a restart, over a connection that it did not break, over one that is made again,
// and for a client that comes later (R10, R32), even if the operator says that the server is
// durable.
func TestR32_ReplicaForAWhile(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(t *testing.T, b *redishold.Backend,
		proxy *redistest.Proxy) *redishold.Backend{
		"same connection": func(_ *testing.T, b *redishold.Backend,
			_ *redistest.Proxy) *redishold.Backend {
			return b
		},
		"next connection": func(_ *testing.T, b *redishold.Backend,
			proxy *redistest.Proxy) *redishold.Backend {
			proxy.Break()
			return b
		},
		"cut off meanwhile": func(_ *testing.T, b *redishold.Backend,
			_ *redistest.Proxy) *redishold.Backend {
			return b
		},
		"next client": func(t *testing.T, _ *redishold.Backend,
			proxy *redistest.Proxy) *redishold.Backend {
			return open(t, proxy.URL()+"?durable=always")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := aged(t, redistest.WithAOF("always"))
			proxy := redistest.NewProxy(t, server)
			b := open(t, proxy.URL()+"?durable=always")
			b.Guard(testGuard)
			mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), newClaim("k")))
			if name == "cut off meanwhile" {
				proxy.Refuse(true)
				proxy.Break()
			}
			flip(t, server)
			proxy.Refuse(false)
			b = look(t, b, proxy)
			b.Guard(testGuard)
			quarantined(t, b)
			// Nor does the connection after that forget it.
			proxy.Break()
			quarantined(t, b)
		})
	}
}

// If all data are deleted or replaced, that is noticed over connections that stay, too.
func TestR32_FlushCountsAsARestart(t *testing.T) {
	t.Parallel()
	for _, lose := range [][]string{{"FLUSHALL"}, {"FLUSHDB"}, {"SWAPDB", "0", "1"}} {
		t.Run(lose[0], func(t *testing.T) {
			t.Parallel()
			server, _ := aged(t)
			proxy := redistest.NewProxy(t, server)
			b := open(t, proxy.URL())
			b.Guard(testGuard)
			mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), newClaim("k")))
			server.Do(t, lose...)
			if r, err := b.Acquire(t.Context(), newClaim("k")); err == nil {
				t.Errorf("Acquire after %s: %v", lose[0], r.State)
			}
			proxy.Break()
			quarantined(t, b)
		})
	}
}

// The end of a connection is no loss of data.
func TestR32_BrokenConnectionIsNoRestart(t *testing.T) {
	t.Parallel()
	server, _ := aged(t)
	proxy := redistest.NewProxy(t, server)
	b := open(t, proxy.URL())
	b.Guard(testGuard)
	for range 5 {
		testserver.Eventually(t, "granted", func() error {
			claim := newClaim("k")
			r, err := b.Acquire(t.Context(), claim)
			if errors.As(err, new(*driver.QuarantineError)) {
				t.Fatal(err)
			}
			b.Release(t.Context(), claim)
			return errors.Join(err, testserver.Not(r.State == driver.Held, "%v", r.State))
		})
		proxy.Break()
	}
}

// A server that loses its data while no client is connected to it is found out by the next one, and
// by all that come later: with its data it has lost the record of since when it had them. The same
// goes for data that were another server's, and for data that are older.
func TestR32_LossThatNobodySees(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, server *redistest.Server){
		"FLUSHALL": func(t *testing.T, server *redistest.Server) { server.Do(t, "FLUSHALL") },
		"SWAPDB": func(t *testing.T, server *redistest.Server) {
			server.Do(t, "SWAPDB", "0", "1")
		},
		"replica": flip,
		"replica of a server in use": func(t *testing.T, server *redistest.Server) {
			other, _ := aged(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
			replicate(t, server, other)
			if server.Int(t, "EXISTS", "holdfast:m:{holdfast:s}") != 1 {
				t.Fatal("this is not the case that the test is about: the data of another server")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := aged(t)
			a := open(t, server.URL())
			a.Guard(testGuard)
			mustBe(t, "acquire", driver.Held)(a.Acquire(t.Context(), newClaim("k")))
			a.Close()
			testserver.Eventually(t, "nobody is connected", func() error {
				clients := server.String(t, "CLIENT", "LIST", "TYPE", "pubsub")
				return testserver.Not(clients == "", "connected: %s", clients)
			})
			lose(t, server)
			for range 2 {
				b := open(t, server.URL())
				b.Guard(testGuard)
				quarantined(t, b)
				b.Close()
			}
			shared := newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}})
			shared.Guard(testGuard)
			quarantined(t, shared)
		})
	}
}

// Where nothing tells a client that the server has lost its data, it asks after each claim.
func TestR32_LossUnderABlindClient(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T,
		server *redistest.Server) *redishold.Backend{
		"tracking refused": func(t *testing.T, server *redistest.Server) *redishold.Backend {
			server.Do(t, "ACL", "SETUSER", "default", "-client|tracking")
			return open(t, server.URL())
		},
		"shared client": func(t *testing.T, server *redistest.Server) *redishold.Backend {
			return newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := aged(t)
			b := client(t, server)
			b.Guard(testGuard)
			mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), newClaim("k")))
			server.Do(t, "FLUSHALL")
			if r, err := b.Acquire(t.Context(), newClaim("k")); err == nil {
				t.Errorf("Acquire after FLUSHALL: %v", r.State)
			}
			quarantined(t, b)
		})
	}
}

// A server takes part at once for a client that comes later, as long as it runs and its memory is
// old. After a restart it takes no part for the guard, from when it is first asked, however long
// ago the restart was; and it says why when it is first asked.
func TestR32_MemoryThatIsOldEnough(t *testing.T) {
	t.Parallel()
	server, clock := aged(t, redistest.WithAOF("always"))
	b := open(t, server.URL())
	b.Guard(testGuard)
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), newClaim("k")))
	b.Close()
	later := open(t, server.URL())
	later.Guard(testGuard)
	mustBe(t, "acquire", driver.Held)(later.Acquire(t.Context(), newClaim("other")))
	later.Close()
	server.Kill()
	server.Run(t)
	clock.Step(t, testAge)
	testserver.Eventually(t, "the server has read its clock", func() error {
		up := server.Info(t, "uptime_in_seconds")
		return testserver.Not(len(up) == len("3600"), "up for %s s", up)
	})
	restarted := open(t, server.URL())
	restarted.Guard(testGuard)
	quarantined(t, restarted)

	server.Do(t, "DEL", "holdfast:m:{holdfast:s}")
	first := open(t, server.URL())
	first.Guard(testGuard)
	_, err := first.Acquire(t.Context(), newClaim("third"))
	var q *driver.QuarantineError
	if !errors.As(err, &q) || q.Remaining > testGuard || q.Remaining < testGuard-time.Minute ||
		!strings.Contains(err.Error(), "it is new, was restarted, or has lost its data") {
		t.Errorf("asked for the first time: %v", err)
	}
}

// If the server's clock was set back, the record of since when it has had its data lies in the
// future. That costs the guard once more, and not all the time until then.
func TestK5_ClockSetBackBehindTheRecord(t *testing.T) {
	t.Parallel()
	server, clock := aged(t)
	server.Do(t, "DEL", "holdfast:m:{holdfast:s}")
	remember(t, server)
	clock.Step(t, -testAge/2)
	remember(t, server)
	clock.Step(t, testGuard+time.Minute) // the former time is not there yet
	b := open(t, server.URL())
	b.Guard(testGuard)
	mustBe(t, "acquire", driver.Held)(b.Acquire(t.Context(), newClaim("k")))
}
