//go:build unix

package pghold_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pghold"
)

// Until the end of the test, lazily makes the server answer before it writes to its disk, and write
// nothing by itself for a while. The server is killed for that.
func lazily(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	run(t, pool, "ALTER SYSTEM SET synchronous_commit = off")
	run(t, pool, "ALTER SYSTEM SET wal_writer_delay = '10s'")
	t.Cleanup(func() {
		run(t, pool, "ALTER SYSTEM RESET ALL")
		crash(t, pool)
	})
	crash(t, pool)
	var commit string
	if err := pool.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&commit); err != nil ||
		commit != "off" {
		t.Fatalf("synchronous_commit is %q, %v", commit, err)
	}
}

// crash kills the server and starts it again.
func crash(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	s := running(t)
	s.Kill()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
}

// TestAsynchronousCommit has a server that forgets its last commits in a crash. It does not forget
// who holds a key, until when, and under which token.
func TestAsynchronousCommit(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	lazily(t, pool)
	for name, act := range map[string]func(b *pghold.Backend, a driver.Claim) driver.Claim{
		"acquire": func(b *pghold.Backend, a driver.Claim) driver.Claim {
			ask(t, b, a, driver.Held)
			return a
		},
		"share": func(b *pghold.Backend, a driver.Claim) driver.Claim {
			a.Shared = true
			ask(t, b, a, driver.Held)
			return a
		},
		"hand over": func(b *pghold.Backend, a driver.Claim) driver.Claim {
			w := queued(a.Key)
			ask(t, b, a, driver.Held)
			ask(t, b, w, driver.Busy)
			run(t, pool, "CHECKPOINT")
			release(t, b, a, driver.Held)
			return w
		},
		"renew": func(b *pghold.Backend, a driver.Claim) driver.Claim {
			ask(t, b, a, driver.Held)
			run(t, pool, "CHECKPOINT")
			a.TTL, a.Block = time.Hour, 10
			results, err := b.Renew(t.Context(), []driver.Claim{a})
			if err != nil || results[0].State != driver.Held {
				t.Fatalf("Renew = %+v, %v", results, err)
			}
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, urlOf(running(t), ""))
			a := act(b, claim("after "+name))
			was, err := b.Inspect(t.Context(), a.Key)
			if err != nil {
				t.Fatal(err)
			}
			crash(t, pool)
			b = open(t, urlOf(running(t), ""))
			is, err := b.Inspect(t.Context(), a.Key)
			if err != nil {
				t.Fatal(err)
			}
			before, after := holderOf(was), holderOf(is)
			if before.Owner != a.Owner || after.Owner != a.Owner || after.Token != before.Token ||
				after.ExpiresIn < before.ExpiresIn/2 {
				t.Fatalf("before the crash %+v, and after it %+v; want that it is held by %q", was,
					is, a.Owner)
			}
			release(t, b, a, driver.Held)
			next := claim(a.Key)
			if token := ask(t, b, next, driver.Held).Token; token < before.Token+
				driver.Token(max(a.Block, 1)) {
				t.Errorf("token %d follows %d and its block of %d", token, before.Token, a.Block)
			}
			release(t, b, next, driver.Held)
		})
	}
}

// holderOf returns the holder, or one of those that share the key.
func holderOf(e driver.Entry) driver.Party {
	if len(e.Sharers) > 0 {
		return e.Sharers[0]
	}
	return e.Holder
}

// A server that forgets its last commits in a crash does not forget which requests are late, also
// if all that it was asked besides was to wait. Such a request may still come through a pooler.
func TestAsynchronousCommitOfLateRequests(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	lazily(t, pool)
	late := requests{t, pool, "k", "late", "client", false}
	other := late
	other.owner = "other"
	other.acquire(1, 0, "held")
	late.acquire(3, 2, "busy")
	crash(t, pool)
	other.release(4, 0, "held")
	late.acquire(5, 0, "held")
	late.release(2, 0, "lost")
	other.acquire(6, 0, "busy")
}

// A server that forgets its last commits in a crash does not forget that it was moved to another
// set of nodes.
func TestAsynchronousCommitOfAMove(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	lazily(t, pool)
	run(t, pool, "SELECT holdfast.move('', 'set')")
	crash(t, pool)
	var member string
	if err := pool.QueryRow(t.Context(), "SELECT member FROM holdfast.server").Scan(
		&member); err != nil || member != "set" {
		t.Errorf("after a crash it belongs to %q, %v; want the set that it was moved to", member, err)
	}
	run(t, pool, empty)
}
