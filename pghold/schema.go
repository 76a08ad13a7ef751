package pghold

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

//go:embed schema.sql
var schema string

// schemaVersion is what holdfast.version() gives.
const schemaVersion = 4

// Schema returns the SQL that makes the schema holdfast with its tables and functions, for an
// operator who makes them by hand, for example with psql. Running it again changes nothing.
func Schema() string { return schema }

// DB is what [Migrate] needs of a database. A *pgxpool.Pool, a *pgxpool.Conn and a *pgx.Conn are
// one. For a *sql.DB there is [SQL].
type DB interface {
	// Exec runs statements; without arguments several, with semicolons between them.
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)

	// QueryRow runs a statement that gives one row.
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

// SQL returns db in the form that [Migrate] takes.
func SQL(db *sql.DB) DB { return sqlMigration{db} }

type sqlMigration struct{ db *sql.DB }

func (m sqlMigration) Exec(ctx context.Context, statement string,
	args ...any) (pgconn.CommandTag, error) {
	_, err := m.db.ExecContext(ctx, statement, args...)
	return pgconn.CommandTag{}, err
}

func (m sqlMigration) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	return m.db.QueryRowContext(ctx, statement, args...)
}

// wholeStatement counts the tables and the functions that are there.
const wholeStatement = `SELECT
	(SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'holdfast'),
	(SELECT count(DISTINCT proname) FROM pg_catalog.pg_proc AS p
		JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'holdfast')`

// objects counts the tables and the functions that the schema has.
func objects() (tables, functions int) {
	return strings.Count(schema, "TABLE IF NOT EXISTS"),
		strings.Count(schema, "CREATE OR REPLACE FUNCTION")
}

// whole reports whether somebody has removed tables or functions.
func whole(ctx context.Context, db DB) (bool, error) {
	var tables, functions int
	err := db.QueryRow(ctx, wholeStatement).Scan(&tables, &functions)
	wantTables, wantFunctions := objects()
	return tables >= wantTables && functions >= wantFunctions, err
}

// Migrate makes what [Schema] describes, in one transaction, unless it is there already. Several
// processes may do so at the same time. The user has to be allowed to create a schema in the
// database. If the schema is there already, any user will do, and if it is of an older version,
// only its owner. ctx bounds the migration. Migrate fails with ErrUnavailable of package driver.
// [ErrRights] is in the error if the user may not do it. Migrate also fails if the schema is of a
// newer version.
func Migrate(ctx context.Context, db DB) error {
	var version int
	err := db.QueryRow(ctx, "SELECT holdfast.version()").Scan(&version)
	switch {
	case err == nil && version == schemaVersion:
		// An operator may have removed a part of it.
		if there, err := whole(ctx, db); err != nil || there {
			return migrateFailed(err)
		}
	case err == nil && version > schemaVersion:
		return fmt.Errorf("pghold: migrate: %w", &driver.Error{Permanent: true, Err: fmt.Errorf(
			"the schema holdfast has version %d, and this program knows %d: use a newer one",
			version, schemaVersion)})
	}
	if err == nil || missing(state(err)) {
		_, err = db.Exec(ctx, schema)
	}
	return migrateFailed(err)
}

// migrateFailed returns the error of Migrate for that of the database, or nil for nil.
func migrateFailed(err error) error {
	switch {
	case err == nil:
		return nil
	case state(err) == "42501":
		return fmt.Errorf("pghold: migrate: %w", &driver.Error{Permanent: true, Err: fmt.Errorf(
			"run the SQL of pghold.Schema as the owner of the schema holdfast, or, if there is none, "+
				"as a user who may create it: %w: %w", ErrRights, err)})
	}
	return fmt.Errorf("pghold: migrate: %w", &driver.Error{Err: err})
}
