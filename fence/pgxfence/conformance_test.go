package pgxfence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

func TestColumnConformance(t *testing.T) { fencetest.Run(t, column(columnWrite, nil)) }

func TestTableConformance(t *testing.T) {
	for name, w := range map[string]writer{"Do": tableWrite, "SendBatch": tableBatch,
		"Advance": tableAdvance} {
		t.Run(name, func(t *testing.T) { fencetest.Run(t, table(w, nil)) })
	}
}

func TestTriggerConformance(t *testing.T) {
	for name, w := range map[string]writer{"Do": triggerWrite, "SendBatch": triggerBatch} {
		t.Run(name, func(t *testing.T) { fencetest.Run(t, trigger(w, nil)) })
	}
}

// writer writes the value of a resource.
type writer func(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error

// harness has resources as rows of a table. edit changes the guard's statements, for mutants.
func harness(table, columns string, setUp func(testing.TB, client), w writer,
	edit func(string) string) fencetest.Harness {
	return fencetest.Harness{NewStore: func(t testing.TB) fencetest.Store {
		pool := connect(t)
		newTable(t, pool, table, columns)
		var db client = pool
		if edit != nil {
			db = edited{pool, edit}
		}
		setUp(t, db)
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				return w(ctx, db, resource, token, value, pause)
			},
			Read: func(ctx context.Context, resource string) (value string, err error) {
				err = pool.QueryRow(ctx, "SELECT coalesce(value, '') FROM "+table+" WHERE id = $1",
					resource).Scan(&value)
				if err == pgx.ErrNoRows {
					err = nil
				}
				return value, err
			},
			Waiting: func(ctx context.Context) (bool, error) {
				n, err := waiting(ctx, pool)
				return n > 0, err
			},
			Crash: func(t testing.TB) { crash(t, pool) },
		}
	}}
}

// crash kills the server, and starts it on what it has left.
func crash(t testing.TB, pool *pgxpool.Pool) {
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	pool.Reset() // its connections are to the server that is gone
}

func column(w writer, edit func(string) string) fencetest.Harness {
	h := harness("accounts", "id text PRIMARY KEY, value text, fence bigint NOT NULL DEFAULT 0",
		func(testing.TB, client) {}, w, edit)
	h.AnyKey = true
	newStore := h.NewStore
	h.NewStore = func(t testing.TB) fencetest.Store {
		store := newStore(t)
		pool := connect(t)
		store.Create = func(ctx context.Context, resource string) error {
			_, err := pool.Exec(ctx, "INSERT INTO accounts (id) VALUES ($1)", resource)
			return err
		}
		return store
	}
	return h
}

func table(w writer, edit func(string) string) fencetest.Harness {
	return harness("things", "id text PRIMARY KEY, value text", func(testing.TB, client) {}, w,
		edit)
}

func trigger(w writer, edit func(string) string) fencetest.Harness {
	h := harness("orders", "id text PRIMARY KEY, value text, fence bigint", createTrigger, w, edit)
	h.AnyKey = true
	return h
}

func createTrigger(t testing.TB, db client) {
	t.Helper()
	statements, err := sqlfence.Trigger{Dialect: sqlfence.Postgres, Table: "orders"}.Statements()
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, statements...)
}

// inTx puts the caller's own transaction around what it guards.
func inTx(ctx context.Context, db client, pause func(), write func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if err := write(tx); err != nil {
		return err
	}
	if pause != nil {
		pause()
	}
	return tx.Commit(ctx)
}

// columnWrite writes without a transaction, unless it has to pause in one.
func columnWrite(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	update := func(db pgxfence.Queryer) error {
		return pgxfence.Column{Table: "accounts"}.Update(ctx, db, resource, token, "value = $1",
			value)
	}
	if pause == nil {
		return update(db)
	}
	return inTx(ctx, db, pause, func(tx pgx.Tx) error { return update(tx) })
}

// upsert bypasses every guard, except for triggers.
func upsert(table string) string {
	return "INSERT INTO " + table +
		" (id, value) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET value = excluded.value"
}

func tableWrite(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	return pgxfence.Table{}.Do(ctx, db, resource, token, func(tx pgx.Tx) error {
		if pause != nil {
			pause()
		}
		_, err := tx.Exec(ctx, upsert("things"), resource, value)
		return err
	})
}

// tableBatch sends a batch by itself, unless it has to pause in a transaction.
func tableBatch(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	batch := &pgx.Batch{}
	batch.Queue(upsert("things"), resource, value)
	if pause == nil {
		return pgxfence.Table{}.SendBatch(ctx, db, resource, token, batch)
	}
	return inTx(ctx, db, pause, func(tx pgx.Tx) error {
		return pgxfence.Table{}.SendBatch(ctx, tx, resource, token, batch)
	})
}

func tableAdvance(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	return inTx(ctx, db, nil, func(tx pgx.Tx) error {
		if err := (pgxfence.Table{}).Advance(ctx, tx, resource, token); err != nil {
			return err
		}
		if pause != nil {
			pause()
		}
		_, err := tx.Exec(ctx, upsert("things"), resource, value)
		return err
	})
}

func triggerWrite(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	return pgxfence.Do(ctx, db, token, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, upsert("orders"), resource, value)
		if err == nil && pause != nil {
			pause()
		}
		return err
	})
}

func triggerBatch(ctx context.Context, db client, resource string, token fence.Token, value string,
	pause func()) error {
	batch := &pgx.Batch{}
	batch.Queue(upsert("orders"), resource, value)
	if pause == nil {
		return pgxfence.SendBatch(ctx, db, token, batch)
	}
	return inTx(ctx, db, pause, func(tx pgx.Tx) error {
		return pgxfence.SendBatch(ctx, tx, token, batch)
	})
}
