package sqltest_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	"github.com/holdfast-go/holdfast/memhold"
)

// BenchmarkGuard measures the write of each form beside the same write without a guard. The servers
// run on this machine, and PostgreSQL and MariaDB do not sync to disk: little else takes time, so
// the ratios are high.
func BenchmarkGuard(b *testing.B) {
	for _, d := range []database{onPostgres, onMariaDB, onSQLite} {
		b.Run(d.name, func(b *testing.B) { d.benchmark(b) })
	}
	b.Run("PostgreSQL over pgx", benchmarkPgx)
	b.Run("Redis", benchmarkRedis)
	b.Run("file", benchmarkFile)
	b.Run("etcd", benchmarkEtcd)
	b.Run("S3", benchmarkS3)
	b.Run("HTTP", benchmarkHTTP)
}

const bareUpdate = "UPDATE bare SET value = "

// createBenchmarked creates a table for each form, all alike, with one row.
func (d database) createBenchmarked(b *testing.B, db *sql.DB) {
	for _, table := range []string{"bare", "things", "accounts", "items"} {
		run(b, db, "DROP TABLE IF EXISTS "+table, "CREATE TABLE "+table+
			" (id int NOT NULL PRIMARY KEY, value int, fence bigint, version bigint NOT NULL)",
			"INSERT INTO "+table+" VALUES (7, 0, NULL, 0)")
	}
	run(b, db, "DROP TABLE IF EXISTS holdfast_fence", sqlfence.Table{Dialect: d.dialect}.Schema())
	statements, err := sqlfence.Trigger{Dialect: d.dialect, Table: "items"}.Statements()
	if err != nil {
		b.Fatal(err)
	}
	run(b, db, statements...)
}

// in is a side that writes to the row of a table.
func in(db *sql.DB, table string, write func(i int) error) side {
	return side{write, func() (i int, err error) {
		err = db.QueryRow("SELECT value FROM " + table + " WHERE id = 7").Scan(&i)
		return i, err
	}}
}

func (d database) benchmark(b *testing.B) {
	ctx := b.Context()
	db := d.connect(b)
	d.createBenchmarked(b, db)
	set := "value = " + d.place(1)
	update := func(table string, i int) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE "+table+" SET "+set+" WHERE id = 7", i)
			return err
		}
	}
	statement := in(db, "bare", func(i int) error {
		_, err := db.ExecContext(ctx, bareUpdate+d.place(1)+" WHERE id = 7", i)
		return err
	})
	transaction := in(db, "bare", func(i int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := update("bare", i)(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
	accounts := sqlfence.Column{Dialect: d.dialect, Table: "accounts"}
	guard := sqlfence.Table{Dialect: d.dialect}
	rows := sqlfence.Versioned{Dialect: d.dialect, Table: "accounts"}
	l := benchmarkLocker(b)
	compare(b, d.name, "`Column`", "statement", statement, in(db, "accounts", func(i int) error {
		return accounts.Update(ctx, db, 7, nextToken(), set, i)
	}))
	compare(b, d.name, "`Table`", "transaction", transaction, in(db, "things", func(i int) error {
		return guard.Do(ctx, db, "r", nextToken(), update("things", i))
	}).keeping(func() (token fence.Token, err error) {
		err = db.QueryRow("SELECT token FROM holdfast_fence WHERE resource = 'r'").Scan(&token)
		return token, err
	}))
	compare(b, d.name, "`Trigger`", "transaction", transaction, in(db, "items", func(i int) error {
		return d.dialect.Do(ctx, db, nextToken(), update("items", i))
	}))
	compare(b, d.name, "`Versioned`", "statement", statement, in(db, "accounts", func(i int) error {
		return rows.Do(ctx, l, db, 7, func(context.Context) (string, []any, error) {
			return set, []any{i}, nil
		})
	}))
}

// benchmarkLocker has its locks in memory, so that only the guard is measured.
func benchmarkLocker(b *testing.B) *holdfast.Locker {
	backend := memhold.New()
	l, err := holdfast.New(backend)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.Close()
		backend.Close()
	})
	return l
}

func benchmarkPgx(b *testing.B) {
	const store = "PostgreSQL over pgx"
	ctx := b.Context()
	onPostgres.createBenchmarked(b, onPostgres.connect(b))
	address, err := onPostgres.address()
	if err != nil {
		b.Fatal(err)
	}
	db, err := pgxpool.New(ctx, address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	in := func(table string, write func(i int) error) side {
		return side{write, func() (i int, err error) {
			err = db.QueryRow(ctx, "SELECT value FROM "+table+" WHERE id = 7").Scan(&i)
			return i, err
		}}
	}
	update := func(table string, i int) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE "+table+" SET value = $1 WHERE id = 7", i)
			return err
		}
	}
	batch := func(table string, i int) *pgx.Batch {
		queries := &pgx.Batch{}
		queries.Queue("UPDATE "+table+" SET value = $1 WHERE id = 7", i)
		return queries
	}
	statement := in("bare", func(i int) error {
		_, err := db.Exec(ctx, bareUpdate+"$1 WHERE id = 7", i)
		return err
	})
	transaction := in("bare", func(i int) error {
		return pgx.BeginFunc(ctx, db, update("bare", i))
	})
	batched := in("bare", func(i int) error {
		return db.SendBatch(ctx, batch("bare", i)).Close()
	})
	accounts := pgxfence.Column{Table: "accounts"}
	rows := pgxfence.Versioned{Table: "accounts"}
	l := benchmarkLocker(b)
	compare(b, store, "`Column`", "statement", statement, in("accounts", func(i int) error {
		return accounts.Update(ctx, db, 7, nextToken(), "value = $1", i)
	}))
	compare(b, store, "`Table.Do`", "transaction", transaction, in("things", func(i int) error {
		return pgxfence.Table{}.Do(ctx, db, "r", nextToken(), update("things", i))
	}))
	compare(b, store, "`Table.SendBatch`", "batch", batched, in("things", func(i int) error {
		return pgxfence.Table{}.SendBatch(ctx, db, "r", nextToken(), batch("things", i))
	}))
	compare(b, store, "trigger, `Do`", "transaction", transaction, in("items", func(i int) error {
		return pgxfence.Do(ctx, db, nextToken(), update("items", i))
	}))
	compare(b, store, "trigger, `SendBatch`", "batch", batched, in("items", func(i int) error {
		return pgxfence.SendBatch(ctx, db, nextToken(), batch("items", i))
	}))
	compare(b, store, "`Versioned`", "statement", statement, in("accounts", func(i int) error {
		return rows.Do(ctx, l, db, 7, func(context.Context) (string, []any, error) {
			return "value = $1", []any{i}, nil
		})
	}))
}

func benchmarkRedis(b *testing.B) {
	ctx := b.Context()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr, MaxRetries: -1})
	b.Cleanup(func() { client.Close() })
	eval := func(ctx context.Context, script string, keys []string, args []any) (any, error) {
		return redis.NewScript(script).Run(ctx, client, keys, args...).Result()
	}
	set := func(key string, write func(i int) error) side {
		return side{write, func() (int, error) { return client.Get(ctx, key).Int() }}
	}
	compare(b, "Redis", "a key beside", "`SET`", set("bare", func(i int) error {
		return client.Set(ctx, "bare", i, 0).Err()
	}), set("guarded", func(i int) error {
		_, err := redisfence.Guard{Eval: eval}.Do(ctx, "fence", nextToken(),
			redisfence.Command{"SET", "guarded", i})
		return err
	}))
	hset := func(key string, write func(i int) error) side {
		return side{write, func() (int, error) { return client.HGet(ctx, key, "value").Int() }}
	}
	compare(b, "Redis", "`Field` of a hash", "`HSET`", hset("barehash", func(i int) error {
		return client.HSet(ctx, "barehash", "value", i).Err()
	}), hset("hash", func(i int) error {
		_, err := redisfence.Guard{Eval: eval, Field: "fence"}.Do(ctx, "hash", nextToken(),
			redisfence.Command{"HSET", "hash", "value", i})
		return err
	}))
}

// benchmarkFile writes beside, syncs and renames, as every careful writer does, and as the guard
// does. It writes with the same token each time, or with a larger one, which the guard has to sync,
// too.
func benchmarkFile(b *testing.B) {
	at := func(path string, write func(i int) error) side {
		return side{write, func() (int, error) {
			text, err := os.ReadFile(path)
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(string(text))
		}}
	}
	bare := func(path string) side {
		return at(path, func(i int) error {
			file, err := os.CreateTemp(filepath.Dir(path), "bare.*")
			if err != nil {
				return err
			}
			defer file.Close()
			if _, err := file.WriteString(strconv.Itoa(i)); err != nil {
				return err
			}
			if err := file.Sync(); err != nil {
				return err
			}
			return os.Rename(file.Name(), path)
		})
	}
	for step, form := range []string{"the same token", "a new token"} {
		dir := b.TempDir()
		guarded := fence.File{Path: filepath.Join(dir, "guarded")}
		token := fence.Token(1)
		plain := bare(filepath.Join(dir, "bare"))
		compare(b, "file", "`File`, "+form, "write, fsync, rename", plain,
			at(guarded.Path, func(i int) error {
				token += fence.Token(step) // also when -count begins again
				return guarded.Write(b.Context(), token, strings.NewReader(strconv.Itoa(i)))
			}))
	}
}
