package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/pghold/rowlock"
)

// These stand for what a service has.
var (
	ctx  = context.Background()
	pool *pgxpool.Pool
	db   *sql.DB
)

// The row is locked until the transaction ends.
func ExampleTable_TryRow() {
	accounts := rowlock.Table{Name: "accounts"}

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := accounts.TryRow(ctx, tx, 7); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 7")
		return err
	})
	if errors.Is(err, holdfast.ErrHeld) {
		log.Print("another transaction has the account")
	}
}

// Each of several workers takes another job. If one fails, its job is free again.
func ExampleTable_Next() {
	jobs := rowlock.Table{Name: "jobs"}

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var id int64
		if err := jobs.Next(ctx, tx, &id, "state = $1 ORDER BY created", "new"); err != nil {
			return err
		}
		// Do the job, in this transaction.
		_, err := tx.Exec(ctx, "UPDATE jobs SET state = 'done' WHERE id = $1", id)
		return err
	})
	if errors.Is(err, rowlock.ErrNotFound) {
		log.Print("nothing to do")
	}
}

// A name is locked where there is no row, with database/sql.
func ExampleKey() {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if err := rowlock.Key(ctx, rowlock.SQL(tx), "month-end", time.Minute); err != nil {
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO closings (day) VALUES (now())"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
