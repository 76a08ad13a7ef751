package stores

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// column is the form with a column in each row.
var column = form{
	name:   "with_column",
	create: func(counters) ([]string, error) { return nil, nil },
	enter: func(ctx context.Context, c counters, key string, token fence.Token) (uint64, error) {
		tx, err := c.db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback()
		if err := c.column().Update(ctx, tx, key, token, ""); err != nil {
			return 0, err
		}
		value, err := c.value(ctx, tx, c.guarded(), key)
		if err != nil {
			return 0, err
		}
		return value, tx.Commit()
	},
	write: func(ctx context.Context, c counters, key string, token fence.Token,
		value uint64) error {
		return c.column().Update(ctx, c.db, key, token, "value = "+c.place(1), int64(value))
	},
}

func (c counters) column() sqlfence.Column {
	return sqlfence.Column{Dialect: c.dialect, Table: c.guarded()}
}

// table is the form with a guard table.
var table = form{
	name:   "with_table",
	create: func(c counters) ([]string, error) { return []string{c.table().Schema()}, nil },
	enter: func(ctx context.Context, c counters, key string, token fence.Token) (value uint64,
		err error) {
		err = c.table().Do(ctx, c.db, key, token, func(tx *sql.Tx) (err error) {
			value, err = c.value(ctx, tx, c.guarded(), key)
			return err
		})
		return value, err
	},
	write: func(ctx context.Context, c counters, key string, token fence.Token,
		value uint64) error {
		return c.table().Do(ctx, c.db, key, token, func(tx *sql.Tx) error {
			return c.set(ctx, tx, c.guarded(), key, value)
		})
	},
}

func (c counters) table() sqlfence.Table {
	return sqlfence.Table{Dialect: c.dialect, Name: c.name + "_fence"}
}

// trigger is the form with a trigger that asks each writer for a token.
var trigger = form{
	name: "with_trigger",
	create: func(c counters) ([]string, error) {
		return sqlfence.Trigger{Dialect: c.dialect, Table: c.guarded()}.Statements()
	},
	enter: func(ctx context.Context, c counters, key string, token fence.Token) (value uint64,
		err error) {
		err = c.dialect.Do(ctx, c.db, token, func(tx *sql.Tx) error {
			err := c.touch(ctx, tx, key)
			if err == nil {
				value, err = c.value(ctx, tx, c.guarded(), key)
			}
			return err
		})
		return value, err
	},
	write: func(ctx context.Context, c counters, key string, token fence.Token,
		value uint64) error {
		return c.dialect.Do(ctx, c.db, token, func(tx *sql.Tx) error {
			return c.set(ctx, tx, c.guarded(), key, value)
		})
	},
}
