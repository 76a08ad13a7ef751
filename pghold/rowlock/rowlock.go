package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
)

// Tx is a transaction: a pgx.Tx, or what [SQL] returns for a *sql.Tx. Outside of a transaction a
// lock would end with its statement.
type Tx interface {
	// QueryRow runs a statement that gives one row.
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

// SQL returns tx in the form that this package takes.
func SQL(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	return t.tx.QueryRowContext(ctx, statement, args...)
}

// ErrNotFound says that there is no row with that ID, or no job that is free.
var ErrNotFound = errors.New("no such row")

// Table is a table whose rows are locked. The names are part of the program: never take them from
// input.
type Table struct {
	_ struct{} // keyed literals only: fields may be added

	// Name is the table's, with its schema if it is needed.
	Name string

	// ID is the column that says which row. It is unique. Default: id.
	ID string
}

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

func (t Table) names() (table, id string, err error) {
	if id = t.ID; id == "" {
		id = "id"
	}
	if !name.MatchString(t.Name) || !name.MatchString(id) {
		return "", "", fmt.Errorf("rowlock: %w: table %q with column %q: write names of "+
			"letters, digits and _", holdfast.ErrInvalid, t.Name, id)
	}
	return t.Name, id, nil
}

// TryRow locks the row for the rest of the transaction, if nobody has it (FOR UPDATE NOWAIT). It
// fails with holdfast.ErrHeld if another transaction has locked or changed the row, and then the
// transaction is aborted. It fails with [ErrNotFound] if there is no such row, with
// holdfast.ErrInvalid for a name that is not allowed, and otherwise with the driver's error. ctx
// bounds the statement.
func (t Table) TryRow(ctx context.Context, tx Tx, id any) error {
	return t.lock(ctx, tx, id, " FOR UPDATE NOWAIT")
}

// Row is TryRow, but waits for another transaction, for wait at most. wait is a millisecond or
// more. The order in which waiters get the row is not defined. When wait has passed, Row fails with
// holdfast.ErrHeld, and the transaction is aborted. In all else it fails as TryRow does.
func (t Table) Row(ctx context.Context, tx Tx, id any, wait time.Duration) error {
	return waiting(ctx, tx, wait, func() error { return t.lock(ctx, tx, id, " FOR UPDATE") })
}

func (t Table) lock(ctx context.Context, tx Tx, id any, how string) error {
	table, column, err := t.names()
	if err != nil {
		return err
	}
	var one int
	err = tx.QueryRow(ctx, "SELECT 1 FROM "+table+" WHERE "+column+" = $1"+how, id).Scan(&one)
	return inWords(err)
}

// Next locks the first row that the condition selects and nobody has locked, and scans its ID into
// id (FOR UPDATE SKIP LOCKED). So several workers take one job each from a table of jobs. condition
// is what follows WHERE. It may end with ORDER BY, and is part of the program. args are for its $1,
// $2 and so on. Next fails with [ErrNotFound] if there is no such row, and then the transaction
// goes on. In all else it fails as TryRow does.
//
//	err := jobs.Next(ctx, tx, &id, "state = $1 ORDER BY created", "new")
func (t Table) Next(ctx context.Context, tx Tx, id any, condition string, args ...any) error {
	table, column, err := t.names()
	if err != nil {
		return err
	}
	return inWords(tx.QueryRow(ctx, "SELECT "+column+" FROM "+table+" WHERE "+condition+
		" LIMIT 1 FOR UPDATE SKIP LOCKED", args...).Scan(id))
}

// TryKey takes the advisory lock with the name for the rest of the transaction, if nobody has it.
// It fails with holdfast.ErrHeld if another transaction has it, and the transaction goes on. The
// lock is on a number of 64 bits that PostgreSQL makes of the name (hashtextextended(key, 0)), so
// in very rare cases two names are one lock. Other programs that take pg_advisory_lock on that
// number exclude it. A transaction that has the lock may take it again. ctx bounds the statement.
func TryKey(ctx context.Context, tx Tx, key string) error {
	var taken bool
	err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0))",
		key).Scan(&taken)
	if err == nil && !taken {
		return fmt.Errorf("rowlock: %q: %w", key, holdfast.ErrHeld)
	}
	return inWords(err)
}

// Key is TryKey, but waits for another transaction, for wait at most. wait is a millisecond or
// more. When it has passed, Key fails with holdfast.ErrHeld, and the transaction is aborted. ctx
// bounds the statements.
func Key(ctx context.Context, tx Tx, key string, wait time.Duration) error {
	return waiting(ctx, tx, wait, func() error {
		var one int
		return inWords(tx.QueryRow(ctx, "SELECT 1 FROM "+
			"pg_advisory_xact_lock(hashtextextended($1::text, 0))", key).Scan(&one))
	})
}

// waiting has the statements of f, and no others, wait for locks for that long.
func waiting(ctx context.Context, tx Tx, wait time.Duration, f func() error) error {
	if wait < time.Millisecond {
		return fmt.Errorf("rowlock: %w: wait %v: must be at least 1ms", holdfast.ErrInvalid, wait)
	}
	const set = "SELECT set_config('lock_timeout', $1::text, true)"
	limit := min(wait.Milliseconds(), math.MaxInt32) // PostgreSQL takes no more, which is 24 days
	var before, now string
	err := tx.QueryRow(ctx, "SELECT current_setting('lock_timeout')").Scan(&before)
	if err == nil {
		err = tx.QueryRow(ctx, set, fmt.Sprintf("%dms", limit)).Scan(&now)
	}
	if err != nil {
		return inWords(err)
	}
	locked := f()
	// This is done after a failure too, because a missing row does not abort the transaction. If
	// the transaction is aborted this fails, and the setting is gone with the transaction.
	err = tx.QueryRow(ctx, set, before).Scan(&now)
	if locked != nil {
		return locked
	}
	return inWords(err)
}

// inWords turns what a driver says into an error of this package.
func inWords(err error) error {
	var told interface{ SQLState() string }
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("rowlock: %w", ErrNotFound)
	case errors.As(err, &told) && told.SQLState() == "55P03": // lock_not_available
		return fmt.Errorf("rowlock: %w: %w", holdfast.ErrHeld, err)
	}
	return fmt.Errorf("rowlock: %w", err)
}
