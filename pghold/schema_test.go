//go:build unix

package pghold_test

import (
	"bytes"
	_ "embed"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pghold"
)

// ownDatabase makes a database with the schema, and returns a pool on it and its URL.
func ownDatabase(t *testing.T, name string) (*pgxpool.Pool, string) {
	t.Helper()
	all := connect(t)
	run(t, all, "CREATE DATABASE "+name)
	t.Cleanup(func() { run(t, all, "DROP DATABASE "+name+" WITH (FORCE)") })
	url := strings.Replace(urlOf(running(t), ""), "/postgres?", "/"+name+"?", 1)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pghold.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool, url
}

// A user who may create in the schema public cannot change what the functions compare.
func TestOperatorsOfOthers(t *testing.T) {
	pool, url := ownDatabase(t, "operators")
	run(t, pool, `CREATE FUNCTION public.zero(bigint, interval) RETURNS interval LANGUAGE sql
		AS $$ SELECT interval '0' $$;
		CREATE OPERATOR public.* (FUNCTION = public.zero, LEFTARG = bigint, RIGHTARG = interval)`)
	b := open(t, url)
	ask(t, b, claim("k"), driver.Held)
	ask(t, b, claim("k"), driver.Busy)
}

// A copy of the schema without its rows still knows to which set of nodes it belongs.
func TestCopyWithoutRows(t *testing.T) {
	pool, url := ownDatabase(t, "copied")
	run(t, pool, "DELETE FROM holdfast.server")
	b := open(t, url)
	b.Join(driver.Set{Nodes: 3, Quorum: 2, Name: "a"})
	ask(t, b, claim("k"), driver.Held)
	other := open(t, url)
	other.Join(driver.Set{Nodes: 3, Quorum: 2, Name: "b"})
	if r, err := other.Acquire(t.Context(), claim("k2")); err == nil {
		t.Errorf("a client of another set: %v; want an error", r.State)
	}
}

// A copy that is made as the package says knows of no run of its server. So under a guard the
// server that gets it takes no part for a while, although it runs already.
func TestGuardOfACopy(t *testing.T) {
	s := running(t)
	pool, url := ownDatabase(t, "older_copy")
	run(t, pool, "INSERT INTO holdfast.run VALUES (true, pg_postmaster_start_time(), "+
		"clock_timestamp() - interval '2 hours')")
	at := []string{"-h", s.Dir, "-U", "holdfast", "-d", "older_copy"}
	bin := filepath.Dir(s.Path)
	dump := exec.CommandContext(t.Context(), filepath.Join(bin, "pg_dump"),
		append(at, "-n", "holdfast", "--no-unlogged-table-data")...)
	load := exec.CommandContext(t.Context(), filepath.Join(bin, "psql"),
		append(at, "-q", "-v", "ON_ERROR_STOP=1")...)
	copied, err := dump.Output()
	if err != nil {
		t.Fatal(err)
	}
	run(t, pool, "DROP SCHEMA holdfast CASCADE")
	load.Stdin = bytes.NewReader(copied)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := open(t, url)
	b.Guard(time.Hour)
	var quarantine *driver.QuarantineError
	if r, err := b.Acquire(t.Context(), claim("k")); !errors.As(err, &quarantine) {
		t.Errorf("Acquire: %v, %v; want a quarantine", r.State, err)
	}
}

// An older program leaves a newer schema as it is.
func TestNewerSchema(t *testing.T) {
	pool, _ := ownDatabase(t, "newer")
	run(t, pool, `CREATE OR REPLACE FUNCTION holdfast.version() RETURNS integer
		LANGUAGE sql IMMUTABLE AS 'SELECT 1000'`)
	err := pghold.Migrate(t.Context(), pool)
	if !errors.Is(err, driver.ErrUnavailable) || !driver.Permanent(err) ||
		!strings.Contains(err.Error(), "version 1000") {
		t.Errorf("Migrate = %v; want that the version is too new", err)
	}
	var version int
	if err := pool.QueryRow(t.Context(), "SELECT holdfast.version()").Scan(&version); err != nil ||
		version != 1000 {
		t.Errorf("the version is %d, %v", version, err)
	}
}

// A schema of an older version is not used. The next migration brings it up to date. What it holds
// stays.
func TestOlderSchema(t *testing.T) {
	pool, url := ownDatabase(t, "older")
	a := claim("k")
	ask(t, open(t, url), a, driver.Held)
	run(t, pool, `CREATE OR REPLACE FUNCTION holdfast.version() RETURNS integer
		LANGUAGE sql IMMUTABLE AS 'SELECT 1';
		DROP FUNCTION holdfast.durable()`)
	if _, err := pghold.Open(t.Context(), url); !errors.Is(err, pghold.ErrMissing) ||
		!driver.Permanent(err) {
		t.Errorf("Open: %v; want %v", err, pghold.ErrMissing)
	}
	// A Backend that Open did not connect, or that uses the caller's pool, finds out when it first
	// acquires.
	later, err := pghold.Open(t.Context(), url, pghold.WithoutConnecting())
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	over, err := pghold.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	standard, err := pghold.NewSQL(db)
	if err != nil {
		t.Fatal(err)
	}
	defer standard.Close()
	for name, b := range map[string]*pghold.Backend{
		"lazy": later, "New": over, "NewSQL": standard,
	} {
		_, err := b.Acquire(t.Context(), claim("free"))
		if !errors.Is(err, pghold.ErrMissing) || !driver.Permanent(err) ||
			errors.Is(err, driver.ErrUnknown) ||
			!strings.Contains(err.Error(), "of version 1, not 4") {
			t.Errorf("%s: %v; want %v, and both versions", name, err, pghold.ErrMissing)
		}
	}
	if err := pghold.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	release(t, open(t, url), a, driver.Held)
	b := claim("free")
	ask(t, over, b, driver.Held)
	release(t, over, b, driver.Held)
}

// version3 is the schema as it was before requests had numbers.
//
//go:embed testdata/version3.sql
var version3 string

// Version 3 is brought up to date while a client of it has a lock, and one that was given up. That
// client goes on, since the functions that it calls stay, and programs of both versions exclude
// each other.
//
// Fails if the code is broken like this: the columns of ended that are new are not added to a table
// that is there; they have no defaults.
func TestMigrateFromVersion3(t *testing.T) {
	pool, url := ownDatabase(t, "version3")
	run(t, pool, "DROP SCHEMA holdfast CASCADE")
	run(t, pool, version3)
	asked := func(key, owner, want string) {
		t.Helper()
		var state string
		if err := pool.QueryRow(t.Context(), `SELECT a.state FROM
			holdfast.acquire($1, $2, 60000000, 0, 1, 1, NULL, false, '', false, 0, '') AS a`,
			[]byte(key), []byte(owner)).Scan(&state); err != nil || state != want {
			t.Fatalf("version 3 says %q of %s for %s, %v; want %s", state, key, owner, err, want)
		}
	}
	released := func(key, owner string, final int64) {
		t.Helper()
		run(t, pool, "SELECT holdfast.release($1, $2, $3, '')", []byte(key), []byte(owner), final)
	}
	const minute = 60_000_000
	asked("held", "old", "held")
	asked("given up", "old", "held")
	released("given up", "old", minute)

	for range 2 { // to run it again changes nothing
		if err := pghold.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		run(t, pool, pghold.Schema())
	}
	b := open(t, url)
	held, givenUp := claim("held"), claim("given up")
	ask(t, b, held, driver.Busy)
	ask(t, b, givenUp, driver.Held)
	asked("given up", "other", "busy")
	release(t, b, givenUp, driver.Held)
	asked("given up", "old", "busy") // as late as it was
	released("held", "old", minute)
	ask(t, b, held, driver.Held)
	asked("held", "old", "busy")
	release(t, b, held, driver.Held)
	asked("held", "old", "busy") // it was given up, too
	asked("held", "other", "held")
}

// Another user than the one who made the schema cannot bring it up to date. The error names that
// user, also to one who may create schemas.
func TestMigrateAsAnother(t *testing.T) {
	pool, url := ownDatabase(t, "another")
	run(t, pool, "DROP SCHEMA holdfast CASCADE")
	run(t, pool, version3)
	run(t, pool, `CREATE ROLE another LOGIN; GRANT CREATE ON DATABASE another TO another;
		GRANT USAGE, CREATE ON SCHEMA holdfast TO another;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO another`)
	t.Cleanup(func() { run(t, pool, "DROP OWNED BY another; DROP ROLE another") })
	other, err := pgxpool.New(t.Context(), strings.Replace(url, "holdfast@", "another@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const want = "as the owner of the schema holdfast"
	if err := pghold.Migrate(t.Context(), other); !errors.Is(err, pghold.ErrRights) ||
		!driver.Permanent(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("Migrate: %v; want %v, and %q", err, pghold.ErrRights, want)
	}
}

// An operator has removed a part of the schema. The error says to run Migrate, and that helps.
func TestMigrateMends(t *testing.T) {
	pool, url := ownDatabase(t, "damaged")
	for _, damage := range []string{"DROP TABLE holdfast.ended", "DROP FUNCTION holdfast.settle",
		"DROP TABLE holdfast.locks"} {
		b := open(t, url)
		run(t, pool, damage)
		c := claim("k")
		c.Shared = true // one that looks at all tables
		if _, err := b.Acquire(t.Context(), c); !errors.Is(err, pghold.ErrMissing) {
			t.Errorf("after %s: %v; want %v", damage, err, pghold.ErrMissing)
		}
		if err := pghold.Migrate(t.Context(), pool); err != nil {
			t.Fatalf("after %s: %v", damage, err)
		}
		ask(t, b, c, driver.Held)
		release(t, b, c, driver.Held)
	}
}
