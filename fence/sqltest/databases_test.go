package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testserver/mariadbtest"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
)

// database is one way to reach one kind of database.
type database struct {
	name       string
	dialect    sqlfence.Dialect
	parameters string // of the driver's address
	address    func() (string, error)
	open       func(t testing.TB, parameters string) *sql.DB
	crash      func() error
	waiting    string // counts transactions that wait for a lock
}

// server is what the kinds of servers have in common.
type server interface {
	Run() error
	Kill()
	Remove() error
	Log() string
}

var started []server

func TestMain(m *testing.M) {
	code := m.Run()
	writeTable(os.Stdout, pairs)
	for _, s := range started {
		err := s.Remove()
		if code != 0 || err != nil {
			code = 1
			fmt.Fprintf(os.Stderr, "%v; log of a server:\n%s", err, s.Log())
		}
	}
	os.Exit(code)
}

func startPostgres() (s server, address string, err error) {
	p, err := postgrestest.Start()
	if err != nil {
		return nil, "", err
	}
	return p, p.DSN(), nil
}

func startMariaDB() (s server, address string, err error) {
	m, err := mariadbtest.Start()
	if err != nil {
		return nil, "", err
	}
	return m, "root@unix(" + m.Socket + ")/test?interpolateParams=false", nil
}

// onServer returns a database whose server starts for the first test that wants it, and serves all
// tests.
func onServer(name, driver string, dialect sqlfence.Dialect, start func() (server, string, error),
	waiting string) database {
	var s server
	address := sync.OnceValues(func() (address string, err error) {
		if s, address, err = start(); err == nil {
			started = append(started, s)
		}
		return address, err
	})
	return database{
		name: name, dialect: dialect, waiting: waiting, address: address,
		open: func(t testing.TB, parameters string) *sql.DB {
			a, err := address()
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open(driver, a+parameters)
			return pool(t, db, err)
		},
		crash: func() error {
			if _, err := address(); err != nil {
				return err
			}
			s.Kill()
			return s.Run()
		},
	}
}

var (
	onPostgres = onServer("PostgreSQL", "pgx", sqlfence.Postgres, startPostgres,
		"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
	// Not information_schema.innodb_trx: it is not refreshed if it is read more than ten times a
	// second.
	onMariaDB = onServer("MariaDB", "mysql", sqlfence.MySQL, startMariaDB,
		"SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'")

	// With clientFoundRows a row that an update leaves as it was counts as affected.
	onMariaDBFoundRows = database{
		name: "MariaDB with clientFoundRows", dialect: onMariaDB.dialect,
		waiting: onMariaDB.waiting, open: onMariaDB.open,
		parameters: "&clientFoundRows=true",
	}

	onSQLite = database{
		name: "SQLite", dialect: sqlfence.SQLite,
		open: func(t testing.TB, parameters string) *sql.DB {
			// One writer at a time; the second one gets an error after a while.
			db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+
				"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(50)"+parameters)
			return pool(t, db, err)
		},
	}

	databases = []database{onPostgres, onMariaDB, onMariaDBFoundRows, onSQLite}
)

func pool(t testing.TB, db *sql.DB, err error) *sql.DB {
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// connect returns a new pool.
func (d database) connect(t testing.TB) *sql.DB {
	t.Helper()
	return d.open(t, d.parameters)
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// text is the type of a key that tells all texts apart.
func (d database) text() string {
	if d.dialect == sqlfence.MySQL {
		return "varbinary(1024)"
	}
	return "text"
}

// texts is the type of a value: every text fits.
func (d database) texts() string {
	if d.dialect == sqlfence.MySQL {
		return "text CHARACTER SET utf8mb4"
	}
	return "text"
}

// place is the nth placeholder.
func (d database) place(n int) string {
	if d.dialect == sqlfence.Postgres {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

// upsert bypasses every guard, except for triggers.
func (d database) upsert(table string) string {
	if d.dialect == sqlfence.MySQL {
		return "INSERT INTO " + table +
			" (id, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)"
	}
	return "INSERT INTO " + table + " (id, value) VALUES (" + d.place(1) + ", " + d.place(2) +
		") ON CONFLICT (id) DO UPDATE SET value = excluded.value"
}

// value reads a row's value, bypassing the guard; "" if there is none.
func (d database) value(db *sql.DB, table string) func(ctx context.Context,
	id string) (string, error) {
	return func(ctx context.Context, id string) (string, error) {
		var value sql.NullString
		err := db.QueryRowContext(ctx, "SELECT value FROM "+table+" WHERE id = "+d.place(1),
			id).Scan(&value)
		if err == sql.ErrNoRows {
			err = nil
		}
		return value.String, err
	}
}

// waits returns a function that tells whether a transaction waits for a lock; nil where none does.
func (d database) waits(db *sql.DB) func(context.Context) (bool, error) {
	if d.waiting == "" {
		return nil
	}
	return func(ctx context.Context) (bool, error) {
		n := 0
		err := db.QueryRowContext(ctx, d.waiting).Scan(&n)
		return n > 0, err
	}
}

// crashes returns a function that kills the server; nil where there is none.
func (d database) crashes(db *sql.DB) func(testing.TB) {
	if d.crash == nil {
		return nil
	}
	return func(t testing.TB) {
		if err := d.crash(); err != nil {
			t.Fatal(err)
		}
		db.SetMaxIdleConns(0) // those that are idle are to the server that is gone
		db.SetMaxIdleConns(2)
	}
}
