// Package rowlock locks rows, jobs and names in the caller's own PostgreSQL transaction.
//
//	tx, err := pool.Begin(ctx)
//	defer tx.Rollback(ctx)
//	accounts := rowlock.Table{Name: "accounts"}
//	err = accounts.TryRow(ctx, tx, 7) // holdfast.ErrHeld: another transaction has it
//	_, err = tx.Exec(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 7")
//	err = tx.Commit(ctx)
//
// These are not leases. They need no tables and no package beside, and they end with the
// transaction: by COMMIT, ROLLBACK, or the end of the connection. Nobody can lose one before that,
// so there is no token and nothing to renew; what the transaction has written under it counts
// exactly if it was held.
//
// Prefer them where all that is protected is in this database, and is done within a moment: an open
// transaction keeps a connection, keeps VACUUM from cleaning up, and a connection whose client has
// vanished keeps its locks until the server notices, which may take hours. Prefer a Locker where
// the work takes longer than a few seconds, where it touches anything else, as a file, a queue or
// another service, or where waiters have to be served in order.
//
// A pooler in transaction mode will do: a transaction stays on its connection.
//
// # After ErrHeld
//
// PostgreSQL aborts a transaction in which a lock was refused: roll it back, or to a savepoint that
// was made before. TryKey and Next are not refused in that way, and the transaction goes on.
package rowlock
