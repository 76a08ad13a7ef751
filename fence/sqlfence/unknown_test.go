package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// coded is the error of a database or of a proxy in front of it.
type coded struct{ state, text string }

func (c coded) Error() string    { return c.text }
func (c coded) SQLState() string { return c.state }

// answering is a database that answers a statement with an error.
type answering struct{ answer func() error }

func (a answering) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, a.answer()
}
func (a answering) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

// TestCodesThatSayUnknown has errors whose codes say that the outcome of the statement is unknown,
// and others.
func TestCodesThatSayUnknown(t *testing.T) {
	for _, c := range []struct {
		dialect sqlfence.Dialect
		err     error
		unknown bool
	}{
		{sqlfence.Postgres,
			coded{"08007", "ERROR: transaction resolution unknown (SQLSTATE 08007)"}, true},
		// CockroachDB
		{sqlfence.Postgres, coded{"40003", "ERROR: result is ambiguous (SQLSTATE 40003)"}, true},
		// PgBouncer, when the server goes away under a statement
		{sqlfence.Postgres, coded{"08P01", "FATAL: server conn crashed? (SQLSTATE 08P01)"}, true},
		// other poolers
		{sqlfence.Postgres, coded{"08006", "ERROR: connection failure (SQLSTATE 08006)"}, true},
		{sqlfence.Postgres, coded{"08001", "FATAL: cannot connect (SQLSTATE 08001)"}, false},
		{sqlfence.Postgres, coded{"40001", "ERROR: could not serialize access (SQLSTATE 40001)"},
			false},
		// ProxySQL
		{sqlfence.MySQL, errors.New("Error 2013 (HY000): Lost connection to server during query"),
			true},
		{sqlfence.MySQL,
			errors.New("Error 1160 (08S01): Got an error writing communication packets"), true},
		{sqlfence.MySQL, errors.New("Error 1213 (40001): Deadlock found"), false},
	} {
		err := sqlfence.Column{Dialect: c.dialect, Table: "accounts"}.Update(t.Context(),
			answering{func() error {
				return c.err
			}}, 1, 5, "")
		if !errors.Is(err, c.err) || errors.Is(err, fence.ErrUnknown) != c.unknown {
			t.Errorf("Update = %v; want ErrUnknown: %v", err, c.unknown)
		}
	}
}

// TestSQLiteInterrupted: the context ends while a statement runs. A driver answers with the
// context's error even if the statement has ended already.
func TestSQLiteInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := sqlfence.Column{Dialect: sqlfence.SQLite, Table: "accounts"}.Update(ctx,
		answering{func() error {
			cancel()
			return ctx.Err()
		}}, 1, 5, "")
	if !errors.Is(err, fence.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("Update = %v; want ErrUnknown and the context's error", err)
	}
}
