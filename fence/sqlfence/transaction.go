package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fence/internal/ending"
)

// begins is what starts transactions: a pool or one connection.
type begins interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// onConn runs use on one connection. It first asks a pool for the connection. If that fails,
// nothing was sent; the error of a statement would not tell that. Besides, a pool would repeat a
// statement if the driver says that the connection was broken before, and lib/pq says so even if
// the answer did not come.
func onConn(ctx context.Context, db Queryer, resource string, use func(Queryer) error) error {
	pool, ok := db.(*sql.DB)
	if !ok {
		return use(db)
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return unreached(ctx, resource, err)
	}
	defer conn.Close()
	return use(conn)
}

// transact runs write in a transaction, which it commits if write returns nil.
//
// MySQL ends a transaction by itself on a deadlock and at statements such as CREATE TABLE, and then
// commits each statement that follows. So on MySQL transact switches off autocommit meanwhile, and
// a savepoint tells whether the transaction is still the one that was begun.
func transact(ctx context.Context, d Dialect, db *sql.DB, resource string,
	write func(*sql.Tx) error) error {
	if d != MySQL {
		return commit(ctx, d, db, resource, write)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return unreached(ctx, resource, err)
	}
	defer giveBack(ctx, conn)
	if _, err := conn.ExecContext(ctx,
		"SET @holdfast_autocommit = @@autocommit, autocommit = 0"); err != nil {
		return outcome(ctx, resource, false, err)
	}
	return commit(ctx, d, conn, resource, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
			return outcome(ctx, resource, false, err)
		}
		return write(tx)
	})
}

// savepoint exists as long as the transaction. If it does not exist, MySQL names it in the error.
const savepoint = "holdfast_transaction"

func commit(ctx context.Context, d Dialect, db begins, resource string,
	write func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return unreached(ctx, resource, err)
	}
	defer tx.Rollback()
	if err := write(tx); err != nil {
		return err
	}
	if err := ending.Of(ctx); err != nil {
		return failed(resource, err)
	}
	if d == MySQL {
		return commitMySQL(ctx, tx, resource)
	}
	if err := tx.Commit(); err != nil {
		return outcome(ctx, resource, true, err)
	}
	return nil
}

// commitMySQL fails if the transaction has ended while write ran. A deadlock has undone it, but a
// statement that commits by itself has not. commitMySQL does not call Commit, because there the
// driver waits for an answer without the context.
func commitMySQL(ctx context.Context, tx *sql.Tx, resource string) error {
	if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint); err != nil {
		if strings.Contains(err.Error(), savepoint) {
			return unknown(resource, fmt.Errorf("the transaction ended before its time, by a "+
				"deadlock or by a statement that commits: %w", err))
		}
		return outcome(ctx, resource, endedByWrite(ctx, err), err)
	}
	if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
		return outcome(ctx, resource, true, err)
	}
	return nil
}

// resetBound is how long it may take to reset a connection before it goes back to its pool.
const resetBound = 5 * time.Second

// giveBack returns a connection of MySQL to its pool as it was, or not at all.
func giveBack(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetBound)
	defer cancel()
	for _, statement := range []string{
		"ROLLBACK", // the rollback of a context that ended may come later, and autocommit commits
		"SET @holdfast_token = NULL, autocommit = @holdfast_autocommit",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			conn.Raw(func(any) error { return driver.ErrBadConn })
			break
		}
	}
	conn.Close()
}
