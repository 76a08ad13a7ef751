// Package sqlguard keeps the newest token of resources in tables of databases. It is not part of
// the command itself, because its drivers would make each start slower.
package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// Store is a guard table.
type Store struct {
	at    backendurl.Database
	table sqlfence.Table
	name  string
	open  func(create bool) (*sql.DB, error)
}

var _ guard.Store = (*Store)(nil)

// defaultTable is the name that sqlfence.Table has by default.
const defaultTable = "holdfast_fence"

// New returns the store at an address. It does not connect yet. patience is how long each operation
// may take; drivers with a timeout of their own get it. New fails with ErrInvalid of package fence
// for parameters that the driver does not take.
func New(at backendurl.Database, patience time.Duration) (*Store, error) {
	s := &Store{at: at, name: at.Table}
	if s.name == "" {
		s.name = defaultTable
	}
	s.table.Name = s.name
	var err error
	switch at.Kind {
	case backendurl.Postgres:
		s.table.Dialect = sqlfence.Postgres
		s.open, err = postgres(&s.at, patience)
	case backendurl.MySQL:
		s.table.Dialect = sqlfence.MySQL
		s.open, err = mySQL(at, patience)
	default:
		s.table.Dialect = sqlfence.SQLite
		s.open = sqlite(at, patience)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fence.ErrInvalid, s.told(err))
	}
	return s, nil
}

// Schema is the statement that Init executes.
func (s *Store) Schema() string { return s.table.Schema() }

// Init creates the table unless it is there, and of SQLite the file.
func (s *Store) Init(ctx context.Context) error {
	return s.use(true, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, s.Schema())
		if err != nil {
			// If several create the table at once, PostgreSQL fails for all but one. If the table
			// is there now, all is well.
			if _, failure := s.newest(ctx, db, defaultTable); failure == nil {
				return nil
			}
		}
		return err
	})
}

// Advance implements guard.Store.
func (s *Store) Advance(ctx context.Context, resource string, token fence.Token) error {
	return s.use(false, func(db *sql.DB) error {
		return s.table.Do(ctx, db, resource, token, func(*sql.Tx) error { return nil })
	})
}

// Newest implements guard.Store.
func (s *Store) Newest(ctx context.Context, resource string) (newest fence.Token, err error) {
	err = s.use(false, func(db *sql.DB) error {
		newest, err = s.newest(ctx, db, resource)
		return err
	})
	return newest, err
}

func (s *Store) newest(ctx context.Context, db *sql.DB, resource string) (fence.Token, error) {
	place := "?"
	if s.table.Dialect == sqlfence.Postgres {
		place = "$1"
	}
	var token int64
	err := db.QueryRowContext(ctx, "SELECT token FROM "+s.name+" WHERE resource = "+place,
		resource).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return fence.Token(token), err
}

// Close does nothing: each operation has a connection of its own.
func (s *Store) Close() error { return nil }

// use opens the database for one operation.
func (s *Store) use(create bool, f func(*sql.DB) error) error {
	if s.at.Kind == backendurl.SQLite && !create {
		// Or the driver would say that it is out of memory.
		if _, err := os.Stat(s.at.File); errors.Is(err, fs.ErrNotExist) {
			return guard.ErrMissing
		}
	}
	db, err := s.open(create)
	if err != nil {
		return s.told(err)
	}
	defer db.Close()
	return s.told(f(db))
}

// told is an error of a driver as it may be told.
func (s *Store) told(err error) error {
	if err == nil {
		return nil
	}
	if missing(err) {
		return guard.ErrMissing
	}
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		cause := parse.Unwrap() // without the address
		if cause == nil {
			cause = errors.New("the driver does not take this")
		}
		err = fmt.Errorf("%w: in the address, a PG variable, ~/.postgresql or a service file",
			cause)
	}
	return &discreet{err, s.at}
}

// missing reports whether an error says that there is no such table.
func missing(err error) bool {
	var ofPostgres *pgconn.PgError
	var ofMySQL *mysql.MySQLError
	switch {
	case errors.As(err, &ofPostgres):
		return ofPostgres.Code == "42P01"
	case errors.As(err, &ofMySQL):
		return ofMySQL.Number == 1146
	}
	return noSuchTable(err)
}
