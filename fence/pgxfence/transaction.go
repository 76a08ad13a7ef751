package pgxfence

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// transact runs enter and then do in a transaction, which it commits if both return nil.
func (w attempt) transact(ctx context.Context, db Beginner, enter, do func(pgx.Tx) error) error {
	if err := w.ended(ctx); err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return w.outcome(ctx, false, err)
	}
	defer rollback(ctx, tx)
	if err := enter(tx); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		if refused := w.refusal(err); refused != nil {
			return refused
		}
		return err
	}
	if err := w.ended(ctx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return w.outcome(ctx, true, err)
	}
	return nil
}

// rollbackBound is how long a rollback may take. After that the connection is closed.
const rollbackBound = 5 * time.Second

// rollback does nothing after a commit. pgx does not roll back when a context ends.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackBound)
	defer cancel()
	tx.Rollback(ctx)
}
