package redishold_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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

// What other programs have left under a lock's key blocks the lock, also if it is empty, and for
// ever if it does not expire. An operator must see it.
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

// A key of another type is not a lock. A caller that asks for it is told why, and it hides no other
// key, even if a queue is left beside it.
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

// If another program has taken the name of a key that is kept beside a lock, the error says which
// key that is: an operator looks at the lock's own key first, and finds nothing wrong there.
func TestKeysBesideALockOfOtherTypes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const lock = "lock:a\n"
	keys := protocol.KeysOf(lock)
	for name, b := range others(t, server) {
		if name == "read only" {
			continue
		}
		for _, beside := range []string{keys.Queue, keys.Waiters, keys.Readers, keys.Fence} {
			server.Do(t, "FLUSHALL")
			holder, waiter := newClaim(lock), newClaim(lock)
			holder.Shared, waiter.Queue = beside == keys.Readers, true
			if beside != keys.Fence {
				if _, err := b.Acquire(t.Context(), holder); err != nil {
					t.Fatal(err)
				}
			}
			server.Do(t, "DEL", beside)
			server.Do(t, "RPUSH", beside, "x")
			wrong := map[string]error{}
			_, wrong["Acquire"] = b.Acquire(t.Context(), waiter)
			if beside == keys.Queue || beside == keys.Readers {
				_, wrong["Release"] = b.Release(t.Context(), holder)
				_, wrong["Inspect"] = b.Inspect(t.Context(), lock)
				turn := holder
				turn.Block = 2
				results, err := b.Renew(t.Context(), []driver.Claim{turn})
				if wrong["Renew"] = err; err == nil {
					wrong["Renew"] = results[0].Err
				}
			}
			for what, err := range wrong {
				if !driver.Permanent(err) || !protocol.IsServerError(err, "WRONGTYPE") ||
					!strings.Contains(err.Error(), fmt.Sprintf("the key %q is a list", beside)) {
					t.Errorf("%s: %s, %q is a list: %v", name, what, beside, err)
				}
			}
		}
	}
}

// A lock of Redisson is a hash with a field for each holder, and its count. It is shown with all
// and with read-only rights. A hash that has only some of that form is none.
func TestLocksOfRedisson(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const one = "8743c9c0-0795-4907-87fd-6c719a6b4586:1"
	const two = "0d6f1f7e-0795-4907-87fd-6c719a6b4586:52"
	here := driver.NewOwner(driver.OwnerSuffix("backup")) // as package withredisson writes it
	party := func(owner string, count int) driver.Party {
		return driver.Party{Owner: owner, Count: count, Endless: true}
	}
	locks := map[string]struct {
		fields []string
		want   driver.Entry
	}{
		"plain": {[]string{one, "2"}, driver.Entry{Holder: party(one, 2)}},
		"ours":  {[]string{here, "1"}, driver.Entry{Holder: party(here, 1)}},
		"writer": {[]string{"mode", "write", one, "4", one + ":write", "3"},
			driver.Entry{Holder: party(one+":write", 3)}},
		"readers": {[]string{"mode", "read", one, "2", two, "1"},
			driver.Entry{Sharers: []driver.Party{party(two, 1), party(one, 2)}}},
	}
	for name, lock := range locks {
		server.Do(t, append([]string{"HSET", "lock:" + name}, lock.fields...)...)
	}
	others := others(t, server)
	for name, b := range others {
		for key, lock := range locks {
			lock.want.Key = "lock:" + key
			got, err := b.Inspect(t.Context(), lock.want.Key)
			if err != nil || !sameEntry(got, lock.want) {
				t.Errorf("%s: %s: %+v, %v; want %+v", name, key, got, err, lock.want)
			}
		}
		server.Do(t, "PEXPIRE", "lock:plain", "30000")
		e, err := b.Inspect(t.Context(), "lock:plain")
		if left := e.Holder.ExpiresIn; err != nil || left <= 0 || left > 30*time.Second ||
			e.Holder.Endless {
			t.Errorf("%s: the lease is %+v, %v; want one of at most 30s", name, e.Holder, err)
		}
		server.Do(t, "PERSIST", "lock:plain")
	}
	for name, b := range others {
		got := list(t, b, "lock:")
		for key, lock := range locks {
			lock.want.Key = "lock:" + key
			if !sameEntry(got[lock.want.Key], lock.want) {
				t.Errorf("%s: lists %+v; want %+v", name, got[lock.want.Key], lock.want)
			}
		}
		if len(got) != len(locks) {
			t.Errorf("%s: lists %d locks; want %d", name, len(got), len(locks))
		}
	}
	many := []string{"HSET", "lock:many"}
	for i := range 101 {
		many = append(many, fmt.Sprintf("%s%d", one, i), "1")
	}
	server.Do(t, many...)
	for key, fields := range map[string][]string{
		"lock:mode":   {"mode", "read"},
		"lock:zero":   {one, "0"},
		"lock:text":   {one, "x"},
		"lock:field":  {one, "1", "name", "7"},
		"lock:long":   {strings.Repeat("x", 1100) + ":1", "1"},
		"lock:large":  {one, "1", "x", strings.Repeat("x", 2<<20)},
		"lock:many":   nil,
		"lock:spoilt": {one + ":read", "1"},
	} {
		if fields != nil {
			server.Do(t, append([]string{"HSET", key}, fields...)...)
		}
		for name, b := range others {
			got, err := b.Inspect(t.Context(), key)
			if !protocol.IsServerError(err, "WRONGTYPE") || !driver.Permanent(err) {
				t.Errorf("%s: %s, which is no lock: %+v, %v", name, key, got, err)
			}
		}
	}
	// Inspect takes this for a lock, as somebody has named it. In a list it is any hash.
	server.Do(t, "HSET", "lock:counts", "user:1", "7")
	server.Do(t, "SET", "lock:later", "x")
	for name, b := range others {
		if got := list(t, b, "lock:"); len(got) != len(locks)+1 || got["lock:later"].Key == "" {
			t.Errorf("%s: lists %+v; want the %d locks", name, got, len(locks)+1)
		}
	}
	less := open(t, looker(t, server), redishold.WithReadOnly())
	for _, right := range []string{"-hgetall", "-hlen"} {
		server.Do(t, "ACL", "SETUSER", "looks", right)
		if got := list(t, less, "lock:"); len(got) != 1 || got["lock:later"].Key == "" {
			t.Errorf("a user with %s lists %+v; want lock:later", right, got)
		}
	}
	var sent int
	if _, err := fmt.Sscan(server.Info(t, "total_net_output_bytes"), &sent); err != nil ||
		sent > 1<<20 {
		t.Errorf("the server has sent %d bytes, %v; want no value that is as long as no lock's",
			sent, err)
	}
}

// The longest owner value is a holder like any other. A longer value that begins in the same way is
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
