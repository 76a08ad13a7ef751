package pgxfence

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
)

// setToken is for the triggers, until the transaction ends.
const setToken = "SELECT set_config('holdfast.token', $1, true)"

// transaction is the resource in errors where the triggers' tables are not known yet.
const transaction = "transaction"

// Do runs write in a transaction that has the token, for the triggers of the tables that it writes,
// which sqlfence.Trigger creates, and commits it. If write fails, or the context ends, it rolls
// back. The token ends with the transaction: the next user of the connection does not have it.
//
// It fails with [*fence.StaleError], which names the table as its triggers do, when write returns
// the error of a statement that a trigger has refused; with [fence.ErrInvalid] and
// [fence.ErrUnavailable]; with the error of write; and with [fence.ErrUnknown] when the database
// did not tell whether it has committed. A refused transaction has written nothing. The context
// bounds the transaction.
func Do(ctx context.Context, db Beginner, token fence.Token, write func(pgx.Tx) error) error {
	w := attempt{transaction, token}
	if err := fence.ValidateToken(w.resource, token); err != nil {
		return err
	}
	return w.transact(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setToken, token.String()); err != nil {
			return w.outcome(ctx, false, err)
		}
		return nil
	}, write)
}

// SendBatch executes the statements of the batch with the token, for the triggers of the tables
// that they write, all or none, in one round trip. In a transaction of the caller's, the token
// stays until that ends. Otherwise it is as [Table.SendBatch], and fails as that does.
func SendBatch(ctx context.Context, db Queryer, token fence.Token, batch *pgx.Batch) error {
	w := attempt{transaction, token}
	return w.send(ctx, db, fence.ValidateToken(w.resource, token), batch, setToken, token.String())
}
