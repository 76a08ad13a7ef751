package pgxfence_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// writes are all ways to write "new" with token 5.
func writes() map[string]func(context.Context, client) error {
	const update, order = "UPDATE accounts SET value = 'new'", "UPDATE orders SET value = 'new'"
	batch := func(query string) *pgx.Batch {
		b := &pgx.Batch{}
		b.Queue(query)
		return b
	}
	exec := func(ctx context.Context, query string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, query)
			return err
		}
	}
	var table pgxfence.Table
	return map[string]func(context.Context, client) error{
		"Column": func(ctx context.Context, db client) error {
			return pgxfence.Column{Table: "accounts"}.Update(ctx, db, 1, 5, "value = 'new'")
		},
		"Versioned": func(ctx context.Context, db client) error {
			return pgxfence.Versioned{Table: "accounts"}.Update(ctx, db, 1, 0, "value = 'new'")
		},
		"Table.Do": func(ctx context.Context, db client) error {
			return table.Do(ctx, db, "r", 5, exec(ctx, update))
		},
		"Table.SendBatch": func(ctx context.Context, db client) error {
			return table.SendBatch(ctx, db, "r", 5, batch(update))
		},
		"Do": func(ctx context.Context, db client) error {
			return pgxfence.Do(ctx, db, 5, exec(ctx, order))
		},
		"SendBatch": func(ctx context.Context, db client) error {
			return pgxfence.SendBatch(ctx, db, 5, batch(order))
		},
	}
}

// TestAnswersThatAreCut breaks the connection after every few bytes of the server's answers. What
// the error says of the write must be so, and no connection may stay taken.
func TestAnswersThatAreCut(t *testing.T) {
	const step = 7 // bytes; an answer that tells of a write has more
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement,
		pgx.QueryExecModeSimpleProtocol} {
		for name, write := range writes() {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				pool := connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
				newTable(t, pool, "accounts",
					"id int PRIMARY KEY, value text, fence bigint, version bigint")
				run(t, pool, "INSERT INTO accounts VALUES (1, 'old', NULL, 0)",
					"DROP TABLE IF EXISTS orders",
					"CREATE TABLE orders (id int, value text, fence bigint)",
					"INSERT INTO orders VALUES (1, 'old', 1)")
				createTrigger(t, pool)
				unknown := false
				for bytes := int64(0); ; bytes += step {
					run(t, pool, "UPDATE accounts SET value = 'old', fence = NULL, version = 0",
						"DELETE FROM holdfast_fence")
					if err := pgxfence.Do(t.Context(), pool, 5, func(tx pgx.Tx) error {
						_, err := tx.Exec(t.Context(), "UPDATE orders SET value = 'old'")
						return err
					}); err != nil {
						t.Fatal(err)
					}
					err, through := cutAt(t, mode, bytes, write)
					alone(t, pool)
					unknown = unknown || errors.Is(err, fence.ErrUnknown)
					written := value(t, pool,
						"SELECT accounts.value || orders.value FROM accounts, orders") != "oldold"
					if (err == nil) != written && !errors.Is(err, fence.ErrUnknown) ||
						errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotFound) {
						t.Errorf("the error is %v, and it was written: %v", err, written)
					}
					if through {
						break
					}
				}
				if !unknown {
					t.Error("no error said unknown; want it where the answer to a commit is cut")
				}
			})
		}
	}
}

// cutAt runs write on a connection that breaks after so many bytes of answers.
func cutAt(t *testing.T, mode pgx.QueryExecMode, bytes int64,
	write func(context.Context, client) error) (err error, through bool) {
	var left atomic.Int64
	left.Store(-1)
	broken := connect(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.DefaultQueryExecMode = mode
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn,
			error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, network, address)
			return testserver.Cut{Conn: conn, Left: &left}, err
		}
	})
	defer broken.Close()
	if err := broken.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	left.Store(bytes)
	err = write(t.Context(), broken)
	released(t, broken)
	return err, left.Load() > 0
}

// released waits until no connection is taken: pgx closes broken ones after a while.
func released(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fencetest.DefaultPatience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for pool.Stat().AcquiredConns() != 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %d connections are given back",
				pool.Stat().AcquiredConns())
		}
	}
}

// alone waits until the server has done what other connections have begun.
func alone(t *testing.T, db pgxfence.Queryer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fencetest.DefaultPatience)
	defer cancel()
	for n := 0; n != 1; {
		if err := db.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity "+
			"WHERE backend_type = 'client backend'").Scan(&n); err != nil {
			t.Fatalf("waited in vain until other connections are gone: %v", err)
		}
	}
}

// TestErrorOfTheCommit has a constraint that is checked after all statements.
func TestErrorOfTheCommit(t *testing.T) {
	inEachMode(t, func(t *testing.T, db client) {
		newTable(t, db, "accounts", "id int PRIMARY KEY, value int UNIQUE "+
			"DEFERRABLE INITIALLY DEFERRED, fence bigint, version bigint")
		run(t, db, "INSERT INTO accounts VALUES (1, 1, NULL, 0), (2, 2, NULL, 0)")
		batch := &pgx.Batch{}
		batch.Queue("UPDATE accounts SET value = 2 WHERE id = $1", 1).Exec(
			func(pgconn.CommandTag) error { return nil })
		for name, err := range map[string]error{
			"Column": pgxfence.Column{Table: "accounts"}.Update(t.Context(), db, 1, 5,
				"value = $1", 2),
			"Versioned": pgxfence.Versioned{Table: "accounts"}.Update(t.Context(), db, 1, 0,
				"value = $1", 2),
			"SendBatch": pgxfence.Table{}.SendBatch(t.Context(), db, "r", 5, batch),
			"Do": pgxfence.Table{}.Do(t.Context(), db, "r", 5, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "UPDATE accounts SET value = 2 WHERE id = 1")
				return err
			}),
		} {
			checkKind(t, name, err, nil)
		}
		if got := value(t, db, "SELECT value::text || coalesce(fence, 0) || version FROM accounts "+
			"WHERE id = 1"); got != "100" {
			t.Errorf("the row is %s; want 100", got)
		}
		if tokens := value(t, db, "SELECT count(*)::text FROM holdfast_fence"); tokens != "0" {
			t.Errorf("%s tokens are left", tokens)
		}
	})
}

// TestFunctionOfABatchPanics sees that nothing is written if the caller goes on all the same, and
// that no connection is left taken.
func TestFunctionOfABatchPanics(t *testing.T) {
	inEachMode(t, func(t *testing.T, db client) {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		batch := &pgx.Batch{}
		batch.Queue(upsert("things"), "a", "x").Exec(func(pgconn.CommandTag) error {
			panic("broken")
		})
		func() {
			defer func() { recover() }()
			pgxfence.Table{}.SendBatch(t.Context(), tx, "r", 6, batch)
		}()
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("the transaction is committed")
		}
		released(t, db.(*pgxpool.Pool))
		if written := value(t, db, allThings); written != "" {
			t.Errorf("%s was written", written)
		}
	})
}
