package pgxfence_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
)

// server starts when the first test wants it, and serves all of them.
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
		if code != 0 {
			fmt.Fprint(os.Stderr, "log of the server:\n", s.Log())
		}
		return code
	}())
}

// connect returns a new pool, set up by each change.
func connect(t testing.TB, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func run(t testing.TB, db pgxfence.Queryer, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// newTable creates a table of things with the columns, and an empty guard table.
func newTable(t testing.TB, db pgxfence.Queryer, name, columns string) {
	t.Helper()
	run(t, db, "DROP TABLE IF EXISTS "+name, "CREATE TABLE "+name+" ("+columns+")",
		"DROP TABLE IF EXISTS holdfast_fence", pgxfence.Table{}.Schema(), pgxfence.Table{}.Schema())
}

// value reads what a statement without arguments finds; "" if there is no row.
func value(t testing.TB, db pgxfence.Queryer, query string) (text string) {
	t.Helper()
	err := db.QueryRow(context.WithoutCancel(t.Context()), query).Scan(&text)
	if err != nil && err != pgx.ErrNoRows {
		t.Fatalf("%s: %v", query, err)
	}
	return text
}

// waiting counts the transactions that wait for a lock.
func waiting(ctx context.Context, db pgxfence.Queryer) (n int, err error) {
	err = db.QueryRow(ctx,
		"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n)
	return n, err
}

// client is a pool, or one whose statements are changed on their way.
type client interface {
	pgxfence.Queryer
	pgxfence.Beginner
}

// edited changes statements by edit on their way. So the guard's own code runs with a statement
// that is broken on purpose.
type edited struct {
	pool *pgxpool.Pool
	edit func(string) string
}

func (e edited) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return e.pool.Exec(ctx, e.edit(sql), args...)
}

func (e edited) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return e.pool.QueryRow(ctx, e.edit(sql), args...)
}

func (e edited) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return e.pool.SendBatch(ctx, e.batch(batch))
}

func (e edited) batch(batch *pgx.Batch) *pgx.Batch {
	for _, query := range batch.QueuedQueries {
		query.SQL = e.edit(query.SQL)
	}
	return batch
}

func (e edited) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := e.pool.Begin(ctx)
	return editedTx{tx, e}, err
}

type editedTx struct {
	pgx.Tx
	by edited
}

func (e editedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return e.Tx.Exec(ctx, e.by.edit(sql), args...)
}

func (e editedTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return e.Tx.SendBatch(ctx, e.by.batch(batch))
}

// replace changes statements, for a mutant.
func replace(old, with string) func(string) string {
	return func(query string) string { return strings.ReplaceAll(query, old, with) }
}
