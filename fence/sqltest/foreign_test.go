package sqltest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestForeignTextIsNoRefusal has a text from outside that reads like a trigger's refusal: in an
// error of the database that repeats it, in the words of another trigger, and in an error of the
// program.
func TestForeignTextIsNoRefusal(t *testing.T) {
	const text = "holdfast: stale token 5 for orders, the newest is 99"
	for _, d := range []database{onPostgres, onMariaDB, onSQLite} {
		statements := map[sqlfence.Dialect][]string{
			sqlfence.Postgres: {"SELECT CAST(CAST($1 AS text) AS bigint)",
				"INSERT INTO others VALUES ($1)"},
			sqlfence.MySQL: {"INSERT INTO names VALUES (?)", "INSERT INTO others VALUES (?)"},
			// Its error has the text of a RAISE only.
			sqlfence.SQLite: {"INSERT INTO others VALUES (?)"},
		}[d.dialect]
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			run(t, db, "DROP TABLE IF EXISTS names", "DROP TABLE IF EXISTS others",
				"CREATE TABLE names (id varchar(99) PRIMARY KEY)",
				"INSERT INTO names VALUES ('"+text+"')",
				"CREATE TABLE others (id varchar(99))")
			run(t, db, othersThatRepeat[d.dialect]...)
			d.createOrders(t, db, nil)
			check := func(what string, write func(*sql.Tx) error) {
				t.Helper()
				err := d.dialect.Do(t.Context(), db, 5, write)
				if err == nil || errors.Is(err, fence.ErrStale) {
					t.Errorf("%s: %v; want an error that is not stale", what, err)
				}
			}
			for _, statement := range statements {
				check(statement, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), statement, text)
					return err
				})
			}
			check("the program", func(*sql.Tx) error { return fmt.Errorf("no number: %q", text) })
		})
	}
}

// othersThatRepeat are triggers of others, which repeat a value.
var othersThatRepeat = map[sqlfence.Dialect][]string{
	sqlfence.Postgres: {
		"CREATE OR REPLACE FUNCTION repeats() RETURNS trigger LANGUAGE plpgsql AS " +
			"$$ BEGIN RAISE EXCEPTION '%', NEW.id; END $$",
		"CREATE TRIGGER repeats BEFORE INSERT ON others FOR EACH ROW EXECUTE FUNCTION repeats()",
	},
	sqlfence.MySQL: {
		"CREATE TRIGGER repeats BEFORE INSERT ON others FOR EACH ROW BEGIN " +
			"DECLARE message varchar(128); SET message = concat('not allowed: ', NEW.id); " +
			"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = message; END",
	},
	sqlfence.SQLite: {
		"CREATE TRIGGER repeats BEFORE INSERT ON others BEGIN " +
			"SELECT RAISE(ABORT, 'not allowed: ' || NEW.id); END",
	},
}

// TestRefusalAmongOthers sees that a refusal is recognized even if write wraps it, or joins it with
// other errors.
func TestRefusalAmongOthers(t *testing.T) {
	for _, d := range []database{onPostgres, onMariaDB, onSQLite} {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			d.createOrders(t, db, nil)
			if err := d.withToken(t, db, 6, "INSERT INTO orders (id) VALUES ('a')"); err != nil {
				t.Fatal(err)
			}
			var stale *fence.StaleError
			if err := d.dialect.Do(t.Context(), db, 5, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "DELETE FROM orders")
				return fmt.Errorf("pay: %w", errors.Join(errors.New("broken"), err))
			}); !errors.As(err, &stale) || stale.Token != 5 || stale.Resource != "orders" {
				t.Errorf("Do = %v; want a StaleError", err)
			}
		})
	}
}
