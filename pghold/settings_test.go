//go:build unix

package pghold_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/pghold"
)

// ways are the ways to the server, which write and read values differently.
func ways(t *testing.T, url string) map[string]*pghold.Backend {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	over, err := pghold.NewSQL(db, present)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { over.Close() })
	return map[string]*pghold.Backend{
		"prepared":     open(t, url),
		"as by pooler": open(t, url+"&default_query_exec_mode=exec"),
		"simple":       open(t, url+"&default_query_exec_mode=simple_protocol"),
		"database/sql": over,
	}
}

// tuned makes a user with the least rights whose sessions have the settings.
func tuned(t *testing.T, settings ...string) (url string) {
	t.Helper()
	pool := connect(t)
	run(t, pool, empty)
	run(t, pool, `CREATE ROLE tuned LOGIN; GRANT USAGE ON SCHEMA holdfast TO tuned;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO tuned`)
	t.Cleanup(func() { run(t, pool, "DROP OWNED BY tuned; DROP ROLE tuned") })
	for _, setting := range settings {
		run(t, pool, "ALTER ROLE tuned SET "+setting)
	}
	return as(t, "tuned")
}

// TestSettings has users whose sessions an administrator has set up for something else. The locks
// do not depend on that.
func TestSettings(t *testing.T) {
	for name, settings := range map[string][]string{
		"how values are written": {"bytea_output = 'escape'", "DateStyle = 'SQL, DMY'",
			"IntervalStyle = 'sql_standard'", "TimeZone = 'Pacific/Chatham'",
			"extra_float_digits = -15", "lc_monetary = 'C'", "quote_all_identifiers = on"},
		"how statements are read": {"search_path = ''", "standard_conforming_strings = off",
			"transform_null_equals = on", "array_nulls = off", "row_security = off",
			"plpgsql.extra_errors = 'all'", "plpgsql.variable_conflict = 'use_column'"},
		"which characters": {"client_encoding = 'LATIN1'"},
		"how plans are made": {"plan_cache_mode = 'force_generic_plan'",
			"enable_indexscan = off", "enable_bitmapscan = off", "client_min_messages = 'debug5'"},
		"how long things last": {"plan_cache_mode = 'force_custom_plan'", "lock_timeout = '1min'",
			"statement_timeout = '1min'", "idle_in_transaction_session_timeout = '1ms'",
			"default_transaction_deferrable = on", "synchronous_commit = off"},
	} {
		t.Run(name, func(t *testing.T) {
			for way, b := range ways(t, tuned(t, settings...)) {
				t.Run(way, func(t *testing.T) { exercise(t, b) })
			}
		})
	}
}

// exercise makes every call, with a key and owner values that are not text.
func exercise(t *testing.T, b *pghold.Backend) {
	const key = "\x00k\\\"'\xff"
	of := func(c driver.Claim) driver.Claim {
		c.Owner = driver.NewOwner(driver.OwnerSuffix("\\\x01\xfe"))
		return c
	}
	a, w := of(claim(key)), of(queued(key))
	first := ask(t, b, a, driver.Held).Token
	if r := ask(t, b, w, driver.Busy); r.Holder != a.Owner || r.Place != 1 ||
		r.ExpiresIn > a.TTL || r.ExpiresIn < a.TTL/2 {
		t.Fatalf("busy is %+v; want place 1 behind %q for %v", r, a.Owner, a.TTL)
	}
	draws := a
	draws.Block = 2
	results, err := b.Renew(t.Context(), []driver.Claim{draws, w})
	if err != nil || results[0].State != driver.Held || !results[0].Waiting ||
		results[0].Token <= first || results[1].State != driver.Lost {
		t.Fatalf("Renew = %+v, %v; want fresh tokens after %d", results, err, first)
	}
	e, err := b.Inspect(t.Context(), key)
	if err != nil || e.Holder.Owner != a.Owner || e.Holder.Token != results[0].Token ||
		len(e.Waiters) != 1 || e.Waiters[0].Owner != w.Owner {
		t.Fatalf("Inspect = %+v, %v", e, err)
	}
	var keys []string
	for e, err := range b.List(t.Context(), key[:2]) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	if !slices.Equal(keys, []string{key}) {
		t.Fatalf("List gives %q; want %q", keys, key)
	}
	heard := make(chan driver.Notice, 1)
	stop := b.Notify(func(n driver.Notice) { heard <- n })
	release(t, b, a, driver.Held)
	if n := <-heard; n.Kind != driver.Granted || n.Owner != w.Owner || n.Key != key {
		t.Fatalf("notice %+v; want the grant to %q", n, w.Owner)
	}
	stop()
	ask(t, b, w, driver.Held)
	release(t, b, w, driver.Held)
	x, y := of(claim(key)), of(claim(key))
	x.Shared, y.Shared = true, true
	ask(t, b, x, driver.Held)
	ask(t, b, y, driver.Held)
	release(t, b, x, driver.Held)
	release(t, b, y, driver.Held)
	if _, err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSettingsThatKeepLocksAway has users whose sessions cannot lock. The error says why.
func TestSettingsThatKeepLocksAway(t *testing.T) {
	for _, test := range []struct {
		setting string
		says    string
		code    string // of what Check finds
		waits   bool   // the request has to wait for another transaction
	}{
		{"default_transaction_read_only = on", "read-only", "role", false},
		{"default_transaction_isolation = 'serializable'", "read committed", "isolation", false},
		{"default_transaction_isolation = 'repeatable read'", "read committed", "isolation", false},
		{"lock_timeout = '1ms'", "lock timeout", "timeouts", true},
		{"statement_timeout = '200ms'", "statement timeout", "timeouts", true},
	} {
		t.Run(test.setting, func(t *testing.T) {
			pool := connect(t)
			for way, b := range ways(t, tuned(t, test.setting)) {
				t.Run(way, func(t *testing.T) {
					if test.waits {
						tx, err := pool.Begin(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						defer tx.Rollback(context.Background())
						if _, err := tx.Exec(t.Context(), "LOCK TABLE holdfast.locks"); err != nil {
							t.Fatal(err)
						}
					}
					_, err := b.Acquire(t.Context(), claim(way))
					if !errors.Is(err, driver.ErrUnavailable) ||
						errors.Is(err, driver.ErrUnknown) ||
						driver.Permanent(err) == test.waits ||
						!strings.Contains(err.Error(), test.says) {
						t.Errorf("Acquire: %v; want an error that says %q, and is permanent: %v",
							err, test.says, !test.waits)
					}
					// Check has to be quick, too.
					testserver.Eventually(t, "Check finds it", func() error {
						findings, err := b.Check(t.Context())
						found := slices.ContainsFunc(findings, func(f driver.Finding) bool {
							return f.Code == test.code
						})
						return errors.Join(err, testserver.Not(found, "%+v", findings))
					})
				})
			}
		})
	}
}

// The server sends its answer before it commits. If the commit fails, what it has answered did not
// happen, over each way to it: nobody holds the key, and whoever held it still does.
func TestCommitThatFails(t *testing.T) {
	pool, url := ownDatabase(t, "refusals")
	run(t, pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'refused at the commit'; END $$`)
	for name, b := range ways(t, url) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			held, free := claim("held "+name), claim("free "+name)
			ask(t, b, held, driver.Held)
			run(t, pool, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON holdfast.locks
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE PROCEDURE refuse()`)
			acquired, err := b.Acquire(ctx, free)
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUnknown) {
				t.Errorf("Acquire = %+v, %v; want %v", acquired, err, driver.ErrUnavailable)
			}
			if renewed, err := b.Renew(ctx, []driver.Claim{held}); !errors.Is(err,
				driver.ErrUnavailable) {
				t.Errorf("Renew = %+v, %v; want %v", renewed, err, driver.ErrUnavailable)
			}
			if released, err := b.Release(ctx, held); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Release = %+v, %v; want %v", released, err, driver.ErrUnavailable)
			}
			run(t, pool, "DROP TRIGGER refuse ON holdfast.locks")
			release(t, b, free, driver.Lost)
			release(t, b, held, driver.Held)
		})
	}
}
