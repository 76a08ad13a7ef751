//go:build unix

package pghold_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/pghold"
)

// server starts when the first test wants it, and serves all of them.
var server = sync.OnceValues(postgrestest.Start)

func TestMain(m *testing.M) {
	testserver.PlayHolder(func(ctx context.Context, url string) (driver.Backend, error) {
		return pghold.Open(ctx, url)
	})
	os.Exit(func() int {
		code := m.Run()
		s, err := server()
		if err == nil {
			err = s.Remove()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if code != 0 {
			fmt.Fprint(os.Stderr, "log of the server:\n", s.Log())
		}
		return code
	}())
}

func running(t testing.TB) postgrestest.Server {
	t.Helper()
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// urlOf returns how clients reach the server, with more parameters.
func urlOf(s postgrestest.Server, more string) string {
	return "postgres://holdfast@/postgres?host=" + s.Dir + "&sslmode=disable" + more
}

func socketOf(s postgrestest.Server) string { return filepath.Join(s.Dir, ".s.PGSQL.5432") }

// connect returns a pool of a user who may do everything, and sees to the tables.
func connect(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), urlOf(running(t), ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pghold.Migrate(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func run(t testing.TB, pool *pgxpool.Pool, statement string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// present is for waiters that no pause of the machine may end.
var present = pghold.WithPresence(testserver.Patience)

// open returns a Backend whose waiters are present for long, unless the options say otherwise. It
// waits until the Backend is connected: on a busy machine this may take longer than its timeout.
func open(t testing.TB, url string, options ...pghold.Option) (b *pghold.Backend) {
	t.Helper()
	options = append([]pghold.Option{present}, options...)
	testserver.Eventually(t, "it is connected", func() (err error) {
		b, err = pghold.Open(context.Background(), url, options...)
		if driver.Permanent(err) {
			t.Fatal(err)
		}
		return err
	})
	t.Cleanup(func() { b.Close() })
	return b
}
