package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
)

// Table guards resources of any kind by a table of its own, which keeps the newest token of each.
// Its rows must never be deleted.
type Table struct {
	_ struct{} // keyed literals only: fields will be added

	// Dialect is the database's. Required.
	Dialect Dialect

	// Name is the name of the guard table. Default "holdfast_fence".
	Name string
}

func (t Table) name() string { return orDefault(t.Name, "holdfast_fence") }

// Schema returns the statement that creates the guard table unless it is there. Run it with the
// other migrations.
func (t Table) Schema() string {
	switch t.Dialect {
	case MySQL:
		// The resource is kept as bytes, because texts that differ in case, accents or spaces at
		// the end compare as equal. The engine is InnoDB, because others have no transactions.
		return fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (\n\tresource varbinary(%d) NOT NULL PRIMARY KEY,\n\ttoken bigint NOT NULL\n) ENGINE = InnoDB",
			t.name(), fence.MaxResourceLen)
	case Postgres:
		return fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (\n\tresource text COLLATE \"C\" PRIMARY KEY,\n\ttoken bigint NOT NULL\n)",
			t.name())
	default:
		return fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s (\n\tresource text NOT NULL PRIMARY KEY,\n\ttoken integer NOT NULL\n)",
			t.name())
	}
}

// Advance accepts the token for the resource, as the first statement of the caller's transaction.
// The resource's row stays locked until the transaction ends, so of two holders the second waits,
// and then the older one is refused. The writes that follow in the transaction are guarded.
//
// When Advance fails, for whatever reason, it has rolled the transaction back, so a caller that
// overlooks the error writes nothing. It fails with [*fence.StaleError] when a larger token was
// accepted, with [fence.ErrInvalid] as [fence.Validate] does, and with [fence.ErrUnavailable]. If
// the transaction is rolled back later, the token was not accepted. The context bounds the
// statement.
//
// Roll back when a statement fails, and write nothing more. Some errors end the transaction: in
// MySQL a deadlock, in SQLite for example INSERT OR ROLLBACK, a full disk, or an interrupted
// statement. What follows is then written without the guard. So is what follows a statement that
// MySQL commits by itself, such as CREATE TABLE.
func (t Table) Advance(ctx context.Context, tx *sql.Tx, resource string, token fence.Token) error {
	err := errors.Join(t.Dialect.validate(), validateNames(t.name()),
		fence.Validate(resource, token))
	if err == nil {
		err = t.advance(ctx, tx, resource, token)
	}
	if err != nil {
		tx.Rollback()
	}
	return err
}

func (t Table) advance(ctx context.Context, tx *sql.Tx, resource string, token fence.Token) error {
	newest, err := t.raise(ctx, tx, resource, int64(token))
	if err != nil {
		return outcome(ctx, resource, false, err)
	}
	if newest != int64(token) {
		return &fence.StaleError{Resource: resource, Token: token, Newest: fence.Token(newest)}
	}
	return nil
}

// raise stores the token unless a larger one is there. It returns the token that is there then.
func (t Table) raise(ctx context.Context, tx *sql.Tx, resource string,
	token int64) (newest int64, err error) {
	if t.Dialect == MySQL {
		// The number of affected rows tells nothing here. What LAST_INSERT_ID was given last comes
		// back with the answer.
		result, err := tx.ExecContext(ctx,
			fmt.Sprintf("INSERT INTO %s (resource, token) VALUES (?, LAST_INSERT_ID(?)) "+
				"ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, ?))", t.name()),
			resource, token, token)
		if err != nil {
			return 0, err
		}
		return result.LastInsertId()
	}
	result, err := tx.ExecContext(ctx,
		fmt.Sprintf("INSERT INTO %s AS stored (resource, token) VALUES (%s, %s) "+
			"ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE stored.token <= excluded.token",
			t.name(), t.Dialect.place(1), t.Dialect.number(2)), resource, token)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return token, err
	}
	err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT token FROM %s WHERE resource = %s", t.name(),
		t.Dialect.place(1)), resource).Scan(&newest)
	return newest, err
}

// Do runs write in a transaction that begins with [Table.Advance], and commits it. If write fails
// or the context ends, Do rolls back: nothing was written, and the token was not accepted. Do fails
// as Advance does, and with the error of write. It fails with [fence.ErrUnknown] if the database
// did not tell whether it has committed, and if write has ended the transaction itself.
//
// write has to return the error of a statement that fails. If write goes on although the error has
// ended the transaction, Do fails with ErrUnknown. On MySQL nothing of what follows is written
// then, and the same is so after a statement that MySQL commits by itself, such as CREATE TABLE. On
// SQLite what follows is written without the guard. [Table.Advance] says which errors end a
// transaction.
func (t Table) Do(ctx context.Context, db *sql.DB, resource string, token fence.Token,
	write func(*sql.Tx) error) error {
	// Before a connection is taken.
	if err := errors.Join(t.Dialect.validate(), validateNames(t.name()),
		fence.Validate(resource, token)); err != nil {
		return err
	}
	return transact(ctx, t.Dialect, db, resource, func(tx *sql.Tx) error {
		if err := t.Advance(ctx, tx, resource, token); err != nil {
			return err
		}
		return write(tx)
	})
}

// Guard returns the table as a [fence.Guard], for code that works with any store. Its Do is that of
// the table, and write finds the transaction with [Tx].
func (t Table) Guard(db *sql.DB) fence.Guard { return tableGuard{t, db} }

type tableGuard struct {
	table Table
	db    *sql.DB
}

func (g tableGuard) Do(ctx context.Context, resource string, token fence.Token,
	write func(context.Context) error) error {
	return g.table.Do(ctx, g.db, resource, token, func(tx *sql.Tx) error {
		return write(context.WithValue(ctx, txKey{}, tx))
	})
}

type txKey struct{}

// Tx returns the transaction in which the guard of [Table.Guard] runs the write with this context,
// or nil. It ends with the write; do not commit it.
func Tx(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(txKey{}).(*sql.Tx)
	return tx
}
