package sqltest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// checkKind checks that the error is of the kind, or of none.
func checkKind(t *testing.T, what string, err, want error) {
	t.Helper()
	for _, kind := range []error{fence.ErrUnknown, fence.ErrUnavailable, fence.ErrStale,
		fence.ErrNotFound, fence.ErrInvalid} {
		if errors.Is(err, kind) != (kind == want) {
			t.Errorf("%s: %v; want it to be %v and nothing else", what, err, want)
		}
	}
	if err == nil {
		t.Errorf("%s: no error; want one", what)
	}
}

// TestNobodyThere has a database that cannot be reached: nothing was sent.
func TestNobodyThere(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for d, address := range map[*database]string{
		&onPostgres: "host=" + none + " user=holdfast",
		&onMariaDB:  "root@unix(" + none + ")/test",
		&onSQLite:   "file:" + filepath.Join(none, "db"),
	} {
		db, err := sql.Open(map[sqlfence.Dialect]string{sqlfence.Postgres: "pgx",
			sqlfence.MySQL: "mysql", sqlfence.SQLite: "sqlite"}[d.dialect], address)
		db = pool(t, db, err)
		for name, write := range d.writes() {
			checkKind(t, d.name+", "+name, write(t.Context(), db), fence.ErrUnavailable)
		}
	}
}

// TestContextEndsBeforeAConnection has a pool whose only connection is taken: nothing was sent, and
// the error does not say that something may be written.
func TestContextEndsBeforeAConnection(t *testing.T) {
	for _, d := range databases {
		db := d.connect(t)
		db.SetMaxOpenConns(1)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		why := errors.New("why")
		for name, write := range d.writes() {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
			defer cancel()
			err := write(ctx, db)
			checkKind(t, d.name+", "+name, err, nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) {
				t.Errorf("%s, %s: %v; want the context's error and its cause", d.name, name, err)
			}
		}
	}
}

// TestConnectionsThatBrokeWhileIdle has connections that the server has closed, as MySQL does with
// those that were idle for long: another one is taken.
func TestConnectionsThatBrokeWhileIdle(t *testing.T) {
	d := onMariaDB
	other := d.connect(t)
	for name, write := range d.writes() {
		d.createAll(t, other)
		db := d.connect(t)
		var conns [2]*sql.Conn // as many as a pool keeps
		var ids [2]string
		for i := range conns {
			var err error
			if conns[i], err = db.Conn(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := conns[i].QueryRowContext(t.Context(), "SELECT connection_id()").Scan(
				&ids[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range conns {
			conns[i].Close()
			run(t, other, "KILL "+ids[i])
		}
		d.alone(t, other)
		if err := write(t.Context(), db); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		db.Close()
	}
}

// lying is a driver that says of a statement that was executed that its connection was broken
// before, as lib/pq does when the answer did not come.
type lying struct {
	driver.Conn
	executed *atomic.Int64
}

func (l lying) Connect(context.Context) (driver.Conn, error) { return l, nil }
func (l lying) Driver() driver.Driver                        { return nil }
func (l lying) Close() error                                 { return nil }

func (l lying) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	l.executed.Add(1)
	return nil, driver.ErrBadConn
}

// TestStatementIsNotRepeated sees that database/sql does not send an update again whose outcome is
// not known: it would be applied twice.
func TestStatementIsNotRepeated(t *testing.T) {
	for name, write := range onPostgres.writes() {
		if name != "Column" && name != "Versioned" {
			continue // transactions are not repeated
		}
		l := lying{executed: new(atomic.Int64)}
		db := pool(t, sql.OpenDB(l), nil)
		checkKind(t, name, write(t.Context(), db), fence.ErrUnknown)
		if n := l.executed.Load(); n != 1 {
			t.Errorf("%s: the statement is executed %d times; want 1", name, n)
		}
	}
}

// TestWriteThatEndsItsTransaction has a write that commits by itself, and returns no error.
func TestWriteThatEndsItsTransaction(t *testing.T) {
	for _, d := range databases {
		db := d.connect(t)
		d.createAll(t, db)
		end := func(tx *sql.Tx) error { return tx.Commit() }
		checkKind(t, d.name+", Table", sqlfence.Table{Dialect: d.dialect}.Do(t.Context(), db, "r",
			5, end), fence.ErrUnknown)
		checkKind(t, d.name+", Dialect", d.dialect.Do(t.Context(), db, 5, end), fence.ErrUnknown)
	}
}

// TestCommitEndsWithItsContext has a server that does not answer to COMMIT.
func TestCommitEndsWithItsContext(t *testing.T) {
	for _, d := range []database{onPostgres, onMariaDB} {
		statement := "commit" // as pgx writes it
		if d.dialect == sqlfence.MySQL {
			statement = "COMMIT"
		}
		for _, name := range []string{"Table", "Trigger"} {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				d.createAll(t, d.connect(t))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sent, mute := make(chan struct{}), new(atomic.Bool)
				db := d.wired(t, func(conn net.Conn) net.Conn {
					t.Cleanup(func() { conn.Close() })
					return silent{conn, statement, sent, mute}
				})
				done := make(chan error, 1)
				go func() { done <- d.writes()[name](ctx, db) }()
				<-sent
				cancel()
				select {
				case err := <-done:
					checkKind(t, "the write", err, fence.ErrUnknown)
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%v; want the context's error", err)
					}
				case <-time.After(fencetest.DefaultPatience):
					t.Fatal("the write goes on when its context has ended")
				}
			})
		}
	}
}
