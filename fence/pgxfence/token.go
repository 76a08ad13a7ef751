package pgxfence

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
)

// setToken sets the token for the triggers, until the transaction ends.
const setToken = "SELECT set_config('holdfast.token', $1, true)"

// transaction is the resource in errors where the triggers' tables are not known yet.
const transaction = "transaction"

// Do runs write in a transaction that has the token, and commits it. The token is for the triggers
// of the tables that write changes; sqlfence.Trigger creates them. If write fails or the context
// ends, Do rolls back. The token ends with the transaction, so the next user of the connection does
// not have it.
//
// Do fails with [*fence.StaleError], which names the table as its triggers do, if write returns the
// error of a statement that a trigger has refused. It fails with [fence.ErrInvalid], with
// [fence.ErrUnavailable] and with the error of write. It fails with [fence.ErrUnknown] if the
// database did not tell whether it has committed. A refused transaction has written nothing. The
// context bounds the transaction.
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

// SendBatch executes the statements of the batch, all or none, in one round trip, with the token
// for the triggers of the tables that they write. In a transaction of the caller's, the token stays
// until the transaction ends. In all else it does and fails as [Table.SendBatch] does.
func SendBatch(ctx context.Context, db Queryer, token fence.Token, batch *pgx.Batch) error {
	w := attempt{transaction, token}
	return w.send(ctx, db, fence.ValidateToken(w.resource, token), batch, setToken, token.String())
}
