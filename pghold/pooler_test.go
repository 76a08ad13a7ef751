//go:build unix

package pghold_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/pghold"
)

// bouncer starts a PgBouncer in front of the server, and returns the URL of it.
func bouncer(t testing.TB) string {
	t.Helper()
	b, err := postgrestest.StartBouncer(running(t))
	if err != nil {
		t.Fatal(err)
	}
	b.EndWith(t, func() string { return "pgbouncer" })
	t.Cleanup(func() { b.Remove() })
	return "postgres://holdfast@/postgres?host=" + b.Dir + "&port=6432&sslmode=disable"
}

func claim(key string) driver.Claim {
	return driver.Claim{Key: key, Owner: driver.NewOwner(driver.OwnerSuffix("test")),
		TTL: 10 * time.Minute}
}

func queued(key string) driver.Claim {
	c := claim(key)
	c.Queue = true
	return c
}

// ask acquires once, with the given answer.
func ask(t testing.TB, b driver.Backend, c driver.Claim, want driver.State) driver.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testserver.Patience)
	defer cancel()
	r, err := b.Acquire(ctx, c)
	if err != nil || r.State != want {
		t.Fatalf("Acquire(%q) = %v, %v; want %v", c.Key, r.State, err, want)
	}
	return r
}

func release(t testing.TB, b driver.Backend, c driver.Claim, want driver.State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testserver.Patience)
	defer cancel()
	r, err := b.Release(ctx, c)
	if err != nil || r.State != want {
		t.Fatalf("Release(%q) = %v, %v; want %v", c.Key, r.State, err, want)
	}
}

// TestPgBouncer has more clients than PgBouncer has connections, in transaction mode. Locks are
// handed over and shared, many are renewed at once, and a direct connection brings the notices.
func TestPgBouncer(t *testing.T) {
	pool := connect(t)
	run(t, pool, empty)
	url := bouncer(t)
	direct, err := pgx.ParseConfig(urlOf(running(t), ""))
	if err != nil {
		t.Fatal(err)
	}
	pooled, told := open(t, url), open(t, url, pghold.WithNotices(direct))
	heard := make(chan driver.Notice, 10)
	defer pooled.Notify(func(n driver.Notice) { t.Errorf("notice %+v through a pooler", n) })()
	defer told.Notify(func(n driver.Notice) { heard <- n })()

	// Open has found the pooler, so nothing is prepared that another process would not know.
	plain, err := pgx.Connect(t.Context(), url+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(context.Background())
	var prepared int
	if err := plain.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(
		&prepared); err != nil || prepared > 0 {
		t.Errorf("%d statements are prepared, %v; want none", prepared, err)
	}

	testserver.Eventually(t, "notices are heard", func() error {
		c := queued("k") // the first one that may wait has the Backend listen
		ask(t, told, c, driver.Held)
		release(t, told, c, driver.Held)
		return testserver.Not(told.Hears(), "not yet")
	})
	// More than any connection would prepare under one name.
	for range 20 {
		a, w := claim("k"), queued("k")
		ask(t, pooled, a, driver.Held)
		if r := ask(t, told, w, driver.Busy); r.Holder != a.Owner || r.Place != 1 {
			t.Fatalf("busy is %+v; want place 1 behind %q", r, a.Owner)
		}
		release(t, pooled, a, driver.Held)
		if n := <-heard; n.Kind != driver.Granted || n.Owner != w.Owner || n.Key != "k" {
			t.Fatalf("notice %+v; want the grant to %q", n, w.Owner)
		}
		release(t, told, w, driver.Held)
	}

	// Without a direct connection the waiter finds its grant by asking.
	a, w := claim("k"), queued("k")
	ask(t, told, a, driver.Held)
	ask(t, pooled, w, driver.Busy)
	release(t, told, a, driver.Held)
	ask(t, pooled, w, driver.Held)
	release(t, pooled, w, driver.Held)

	// A pool that prepares statements. pgx does so by default.
	prepares, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer prepares.Close()
	over, err := pghold.New(prepares, pghold.WithoutNotices())
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				c := claim(fmt.Sprint("prepared", i))
				r, err := over.Acquire(t.Context(), c)
				if err != nil || r.State != driver.Held {
					t.Errorf("Acquire = %v, %v", r.State, err)
				}
				if r, err := over.Release(t.Context(), c); err != nil || r.State != driver.Held {
					t.Errorf("Release = %v, %v", r.State, err)
				}
			}
		})
	}
	all.Wait()

	var held []driver.Claim
	for range 50 {
		c := claim("shared")
		c.Shared = true
		ask(t, pooled, c, driver.Held)
		held = append(held, c)
	}
	results, err := told.Renew(t.Context(), held)
	if err != nil || slices.ContainsFunc(results, func(r driver.Result) bool {
		return r.State != driver.Held
	}) {
		t.Fatalf("Renew = %+v, %v", results, err)
	}
	for _, c := range held {
		release(t, told, c, driver.Held)
	}
	if codes := checked(t, pooled); !slices.Contains(codes, "pooler") {
		t.Errorf("Check finds %q; want the pooler", codes)
	}
	if codes := checked(t, told); slices.Contains(codes, "pooler") {
		t.Errorf("Check finds %q, and notices have a direct connection", codes)
	}
}

// A statement that was prepared does not exist any more, as when a pooler has put another process
// of the server on the connection. The request is served all the same, and once, and from then on
// nothing is prepared.
func TestPreparedStatementIsGone(t *testing.T) {
	connect(t)
	pool, err := pgxpool.New(t.Context(), urlOf(running(t), "&pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b, err := pghold.New(pool, pghold.WithoutNotices())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := claim(fmt.Sprint("prepared", time.Now()))
	first := ask(t, b, c, driver.Held).Token
	if _, err := pool.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	if next := ask(t, b, c, driver.Held).Token; next != first+1 {
		t.Errorf("the tokens are %d and %d", first, next)
	}
	ask(t, b, c, driver.Held)
	release(t, b, c, driver.Held)
	var prepared int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements",
		pgx.QueryExecModeExec).Scan(&prepared); err != nil || prepared > 0 {
		t.Errorf("%d statements are prepared, %v; want none", prepared, err)
	}
}

// checked returns the codes of what Check finds.
func checked(t testing.TB, b *pghold.Backend) (codes []string) {
	t.Helper()
	findings, err := b.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		codes = append(codes, f.Code)
	}
	return codes
}
