// Package rowlock locks rows, jobs and names in the caller's own PostgreSQL transaction.
//
//	tx, err := pool.Begin(ctx)
//	defer tx.Rollback(ctx)
//	accounts := rowlock.Table{Name: "accounts"}
//	err = accounts.TryRow(ctx, tx, 7) // holdfast.ErrHeld: another transaction has it
//	_, err = tx.Exec(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 7")
//	err = tx.Commit(ctx)
//
// These are not leases. They need no tables of pghold, and they end with the transaction: by
// COMMIT, by ROLLBACK, or by the end of the connection. A lock cannot be lost before that, so there
// is no token and nothing to renew. What the transaction has written counts if and only if the lock
// was held.
//
// Prefer them if everything that is protected is in this database and the work takes a moment. An
// open transaction keeps a connection, and keeps VACUUM from cleaning up. If a client has vanished,
// its connection keeps its locks until the server notices, which may take hours. Prefer a Locker if
// the work takes longer than a few seconds, if it touches anything else, such as a file, a queue or
// another service, or if waiters have to be served in order.
//
// A pooler in transaction mode will do: a transaction stays on its connection.
//
// # After ErrHeld
//
// PostgreSQL aborts a transaction in which a lock was refused. Roll it back, at least to a
// savepoint that was made before. A refusal of TryKey or Next does not abort the transaction.
package rowlock
