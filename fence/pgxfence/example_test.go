package pgxfence_test

import (
	"context"
	"errors"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
)

// These stand for what a service has.
var (
	ctx    = context.Background()
	pool   *pgxpool.Pool
	locker *holdfast.Locker
)

// The database refuses the write if a later holder has written, even if this process was paused for
// a minute after it had looked at its lock.
func ExampleColumn() {
	accounts := pgxfence.Column{Table: "accounts"}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		return accounts.Update(ctx, pool, 7, lock.Token(), "balance = balance - $1", 10)
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("somebody else has taken over: ", err)
	}
}

// The guard and what it guards go to the server at once, as one transaction.
func ExampleTable_SendBatch() {
	guard := pgxfence.Table{}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO payments (account, amount) VALUES ($1, $2)", 7, 10)
		batch.Queue("UPDATE accounts SET balance = balance - $2 WHERE id = $1", 7, 10)
		return guard.SendBatch(ctx, pool, "account/7", lock.Token(), batch)
	})
	if err != nil {
		log.Print(err)
	}
}

// Whatever the transaction writes is guarded.
func ExampleTable_Advance() {
	guard := pgxfence.Table{}

	err := locker.Do(ctx, "account/7", func(ctx context.Context, lock *holdfast.Lock) error {
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.Serializable},
			func(tx pgx.Tx) error {
				if err := guard.Advance(ctx, tx, "account/7", lock.Token()); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "INSERT INTO payments (account, amount) VALUES (7, 10)")
				return err
			})
	})
	if err != nil {
		log.Print(err)
	}
}
