package pgxfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
)

// things returns a pool, and a table of things that was written with token 5.
func things(t *testing.T) client {
	t.Helper()
	pool := connect(t)
	newTable(t, pool, "things", "id text PRIMARY KEY, value text")
	if err := (pgxfence.Table{}).SendBatch(t.Context(), pool, "r", 5, nil); err != nil {
		t.Fatal(err)
	}
	return pool
}

const allThings = "SELECT coalesce(string_agg(id || '=' || value, ' ' ORDER BY id), '') FROM things"

// TestTableRollsBackWhatItRefuses sees that a caller that overlooks the error writes nothing.
func TestTableRollsBackWhatItRefuses(t *testing.T) {
	batch := func() *pgx.Batch {
		b := &pgx.Batch{}
		b.Queue(upsert("things"), "batch", "x")
		return b
	}
	var guard pgxfence.Table
	for how, advance := range map[string]func(context.Context, pgx.Tx, string, fence.Token) error{
		"Advance": guard.Advance,
		"SendBatch": func(ctx context.Context, tx pgx.Tx, resource string,
			token fence.Token) error {
			return guard.SendBatch(ctx, tx, resource, token, batch())
		},
	} {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, c := range map[string]struct {
			ctx      context.Context
			resource string
			token    fence.Token
			want     error
		}{"stale": {t.Context(), "r", 4, fence.ErrStale},
			"invalid": {t.Context(), "r", 0, fence.ErrInvalid},
			"no name": {t.Context(), "", 5, fence.ErrInvalid},
			"ended":   {ended, "r", 5, context.Canceled}} {
			t.Run(how+"/"+name, func(t *testing.T) {
				db := things(t)
				tx, err := db.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				run(t, tx, "INSERT INTO things VALUES ('before', 'x')")
				if err := advance(c.ctx, tx, c.resource, c.token); !errors.Is(err, c.want) {
					t.Errorf("the error is %v; want %v", err, c.want)
				}
				if _, err := tx.Exec(t.Context(), upsert("things"), "after", "x"); !errors.Is(err,
					pgx.ErrTxClosed) {
					t.Errorf("a statement after the refusal = %v; want ErrTxClosed", err)
				}
				if err := tx.Commit(t.Context()); err == nil {
					t.Error("the transaction is committed")
				}
				if written := value(t, db, allThings); written != "" {
					t.Errorf("%s was written", written)
				}
			})
		}
	}
}

// TestTableForgetsATokenThatWasRolledBack sees that a token counts only with its write.
func TestTableForgetsATokenThatWasRolledBack(t *testing.T) {
	db := things(t)
	broken := errors.New("broken")
	var guard pgxfence.Table
	if err := guard.Do(t.Context(), db, "r", 9, func(pgx.Tx) error {
		return broken
	}); err != broken {
		t.Errorf("Do = %v; want the error of write", err)
	}
	failing := &pgx.Batch{}
	failing.Queue(upsert("things"), "a", "x")
	failing.Queue("SELECT 1/0")
	if err := guard.SendBatch(t.Context(), db, "r", 9, failing); err == nil ||
		errors.Is(err, fence.ErrUnknown) {
		t.Errorf("SendBatch = %v; want the error of the statement", err)
	}
	if written := value(t, db, allThings); written != "" {
		t.Errorf("%s was written by a batch that failed", written)
	}
	if err := guard.Guard(db).Do(t.Context(), "r", 6, func(ctx context.Context) error {
		_, err := pgxfence.Tx(ctx).Exec(ctx, upsert("things"), "a", "6")
		return err
	}); err != nil {
		t.Errorf("Do with a smaller token = %v", err)
	}
	if written := value(t, db, allThings); written != "a=6" {
		t.Errorf("%q was written; want a=6", written)
	}
}

// TestAdvanceInANestedTransaction shows what the documentation says: only the savepoint is rolled
// back, and a token counts as long as its savepoint does.
func TestAdvanceInANestedTransaction(t *testing.T) {
	db := things(t)
	var guard pgxfence.Table
	outer, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Rollback(t.Context())
	run(t, outer, "INSERT INTO things VALUES ('outer', 'x')")
	for token, want := range map[fence.Token]error{4: fence.ErrStale, 6: nil} {
		nested, err := outer.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := guard.Advance(t.Context(), nested, "r", token); !errors.Is(err, want) {
			t.Errorf("Advance with token %d = %v; want %v", token, err, want)
		}
		_, err = nested.Exec(t.Context(), upsert("things"), "nested", token.String())
		if (err == nil) != (want == nil) {
			t.Errorf("a statement behind Advance with token %d = %v", token, err)
		}
		nested.Commit(t.Context())
	}
	if err := outer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if outer, err = db.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := guard.Do(t.Context(), outer, "r", 9, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), upsert("things"), "nested", "9")
		return err
	}); err != nil {
		t.Errorf("Do in a transaction = %v", err)
	}
	if err := outer.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := guard.SendBatch(t.Context(), db, "r", 7, nil); err != nil {
		t.Errorf("token 7 after 9 was rolled back by the outer transaction = %v", err)
	}
	if written := value(t, db, allThings); written != "nested=6 outer=x" {
		t.Errorf("%q was written", written)
	}
}

// TestRefusedInASnapshot sees that a transaction that began before a larger token came fails as
// stale, or with PostgreSQL's error, and writes nothing.
func TestRefusedInASnapshot(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value text, fence bigint")
	run(t, pool, "INSERT INTO accounts VALUES (1, 'a', NULL)")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		value(t, tx, "SELECT count(*)::text FROM accounts") // the snapshot
		accounts := pgxfence.Column{Table: "accounts"}
		if err := accounts.Update(t.Context(), pool, 1, 9, "value = 'newer'"); err != nil {
			t.Fatal(err)
		}
		err = accounts.Update(t.Context(), tx, 1, 8, "value = 'older'")
		if !errors.Is(err, fence.ErrStale) && (err == nil ||
			!strings.Contains(err.Error(), "SQLSTATE 40001")) {
			t.Errorf("%s: Update = %v; want ErrStale or 40001", level, err)
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Errorf("%s: the transaction is committed", level)
		}
	}
}
