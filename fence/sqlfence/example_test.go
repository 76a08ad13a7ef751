package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// These stand for what a service has.
var (
	ctx    = context.Background()
	db     *sql.DB
	locker *holdfast.Locker
)

// The database refuses the write if a later holder has written, even if this process was paused for
// a minute after it had looked at its lock.
func ExampleColumn() {
	accounts := sqlfence.Column{Dialect: sqlfence.Postgres, Table: "accounts"}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		return accounts.Update(ctx, db, 7, lock.Token(), "balance = balance - $1", 10)
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has taken over: ", err)
	}
}

// Whatever the transaction writes is guarded.
func ExampleTable_Advance() {
	guard := sqlfence.Table{Dialect: sqlfence.Postgres}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := guard.Advance(ctx, tx, "account/7", lock.Token()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx,
			"INSERT INTO payments (account, amount) VALUES (7, 10)"); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		log.Print(err)
	}
}

// The statements are for people to read, and for the tool that runs the other migrations.
func ExampleTrigger() {
	statements, err := sqlfence.Trigger{Dialect: sqlfence.Postgres, Table: "orders"}.Statements()
	if err != nil {
		log.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}

	err = locker.Do(ctx, "orders", func(ctx context.Context, lock *holdfast.Lock) error {
		return sqlfence.Postgres.Do(ctx, db, lock.Token(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = 7")
			return err
		})
	})
	if err != nil {
		log.Print(err)
	}
}

// One at a time begins, and what comes after a pause overwrites nothing.
func ExampleVersioned_Do() {
	accounts := sqlfence.Versioned{Dialect: sqlfence.Postgres, Table: "accounts"}

	err := accounts.Do(ctx, locker, db, 7, func(ctx context.Context) (string, []any, error) {
		// what takes its time, and must not be done by two at once
		return "balance = balance - $1", []any{10}, ctx.Err()
	})
	if errors.Is(err, sqlfence.ErrConflict) {
		log.Print("somebody has written without the lock, or after it was lost: ", err)
	}
}

// A writer without a lock, such as a form that a person fills in, keeps the version that the person
// saw.
func ExampleVersioned_Update() {
	accounts := sqlfence.Versioned{Dialect: sqlfence.Postgres, Table: "accounts"}

	const version, balance = 3, 90 // fields of the form
	err := accounts.Update(ctx, db, 7, version, "balance = $1", balance)
	if errors.Is(err, sqlfence.ErrConflict) {
		log.Print("show the person what is there now: ", err)
	}
}
