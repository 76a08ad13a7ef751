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
// as sqlfence.Table does. Its rows are never to be deleted.
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

// Advance accepts the token for the resource, as the first statement of the caller's transaction,
// and keeps the resource's row locked until that ends: of two holders the second waits, and then
// the older one is refused. The writes that follow in the transaction are guarded.
// [Table.SendBatch] does the same without a round trip of its own.
//
// When it fails, for whatever reason, it has rolled the transaction back: a caller that overlooks
// the error writes nothing. It fails with [*fence.StaleError] when a larger token was accepted, and
// with [fence.ErrInvalid] as [fence.Validate] does. If the transaction is rolled back later, the
// token was not accepted. The context bounds the statement.
//
// A nested transaction of pgx is a savepoint: it is what Advance rolls back, and what is guarded.
// Call Advance in the outer one to guard that.
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

// Do runs write in a transaction that begins with [Table.Advance], and commits it. If write fails,
// or the context ends, it rolls back: nothing was written, and the token was not accepted. It fails
// as Advance does, with the error of write, with [fence.ErrUnavailable], and with
// [fence.ErrUnknown] when the database did not tell whether it has committed, also when write has
// ended the transaction itself.
func (t Table) Do(ctx context.Context, db Beginner, resource string, token fence.Token,
	write func(pgx.Tx) error) error {
	w := attempt{resource, token}
	// Before a connection is taken.
	if err := t.validate(w); err != nil {
		return err
	}
	return w.transact(ctx, db, func(tx pgx.Tx) error { return t.advance(ctx, tx, w) }, write)
}

// SendBatch executes the statements of the batch as the holder of token, all or none, in one round
// trip, or two where pgx has to prepare statements that it does not know yet. In a transaction of
// the caller's, it is [Table.Advance] with the statements behind it: the commit is the caller's,
// and when SendBatch fails, for whatever reason, it has rolled back. On anything else PostgreSQL
// makes a transaction of the batch, so the batch must not have statements that end it, such as
// COMMIT, or CALL of a procedure that commits: what comes before them is final, and what follows is
// written without the guard. A nil batch only advances the token.
//
// Results go to the functions that are set on the queued queries; do not send the batch again.
// Their errors do not undo what is final: outside of a transaction use them to read, not to decide.
//
// It fails with [*fence.StaleError] when a larger token was accepted, with [fence.ErrInvalid] as
// [fence.Validate] does, with [fence.ErrUnavailable], and with the error of a statement: nothing
// was written then. Outside of a transaction it fails with [fence.ErrUnknown] when the answer did
// not come, also because the context ended, when a function of a query fails, and when pgx cannot
// send an argument.
func (t Table) SendBatch(ctx context.Context, db Queryer, resource string, token fence.Token,
	batch *pgx.Batch) error {
	w := attempt{resource, token}
	return w.send(ctx, db, t.validate(w), batch, t.raise(), resource, int64(token))
}

// Guard returns the table as a [fence.Guard], for what guards by any store. Its Do is that of the
// table; write finds the transaction by [Tx].
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

// Tx returns the transaction of the guard of [Table.Guard] that runs the write with this context,
// or nil. It ends with the write; do not commit it.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(pgx.Tx)
	return tx
}
