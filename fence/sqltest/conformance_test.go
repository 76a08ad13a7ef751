package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// writer writes the value of a resource in a pool.
type writer func(ctx context.Context, db *sql.DB, resource string, token fence.Token, value string,
	pause func()) error

func TestColumnConformance(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { fencetest.Run(t, d.column(d.columnWrite, nil)) })
	}
}

func TestTableConformance(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { fencetest.Run(t, d.table(d.tableWrite, nil)) })
	}
}

func TestTriggerConformance(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { fencetest.Run(t, d.trigger(d.triggerWrite, nil)) })
	}
}

// column is the harness of the form with a column. edit changes the guard's statements, for
// mutants.
func (d database) column(write writer, edit func(string) string) fencetest.Harness {
	return fencetest.Harness{AnyKey: true, NewStore: func(t testing.TB) fencetest.Store {
		db := d.connect(t)
		run(t, db, "DROP TABLE IF EXISTS accounts",
			"CREATE TABLE accounts (id "+d.text()+" NOT NULL PRIMARY KEY, value "+d.texts()+
				", fence bigint NOT NULL DEFAULT 0)")
		store := d.store(t, db, edited(t, db, edit), "accounts", write)
		store.Create = func(ctx context.Context, resource string) error {
			_, err := db.ExecContext(ctx, "INSERT INTO accounts (id) VALUES ("+d.place(1)+
				")", resource)
			return err
		}
		return store
	}}
}

// table is the harness of the form with a guard table.
func (d database) table(write writer, edit func(string) string) fencetest.Harness {
	return fencetest.Harness{NewStore: func(t testing.TB) fencetest.Store {
		db := d.connect(t)
		run(t, db, "DROP TABLE IF EXISTS things", "CREATE TABLE things (id "+d.text()+
			" NOT NULL PRIMARY KEY, value "+d.texts()+")",
			"DROP TABLE IF EXISTS holdfast_fence", sqlfence.Table{Dialect: d.dialect}.Schema(),
			sqlfence.Table{Dialect: d.dialect}.Schema())
		store := d.store(t, db, edited(t, db, edit), "things", write)
		store.Crash = d.crashes(db)
		return store
	}}
}

// trigger is the harness of the form with a trigger.
func (d database) trigger(write writer, edit func(string) string) fencetest.Harness {
	return fencetest.Harness{AnyKey: true, NewStore: func(t testing.TB) fencetest.Store {
		db := d.connect(t)
		d.createOrders(t, db, edit)
		return d.store(t, db, edited(t, db, edit), "orders", write)
	}}
}

func (d database) createOrders(t testing.TB, db *sql.DB, edit func(string) string) {
	t.Helper()
	run(t, db, "DROP TABLE IF EXISTS orders", "CREATE TABLE orders (id "+d.text()+
		" NOT NULL PRIMARY KEY, value "+d.texts()+", fence bigint)")
	statements, err := sqlfence.Trigger{Dialect: d.dialect, Table: "orders"}.Statements()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // again on what is there
		for _, statement := range statements {
			if edit != nil {
				statement = edit(statement)
			}
			run(t, db, statement)
		}
	}
}

// store is what all forms have in common. guarded is the pool that the guard uses.
func (d database) store(t testing.TB, db, guarded *sql.DB, table string,
	write writer) fencetest.Store {
	return fencetest.Store{
		Write: func(ctx context.Context, resource string, token fence.Token, value string,
			pause func()) error {
			return write(ctx, guarded, resource, token, value, pause)
		},
		Read:    d.value(db, table),
		Waiting: d.waits(db),
	}
}

// columnWrite writes without a transaction, unless it has to pause in one.
func (d database) columnWrite(ctx context.Context, db *sql.DB, resource string, token fence.Token,
	value string, pause func()) error {
	accounts := sqlfence.Column{Dialect: d.dialect, Table: "accounts"}
	set := "value = " + d.place(1)
	if pause == nil {
		return accounts.Update(ctx, db, resource, token, set, value)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := accounts.Update(ctx, tx, resource, token, set, value); err != nil {
		return err
	}
	pause()
	return tx.Commit()
}

func (d database) tableWrite(ctx context.Context, db *sql.DB, resource string, token fence.Token,
	value string, pause func()) error {
	return sqlfence.Table{Dialect: d.dialect}.Do(ctx, db, resource, token, func(tx *sql.Tx) error {
		if pause != nil {
			pause()
		}
		_, err := tx.ExecContext(ctx, d.upsert("things"), resource, value)
		return err
	})
}

func (d database) triggerWrite(ctx context.Context, db *sql.DB, resource string, token fence.Token,
	value string, pause func()) error {
	return d.dialect.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, d.upsert("orders"), resource, value)
		if err == nil && pause != nil {
			pause()
		}
		return err
	})
}
