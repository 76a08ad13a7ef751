package sqltest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
)

// edited returns a pool to the same database that changes statements by edit on their way. So the
// guard's own code runs with a statement that is broken on purpose. Without edit it is the pool
// itself.
func edited(t testing.TB, db *sql.DB, edit func(string) string) *sql.DB {
	if edit == nil {
		return db
	}
	return pool(t, sql.OpenDB(editingConnector{db, edit}), nil)
}

// editingConnector takes its connections from a pool.
type editingConnector struct {
	from *sql.DB
	edit func(string) string
}

func (c editingConnector) Driver() driver.Driver { return nil }

func (c editingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.from.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &editingConn{conn: conn, edit: c.edit}, nil
}

// editingConn does everything on the pool's connection.
type editingConn struct {
	conn *sql.Conn
	edit func(string) string
	tx   *sql.Tx
}

func (c *editingConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *editingConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *editingConn) Close() error                        { return c.conn.Close() }

func (c *editingConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	tx, err := c.conn.BeginTx(ctx, nil)
	c.tx = tx
	return editingTx{c}, err
}

func (c *editingConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	if c.tx != nil {
		return c.tx.ExecContext(ctx, c.edit(query), values(args)...)
	}
	return c.conn.ExecContext(ctx, c.edit(query), values(args)...)
}

func (c *editingConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	var rows *sql.Rows
	var err error
	if c.tx != nil {
		rows, err = c.tx.QueryContext(ctx, c.edit(query), values(args)...)
	} else {
		rows, err = c.conn.QueryContext(ctx, c.edit(query), values(args)...)
	}
	if err != nil {
		return nil, err
	}
	return editingRows{rows}, nil
}

func values(args []driver.NamedValue) (all []any) {
	for _, a := range args {
		all = append(all, a.Value)
	}
	return all
}

type editingTx struct{ c *editingConn }

func (t editingTx) Commit() error {
	tx := t.c.tx
	t.c.tx = nil
	return tx.Commit()
}

func (t editingTx) Rollback() error {
	tx := t.c.tx
	t.c.tx = nil
	return tx.Rollback()
}

// editingRows has rows of one column.
type editingRows struct{ rows *sql.Rows }

func (r editingRows) Columns() []string { names, _ := r.rows.Columns(); return names }
func (r editingRows) Close() error      { return r.rows.Close() }

func (r editingRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	var v any
	err := r.rows.Scan(&v)
	dest[0] = v
	return err
}
