package redishold_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// looker is the user that the package's documentation describes for those who only look.
func looker(t *testing.T, server *redistest.Server) (url string) {
	t.Helper()
	server.Do(t, "ACL", "SETUSER", "looks", "on", ">secret", "~lock:*", "~holdfast:*",
		"resetchannels", "+@read")
	return "redis://looks:secret@" + server.Addr
}

// crowd has a lock held alone with waiters, one that is shared with a writer behind, and one of
// another library without an expiry. It returns their keys, and has the waiters ask again, who are
// gone after a while otherwise.
func crowd(t *testing.T, server *redistest.Server) (keys []string, again func()) {
	t.Helper()
	b := open(t, server.URL())
	mustBe(t, "hold", driver.Held)(b.Acquire(t.Context(), newClaim("lock:alone")))
	for range 2 {
		reader := newClaim("lock:shared")
		reader.Shared = true
		mustBe(t, "share", driver.Held)(b.Acquire(t.Context(), reader))
	}
	waiters := []driver.Claim{newClaim("lock:alone"), newClaim("lock:alone"),
		newClaim("lock:shared")}
	again = func() {
		for _, w := range waiters {
			mustBe(t, "wait", driver.Busy)(b.Acquire(t.Context(), w))
		}
	}
	again()
	server.Do(t, "SET", "lock:foreign", strings.Repeat("x", 2000))
	return []string{"lock:alone", "lock:foreign", "lock:shared"}, again
}

// isBetween returns an error unless an entry is what a full user sees before and after, whose
// leases have more and less left, but for what a busy machine makes of the time between commands.
func isBetween(before, got, after driver.Entry) error {
	parties := func(e driver.Entry) []driver.Party {
		return append(append([]driver.Party{e.Holder}, e.Sharers...), e.Waiters...)
	}
	const tolerance = time.Minute
	b, g, a := parties(before), parties(got), parties(after)
	if len(b) != len(g) || len(a) != len(g) || len(got.Sharers) != len(before.Sharers) ||
		got.Key != before.Key {
		return fmt.Errorf("shows %+v; want %+v", got, before)
	}
	for i := range g {
		if g[i].Owner != b[i].Owner || g[i].ExpiresIn > b[i].ExpiresIn+tolerance ||
			g[i].ExpiresIn < a[i].ExpiresIn-tolerance {
			return fmt.Errorf("%s: party %d is %+v; want one between %+v and %+v", got.Key, i, g[i],
				b[i], a[i])
		}
	}
	return nil
}

// A user with only +@read sees the same as one with all rights, even if the clock of the server is
// far from that of this machine: TIME is not part of +@read.
func TestReadOnlyACL(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t)
	server := redistest.Start(t, redistest.WithClock(clock))
	clock.Step(t, 20*time.Minute)
	keys, again := crowd(t, server)
	full, b := open(t, server.URL()), open(t, looker(t, server), redishold.WithReadOnly())
	for _, key := range append(keys, "lock:free") {
		testserver.Eventually(t, "both see the same", func() error {
			again()
			before, err1 := full.Inspect(t.Context(), key)
			got, err2 := b.Inspect(t.Context(), key)
			after, err3 := full.Inspect(t.Context(), key)
			return cmp.Or(errors.Join(err1, err2, err3), isBetween(before, got, after))
		})
	}
	set := driver.Set{Nodes: 3, Quorum: 2, Guard: time.Minute, Name: "blue"}
	for _, want := range []driver.Set{{}, set} {
		if got, err := b.Belongs(t.Context()); err != nil || got != want {
			t.Errorf("Belongs = %v, %v; want %v", got, err, want)
		}
		server.Do(t, "SET", "holdfast:s", set.Text())
	}
	var listed []string
	for e, err := range b.List(t.Context(), "lock:") {
		if err != nil {
			t.Fatal(err)
		}
		if listed = append(listed, e.Key); e.Key == "lock:shared" && len(e.Sharers) != 2 {
			t.Errorf("lists %+v; want two that share it", e)
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, keys) {
		t.Errorf("lists %q; want %q", listed, keys)
	}
}

// A Backend that only reads sends nothing else, even if its user has all rights, and refuses what
// changes something.
func TestReadOnlySendsOnlyReads(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	keys, _ := crowd(t, server)
	server.Do(t, "SCRIPT", "FLUSH")
	server.Do(t, "DEL", "lock:alone", "lock:shared")
	for _, derived := range server.Do(t, "KEYS", "holdfast:[qwr]:*").([]any) {
		server.Do(t, "PERSIST", derived.(string)) // or they would end while they are counted
	}
	stored := server.Int(t, "DBSIZE")
	server.Do(t, "CONFIG", "RESETSTAT")
	b := open(t, server.URL(), redishold.WithReadOnly())
	for _, key := range keys {
		if _, err := b.Inspect(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	for _, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	for what, call := range map[string]func() error{
		"Check":    func() error { _, err := b.Check(t.Context()); return err },
		"Identity": func() error { _, err := b.Identity(t.Context()); return err },
		"Belongs":  func() error { _, err := b.Belongs(t.Context()); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	changes(t, b)
	if now := server.Int(t, "DBSIZE"); now != stored {
		t.Errorf("%d keys are stored; there were %d", now, stored)
	}
	sent := server.Do(t, "INFO", "commandstats").(string)
	for line := range strings.Lines(sent) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if !ok || !strings.HasPrefix(line, "cmdstat_") {
			continue
		}
		switch name {
		case "scan", "exists", "getrange", "pttl", "pexpiretime", "zrangebyscore", "hgetall",
			"time", "info", "config|get", "hello", "client|setinfo", "client|setname", "ping":
		case "config|resetstat", "dbsize": // this test
		default:
			t.Errorf("%s was sent", name)
		}
	}
}

// changes makes every call that changes something. All must be refused.
func changes(t *testing.T, b *redishold.Backend) {
	t.Helper()
	claim := newClaim("lock:free")
	shared := newClaim("lock:shared")
	shared.Shared = true
	for what, call := range map[string]func() error{
		"Acquire":         func() error { _, err := b.Acquire(t.Context(), claim); return err },
		"Acquire, shared": func() error { _, err := b.Acquire(t.Context(), shared); return err },
		"Release":         func() error { _, err := b.Release(t.Context(), claim); return err },
		"Renew": func() error {
			results, err := b.Renew(t.Context(), []driver.Claim{claim})
			if err == nil {
				err = results[0].Err
			}
			return err
		},
		"Move": func() error {
			_, err := b.Move(t.Context(), driver.Set{}, driver.Set{})
			return err
		},
	} {
		err := call()
		if !errors.Is(err, protocol.ErrReadOnly) || !errors.Is(err, driver.ErrUnavailable) ||
			!driver.Permanent(err) {
			t.Errorf("%s: %v; want a permanent error that says that only reads are sent", what, err)
		}
	}
}

// The option works over a client that an application has, and on a cluster, where the keys of a
// lock that has moved are asked for where they are.
func TestReadOnlyElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("shared client", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		keys, again := crowd(t, server)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		b, err := redishold.New(client, redishold.WithReadOnly())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		testserver.Eventually(t, "a holder and two waiters", func() error {
			again()
			e, err := b.Inspect(t.Context(), keys[0])
			return cmp.Or(err, testserver.Not(len(e.Waiters) == 2 && e.Holder.Owner != "",
				"shows %+v", e))
		})
		changes(t, b)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3, 0)
		writer := open(t, cluster.URL())
		var want []string
		waiters := make(map[string]driver.Claim)
		for _, key := range []string{"lock:a", "lock:b", "lock:c", "lock:d"} {
			mustBe(t, "hold", driver.Held)(writer.Acquire(t.Context(), newClaim(key)))
			waiters[key] = newClaim(key)
			want = append(want, key)
		}
		for _, p := range cluster.Primaries {
			p.Do(t, "ACL", "SETUSER", "looks", "on", ">secret", "~lock:*", "~holdfast:*",
				"resetchannels", "+@read", "+cluster|slots")
		}
		url := strings.Replace(cluster.URL(), "://", "://looks:secret@", 1)
		b := open(t, url, redishold.WithReadOnly())
		var listed []string
		for e, err := range b.List(t.Context(), "lock:") {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, e.Key)
			testserver.Eventually(t, "one waiter", func() error {
				mustBe(t, "wait", driver.Busy)(writer.Acquire(t.Context(), waiters[e.Key]))
				e, err := b.Inspect(t.Context(), e.Key)
				return cmp.Or(err, testserver.Not(len(e.Waiters) == 1, "shows %+v", e))
			})
		}
		if slices.Sort(listed); !slices.Equal(listed, want) {
			t.Errorf("lists %q; want %q", listed, want)
		}
	})
}
