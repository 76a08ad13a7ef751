package pgxfence_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestArgumentsOfUpdate has the ways in which pgx takes arguments, and arguments of pgx that would
// change the meaning of the guard's own.
func TestArgumentsOfUpdate(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value text, fence bigint, version bigint")
	run(t, pool, "INSERT INTO accounts VALUES (1, '', NULL, 0)")
	accounts := pgxfence.Column{Table: "accounts"}
	version := int64(0)
	for _, c := range []struct {
		set  string
		args []any
		want string
	}{
		{"", nil, ""},
		{"value = 'a' -- set", nil, "a"},
		{"value = $1 || $2", []any{"b", "c"}, "bc"},
		{"value = @x || @y || @x", []any{pgx.NamedArgs{"x": "d", "y": "e"}}, "ded"},
		{"value = @x", []any{pgx.StrictNamedArgs{"x": "f"}}, "f"},
	} {
		for what, err := range map[string]error{
			"Column": accounts.Update(t.Context(), pool, 1, 5, c.set, c.args...),
			"Versioned": pgxfence.Versioned{Table: "accounts"}.Update(t.Context(), pool, 1, version,
				c.set, c.args...),
		} {
			if err != nil {
				t.Errorf("%s.Update with %q: %v", what, c.set, err)
			}
		}
		version++
		if got := value(t, pool, "SELECT value FROM accounts"); got != c.want {
			t.Errorf("%q has written %q; want %q", c.set, got, c.want)
		}
	}
	for _, first := range []any{pgx.QueryExecModeExec, pgx.QueryResultFormats{1},
		pgx.QueryResultFormatsByOID{1: 1}, pgx.StrictNamedArgs{"y": 1}} {
		err := accounts.Update(t.Context(), pool, 1, 6, "value = 'x'", first, "y")
		checkKind(t, "an option", err, fence.ErrInvalid)
	}
	if got := value(t, pool, "SELECT value || fence FROM accounts"); got != "f5" {
		t.Errorf("the row is %s; want f5", got)
	}
}

// TestColumnEndsATransaction sees that after a refusal nothing more is written in the transaction.
func TestColumnEndsATransaction(t *testing.T) {
	pool := connect(t)
	newTable(t, pool, "accounts", "id int PRIMARY KEY, value text, fence bigint")
	run(t, pool, "INSERT INTO accounts VALUES (1, 'a', 6), (2, 'a', NULL)")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	err = pgxfence.Column{Table: "accounts"}.Update(t.Context(), tx, 1, 5, "value = 'b'")
	checkKind(t, "Update", err, fence.ErrStale)
	if _, err := tx.Exec(t.Context(), "UPDATE accounts SET value = 'c' WHERE id = 2"); err == nil {
		t.Error("a statement after the refusal is executed")
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("Commit = %v; want ErrTxCommitRollback", err)
	}
}

// TestBesideDatabaseSQL: programs with pgx and with database/sql guard the same rows. Each refuses
// a holder that was overtaken by one of the other.
func TestBesideDatabaseSQL(t *testing.T) {
	pool := connect(t)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	newTable(t, pool, "orders", "id int PRIMARY KEY, fence bigint, version bigint")
	run(t, pool, "INSERT INTO orders VALUES (1, NULL, 3)")
	ctx := t.Context()
	const dialect = sqlfence.Postgres
	theirs := map[string]func(fence.Token) error{
		"column": func(token fence.Token) error {
			return sqlfence.Column{Dialect: dialect, Table: "orders"}.Update(ctx, db, 1, token, "")
		},
		"table": func(token fence.Token) error {
			return sqlfence.Table{Dialect: dialect}.Do(ctx, db, "r", token,
				func(*sql.Tx) error { return nil })
		},
		"trigger": func(token fence.Token) error {
			return dialect.Do(ctx, db, token, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE orders SET id = 1")
				return err
			})
		},
	}
	ours := map[string]func(fence.Token) error{
		"column": func(token fence.Token) error {
			return pgxfence.Column{Table: "orders"}.Update(ctx, pool, 1, token, "")
		},
		"table": func(token fence.Token) error {
			return pgxfence.Table{}.SendBatch(ctx, pool, "r", token, nil)
		},
		"trigger": func(token fence.Token) error {
			return pgxfence.Do(ctx, pool, token, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE orders SET id = 1")
				return err
			})
		},
	}
	for _, form := range []string{"column", "table", "trigger"} {
		if form == "trigger" {
			run(t, pool, "UPDATE orders SET fence = NULL")
			createTrigger(t, pool)
		}
		for _, step := range []struct {
			write func(fence.Token) error
			token fence.Token
			want  error
		}{{ours[form], 5, nil}, {theirs[form], 4, fence.ErrStale}, {theirs[form], 6, nil},
			{ours[form], 5, fence.ErrStale}, {ours[form], 6, nil}} {
			var stale *fence.StaleError
			err := step.write(step.token)
			if !errors.Is(err, step.want) {
				t.Errorf("%s: token %d = %v; want %v", form, step.token, err, step.want)
			} else if errors.As(err, &stale) && stale.Newest != step.token+1 {
				t.Errorf("%s: %v; want it to name %d", form, err, step.token+1)
			}
		}
	}
}

// TestTokenStaysInItsTransaction sees that the next user of a connection does not have the token of
// the user before, however its transaction ended.
func TestTokenStaysInItsTransaction(t *testing.T) {
	if how := leaks(t, nil); how != "" {
		t.Errorf("the token is left behind after %s", how)
	}
	if leaks(t, replace("$1, true)", "$1, false)")) == "" {
		t.Error("a token that is left behind is not noticed")
	}
}

// leaks says after which way to end a transaction a write without a token is accepted.
func leaks(t *testing.T, edit func(string) string) (how string) {
	pool := connect(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	newTable(t, pool, "orders", "id text PRIMARY KEY, value text, fence bigint")
	createTrigger(t, pool)
	var db client = pool
	if edit != nil {
		db = edited{pool, edit}
	}
	insert := "INSERT INTO orders (id) VALUES ('a')"
	batch := &pgx.Batch{}
	batch.Queue(insert)
	stale := &pgx.Batch{}
	stale.Queue("UPDATE orders SET value = 'x'")
	broken := errors.New("broken")
	for _, end := range []struct {
		name string
		run  func() error
		want error
	}{
		{"a batch", func() error { return pgxfence.SendBatch(t.Context(), db, 5, batch) }, nil},
		{"a refused batch", func() error {
			return pgxfence.SendBatch(t.Context(), db, 4, stale)
		}, fence.ErrStale},
		{"a commit", func() error {
			return pgxfence.Do(t.Context(), db, 5, func(pgx.Tx) error { return nil })
		}, nil},
		{"an error", func() error {
			return pgxfence.Do(t.Context(), db, 5, func(pgx.Tx) error { return broken })
		}, broken},
	} {
		if err := end.run(); !errors.Is(err, end.want) {
			t.Fatalf("%s: %v", end.name, err)
		}
		_, err := pool.Exec(t.Context(), "UPDATE orders SET value = 'x'")
		if err == nil {
			return end.name
		} else if !strings.Contains(err.Error(), "no token") {
			t.Fatalf("write without a token after %s: %v", end.name, err)
		}
	}
	return ""
}
