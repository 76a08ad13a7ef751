// Package sqlfence lets an SQL database refuse a holder that was overtaken. It works with
// PostgreSQL, MySQL, MariaDB and SQLite, over database/sql with any driver. Package fence says what
// a guard is. For PostgreSQL over pgx without database/sql there is the module fence/pgxfence.
//
// There are three forms.
//
// # A column of the row: Column
//
// The row that is protected keeps its newest token. Choose it when a lock protects one row: the
// check is part of the write and costs no round trip.
//
//	accounts := sqlfence.Column{Dialect: sqlfence.Postgres, Table: "accounts"} // columns id and fence
//	err := accounts.Update(ctx, db, 7, lock.Token(), "balance = balance - $1", 10)
//
// # A guard table: Table
//
// A table of its own keeps the newest token of each resource. Choose it when a lock protects
// several rows or tables, inserts, or deletions, or when the tables cannot be changed. It costs one
// statement in the transaction.
//
//	guard := sqlfence.Table{Dialect: sqlfence.Postgres} // guard.Schema() creates it
//	err := guard.Do(ctx, db, "account/7", lock.Token(), func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO payments (account, amount) VALUES (7, 10)")
//		return err
//	})
//
// In a transaction of the caller's, [Table.Advance] comes first.
//
// # A trigger: Trigger
//
// The database itself asks every writer for a token, and refuses those that have none. Choose it
// when many programs write the table and one that forgets the guard must not get through.
//
//	orders := sqlfence.Trigger{Dialect: sqlfence.Postgres, Table: "orders"} // orders.Statements() create it
//	err := sqlfence.Postgres.Do(ctx, db, lock.Token(), func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = 7")
//		return err
//	})
//
// # Lock and version: Versioned
//
// [Versioned] has a lock and an optimistic check of the row's version as one. Choose it where
// people or programs without a token write the rows, too.
//
// # Errors
//
// A refusal is a [*fence.StaleError], a missing row [fence.ErrNotFound], a bad token or name
// [fence.ErrInvalid], and a database that cannot be reached or does not serve
// [fence.ErrUnavailable]: in each case nothing was written. [fence.ErrUnknown] says that the
// database did not tell whether it has written. All else is the driver's own error, wrapped, and
// nothing was written then either. No statement is sent twice, whatever its driver answers.
//
// # Limits
//
// A guard is as durable as the database: if that loses committed data, it loses tokens as well.
// With a column or a trigger, a deleted row takes its token with it, and a holder that was
// overtaken can insert the row again. Where rows are deleted, use a guard table, or mark rows
// instead of deleting them. Names of tables and columns are part of the program: never take them
// from input.
package sqlfence
