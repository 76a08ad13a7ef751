package pgxfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
)

// Column guards each row of a table by a column of the row, which keeps the newest token, as
// sqlfence.Column does.
//
//	ALTER TABLE accounts ADD COLUMN fence bigint NOT NULL DEFAULT 0
//
// A row with NULL there counts as not written yet.
type Column struct {
	_ struct{} // keyed literals only: fields will be added

	// Table is the table. Required.
	Table string

	// Key is the column that identifies a row, its primary key. Default "id".
	Key string

	// Fence is the column with the token, a bigint. Default "fence".
	Fence string
}

// Update changes the row with the given key as the holder of token, in one statement:
//
//	UPDATE table SET set, fence = token WHERE key = key
//
// The statement fails if the row has a larger token. set is what stands after SET, with the
// placeholders $1 and so on for args, or with those of one [pgx.NamedArgs]. It may be empty. In a
// transaction the caller decides whether the update stays.
//
// Update has written nothing if it fails with [*fence.StaleError] because the row has a larger
// token, with [fence.ErrNotFound] because there is no such row, with [fence.ErrInvalid] for a name
// or a token, or with [fence.ErrUnavailable]. After a refusal, as after every error of PostgreSQL,
// a transaction takes no more statements. Outside of a transaction Update fails with
// [fence.ErrUnknown] if the answer did not come, also because the context ended. Then the row may
// be written, perhaps later, unless somebody with a larger token comes first.
//
// If a trigger of the table keeps the row as it is, as suppress_redundant_updates_trigger does,
// Update fails with ErrNotFound.
func (c Column) Update(ctx context.Context, db Queryer, key any, token fence.Token, set string,
	args ...any) error {
	c.Key, c.Fence = orDefault(c.Key, "id"), orDefault(c.Fence, "fence")
	w := attempt{fmt.Sprintf("%s.%s=%v", c.Table, c.Key, key), token}
	set, args, err := assignment(ctx, w.resource, set, args)
	if err := errors.Join(err, validateNames(c.Table, c.Key, c.Fence),
		fence.ValidateToken(w.resource, token)); err != nil {
		return err
	}
	n := len(args)
	query := fmt.Sprintf("UPDATE %s SET %s%s = %s WHERE %s = $%d", c.Table, set, c.Fence,
		accept(fmt.Sprintf("CAST($%d AS bigint)", n+1), c.Fence), c.Key, n+2)
	return w.update(ctx, db, query, append(args, int64(token), key)...)
}

// update runs a statement that fails if it has to be refused, and finds no row if there is none.
func (w attempt) update(ctx context.Context, db Queryer, query string, args ...any) error {
	if err := w.ended(ctx); err != nil {
		return err
	}
	return withConn(ctx, db, w, func(db Queryer) error {
		tag, err := db.Exec(ctx, query, args...)
		if err != nil {
			return w.outcome(ctx, decides(db) && !inOrder(db), err)
		}
		if tag.RowsAffected() == 0 {
			return w.failed(fence.ErrNotFound)
		}
		return nil
	})
}
