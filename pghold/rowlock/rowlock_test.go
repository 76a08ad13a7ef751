//go:build unix

package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/pghold/rowlock"
)

var server = sync.OnceValues(postgrestest.Start)

func TestMain(m *testing.M) {
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
		return code
	}())
}

// begin begins a transaction, which is rolled back at the end of the test or by end.
type begin func(t *testing.T) (tx rowlock.Tx, end func())

// both runs a test with each library, on a table with the jobs 1 to 3.
func both(t *testing.T, f func(t *testing.T, begin begin)) {
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	for name, begin := range map[string]begin{
		"pgx": func(t *testing.T) (rowlock.Tx, func()) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			end := sync.OnceFunc(func() { tx.Rollback(context.Background()) })
			t.Cleanup(end)
			return tx, end
		},
		"sql": func(t *testing.T) (rowlock.Tx, func()) {
			// Not t.Context: it ends before the clean-up, and Rollback would return at once, while
			// database/sql rolls back in the background and the next test finds the locks taken.
			tx, err := db.BeginTx(context.Background(), &sql.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			end := sync.OnceFunc(func() { tx.Rollback() })
			t.Cleanup(end)
			return rowlock.SQL(tx), end
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := pool.Exec(t.Context(), `DROP TABLE IF EXISTS jobs;
				CREATE TABLE jobs (id bigint PRIMARY KEY, state text);
				INSERT INTO jobs VALUES (1, 'new'), (2, 'new'), (3, 'old')`); err != nil {
				t.Fatal(err)
			}
			f(t, begin)
		})
	}
}

var jobs = rowlock.Table{Name: "jobs"}

func expect(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Fatalf("%s: %v; want %v", what, err, want)
	}
}

func TestRow(t *testing.T) {
	both(t, func(t *testing.T, begin begin) {
		ctx := t.Context()
		a, end := begin(t)
		expect(t, "TryRow", jobs.TryRow(ctx, a, 1), nil)
		expect(t, "TryRow again", jobs.TryRow(ctx, a, 1), nil)
		expect(t, "TryRow of none", jobs.TryRow(ctx, a, 4), rowlock.ErrNotFound)
		expect(t, "TryRow of no name", rowlock.Table{Name: "jobs; --"}.TryRow(ctx, a, 1),
			holdfast.ErrInvalid)
		b, endB := begin(t)
		expect(t, "TryRow of another row", jobs.TryRow(ctx, b, 2), nil)
		expect(t, "TryRow of a held row", jobs.TryRow(ctx, b, 1), holdfast.ErrHeld)
		endB()
		c, _ := begin(t)
		expect(t, "Row of a held row", jobs.Row(ctx, c, 1, time.Millisecond), holdfast.ErrHeld)
		d, _ := begin(t)
		expect(t, "Row without a wait", jobs.Row(ctx, d, 1, 0), holdfast.ErrInvalid)
		waited := make(chan error, 1)
		go func() { waited <- jobs.Row(ctx, d, 1, time.Hour) }()
		end()
		expect(t, "Row that waits", <-waited, nil)
		expect(t, "Row of none", jobs.Row(ctx, d, 4, time.Minute), rowlock.ErrNotFound)
		expect(t, "Row with the longest wait", jobs.Row(ctx, d, 1, math.MaxInt64), nil)
		// The limit is for that one statement, even if there was no such row.
		var limit string
		if err := d.QueryRow(ctx, "SELECT current_setting('lock_timeout')").Scan(
			&limit); err != nil || limit != "0" {
			t.Errorf("lock_timeout is %q afterwards, %v; want 0", limit, err)
		}
	})
}

func TestNext(t *testing.T) {
	both(t, func(t *testing.T, begin begin) {
		next := func(tx rowlock.Tx) (id int64, err error) {
			err = jobs.Next(t.Context(), tx, &id, "state = $1 ORDER BY id", "new")
			return id, err
		}
		var ends []func()
		for want := range int64(2) {
			tx, end := begin(t)
			ends = append(ends, end)
			if id, err := next(tx); err != nil || id != want+1 {
				t.Fatalf("Next = %d, %v; want %d", id, err, want+1)
			}
		}
		tx, _ := begin(t)
		_, err := next(tx)
		expect(t, "Next while all are taken", err, rowlock.ErrNotFound)
		ends[1]()
		if id, err := next(tx); err != nil || id != 2 {
			t.Fatalf("Next = %d, %v; want 2, which was given back", id, err)
		}
	})
}

func TestKey(t *testing.T) {
	both(t, func(t *testing.T, begin begin) {
		ctx := t.Context()
		a, end := begin(t)
		expect(t, "TryKey", rowlock.TryKey(ctx, a, "k"), nil)
		b, _ := begin(t)
		expect(t, "TryKey of a held key", rowlock.TryKey(ctx, b, "k"), holdfast.ErrHeld)
		expect(t, "TryKey of another key", rowlock.TryKey(ctx, b, "k2"), nil) // it goes on
		c, _ := begin(t)
		expect(t, "Key that is held", rowlock.Key(ctx, c, "k", time.Millisecond), holdfast.ErrHeld)
		waited := make(chan error, 1)
		go func() { waited <- rowlock.Key(ctx, b, "k", time.Hour) }()
		end()
		expect(t, "Key that waits", <-waited, nil)
	})
}
