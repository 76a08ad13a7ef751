package sqltest_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// TestTriggersOfTwoTables sees that the triggers of one table do not replace those of another,
// whatever the tables' names are, and that their refusals are recognized.
func TestTriggersOfTwoTables(t *testing.T) {
	long := strings.Repeat("long", 14)
	for _, names := range [][2]string{{"a_b", `"a-b"`}, {`"Größe"`, `"Gräße"`}, {`"日本"`, `"中国"`},
		{long + "1", long + "2"}, {`"Mixed"`, "mixed"}} {
		for _, d := range []database{onPostgres, onMariaDB, onSQLite} {
			if d.dialect == sqlfence.SQLite && names[1] == "mixed" {
				continue // one table there
			}
			t.Run(d.name+"/"+names[0], func(t *testing.T) { d.guardsBoth(t, names) })
		}
	}
}

func (d database) guardsBoth(t *testing.T, names [2]string) {
	db := d.connect(t)
	columns := [2]string{"fence", "token"}
	for i := range names {
		if d.dialect == sqlfence.MySQL {
			names[i] = strings.ReplaceAll(names[i], `"`, "`")
		}
		d.createGuarded(t, db, names[i], "(id int NOT NULL PRIMARY KEY, value text, "+columns[i]+
			" bigint)", columns[i])
	}
	for _, name := range names {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO "+name+
			" (id, value) VALUES (1, 'x')"); err == nil {
			t.Errorf("a write to %s without a token is accepted", name)
		}
		if err := d.withToken(t, db, 5, "INSERT INTO "+name+
			" (id, value) VALUES (2, 'x')"); err != nil {
			t.Errorf("a write to %s with a token: %v", name, err)
		}
		if err := d.withToken(t, db, 4,
			"UPDATE "+name+" SET value = 'y' WHERE id = 2"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("a write to %s with an older token = %v; want ErrStale", name, err)
		}
	}
}

// createGuarded creates a table anew, with its triggers.
func (d database) createGuarded(t *testing.T, db *sql.DB, table, columns, fence string) {
	t.Helper()
	run(t, db, "DROP TABLE IF EXISTS "+table, "CREATE TABLE "+table+" "+columns)
	statements, err := sqlfence.Trigger{Dialect: d.dialect, Table: table, Fence: fence}.Statements()
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, statements...)
}

func (d database) withToken(t *testing.T, db *sql.DB, token fence.Token, statement string) error {
	return d.dialect.Do(t.Context(), db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), statement)
		return err
	})
}

// TestTriggerRefusesRowsWithoutAKey has rows that the trigger could not find again: SQLite allows
// NULL in a primary key that is not an integer.
func TestTriggerRefusesRowsWithoutAKey(t *testing.T) {
	d := onSQLite
	db := d.connect(t)
	run(t, db, "DROP TABLE IF EXISTS items",
		"CREATE TABLE items (id text PRIMARY KEY, value text, fence bigint)",
		"INSERT INTO items VALUES (NULL, 'before', 6)")
	statements, err := sqlfence.Trigger{Dialect: d.dialect, Table: "items"}.Statements()
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, statements...)
	for _, statement := range []string{"INSERT INTO items (value) VALUES ('a')",
		"UPDATE items SET value = 'older'", "UPDATE items SET id = 'a'"} {
		if err := d.withToken(t, db, 5, statement); err == nil ||
			!strings.Contains(err.Error(), "holdfast: no key") {
			t.Errorf("%s = %v; want it refused for want of a key", statement, err)
		}
	}
	d.createGuarded(t, db, "numbered", "(id integer PRIMARY KEY, value text, fence bigint)",
		"fence")
	if err := d.withToken(t, db, 5, "INSERT INTO numbered (value) VALUES ('a')"); err != nil {
		t.Errorf("a key that SQLite gives: %v", err)
	}
}

// TestTriggersAskOnCascade sees that rows that a foreign key changes or deletes are guarded. This
// is promised for all databases but MySQL.
func TestTriggersAskOnCascade(t *testing.T) {
	for _, d := range []database{onPostgres, onSQLite} {
		t.Run(d.name, func(t *testing.T) {
			db := d.connect(t)
			db.SetMaxOpenConns(1)
			if d.dialect == sqlfence.SQLite {
				run(t, db, "PRAGMA foreign_keys = ON")
			}
			run(t, db, "DROP TABLE IF EXISTS items", "DROP TABLE IF EXISTS parents",
				"CREATE TABLE parents (id int PRIMARY KEY)", "INSERT INTO parents VALUES (1)")
			d.createGuarded(t, db, "items",
				"(id int NOT NULL PRIMARY KEY, parent int REFERENCES parents ON DELETE CASCADE ON UPDATE CASCADE, fence bigint)",
				"fence")
			if err := d.withToken(t, db, 5,
				"INSERT INTO items (id, parent) VALUES (1, 1)"); err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{"UPDATE parents SET id = 2", "DELETE FROM parents"} {
				if _, err := db.ExecContext(t.Context(), statement); err == nil {
					t.Errorf("%s without a token is accepted", statement)
				}
				if err := d.withToken(t, db, 4, statement); !errors.Is(err, fence.ErrStale) {
					t.Errorf("%s with an older token = %v; want ErrStale", statement, err)
				}
			}
		})
	}
}
