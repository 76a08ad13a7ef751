package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/ending"
)

// Queryer runs statements. It is a *sql.DB, *sql.Tx or *sql.Conn, or a wrapper of one.
type Queryer interface {
	// ExecContext is that of database/sql.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)

	// QueryRowContext is that of database/sql.
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Column guards each row of a table by a column of the row, which keeps the newest token.
//
//	ALTER TABLE accounts ADD COLUMN fence bigint NOT NULL DEFAULT 0
//
// A row with NULL there counts as not written yet.
type Column struct {
	_ struct{} // keyed literals only: fields will be added

	// Dialect is the database's. Required.
	Dialect Dialect

	// Table is the table. Required.
	Table string

	// Key is the column that identifies a row, its primary key. Default "id".
	Key string

	// Fence is the column with the token, a 64-bit integer. Default "fence".
	Fence string
}

// Update changes the row with the given key as the holder of token, in one statement:
//
//	UPDATE table SET set, fence = token WHERE key = key AND fence <= token
//
// set is what stands after SET, with placeholders for args as the driver has them ($1 and so on, or
// ?). It may be empty. db is a pool or a transaction of the caller's. In a transaction the caller
// decides whether the update stays.
//
// Update has written nothing if it fails with [*fence.StaleError] because the row has a larger
// token, with [fence.ErrNotFound] because there is no such row, with [fence.ErrInvalid] for a name
// or a token, or with [fence.ErrUnavailable]. Outside of a transaction it fails with
// [fence.ErrUnknown] if the answer did not come, also because the context ended. Then the row may
// be written, perhaps later, unless somebody with a larger token comes first. On MariaDB it also
// fails with ErrUnknown for an update that leaves the row as it was, if the table has triggers and
// the driver does not count found rows (clientFoundRows). On PostgreSQL, if a trigger keeps the row
// as it is, as suppress_redundant_updates_trigger does, Update fails with ErrNotFound.
func (c Column) Update(ctx context.Context, db Queryer, key any, token fence.Token, set string,
	args ...any) error {
	c.Key, c.Fence = orDefault(c.Key, "id"), orDefault(c.Fence, "fence")
	resource := fmt.Sprintf("%s.%s=%v", c.Table, c.Key, key)
	if err := errors.Join(c.Dialect.validate(), validateNames(c.Table, c.Key, c.Fence),
		fence.ValidateToken(resource, token)); err != nil {
		return err
	}
	if err := ending.Of(ctx); err != nil {
		return failed(resource, err)
	}
	return onConn(ctx, db, resource, func(db Queryer) error {
		return c.write(ctx, db, resource, key, token, set, args)
	})
}

func (c Column) write(ctx context.Context, db Queryer, resource string, key any, token fence.Token,
	set string, args []any) error {
	query, args := c.update(set, args, key, token)
	result, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return execFailed(ctx, c.Dialect, db, resource, err)
	}
	matched, err := c.matched(result, token)
	if err != nil {
		return failed(resource, err)
	}
	if matched {
		return nil
	}
	return c.refusal(ctx, db, resource, key, token)
}

func (c Column) update(set string, args []any, key any, token fence.Token) (string, []any) {
	d, n, t := c.Dialect, len(args), int64(token)
	if strings.TrimSpace(set) != "" {
		set += "\n, " // a new line, as set may end in a comment
	}
	switch d {
	case Postgres:
		return fmt.Sprintf(
			"UPDATE %s SET %s%s = %s WHERE %s = %s AND (%[3]s IS NULL OR %[3]s <= %[4]s)",
			c.Table, set, c.Fence, d.number(n+1), c.Key, d.place(n+2)), append(args[:n:n], t, key)
	case MySQL:
		// What LAST_INSERT_ID is given comes back with the answer if a row was found, even if the
		// update left it as it was. Whether the number of affected rows tells that depends on how
		// the driver is set up.
		return fmt.Sprintf(
			"UPDATE %s SET %s%s = LAST_INSERT_ID(?) WHERE %s = ? AND (%[3]s IS NULL OR %[3]s <= ?)",
			c.Table, set, c.Fence, c.Key), append(args[:n:n], t, key, t)
	default:
		// In a column of texts SQLite would compare texts.
		return fmt.Sprintf(
			"UPDATE %s SET %s%s = ? WHERE %s = ? AND (%[3]s IS NULL OR CAST(%[3]s AS INTEGER) <= ?)",
			c.Table, set, c.Fence, c.Key), append(args[:n:n], t, key, t)
	}
}

func (c Column) matched(result sql.Result, token fence.Token) (bool, error) {
	if c.Dialect == MySQL {
		if id, err := result.LastInsertId(); err != nil || id == int64(token) {
			return true, err
		}
		// Triggers of the table take LAST_INSERT_ID away. But if rows count as affected, a row was
		// found, whichever way the driver counts.
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// refusal says why an update has found no row.
func (c Column) refusal(ctx context.Context, db Queryer, resource string, key any,
	token fence.Token) error {
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s", c.Fence, c.Table, c.Key,
		c.Dialect.place(1))
	if c.Dialect == MySQL {
		query += " LOCK IN SHARE MODE" // or a transaction would read what there was when it began
	}
	var newest sql.NullInt64
	err := db.QueryRowContext(ctx, query, key).Scan(&newest)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("fence: write to %q: %w", resource, fence.ErrNotFound)
	case err != nil:
		return fmt.Errorf("fence: write to %q refused, and why could not be read: %w",
			resource, err)
	case newest.Int64 > int64(token):
		return &fence.StaleError{Resource: resource, Token: token,
			Newest: fence.Token(newest.Int64)}
	case c.Dialect == MySQL && newest.Int64 == int64(token):
		return unknown(resource,
			errors.New(
				"the row has the token, and a trigger of the table hides whether it had it before; the driver's clientFoundRows tells"))
	}
	return fmt.Errorf("fence: write to %q: %w when it was written; somebody has inserted it since",
		resource, fence.ErrNotFound)
}
