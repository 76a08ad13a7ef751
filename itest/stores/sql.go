package stores

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// counters are rows of a database: those of one table are guarded, those of another one are not.
// The tables' names begin with that of the form, because several forms may share the database.
type counters struct {
	db      *sql.DB
	dialect sqlfence.Dialect
	name    string
}

// form is one form of package sqlfence.
type form struct {
	name   string
	create func(c counters) (statements []string, err error) // besides the counters
	enter  func(ctx context.Context, c counters, key string, token fence.Token) (uint64, error)
	write  func(ctx context.Context, c counters, key string, token fence.Token, value uint64) error
}

// sqlStore is a form on a database.
type sqlStore struct {
	counters
	form form
}

func onPostgres(f form) func(job.Stores) (Store, error) {
	return func(at job.Stores) (Store, error) {
		return openSQL("pgx", at.Postgres, sqlfence.Postgres, f)
	}
}

func onMariaDB(f form) func(job.Stores) (Store, error) {
	return func(at job.Stores) (Store, error) {
		return openSQL("mysql", at.MariaDB, sqlfence.MySQL, f)
	}
}

// onSQLite has a file for each form: SQLite has one writer for each file.
func onSQLite(f form) func(job.Stores) (Store, error) {
	return func(at job.Stores) (Store, error) {
		// The name is a URL, in which a path may not have every letter. A writer waits for another
		// one for a minute: the machine may be busy.
		name := url.URL{Scheme: "file", Path: filepath.Join(at.Dir, f.name+".sqlite"),
			RawQuery: "_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)" +
				"&_pragma=synchronous(OFF)"}
		return openSQL("sqlite", name.String(), sqlfence.SQLite, f)
	}
}

func openSQL(driver, source string, dialect sqlfence.Dialect, f form) (Store, error) {
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // there are many processes
	return sqlStore{counters{db, dialect, f.name}, f}, nil
}

func (s sqlStore) Create(ctx context.Context, keys []string) error {
	if err := s.counters.create(ctx, keys); err != nil {
		return err
	}
	statements, err := s.form.create(s.counters)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (s sqlStore) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	return s.form.enter(ctx, s.counters, key, token)
}

func (s sqlStore) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	return s.form.write(ctx, s.counters, key, token, value)
}

func (s sqlStore) Close() error { return s.db.Close() }

// create makes the tables with their rows. A table has the column of a guard whether it is used or
// not.
func (c counters) create(ctx context.Context, keys []string) error {
	for _, table := range []string{c.guarded(), c.twins()} {
		if _, err := c.db.ExecContext(ctx, "CREATE TABLE "+table+
			" (id varchar(100) NOT NULL PRIMARY KEY, value bigint, fence bigint)"); err != nil {
			return err
		}
		for _, key := range keys {
			if _, err := c.db.ExecContext(ctx, fmt.Sprintf(
				"INSERT INTO %s (id, value) VALUES (%s, 0)", table, c.place(1)), key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c counters) guarded() string { return c.name + "_guarded" }
func (c counters) twins() string   { return c.name + "_twins" }

// place is the nth placeholder.
func (c counters) place(n int) string {
	if c.dialect == sqlfence.Postgres {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

// Get reads a guarded counter, bypassing its guard.
func (c counters) Get(ctx context.Context, key string) (uint64, error) {
	return c.value(ctx, c.db, c.guarded(), key)
}

// Twin reads a twin.
func (c counters) Twin(ctx context.Context, key string) (uint64, error) {
	return c.value(ctx, c.db, c.twins(), key)
}

// SetTwin sets a twin.
func (c counters) SetTwin(ctx context.Context, key string, value uint64) error {
	return c.set(ctx, c.db, c.twins(), key, value)
}

func (c counters) value(ctx context.Context, db sqlfence.Queryer, table,
	key string) (value uint64, err error) {
	return value, db.QueryRowContext(ctx, "SELECT value FROM "+table+" WHERE id = "+c.place(1),
		key).Scan(&value)
}

func (c counters) set(ctx context.Context, db sqlfence.Queryer, table, key string,
	value uint64) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET value = %s WHERE id = %s", table,
		c.place(1), c.place(2)), int64(value), key)
	return err
}

// touch writes the row as it is.
func (c counters) touch(ctx context.Context, db sqlfence.Queryer, key string) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET value = value WHERE id = %s",
		c.guarded(), c.place(1)), key)
	return err
}
