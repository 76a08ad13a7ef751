package pgxfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// Table guards resources of any kind by a table of its own, which keeps the newest token of each,
// as sqlfence.Table does. Its rows must never be deleted.
type Table struct {
	_ struct{} // keyed literals only: fields will be added

	// Name is the name of the guard table. Default "holdfast_fence".
	Name string
}

func (t Table) name() string { return orDefault(t.Name, "holdfast_fence") }

// Schema returns the statement that creates the guard table unless it is there. Run it with the
// other migrations.
func (t Table) Schema() string {
	return sqlfence.Table{Dialect: sqlfence.Postgres, Name: t.Name}.Schema()
}

func (t Table) validate(w attempt) error {
	return errors.Join(validateNames(t.name()), fence.Validate(w.resource, w.token))
}

// raise stores the token, and fails if a larger one is there.
func (t Table) raise() string {
	return fmt.Sprintf("INSERT INTO %s AS stored (resource, token) VALUES ($1, CAST($2 AS bigint)) "+
		"ON CONFLICT (resource) DO UPDATE SET token = %s", t.name(),
		accept("excluded.token", "stored.token"))
}

// Advance accepts the token for the resource, as the first statement of the caller's transaction.
// The resource's row stays locked until the transaction ends, so of two holders the second waits,
// and then the older one is refused. The writes that follow in the transaction are guarded.
// [Table.SendBatch] does the same without a round trip of its own.
//
// When Advance fails, for whatever reason, it has rolled the transaction back, so a caller that
// overlooks the error writes nothing. It fails with [*fence.StaleError] when a larger token was
// accepted, and with [fence.ErrInvalid] as [fence.Validate] does. If the transaction is rolled back
// later, the token was not accepted. The context bounds the statement.
//
// A nested transaction of pgx is a savepoint: Advance guards it, and rolls back no more than it. To
// guard the outer transaction, call Advance in that one.
func (t Table) Advance(ctx context.Context, tx pgx.Tx, resource string, token fence.Token) error {
	w := attempt{resource, token}
	err := t.validate(w)
	if err == nil {
		err = t.advance(ctx, tx, w)
	}
	if err != nil {
		rollback(ctx, tx)
	}
	return err
}

func (t Table) advance(ctx context.Context, tx pgx.Tx, w attempt) error {
	if err := w.ended(ctx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, t.raise(), w.resource, int64(w.token)); err != nil {
		return w.outcome(ctx, false, err)
	}
	return nil
}

// Do runs write in a transaction that begins with [Table.Advance], and commits it. If write fails
// or the context ends, Do rolls back: nothing was written, and the token was not accepted. Do fails
// as Advance does, with the error of write, and with [fence.ErrUnavailable]. It fails with
// [fence.ErrUnknown] if the database did not tell whether it has committed, and if write has ended
// the transaction itself.
func (t Table) Do(ctx context.Context, db Beginner, resource string, token fence.Token,
	write func(pgx.Tx) error) error {
	w := attempt{resource, token}
	// Before a connection is taken.
	if err := t.validate(w); err != nil {
		return err
	}
	return w.transact(ctx, db, func(tx pgx.Tx) error { return t.advance(ctx, tx, w) }, write)
}

// SendBatch executes the statements of the batch as the holder of token, all or none. It takes one
// round trip, or two if pgx has to prepare statements that it does not know yet. A nil batch only
// advances the token.
//
// In a transaction of the caller's, SendBatch is [Table.Advance] with the statements behind it. The
// caller commits, and when SendBatch fails, for whatever reason, it has rolled back. On anything
// else PostgreSQL makes a transaction of the batch. Then the batch must not have statements that
// end a transaction, such as COMMIT, or CALL of a procedure that commits: what comes before them
// would be final, and what follows would be written without the guard. Results go to the functions
// that are set on the queued queries; do not send the batch again. An error of such a function does
// not undo what is final, so outside of a transaction use the functions to read, not to decide.
//
// Nothing was written if SendBatch fails with [*fence.StaleError] because a larger token was
// accepted, with [fence.ErrInvalid] as [fence.Validate] does, with [fence.ErrUnavailable], or with
// the error of a statement. Outside of a transaction it fails with [fence.ErrUnknown] if the answer
// did not come, also because the context ended, if a function of a query fails, and if pgx cannot
// send an argument.
func (t Table) SendBatch(ctx context.Context, db Queryer, resource string, token fence.Token,
	batch *pgx.Batch) error {
	w := attempt{resource, token}
	return w.send(ctx, db, t.validate(w), batch, t.raise(), resource, int64(token))
}

// Guard returns the table as a [fence.Guard], for code that works with any store. Its Do is that of
// the table, and write finds the transaction with [Tx].
func (t Table) Guard(db Beginner) fence.Guard { return tableGuard{t, db} }

type tableGuard struct {
	table Table
	db    Beginner
}

func (g tableGuard) Do(ctx context.Context, resource string, token fence.Token,
	write func(context.Context) error) error {
	return g.table.Do(ctx, g.db, resource, token, func(tx pgx.Tx) error {
		return write(context.WithValue(ctx, txKey{}, tx))
	})
}

type txKey struct{}

// Tx returns the transaction in which the guard of [Table.Guard] runs the write with this context,
// or nil. It ends with the write; do not commit it.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(pgx.Tx)
	return tx
}
