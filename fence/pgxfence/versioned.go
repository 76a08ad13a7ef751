package pgxfence

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// ErrConflict says that the row was changed since its version was read. Nothing was written. It is
// that of package sqlfence.
var ErrConflict = sqlfence.ErrConflict

// Versioned changes rows under a lock and a version of the row at once, as sqlfence.Versioned does,
// which says why.
//
//	ALTER TABLE accounts ADD COLUMN version bigint NOT NULL DEFAULT 0
type Versioned struct {
	_ struct{} // keyed literals only: fields will be added

	// Table is the table. Required. It is part of the lock's key.
	Table string

	// Key is the column that identifies a row, its primary key. Default "id".
	Key string

	// Version is the column with the version, a bigint that is not NULL. Default "version".
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
func (v Versioned) Do(ctx context.Context, locker *holdfast.Locker, db Queryer, key any,
	change func(ctx context.Context) (set string, args []any, err error)) error {
	v, err := v.complete()
	if err != nil {
		return err
	}
	return locker.Do(ctx, fmt.Sprintf("%s/%v", v.Table, key),
		func(ctx context.Context, _ *holdfast.Lock) error {
			version, err := v.read(ctx, db, key)
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
//	UPDATE table SET set, version = version + 1 WHERE key = key
//
// set, args and db are as in [Column.Update]. Update has written nothing if it fails with
// [ErrConflict] because the row has another version, with [fence.ErrNotFound] because there is no
// such row, with [fence.ErrInvalid], or with [fence.ErrUnavailable]. A transaction takes no more
// statements after a conflict. Outside of a transaction Update fails with [fence.ErrUnknown] if the
// answer did not come.
func (v Versioned) Update(ctx context.Context, db Queryer, key any, version int64, set string,
	args ...any) error {
	v, err := v.complete()
	if err != nil {
		return err
	}
	w := v.attempt(key)
	set, args, err = assignment(ctx, w.resource, set, args)
	if err != nil {
		return err
	}
	n := len(args)
	query := fmt.Sprintf("UPDATE %s SET %s%s = CASE WHEN %[3]s = CAST($%[4]d AS bigint) "+
		"THEN %[3]s + 1 ELSE CAST('holdfast: the row (%[7]s) has version ' || "+
		"coalesce(CAST(%[3]s AS text), 'NULL') AS bigint) END WHERE %[5]s = $%[6]d", v.Table, set,
		v.Version, n+1, v.Key, n+2, mark)
	err = w.update(ctx, db, query, append(args, version, key)...)
	if now := conflict(err); now != "" {
		return fmt.Errorf("fence: write to %q refused: %w: it had version %d, and has %s",
			w.resource, ErrConflict, version, now)
	}
	return err
}

var hasVersion = regexp.MustCompile(
	`holdfast: the row \(` + mark + `\) has version (-?\d+|NULL)`)

// conflict returns the version in an error that is a conflict, or "".
func conflict(err error) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != invalidText {
		return ""
	}
	match := hasVersion.FindStringSubmatch(server.Message)
	if match == nil {
		return ""
	}
	return match[1]
}

func (v Versioned) complete() (Versioned, error) {
	v.Key, v.Version = orDefault(v.Key, "id"), orDefault(v.Version, "version")
	return v, validateNames(v.Table, v.Key, v.Version)
}

func (v Versioned) attempt(key any) attempt {
	return attempt{resource: fmt.Sprintf("%s.%s=%v", v.Table, v.Key, key)}
}

func (v Versioned) read(ctx context.Context, db Queryer, key any) (version int64, err error) {
	err = db.QueryRow(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s = $1", v.Version, v.Table,
		v.Key), key).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fence.ErrNotFound
	}
	if err != nil {
		return 0, v.attempt(key).outcome(ctx, false, err)
	}
	return version, nil
}
