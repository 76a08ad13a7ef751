package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestTableRollsBackWhatItRefuses sees that a caller that overlooks the error of Advance writes
// nothing.
func TestTableRollsBackWhatItRefuses(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			guard := sqlfence.Table{Dialect: d.dialect}
			run(t, db, "DROP TABLE IF EXISTS things", "CREATE TABLE things (id "+d.text()+
				" NOT NULL PRIMARY KEY, value text)",
				"DROP TABLE IF EXISTS holdfast_fence", guard.Schema())
			if err := guard.Do(t.Context(), db, "r", 5, func(*sql.Tx) error {
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for name, c := range map[string]struct {
				resource string
				token    fence.Token
				want     error
			}{"stale": {"r", 4, fence.ErrStale}, "invalid": {"r", 0, fence.ErrInvalid},
				"no name": {"", 5, fence.ErrInvalid}} {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := guard.Advance(t.Context(), tx, c.resource, c.token); !errors.Is(err,
					c.want) {
					t.Errorf("%s: Advance = %v; want %v", name, err, c.want)
				}
				if _, err := tx.ExecContext(t.Context(), d.upsert("things"), "r",
					name); !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("%s: a statement after the refusal = %v; want ErrTxDone", name, err)
				}
				if err := tx.Commit(); err == nil {
					t.Errorf("%s: the transaction is committed", name)
				}
			}
			if v, err := d.value(db, "things")(t.Context(), "r"); v != "" || err != nil {
				t.Errorf("%q was written, %v", v, err)
			}
		})
	}
}

// TestTableForgetsATokenThatWasRolledBack sees that a token counts only with its write.
func TestTableForgetsATokenThatWasRolledBack(t *testing.T) {
	broken := errors.New("broken")
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			guard := sqlfence.Table{Dialect: d.dialect, Name: "other_fence"}
			run(t, db, "DROP TABLE IF EXISTS other_fence", guard.Schema())
			if err := guard.Do(t.Context(), db, "r", 9, func(*sql.Tx) error {
				return broken
			}); err != broken {
				t.Errorf("Do = %v; want the error of write", err)
			}
			if err := guard.Guard(db).Do(t.Context(), "r", 5, func(ctx context.Context) error {
				var n int
				return sqlfence.Tx(ctx).QueryRowContext(ctx,
					"SELECT count(*) FROM other_fence").Scan(&n)
			}); err != nil {
				t.Errorf("Do with a smaller token = %v", err)
			}
		})
	}
}

// TestRefusedInASnapshot sees that a transaction that began before a larger token came fails as
// stale, or with the database's error, and never because there is no row.
func TestRefusedInASnapshot(t *testing.T) {
	for _, d := range []database{onPostgres, onMariaDB, onMariaDBFoundRows} {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			run(t, db, "DROP TABLE IF EXISTS accounts",
				"CREATE TABLE accounts (id int PRIMARY KEY, value text, fence bigint)",
				"INSERT INTO accounts VALUES (1, 'a', NULL)")
			accounts := sqlfence.Column{Dialect: d.dialect, Table: "accounts"}
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			var n int
			// the snapshot
			if err := tx.QueryRowContext(t.Context(),
				"SELECT count(*) FROM accounts").Scan(&n); err != nil {
				t.Fatal(err)
			}
			if err := accounts.Update(t.Context(), db, 1, 9, "value = 'newer'"); err != nil {
				t.Fatal(err)
			}
			err = accounts.Update(t.Context(), tx, 1, 8, "value = 'older'")
			var state interface{ SQLState() string }
			if d.dialect == sqlfence.Postgres && errors.As(err, &state) &&
				state.SQLState() == "40001" {
				return
			}
			var stale *fence.StaleError
			if !errors.As(err, &stale) || stale.Newest != 9 || stale.Resource != "accounts.id=1" {
				t.Errorf("Update = %v; want a StaleError that names 9", err)
			}
		})
	}
}

// TestWhatMySQLCounts shows why the number of affected rows tells nothing on MySQL.
func TestWhatMySQLCounts(t *testing.T) {
	for d, want := range map[*database][2]int64{&onMariaDB: {0, 0}, &onMariaDBFoundRows: {1, 1}} {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			run(t, db, "DROP TABLE IF EXISTS counted",
				"CREATE TABLE counted (id int PRIMARY KEY, fence bigint)",
				"INSERT INTO counted VALUES (1, 5)")
			for i, statement := range []string{
				// the same holder again
				"UPDATE counted SET fence = 5 WHERE id = 1 AND fence <= 5",
				// an older one
				"INSERT INTO counted VALUES (1, 4) ON DUPLICATE KEY UPDATE fence = IF(fence <= VALUES(fence), 4, fence)",
			} {
				result, err := db.ExecContext(t.Context(), statement)
				if err != nil {
					t.Fatal(err)
				}
				if n, _ := result.RowsAffected(); n != want[i] {
					t.Errorf("%s: %d rows affected; want %d", statement, n, want[i])
				}
			}
		})
	}
}

// TestTriggerRefusesWhoHasNoToken sees that no statement without a token writes anything.
func TestTriggerRefusesWhoHasNoToken(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			d.createOrders(t, db, nil)
			statements := []string{
				"INSERT INTO orders VALUES ('b', 'x', 99)", "UPDATE orders SET value = 'x'",
				"UPDATE orders SET value = 'x', fence = 99",
				"UPDATE orders SET id = 'c'", "DELETE FROM orders",
			}
			if d.dialect == sqlfence.Postgres {
				statements = append(statements, "TRUNCATE orders")
			} else {
				statements = append(statements, "REPLACE INTO orders VALUES ('a', 'x', 99)")
			}
			write := func(token fence.Token, statement string) error {
				return d.dialect.Do(t.Context(), db, token, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), statement)
					return err
				})
			}
			if err := write(5, "INSERT INTO orders (id, value) VALUES ('a', 'first')"); err != nil {
				t.Fatal(err)
			}
			check := func() {
				t.Helper()
				var id, value string
				var token fence.Token
				if err := db.QueryRow("SELECT id, value, fence FROM orders").Scan(&id, &value,
					&token); err != nil || id != "a" || value != "first" || token != 5 {
					t.Errorf("the row is %q, %q, %d, %v", id, value, token, err)
				}
			}
			for _, statement := range statements {
				if _, err := db.ExecContext(t.Context(), statement); err == nil ||
					!strings.Contains(err.Error(), "holdfast: no token for orders") {
					t.Errorf("%s: %v; want it refused for want of a token", statement, err)
				}
				check()
				if strings.HasPrefix(statement, "TRUNCATE") ||
					strings.HasPrefix(statement, "INSERT") {
					continue
				}
				var stale *fence.StaleError
				if err := write(4, statement); !errors.As(err, &stale) || stale.Token != 4 ||
					stale.Resource != "orders" {
					t.Errorf("%s with an older token: %v; want a StaleError", statement, err)
				} else if d.dialect != sqlfence.SQLite && stale.Newest != 5 {
					t.Errorf("%s with an older token: the newest is said to be %d; want 5",
						statement, stale.Newest)
				}
				check()
			}
			// a holder with a token cannot lower it either
			if err := write(6, "UPDATE orders SET fence = 0"); err != nil {
				t.Fatal(err)
			}
			if err := write(5, "UPDATE orders SET value = 'x'"); !errors.Is(err, fence.ErrStale) {
				t.Errorf("write with token 5 after 6 = %v; want ErrStale", err)
			}
		})
	}
}

// TestTokenStaysInItsTransaction sees that the next user of a connection does not have the token of
// the user before, however its transaction ended.
func TestTokenStaysInItsTransaction(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			if how := d.leaks(t, nil); how != "" {
				t.Errorf("the token is left behind after %s", how)
			}
		})
		t.Run(d.name+"/mutant", func(t *testing.T) {
			mutant := func(query string) string {
				return strings.NewReplacer("$1, true)", "$1, false)", "@holdfast_token = NULL, ",
					"", "DELETE FROM holdfast_token", "SELECT 1").Replace(query)
			}
			if d.leaks(t, mutant) == "" {
				t.Error("a token that is left behind is not noticed")
			}
		})
	}
}

// leaks says after which way to end a transaction a write without a token is accepted.
func (d database) leaks(t *testing.T, edit func(string) string) (how string) {
	db := d.connect(t)
	d.createOrders(t, db, nil)
	db.SetMaxOpenConns(1) // so that the next user has the same connection
	guarded := db
	if edit != nil {
		guarded = edited(t, db, edit)
		guarded.SetMaxIdleConns(-1) // it takes the only connection
	}
	insert := func(id string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "INSERT INTO orders (id) VALUES ('"+id+"')")
			return err
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := errors.New("broken")
	for _, end := range []struct {
		name string
		run  func() error
		want error
	}{
		{"a commit", func() error {
			return d.dialect.Do(t.Context(), guarded, 5, insert("a"))
		}, nil},
		{"an error", func() error {
			return d.dialect.Do(t.Context(), guarded, 5, func(tx *sql.Tx) error {
				return errors.Join(insert("b")(tx), broken)
			})
		}, broken},
		{"a refusal", func() error {
			return d.dialect.Do(t.Context(), guarded, 4, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(),
					"UPDATE orders SET value = 'x' WHERE id = 'a'")
				return err
			})
		}, fence.ErrStale},
		{"a context that ended", func() error {
			return d.dialect.Do(ctx, guarded, 5, func(tx *sql.Tx) error {
				cancel()
				return insert("c")(tx)
			})
		}, context.Canceled},
		{"a panic", func() (err error) {
			defer func() { recover(); err = broken }()
			return d.dialect.Do(t.Context(), guarded, 5, func(tx *sql.Tx) error {
				insert("d")(tx)
				panic("broken")
			})
		}, broken},
	} {
		err := end.run()
		if end.want == context.Canceled && err != nil {
			err = context.Canceled // or what the database made of it
		}
		if !errors.Is(err, end.want) {
			t.Fatalf("%s: %v", end.name, err)
		}
		if _, err := db.ExecContext(t.Context(),
			"INSERT INTO orders (id) VALUES ('z')"); err == nil {
			return end.name
		} else if !strings.Contains(err.Error(), "no token") {
			t.Fatalf("write without a token after %s: %v", end.name, err)
		}
	}
	return ""
}
