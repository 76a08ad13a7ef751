// Package pgxfence lets PostgreSQL refuse a holder that was overtaken, for programs that use pgx
// without database/sql: over a *pgxpool.Pool, a *pgxpool.Conn, a *pgx.Conn or a [pgx.Tx]. Package
// fence says what a guard is. The tables, columns and triggers are those of package sqlfence with
// its dialect Postgres: programs with either package guard the same rows.
//
// There are three forms.
//
// # A column of the row: Column
//
// The row that is protected keeps its newest token. Choose it when a lock protects one row: the
// check is part of the write and costs no round trip.
//
//	accounts := pgxfence.Column{Table: "accounts"} // columns id and fence
//	err := accounts.Update(ctx, pool, 7, lock.Token(), "balance = balance - $1", 10)
//
// # A guard table: Table
//
// A table of its own keeps the newest token of each resource. Choose it when a lock protects
// several rows or tables, inserts, or deletions, or when the tables cannot be changed. In a batch
// it costs no round trip, and the batch needs no transaction around it.
//
//	var guard pgxfence.Table // guard.Schema() creates it
//	batch := &pgx.Batch{}
//	batch.Queue("INSERT INTO payments (account, amount) VALUES (7, 10)")
//	batch.Queue("UPDATE accounts SET balance = balance - 10 WHERE id = 7")
//	err := guard.SendBatch(ctx, pool, "account/7", lock.Token(), batch)
//
// [Table.Do] runs a function in a transaction. In one of the caller's, [Table.Advance] comes first.
//
// # A trigger: Do, SendBatch
//
// The database itself asks every writer for a token, and refuses those that have none. Choose it
// when many programs write the table and one that forgets the guard must not get through.
//
//	orders := sqlfence.Trigger{Dialect: sqlfence.Postgres, Table: "orders"} // orders.Statements() create it
//	err := pgxfence.Do(ctx, pool, lock.Token(), func(tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = 7")
//		return err
//	})
//
// # Lock and version: Versioned
//
// [Versioned] has a lock and an optimistic check of the row's version as one. Choose it where
// people or programs without a token write the rows, too.
//
// # How it refuses
//
// The server refuses, not the program. The statement with the token fails if the token is stale,
// and PostgreSQL executes nothing that follows in the same batch or transaction. So a refusal costs
// no further round trip, and a caller that overlooks it writes nothing. In the server's log it is
// an error of a cast (22P02) whose text says "holdfast".
//
// # Errors
//
// A refusal is a [*fence.StaleError], a missing row [fence.ErrNotFound], a bad token or name
// [fence.ErrInvalid], and a database that cannot be reached or does not serve
// [fence.ErrUnavailable]: in each case nothing was written. [fence.ErrUnknown] says that the
// database did not tell whether it has written. All else is the driver's own error, wrapped, and
// nothing was written then either.
//
// # Limits
//
// They are those of package sqlfence: a guard is as durable as the database, and a deleted row
// takes its token with it. Names of tables and columns are part of the program: never take them
// from input. PostgreSQL is supported from version 11.
package pgxfence
