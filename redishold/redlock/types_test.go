package redlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/redishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
	"github.com/holdfast-go/holdfast/redishold/redlock"
)

// Somebody overwrites what belongs to one of many locks with keys of another type. On a minority of
// servers that is nothing. On a majority only this lock cannot be renewed, if it is the lock itself
// or the set of those that share it. The other locks of the batch are renewed, and so is one whose
// queue or counter of tokens is gone.
func TestRenewalBesideAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	k := c.client(t, calm)
	for i, test := range []struct {
		what   string
		key    func(protocol.Keys) string
		shared bool
		fatal  bool
	}{
		{"the lock", func(keys protocol.Keys) string { return keys.Lock }, false, true},
		{"the lock of readers", func(keys protocol.Keys) string { return keys.Lock }, true, true},
		{"the readers", func(keys protocol.Keys) string { return keys.Readers }, true, true},
		{"the queue", func(keys protocol.Keys) string { return keys.Queue }, false, false},
		{"the waiters", func(keys protocol.Keys) string { return keys.Waiters }, false, false},
		{"the counter", func(keys protocol.Keys) string { return keys.Fence }, false, false},
	} {
		var claims []driver.Claim
		exists := []string{"EXISTS"}
		for j := range 12 {
			claim := newClaim(fmt.Sprintf("k%d-%d", i, j), longTTL)
			claim.Shared = test.shared
			k.hold(claim)
			claims, exists = append(claims, claim), append(exists, claim.Key)
		}
		for _, server := range c.servers { // a majority has granted them
			testserver.Eventually(t, "all servers have granted them", func() error {
				n, err := server.Try(exists...)
				return testserver.Not(err == nil && n == int64(len(claims)), "%v, %v", n, err)
			})
		}
		const hit = 5
		overwrite := func(s *redistest.Server) {
			key := test.key(protocol.KeysOf(claims[hit].Key))
			s.Do(t, "DEL", key)
			s.Do(t, "RPUSH", key, "x")
		}
		says := "WRONGTYPE the key is of another type, and no lock"
		if test.shared {
			says = fmt.Sprintf("WRONGTYPE the key or %q is of another type",
				protocol.KeysOf(claims[hit].Key).Readers)
		}
		renewed := func(when string, lost bool) {
			t.Helper()
			ctx, cancel := limit()
			defer cancel()
			results, err := k.Renew(ctx, claims)
			if err != nil {
				t.Fatalf("%s %s: Renew: %v", test.what, when, err)
			}
			for j, r := range results {
				switch {
				case !lost || j != hit:
					if r.State != driver.Held {
						t.Errorf("%s %s: claim %d is %v, %v; want held", test.what, when, j,
							r.State, r.Err)
					}
				case r.State != driver.Unknown || r.Err == nil ||
					strings.Count(r.Err.Error(), says) != 2:
					t.Errorf("%s %s: its claim is %v, %v; want an error of two servers: %s",
						test.what, when, r.State, r.Err, says)
				}
			}
		}
		overwrite(c.servers[0])
		renewed("on one server", false)
		overwrite(c.servers[1])
		renewed("on two servers", test.fatal)
	}
}

// Somebody overwrites what a server remembers of its set, or of its data. The server has no vote,
// the others go on, and the error names the key.
func TestOverwrittenSet(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	server := c.servers[0]
	for _, test := range []struct {
		command []string
		query   string
		want    string
	}{
		{[]string{"RPUSH", "holdfast:s", "x"}, calm, `WRONGTYPE the key "holdfast:s" is no string`},
		{[]string{"SET", "holdfast:s", "x"}, calm, `the key "holdfast:s" holds no set of nodes: "x"`},
		{[]string{"RPUSH", "holdfast:m:{holdfast:s}", "x"}, guarded,
			`WRONGTYPE the key "holdfast:s" or "holdfast:m:{holdfast:s}" is no string`},
	} {
		server.Do(t, "FLUSHALL")
		server.Do(t, test.command...)
		k := c.client(t, test.query)
		ctx, cancel := limit()
		defer cancel()
		if test.query == calm {
			claim := newClaim("k", longTTL)
			k.hold(claim)
			k.release(claim, driver.Held)
			if err := k.Adopt(ctx, time.Second); err == nil ||
				!strings.Contains(err.Error(), server.Addr) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%q: Adopt: %v; want %s in it", test.command, err, test.want)
			}
		}
		ttl := longTTL
		if test.query == guarded {
			ttl = shortGuard
		}
		testserver.Eventually(t, "the server refuses", func() error {
			_, err := k.ask(newClaim("other", ttl))
			said := k.Status().Nodes[0].Err
			return testserver.Not(said != nil && strings.Contains(said.Error(), test.want),
				"%v; acquire: %v", said, err)
		})
	}
}

// Check warns of a server that has no vote because somebody has overwritten its set: also with a
// backend for reading only, as holdfast doctor has it.
func TestCheckFindsOverwrittenSet(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	server := c.servers[0]
	for _, test := range []struct {
		command []string
		query   string
		want    string
	}{
		{[]string{"RPUSH", "holdfast:s", "x"}, calm, `the key "holdfast:s" is no string`},
		{[]string{"SET", "holdfast:s", "x"}, calm, `the key "holdfast:s" holds no set of nodes: "x"`},
		{[]string{"RPUSH", "holdfast:m:{holdfast:s}", "x"}, guarded,
			`the key "holdfast:m:{holdfast:s}" is no string`},
	} {
		server.Do(t, "FLUSHALL")
		server.Do(t, test.command...)
		clients := map[string]*client{
			"reader": c.client(t, test.query, redlock.WithNodes(redishold.WithReadOnly())),
		}
		if test.query == calm { // others learn of its data when they ask for a lock
			clients["writer"] = c.client(t, test.query)
		}
		for name, k := range clients {
			ctx, cancel := limit()
			defer cancel()
			findings, err := k.Check(ctx)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range findings {
				found = found || f.Severity == driver.Warning && f.Code == "nodes" &&
					f.Node == server.Addr && strings.Contains(f.Summary, test.want)
			}
			if !found {
				t.Errorf("%s, %q: %+v; want a warning that says: %s", name, test.command, findings,
					test.want)
			}
		}
	}
}
