package pgxfence

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// send sends the batch behind the guard's statement. A statement that fails ends the batch.
func (w attempt) send(ctx context.Context, db Queryer, invalid error, batch *pgx.Batch,
	guard string, args ...any) (err error) {
	if tx, ok := db.(pgx.Tx); ok {
		defer func() {
			if err != nil {
				rollback(ctx, tx)
			}
		}()
	}
	if invalid != nil {
		return invalid
	}
	if err := w.ended(ctx); err != nil {
		return err
	}
	whole := &pgx.Batch{}
	whole.Queue(guard, args...)
	if batch != nil {
		whole.QueuedQueries = slices.Concat(whole.QueuedQueries, batch.QueuedQueries)
	}
	return withConn(ctx, db, w, func(db Queryer) error {
		if err := db.SendBatch(ctx, whole).Close(); err != nil {
			return w.outcome(ctx, decides(db), err)
		}
		return nil
	})
}
