package redishold_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// others returns Backends of each kind that lists keys, all on one server.
func others(t *testing.T, server *redistest.Server) map[string]*redishold.Backend {
	t.Helper()
	return map[string]*redishold.Backend{
		"own connection": open(t, server.URL()),
		"read only":      open(t, server.URL(), redishold.WithReadOnly()),
		"shared client":  newShared(t, rueidis.ClientOption{InitAddress: []string{server.Addr}}),
	}
}

// list returns all entries by key, and fails if a key comes twice.
func list(t *testing.T, b *redishold.Backend, prefix string) map[string]driver.Entry {
	t.Helper()
	entries := make(map[string]driver.Entry)
	for e, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("List(%q): %v", prefix, err)
		}
		if _, twice := entries[e.Key]; twice {
			t.Errorf("List(%q) yields %.40q twice", prefix, e.Key)
		}
		entries[e.Key] = e
	}
	return entries
}

// What other programs have left under a lock's key blocks the lock, also if it is nothing at all,
// and for ever if it has no end. An operator has to see it.
func TestForeignKeysAreShown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	// A prefix that would match others if its bytes were taken for a pattern.
	const prefix = `l[o*c?k\^-]:`
	huge := strings.Repeat("0123456789abcdef", 1<<16)
	values := map[string]string{
		"empty":        "",
		"nx":           "worker-7",
		"bytes":        "\xff\x00\r\n+OK\r\n",
		"\xff\r\nkey ": "x",
		"{tag}k":       "x",
		"}{":           "x",
		"huge":         huge,
		"longest":      huge[:1024],
		"longer":       huge[:1025],
	}
	want := make(map[string]driver.Entry)
	for name, value := range values {
		if got := server.String(t, "SET", prefix+name, value, "NX"); got != "OK" {
			t.Fatalf("SET: %s", got)
		}
		want[prefix+name] = driver.Entry{Key: prefix + name,
			Holder: driver.Party{Owner: value[:min(len(value), 1024)], Cut: len(value) > 1024,
				Endless: true}}
	}
	server.Do(t, "SET", "lo", "not this one")
	server.Do(t, "SET", "loxcxkx^-]:k", "not this one")
	for name, b := range others(t, server) {
		if got := list(t, b, prefix); !maps.EqualFunc(got, want, sameEntry) {
			t.Errorf("%s: lists %+v; want %+v", name, got, want)
		}
		for key, entry := range want {
			got, err := b.Inspect(t.Context(), key)
			if err != nil || !sameEntry(got, entry) {
				t.Errorf("%s: Inspect(%.40q) = %+v, %v; want %+v", name, key, got, err, entry)
			}
		}
	}
}

func sameEntry(a, b driver.Entry) bool {
	return a.Key == b.Key && a.Holder == b.Holder && slices.Equal(a.Sharers, b.Sharers) &&
		slices.Equal(a.Waiters, b.Waiters)
}

// A key of another type is no lock. Who asks for it is told why, and it hides no other key, also if
// a queue is left beside it.
func TestKeysOfOtherTypes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(t, "RPUSH", "lock:list", "x")
	server.Do(t, "HSET", "lock:hash", "f", "v")
	server.Do(t, "SET", "lock:k", "x")
	for _, key := range []string{"lock:list", "lock:hash"} {
		server.Do(t, "ZADD", protocol.KeysOf(key).Queue, "1", ">somebody")
	}
	for name, b := range others(t, server) {
		if got := list(t, b, "lock:"); len(got) != 1 || got["lock:k"].Key == "" {
			t.Errorf("%s: lists %+v; want lock:k", name, got)
		}
		for _, key := range []string{"lock:list", "lock:hash"} {
			_, err := b.Inspect(t.Context(), key)
			if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) ||
				!protocol.IsServerError(err, "WRONGTYPE") {
				t.Errorf("%s: Inspect(%q): %v", name, key, err)
			}
			if name == "read only" {
				continue
			}
			_, err = b.Acquire(t.Context(), newClaim(key))
			if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) ||
				!strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: Acquire(%q): %v", name, key, err)
			}
		}
	}
}

// The longest owner value is a holder like any other. A longer value that begins like it is
// another's, and stays.
func TestLongestOwnerIsNoOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	owner := strings.Repeat("o", 1024)
	for name, b := range others(t, server) {
		if name == "read only" {
			continue
		}
		claim := newClaim("lock:" + name)
		claim.Owner = owner
		granted(t, b, claim)
		renewal, turn := claim, claim
		turn.Block = 4
		results, err := b.Renew(t.Context(), []driver.Claim{renewal, turn})
		if err != nil || results[0].State != driver.Held || results[1].State != driver.Held {
			t.Errorf("%s: Renew: %+v, %v", name, results, err)
		}
		mustBe(t, name, driver.Held)(b.Release(t.Context(), claim))

		another := owner + "x"
		server.Do(t, "SET", claim.Key, another)
		for range 2 { // by plain commands, and by the script
			mustBe(t, name, driver.Busy)(b.Acquire(t.Context(), claim))
		}
		results, err = b.Renew(t.Context(), []driver.Claim{renewal, turn})
		if err != nil || results[0].State != driver.Lost || results[1].State != driver.Lost {
			t.Errorf("%s: Renew of another's: %+v, %v", name, results, err)
		}
		shared := claim
		shared.Shared = true
		results, err = b.Renew(t.Context(), []driver.Claim{shared})
		if err != nil || results[0].State != driver.Lost {
			t.Errorf("%s: Renew of a share of another's: %+v, %v", name, results, err)
		}
		if r, err := b.Release(t.Context(), claim); err != nil || r.State == driver.Held {
			t.Errorf("%s: Release of another's: %+v, %v", name, r, err)
		}
		if got := server.String(t, "GET", claim.Key); got != another {
			t.Errorf("%s: %d bytes are left of another's value of %d", name, len(got),
				len(another))
		}
		if ttl := server.Int(t, "PTTL", claim.Key); ttl != -1 {
			t.Errorf("%s: another's key ends in %d ms", name, ttl)
		}
	}
}
