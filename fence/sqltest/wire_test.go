package sqltest_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// wired returns a pool to the same server whose connections are wrapped.
func (d database) wired(t testing.TB, wrap func(net.Conn) net.Conn) *sql.DB {
	t.Helper()
	address, err := d.address()
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	if d.dialect == sqlfence.MySQL {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			t.Fatal(err)
		}
		config.DialFunc = dial
		connector, err := mysql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		return pool(t, sql.OpenDB(connector), nil)
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = dial
	return pool(t, sql.OpenDB(stdlib.GetConnector(*config)), nil)
}

// TestAnswersThatAreCut breaks the connection after every few bytes of the server's answers. What
// the error says of the write must be so.
func TestAnswersThatAreCut(t *testing.T) {
	const step = 7 // bytes; an answer that tells of a write has more
	for _, d := range []database{onPostgres, onMariaDB} {
		for name, write := range d.writes() {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				db := d.connect(t)
				d.createAll(t, db)
				unknown := false
				for bytes := int64(0); ; bytes += step {
					d.reset(t, db)
					var left atomic.Int64
					left.Store(-1)
					broken := d.wired(t, func(conn net.Conn) net.Conn {
						return testserver.Cut{Conn: conn, Left: &left}
					})
					if err := broken.PingContext(t.Context()); err != nil {
						t.Fatal(err)
					}
					left.Store(bytes)
					err := write(t.Context(), broken)
					through := left.Load() > 0
					broken.Close()
					d.alone(t, db)
					unknown = unknown || errors.Is(err, fence.ErrUnknown)
					d.checkTruth(t, db, err)
					if through {
						break
					}
				}
				if !unknown {
					t.Error("no error said unknown; want it where the answer to a commit is cut")
				}
			})
		}
	}
}

// writes are all ways to write "new" to the row 1 of accounts with token 5.
func (d database) writes() map[string]func(context.Context, *sql.DB) error {
	inTx := func(ctx context.Context, table string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE "+table+" SET value = 'new'")
			return err
		}
	}
	return map[string]func(context.Context, *sql.DB) error{
		"Column": func(ctx context.Context, db *sql.DB) error {
			return sqlfence.Column{Dialect: d.dialect, Table: "accounts"}.Update(ctx, db, "1", 5,
				"value = 'new'")
		},
		"Versioned": func(ctx context.Context, db *sql.DB) error {
			return sqlfence.Versioned{Dialect: d.dialect, Table: "accounts"}.Update(ctx, db, "1", 0,
				"value = 'new'")
		},
		"Table": func(ctx context.Context, db *sql.DB) error {
			return sqlfence.Table{Dialect: d.dialect}.Do(ctx, db, "r", 5, inTx(ctx, "accounts"))
		},
		"Trigger": func(ctx context.Context, db *sql.DB) error {
			return d.dialect.Do(ctx, db, 5, inTx(ctx, "orders"))
		},
	}
}

// createAll creates what writes write, with the value "old".
func (d database) createAll(t *testing.T, db *sql.DB) {
	t.Helper()
	run(t, db, "DROP TABLE IF EXISTS accounts", "CREATE TABLE accounts (id "+d.text()+
		" NOT NULL PRIMARY KEY, value text, fence bigint, version bigint)",
		"INSERT INTO accounts VALUES ('1', 'old', NULL, 0)",
		"DROP TABLE IF EXISTS holdfast_fence", sqlfence.Table{Dialect: d.dialect}.Schema())
	d.createOrders(t, db, nil)
	if err := d.withToken(t, db, 1, "INSERT INTO orders (id, value) VALUES ('1', 'old')"); err !=
		nil {
		t.Fatal(err)
	}
}

// reset restores the rows as they were created.
func (d database) reset(t *testing.T, db *sql.DB) {
	t.Helper()
	run(t, db, "UPDATE accounts SET value = 'old', fence = NULL, version = 0",
		"DELETE FROM holdfast_fence")
	if err := d.withToken(t, db, 5, "UPDATE orders SET value = 'old'"); err != nil {
		t.Fatal(err)
	}
}

// alone waits until the server has done what other connections have begun.
func (d database) alone(t *testing.T, db *sql.DB) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
	if d.dialect == sqlfence.MySQL {
		query = "SELECT count(*) FROM information_schema.processlist WHERE user = 'root'"
	}
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), fencetest.DefaultPatience)
	defer cancel()
	for n := 0; n != 1; {
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			t.Fatalf("waited in vain until other connections are gone: %v", err)
		}
	}
}

// checkTruth checks what the error says against what was written.
func (d database) checkTruth(t *testing.T, db *sql.DB, err error) {
	t.Helper()
	written := false
	for _, table := range []string{"accounts", "orders"} {
		v, e := d.value(db, table)(t.Context(), "1")
		if e != nil {
			t.Fatal(e)
		}
		written = written || v == "new"
	}
	if (err == nil) != written && !errors.Is(err, fence.ErrUnknown) {
		t.Errorf("the error is %v, and it was written: %v", err, written)
	}
	if errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotFound) {
		t.Errorf("the error is %v, of a token that is the newest", err)
	}
}

// silent is a connection that does not answer any more once a statement was sent.
type silent struct {
	net.Conn
	statement string
	sent      chan struct{} // closed then
	mute      *atomic.Bool
}

func (s silent) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if bytes.Contains(p, []byte(s.statement)) && s.mute.CompareAndSwap(false, true) {
		close(s.sent)
	}
	return n, err
}

func (s silent) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	for s.mute.Load() && err == nil {
		n, err = s.Conn.Read(p)
	}
	return n, err
}
