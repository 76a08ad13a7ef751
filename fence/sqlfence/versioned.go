package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/ending"
)

// ErrConflict says that the row was changed since its version was read. Nothing was written.
var ErrConflict = errors.New("row changed since it was read")

// Versioned changes rows under two safeguards at once, as is advised where money is at stake: a
// lock, and a version of the row, which every change raises.
//
//	ALTER TABLE accounts ADD COLUMN version bigint NOT NULL DEFAULT 0
//
// Each half fails alone. With the lock alone, a holder that was paused and overtaken overwrites
// what came after it. With the version alone, nothing is overwritten, but all who compete do their
// work, including payments to others, before all but one learn that it was in vain. With both, the
// lock lets one at a time begin, and the version refuses a holder that was overtaken. A payment
// that such a holder has made before it was paused stays made: have the payment service refuse old
// tokens too, or recognise repetitions.
//
// Writers that have no token, such as a form that a person filled in an hour ago, are guarded as
// well if they use [Versioned.Update].
type Versioned struct {
	_ struct{} // keyed literals only: fields will be added

	// Dialect is the database's. Required.
	Dialect Dialect

	// Table is the table. Required. It is part of the lock's key.
	Table string

	// Key is the column that identifies a row, its primary key. Default "id".
	Key string

	// Version is the column with the version, a 64-bit integer that is not NULL. Default "version".
	Version string
}

// Do changes the row with the given key under the lock "table/key" and the check of its version. It
// reads the version before it calls change. change reads what it needs, does its work, and returns
// what [Versioned.Update] takes. Its ctx is that of the lock, and ends when the lock is lost.
//
// It fails as [holdfast.Locker.Do] does, with the error of change, and as Update does: with
// [ErrConflict] if the row was changed in between, which means that somebody has written without
// the lock, or after the lock was lost. Do does not try again, because change may have done what
// must not be repeated.
func (v Versioned) Do(ctx context.Context, locker *holdfast.Locker, db *sql.DB, key any,
	change func(ctx context.Context) (set string, args []any, err error)) error {
	v, err := v.complete()
	if err != nil {
		return err
	}
	return locker.Do(ctx, fmt.Sprintf("%s/%v", v.Table, key),
		func(ctx context.Context, _ *holdfast.Lock) error {
			version, err := v.read(ctx, db, key, "")
			if err != nil {
				return err
			}
			set, args, err := change(ctx)
			if err != nil {
				return err
			}
			return v.Update(ctx, db, key, version, set, args...)
		})
}

// Update changes the row with the given key if it still has the version, in one statement:
//
//	UPDATE table SET set, version = version + 1 WHERE key = key AND version = version
//
// set and db are as in [Column.Update]. Update has written nothing if it fails with [ErrConflict]
// because the row has another version, with [fence.ErrNotFound] because there is no such row, with
// [fence.ErrInvalid], or with [fence.ErrUnavailable]. Outside of a transaction it fails with
// [fence.ErrUnknown] if the answer did not come.
func (v Versioned) Update(ctx context.Context, db Queryer, key any, version int64, set string,
	args ...any) error {
	v, err := v.complete()
	if err != nil {
		return err
	}
	resource := v.resource(key)
	if err := ending.Of(ctx); err != nil {
		return failed(resource, err)
	}
	return onConn(ctx, db, resource, func(db Queryer) error {
		return v.write(ctx, db, resource, key, version, set, args)
	})
}

func (v Versioned) write(ctx context.Context, db Queryer, resource string, key any, version int64,
	set string, args []any) error {
	n := len(args)
	if set != "" {
		set += "\n, " // a new line, as set may end in a comment
	}
	query := fmt.Sprintf("UPDATE %s SET %s%s = %[3]s + 1 WHERE %s = %s AND %[3]s = %[6]s",
		v.Table, set, v.Version, v.Key, v.Dialect.place(n+1), v.Dialect.number(n+2))
	result, err := db.ExecContext(ctx, query, append(args[:n:n], key, version)...)
	if err != nil {
		return execFailed(ctx, v.Dialect, db, resource, err)
	}
	// The version always changes, so here MySQL counts right.
	changed, err := result.RowsAffected()
	if err != nil || changed > 0 {
		return err
	}
	newest := ""
	if v.Dialect == MySQL {
		newest = " LOCK IN SHARE MODE" // or a transaction would read what there was when it began
	}
	now, err := v.read(ctx, db, key, newest)
	if err != nil {
		return err
	}
	return fmt.Errorf("fence: write to %q refused: %w: it had version %d, and has %d", resource,
		ErrConflict, version, now)
}

func (v Versioned) complete() (Versioned, error) {
	v.Key, v.Version = orDefault(v.Key, "id"), orDefault(v.Version, "version")
	return v, errors.Join(v.Dialect.validate(), validateNames(v.Table, v.Key, v.Version))
}

func (v Versioned) resource(key any) string { return fmt.Sprintf("%s.%s=%v", v.Table, v.Key, key) }

func (v Versioned) read(ctx context.Context, db Queryer, key any,
	lock string) (version int64, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s%s", v.Version,
		v.Table, v.Key, v.Dialect.place(1), lock), key).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		err = fence.ErrNotFound
	}
	if err != nil {
		return 0, outcome(ctx, v.resource(key), false, err)
	}
	return version, nil
}
