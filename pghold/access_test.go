//go:build unix

package pghold_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pghold"
)

// as returns the URL of the server for another user.
func as(t testing.TB, user string) string {
	return strings.Replace(urlOf(running(t), ""), "holdfast@", user+"@", 1)
}

// TestLeastRights has a user with the rights that are documented and no others.
func TestLeastRights(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	run(t, pool, `CREATE ROLE locks LOGIN; CREATE ROLE looks LOGIN; CREATE ROLE nobody LOGIN;
		REVOKE CREATE ON SCHEMA public FROM PUBLIC;
		GRANT USAGE ON SCHEMA holdfast TO locks, looks;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO locks;
		GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO looks`)
	t.Cleanup(func() {
		run(t, pool, `DROP OWNED BY locks, looks; DROP ROLE locks; DROP ROLE looks;
			DROP ROLE nobody`)
	})

	b := open(t, as(t, "locks"), pghold.WithMigration()) // no rights are needed if all is there
	a, w := claim("k"), queued("k")
	ask(t, b, a, driver.Held)
	ask(t, b, w, driver.Busy)
	if _, err := b.Renew(t.Context(), []driver.Claim{a}); err != nil {
		t.Fatal(err)
	}
	if codes := checked(t, b); slices.Contains(codes, "rights") {
		t.Errorf("Check finds %q; want no fault with the rights", codes)
	}
	if _, err := b.Identity(t.Context()); err != nil || b.Version() == "" {
		t.Errorf("Identity: %v; version %q", err, b.Version())
	}

	looks := open(t, as(t, "looks"), pghold.WithReadOnly())
	e, err := looks.Inspect(t.Context(), "k")
	if err != nil || e.Holder.Owner != a.Owner || len(e.Waiters) != 1 {
		t.Errorf("Inspect by one who may only look = %+v, %v", e, err)
	}
	if _, err := looks.Acquire(t.Context(), claim("other")); !errors.Is(err, pghold.ErrReadOnly) ||
		!errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire by one who may only look: %v; want %v", err, pghold.ErrReadOnly)
	}
	if found := rights(t, looks); !slices.Equal(found, []driver.Severity{driver.Note}) {
		t.Errorf("Check of one who only looks: rights %v; want a note", found)
	}
	run(t, pool, "REVOKE SELECT ON holdfast.waiters FROM looks")
	if found := rights(t, looks); !slices.Equal(found, []driver.Severity{driver.Failure}) {
		t.Errorf("Check of one who cannot even look: rights %v; want a failure", found)
	}
	run(t, pool, "GRANT SELECT ON holdfast.waiters TO looks")
	if found := rights(t, open(t, as(t, "locks"), pghold.WithReadOnly())); len(found) > 0 {
		t.Errorf("Check of one who looks, and may do more: rights %v; want none", found)
	}
	release(t, b, a, driver.Held)
	release(t, b, w, driver.Held)

	// A user who may only look tries to lock.
	tries := open(t, as(t, "looks"))
	_, err = tries.Acquire(t.Context(), claim("k"))
	if !errors.Is(err, pghold.ErrRights) || !driver.Permanent(err) ||
		!errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire without rights: %v; want %v", err, pghold.ErrRights)
	}
	if codes := checked(t, tries); !slices.Contains(codes, "rights") {
		t.Errorf("Check finds %q; want the rights", codes)
	}
	if _, err := pghold.Open(t.Context(), as(t, "nobody")); !errors.Is(err, pghold.ErrRights) {
		t.Errorf("Open without rights: %v; want %v", err, pghold.ErrRights)
	}
}

// An administrator has taken from everybody the right to call functions, as default privileges do
// for those that are made later. The error says what to grant, and Check finds it; who only looks
// needs no more than one of them.
func TestRightsToFunctions(t *testing.T) {
	pool, url := ownDatabase(t, "functions")
	run(t, pool, `CREATE ROLE calls LOGIN; GRANT USAGE ON SCHEMA holdfast TO calls;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO calls;
		REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC`)
	t.Cleanup(func() { run(t, pool, "DROP OWNED BY calls; DROP ROLE calls") })
	url = strings.Replace(url, "holdfast@", "calls@", 1)
	refused := func(options ...pghold.Option) {
		t.Helper()
		b := open(t, url, append(options, pghold.WithoutConnecting())...)
		if found := rights(t, b); !slices.Equal(found, []driver.Severity{driver.Failure}) {
			t.Errorf("Check finds of the rights: %v; want a failure", found)
		}
	}
	const want = "EXECUTE ON ALL FUNCTIONS"
	if _, err := pghold.Open(t.Context(), url); !errors.Is(err, pghold.ErrRights) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("Open: %v; want %v, and %q", err, pghold.ErrRights, want)
	}
	refused()
	refused(pghold.WithReadOnly())
	run(t, pool, "GRANT EXECUTE ON FUNCTION holdfast.version TO calls")
	refused()
	if found := rights(t, open(t, url, pghold.WithReadOnly())); !slices.Equal(found,
		[]driver.Severity{driver.Note}) {
		t.Errorf("Check of one who only looks finds of the rights: %v; want a note", found)
	}
	run(t, pool, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO calls")
	b := open(t, url)
	if found := rights(t, b); len(found) > 0 {
		t.Errorf("Check of one who may call all finds of the rights: %v; want nothing", found)
	}
	a := claim("k")
	ask(t, b, a, driver.Held)
	release(t, b, a, driver.Held)
}

// rights returns what Check says of the rights.
func rights(t *testing.T, b *pghold.Backend) (found []driver.Severity) {
	t.Helper()
	findings, err := b.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Code == "rights" {
			found = append(found, f.Severity)
		}
	}
	return found
}

// TestMissingTables has a database without tables. The error says what to run, and running it
// helps, even if several do so at once.
func TestMissingTables(t *testing.T) {
	pool := connect(t)
	run(t, pool, "CREATE DATABASE fresh")
	t.Cleanup(func() { run(t, pool, "DROP DATABASE fresh WITH (FORCE)") })
	url := strings.Replace(urlOf(running(t), ""), "/postgres?", "/fresh?", 1)
	fresh, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()

	b, err := pghold.New(fresh)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, failure := b.Acquire(t.Context(), claim("k"))
	_, opened := pghold.Open(t.Context(), url)
	for _, err := range []error{failure, opened} {
		if !errors.Is(err, pghold.ErrMissing) || !driver.Permanent(err) ||
			!strings.Contains(err.Error(), "pghold.Migrate") {
			t.Errorf("without tables: %v; want what to run", err)
		}
	}
	if codes := checked(t, b); !slices.Contains(codes, "tables") {
		t.Errorf("Check finds %q; want the tables", codes)
	}

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := pghold.Migrate(context.Background(), fresh); err != nil {
				t.Errorf("Migrate, one of several: %v", err)
			}
		})
	}
	all.Wait()
	a := claim("k")
	ask(t, b, a, driver.Held)
	run(t, fresh, pghold.Schema()) // once more changes nothing
	release(t, b, a, driver.Held)
	other := open(t, url+"&create=true")
	ask(t, other, claim("k"), driver.Held)
}

// TestSQL has the same locks over database/sql.
func TestSQL(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	for _, mode := range []string{"exec", "cache_statement"} {
		db, err := sql.Open("pgx", urlOf(running(t), "&default_query_exec_mode="+mode))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := pghold.Migrate(t.Context(), pghold.SQL(db)); err != nil {
			t.Fatal(err)
		}
		b, err := pghold.NewSQL(db, present)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		a, w := claim("k\x00\xff"), queued("k\x00\xff")
		first := ask(t, b, a, driver.Held).Token
		if r := ask(t, b, w, driver.Busy); r.Holder != a.Owner || r.Presence <= 0 {
			t.Fatalf("busy is %+v; want queued behind %q", r, a.Owner)
		}
		results, err := b.Renew(t.Context(), []driver.Claim{a, w, a})
		if err != nil || results[0].State != driver.Held || results[1].State != driver.Lost ||
			results[2].State != driver.Held {
			t.Fatalf("Renew = %+v, %v", results, err)
		}
		e, err := b.Inspect(t.Context(), a.Key)
		if err != nil || e.Holder.Owner != a.Owner || e.Holder.Token != first ||
			len(e.Waiters) != 1 || e.Waiters[0].Owner != w.Owner {
			t.Fatalf("Inspect = %+v, %v", e, err)
		}
		release(t, b, a, driver.Held)
		release(t, b, w, driver.Held)
		if codes := checked(t, b); slices.Contains(codes, "tables") {
			t.Errorf("Check finds %q", codes)
		}
	}
}
