package stores

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/itest/job"
)

// pgxForm is one form of package pgxfence, on the tables of one of package sqlfence.
type pgxForm struct {
	tables form
	enter  func(ctx context.Context, s pgxStore, key string, token fence.Token) (uint64, error)
	write  func(ctx context.Context, s pgxStore, key string, token fence.Token, value uint64) error
}

var pgxColumn = pgxForm{
	tables: column,
	enter: func(ctx context.Context, s pgxStore, key string, token fence.Token) (value uint64,
		err error) {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := s.column().Update(ctx, tx, key, token, ""); err != nil {
				return err
			}
			return tx.QueryRow(ctx, s.read(), key).Scan(&value)
		})
		return value, err
	},
	write: func(ctx context.Context, s pgxStore, key string, token fence.Token,
		value uint64) error {
		return s.column().Update(ctx, s.pool, key, token, "value = $1", int64(value))
	},
}

var pgxTable = pgxForm{
	tables: table,
	enter: func(ctx context.Context, s pgxStore, key string, token fence.Token) (value uint64,
		err error) {
		batch := new(pgx.Batch)
		s.queueRead(batch, key, &value)
		err = s.table().SendBatch(ctx, s.pool, key, token, batch)
		return value, err
	},
	write: func(ctx context.Context, s pgxStore, key string, token fence.Token,
		value uint64) error {
		return s.table().SendBatch(ctx, s.pool, key, token, s.update("$2", key, int64(value)))
	},
}

var pgxTrigger = pgxForm{
	tables: trigger,
	enter: func(ctx context.Context, s pgxStore, key string, token fence.Token) (value uint64,
		err error) {
		batch := s.update("value", key)
		s.queueRead(batch, key, &value)
		err = pgxfence.SendBatch(ctx, s.pool, token, batch)
		return value, err
	},
	write: func(ctx context.Context, s pgxStore, key string, token fence.Token,
		value uint64) error {
		return pgxfence.SendBatch(ctx, s.pool, token, s.update("$2", key, int64(value)))
	},
}

// pgxStore is a form on a database. Without a guard, everything is done as with package sqlfence.
type pgxStore struct {
	sqlStore
	pool *pgxpool.Pool
	form pgxForm
}

func onPgx(f pgxForm) func(job.Stores) (Store, error) {
	return func(at job.Stores) (Store, error) {
		config, err := pgxpool.ParseConfig(at.Postgres)
		if err != nil {
			return nil, err
		}
		config.MaxConns = 1 // there are many processes
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			return nil, err
		}
		c := counters{stdlib.OpenDBFromPool(pool), sqlfence.Postgres, "pgx_" + f.tables.name}
		return pgxStore{sqlStore{c, f.tables}, pool, f}, nil
	}
}

func (s pgxStore) Enter(ctx context.Context, key string, token fence.Token) (uint64, error) {
	return s.form.enter(ctx, s, key, token)
}

func (s pgxStore) Write(ctx context.Context, key string, token fence.Token, value uint64) error {
	return s.form.write(ctx, s, key, token, value)
}

func (s pgxStore) Close() error {
	err := s.sqlStore.Close()
	s.pool.Close()
	return err
}

func (s pgxStore) column() pgxfence.Column { return pgxfence.Column{Table: s.guarded()} }
func (s pgxStore) table() pgxfence.Table   { return pgxfence.Table{Name: s.counters.table().Name} }

func (s pgxStore) read() string { return "SELECT value FROM " + s.guarded() + " WHERE id = $1" }

func (s pgxStore) queueRead(batch *pgx.Batch, key string, value *uint64) {
	batch.Queue(s.read(), key).QueryRow(func(row pgx.Row) error { return row.Scan(value) })
}

// update is a batch that sets the value.
func (s pgxStore) update(value, key string, args ...any) *pgx.Batch {
	batch := new(pgx.Batch)
	batch.Queue(fmt.Sprintf("UPDATE %s SET value = %s WHERE id = $1", s.guarded(), value),
		append([]any{key}, args...)...)
	return batch
}
